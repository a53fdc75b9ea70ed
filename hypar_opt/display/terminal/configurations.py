"""Configurations on a terminal: the fastest, the bound over all plans, and what needs least."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.display.terminal.console import COUNT, SECONDS, Column, Form, new_table, unbroken
from hypar_opt.studies.configurations import in_words, recomputation
from hypar_opt.units import format_bytes, format_percent, format_si

if TYPE_CHECKING:
    from hypar_opt.search.degrees import Evaluated
    from hypar_opt.studies.configurations import Configurations

_SHARE: Form = partial(format_percent, decimals=1)


def configurations_view(found: Configurations) -> RenderableType:
    """Show the fastest configurations, between what was searched and what bounds all plans."""
    columns: list[Column] = [
        ("#", COUNT),
        ("tp", COUNT),
        ("sp", str),
        *((degree, COUNT) for degree in ("cp", "ep", "dp_shard", "dp_replicate")),
        ("zero", str),
        ("micro", COUNT),
        ("recompute", str),
        ("step", SECONDS),
        (f"{found.unit}/s", "{:,.0f}".format),
        ("MFU", _SHARE),
        ("memory", format_bytes),
        ("to spare", format_bytes),
        ("exposed", _SHARE),
        ("over #1", _SHARE),
    ]
    lines = [[number, *_cells(found, one)] for number, one in enumerate(found, start=1)]
    table = unbroken(new_table(columns, lines))
    # A pipe has whole rows: rich would ask for a width at which words of a cell are folded.
    cells = [(column.header, *column.cells) for column in table.columns]
    table.min_width = sum(max(cell_len(str(text)) for text in own) + 2 for own in cells)
    notes = [*map(Text, _notes(found))]
    return Group(Text(_title(found)), Text(), table, *([Text(), *notes] if notes else []))


def _title(found: Configurations) -> str:
    problem, capacity = found.problem, format_bytes(found.capacity)
    each = f" x {found.tokens:,} tokens" if found.tokens is not None else " images"
    room = f"{format_bytes(found.capacity - found.margin)} of {capacity}"
    return (
        f"{found.network.name} on {found.array.name}, batch {problem.batch:,}{each},"
        f" {optimizer(found)}: {found.considered:,} configurations, {found.fitting:,} fit in"
        f" {room if found.margin else capacity}, {found.simulated:,} simulated"
    )


def optimizer(found: Configurations) -> str:
    """Return the optimizer, or the bytes of its state for a weight."""
    own = found.problem.constraints.optimizer
    return own if isinstance(own, str) else f"{own} bytes of state a weight"


def _cells(found: Configurations, one: Evaluated) -> Iterator[Any]:
    own, row = one.configuration, found.row(one)
    degrees = ("tp", "sp", "cp", "ep", "dp_shard", "dp_replicate")
    yield from (row[name] for name in (*degrees, "zero", "micro_batches"))
    yield recomputation(own, found.blocks)
    yield from (row[name] for name in ("seconds", "per_second", "mfu", "memory", "spare"))
    yield one.exposed
    yield row["over_first"] if one is not found.best else None


def _notes(found: Configurations) -> Iterator[str]:
    """Yield what bounds all plans, and what configurations without sharded weights need."""
    if not found.complete:
        yield "The time limit ended the search: others may be faster."
    if found.bound is not None:
        least, capacity = format_si(found.bound, "s"), format_bytes(found.capacity)
        above = format_percent(found.best.seconds / found.bound - 1, decimals=1)
        yield (
            f"No plan of any kind that fits in {capacity} takes less than {least} (proved, but for"
            f" recomputation by op): the first takes {above} more."
        )
    if found.unsharded in (None, found.best):
        return
    how = in_words(found.unsharded.configuration, found.blocks)
    held = format_bytes(found.unsharded.memory)
    if found.unsharded.memory > found.capacity - found.margin:
        yield f"Without sharded weights none fits: {held} is the least, by {how}."
    else:
        seconds = format_si(found.unsharded.seconds, "s")
        yield f"Without sharded weights the fastest takes {seconds} and {held}: {how}."
