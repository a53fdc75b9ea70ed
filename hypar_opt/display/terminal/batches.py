"""The plans of all batches as a table: a row for each range of batches with one plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.display.labels import BASELINES
from hypar_opt.display.terminal.console import Column, new_table
from hypar_opt.units import format_bytes, format_ratio

if TYPE_CHECKING:
    from hypar_opt.studies.batches import AllBatches
    from hypar_opt.studies.batches.ranges import BatchRange

_NAMED = 3
"""The maximum number of layers named that change together."""


def batches_view(batches: AllBatches) -> RenderableType:
    """Show the ranges of batches, with the bytes and changes at the first batch of each.

    A layer's choices are a letter for each level, H1 first.
    """
    problem = batches.problem
    columns: list[Column] = [
        ("batches", str),
        ("communication", format_bytes),
        (BASELINES["data"], format_bytes),
        ("reduction", format_ratio),
        ("changes", str),
    ]
    lines = []
    for piece in batches:
        moved, data = piece.bytes_at(piece.first), piece.data_parallel_bytes_at(piece.first)
        ratio = float(data / moved) if moved else None
        smaller = piece.first - piece.every
        before = batches.at(smaller) if smaller >= batches.lo else None
        lines.append((_range(piece), moved, data, ratio, _changes(batches, before, piece)))
    plans = "1 plan" if batches.plans == 1 else f"{batches.plans:,} plans"
    letters = ", ".join(f"{choice[0]} {choice}" for choice in problem.choices)
    return Group(
        Text(
            f"{batches.network.name}: {problem.hierarchy.shown} accelerators, reading"
            f" {problem.reading}: {plans} for batches {batches.lo:,} to {batches.hi:,}"
        ),
        new_table(columns, lines),
        Text(f"Bytes are those of the first batch of a range. Choices at H1 to Hn: {letters}."),
    )


def _range(piece: BatchRange) -> str:
    if piece.first == piece.last:
        return f"{piece.first:,}"
    step = f", each {piece.every}" if piece.every > 1 else ""
    return f"{piece.first:,} to {piece.last:,}{step}"


def _changes(batches: AllBatches, before: BatchRange | None, piece: BatchRange) -> str:
    """Return the layers whose choices change from those of smaller batches, with both choices."""
    if before is None:
        return "-"
    groups: dict[str, list[str]] = {}
    states = (map("".join, zip(*batches.letters(rows), strict=True)) for rows in (before, piece))
    for layer, old, new in zip(batches.layers, *states, strict=True):
        if old != new:
            groups.setdefault(f"{old} to {new}", []).append(layer)
    named = []
    for change, layers in groups.items():
        more = f" and {len(layers) - _NAMED} more" if len(layers) > _NAMED else ""
        named.append(f"{', '.join(layers[:_NAMED])}{more}: {change}")
    return "; ".join(named) or "-"
