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
"""Layers that change together and are named."""


def batches_view(every: AllBatches) -> RenderableType:
    """Show the ranges of batches, what a plan moves at the first of them, and what changes there.

    A layer's choices are a letter for each level, H1 first.
    """
    problem = every.problem
    columns: list[Column] = [
        ("batches", str),
        ("communication", format_bytes),
        (BASELINES["data"], format_bytes),
        ("reduction", format_ratio),
        ("changes", str),
    ]
    lines = []
    for piece in every:
        moved, data = piece.bytes_at(piece.first), piece.data_parallel_bytes_at(piece.first)
        ratio = float(data / moved) if moved else None
        smaller = piece.first - piece.every
        before = every.at(smaller) if smaller >= every.lo else None
        lines.append((_range(piece), moved, data, ratio, _changes(every, before, piece)))
    plans = "1 plan" if every.plans == 1 else f"{every.plans:,} plans"
    letters = ", ".join(f"{choice[0]} {choice}" for choice in problem.choices)
    return Group(
        Text(
            f"{every.network.name}: {problem.hierarchy.shown} accelerators, reading"
            f" {problem.reading}: {plans} for batches {every.lo:,} to {every.hi:,}"
        ),
        new_table(columns, lines),
        Text(f"Bytes are those of the first batch of a range. Choices at H1 to Hn: {letters}."),
    )


def _range(piece: BatchRange) -> str:
    if piece.first == piece.last:
        return f"{piece.first:,}"
    step = f", each {piece.every}" if piece.every > 1 else ""
    return f"{piece.first:,} to {piece.last:,}{step}"


def _changes(every: AllBatches, before: BatchRange | None, piece: BatchRange) -> str:
    """Return the layers whose choices differ from those of smaller batches, with both."""
    if before is None:
        return "-"
    groups: dict[str, list[str]] = {}
    states = (map("".join, zip(*every.letters(rows), strict=True)) for rows in (before, piece))
    for layer, old, new in zip(every.layers, *states, strict=True):
        if old != new:
            groups.setdefault(f"{old} to {new}", []).append(layer)
    named = []
    for change, layers in groups.items():
        more = f" and {len(layers) - _NAMED} more" if len(layers) > _NAMED else ""
        named.append(f"{', '.join(layers[:_NAMED])}{more}: {change}")
    return "; ".join(named) or "-"
