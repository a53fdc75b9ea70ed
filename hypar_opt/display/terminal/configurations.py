"""Configurations on a terminal: the fastest, the bound over all plans, and what needs least."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.display.terminal.console import Column, new_table, table_of, unbroken
from hypar_opt.plan.configuration import key_value_heads
from hypar_opt.results import Columns
from hypar_opt.search.degrees import Candidate
from hypar_opt.studies.configurations import ROW, abbreviated_cuts, in_words, recomputation
from hypar_opt.units import COUNT, format_bytes, format_percent, format_si

if TYPE_CHECKING:
    from hypar_opt.search.degrees import Evaluated
    from hypar_opt.studies.configurations import Configurations


def configurations_view(configurations: Configurations) -> RenderableType:
    """Show the fastest configurations, below what was searched and above the bound."""
    entries = (*configurations, *configurations.unfit)
    rows = [configurations.row(entry) | _in_short(configurations, entry) for entry in entries]
    numbers = [*range(1, len(configurations) + 1), *[None] * len(configurations.unfit)]
    table = unbroken(table_of(_shown(configurations), rows, ("#", COUNT), numbers))
    # In a pipe rows stay whole: at the width that rich measures it would fold a cell's words.
    cells = [(column.header, *column.cells) for column in table.columns]
    table.min_width = sum(max(cell_len(str(text)) for text in column) + 2 for column in cells)
    notes = [*map(Text, _notes(configurations))]
    above = [_map(configurations), Text()] if configurations.by_degrees else []
    below = [Text(), *notes] if notes else []
    return Group(Text(_title(configurations)), Text(), *above, table, *below)


def _map(configurations: Configurations) -> RenderableType:
    """Return a table of tensor parallelism and stages: what the fastest takes, or needs."""
    cells, best = configurations.cells, configurations.best
    pairs = {*cells, *configurations.unknown}
    degrees, stages = (sorted({cell[n] for cell in pairs}) for n in (0, 1))

    def text(cell: tuple[int, int]) -> str | None:
        if cell not in cells:
            return "not known" if cell in pairs else None
        entry = cells[cell]
        if isinstance(entry, Candidate):
            return format_bytes(entry.memory)
        return f"{'* ' if entry is best else ''}{format_si(entry.seconds, 's')}"

    columns: list[Column] = [("pp", COUNT), *((f"tp {tp}", "{}".format) for tp in degrees)]
    return new_table(columns, ([pp, *(text((tp, pp)) for tp in degrees)] for pp in stages))


def _title(configurations: Configurations) -> str:
    network, array = configurations.network.name, configurations.array.name
    tokens, capacity = configurations.tokens, format_bytes(configurations.capacity)
    inputs = f" x {tokens:,} tokens" if tokens is not None else " images"
    if configurations.margin:
        room = format_bytes(configurations.capacity - configurations.margin)
        capacity = f"{room} of {capacity}"
    simulated = f"{configurations.simulated:,} simulated"
    if configurations.fitting is None:
        counts = f"{simulated}, all of which fit in {capacity}"
    else:
        counts = f"{configurations.fitting:,} fit in {capacity}, {simulated}"
    return (
        f"{network} on {array}, batch {configurations.problem.batch:,}{inputs},"
        f" {optimizer(configurations)}: {configurations.considered:,} configurations, {counts}"
    )


def optimizer(configurations: Configurations) -> str:
    """Return the optimizer, or the bytes of its state for a weight."""
    setting = configurations.problem.constraints.optimizer
    return setting if isinstance(setting, str) else f"{setting} bytes of state a weight"


def _shown(configurations: Configurations) -> Columns:
    """Return the columns in the order of the table."""
    of_stages = ("pp", "interleave", "in_flight", "bubble") if configurations.staged else ()
    cuts = ["cuts"] if any(entry.configuration.cuts for entry in configurations) else []
    shown = ROW.select(
        *("tp", "sp", *of_stages[:2], *cuts),
        *("cp", "ep", "dp_shard", "dp_replicate", "zero", "micro_batches", "recompute"),
        *("seconds", "per_second", "mfu", "memory", "spare", *of_stages[2:]),
        *("exposed", "over_first"),
    )
    unit = configurations.unit
    return Columns(
        *(replace(column, heading=str(column.heading).format(unit=unit)) for column in shown)
    )


def _in_short(configurations: Configurations, entry: Evaluated | Candidate) -> dict[str, Any]:
    """Return the cells whose text abbreviates or omits a row's values."""
    configuration, is_best = entry.configuration, entry is configurations.best
    return {
        "cuts": abbreviated_cuts(configuration.cuts) or None,
        "recompute": recomputation(configuration, configurations.blocks),
        **({"spare": None} if entry.memory > configurations.capacity else {}),
        **({"over_first": None} if is_best else {}),
    }


def _notes(configurations: Configurations) -> Iterator[str]:
    """Yield notes on the bound over all plans, and on configurations without sharded weights."""
    if configurations.unfit:
        yield "Bytes instead of a time: none fits; this is the least memory that one takes."
    if not configurations.complete:
        yield "The time limit ended the search: others may be faster."
    if configurations.bound is not None:
        bound = format_si(configurations.bound, "s")
        capacity = format_bytes(configurations.capacity)
        above = format_percent(configurations.best.seconds / configurations.bound - 1, decimals=1)
        replicates = (
            0 < key_value_heads(configurations.network) < configurations.best.configuration.tp
        )
        heads = ", but for replicated key-value heads" if replicates else ""
        yield (
            f"No plan without stages that fits in {capacity} takes less than {bound}"
            f" (proved{heads}): the first takes {above} more."
        )
    if configurations.unsharded in (None, configurations.best):
        return
    how = in_words(configurations.unsharded.configuration, configurations.blocks)
    memory = format_bytes(configurations.unsharded.memory)
    if configurations.unsharded.memory > configurations.capacity - configurations.margin:
        yield f"Without sharded weights none fits: {memory} is the least, by {how}."
    else:
        seconds = format_si(configurations.unsharded.seconds, "s")
        yield f"Without sharded weights the fastest takes {seconds} and {memory}: {how}."
