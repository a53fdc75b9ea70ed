"""The plans of all batches: which choices each layer makes, and the bytes, over the batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from hypar_opt.display.figures.style import (
    SAYS,
    WIDTH,
    Figure,
    Rows,
    along,
    coloured,
    figure,
    legend,
    mark,
    name_rows,
    row_names,
    scale,
    short,
    ticks,
)
from hypar_opt.display.glyphs import symbol
from hypar_opt.display.labels import BASELINES, COMMUNICATION
from hypar_opt.display.palette import DATA, FAINT, PLAN
from hypar_opt.units import axis_byte_unit, format_bytes

if TYPE_CHECKING:
    from hypar_opt.studies.batches import AllBatches
    from hypar_opt.studies.batches.ranges import BatchRange

_POINTS = 150
"""Points of a line between two ends of the axis: a line is a curve on logarithmic axes."""

_LABELLED = 60
"""Rows of layers that have labels of readable size."""


def batch_ranges(result: AllBatches) -> Figure:
    """Draw the bytes of the optimal plans and of Data Parallelism, and the plans by batch.

    Layers that make the same choices at every batch are one row, with a stripe for each level, H1
    on top. Both axes of batches and that of bytes are logarithmic.
    """
    # Where plans depend on the remainder of the batch, those of even batches, and so on.
    pieces = [piece for piece in result if piece.every == 1 or piece.first % piece.every == 0]
    groups, levels = _groups(result, pieces), max(result.problem.levels, 1)
    divisor = max(piece.every for piece in pieces)
    multiples = "" if divisor == 1 else f", drawn for multiples of {divisor}"
    stripe = max(5, 13 / levels) if len(groups) <= _LABELLED else max(900 / len(groups) / levels, 1)
    ends = pieces[0].first - 0.5, pieces[-1].last + 0.5
    look: dict[str, Any] = {"log": True, "format": ",~r", "values": ticks(*ends)}
    x, first = (
        along(alt.X, field, title, ends, **look)
        for field, title in (("batch", None), ("first", f"batch{multiples}"))
    )
    bytes_rows, unit = _bytes(pieces)
    lowest, highest = (end(row["amount"] for row in bytes_rows) for end in (min, max))
    # Nothing to move has no place on a logarithmic axis.
    up: dict[str, Any] = (
        {"log": True, "values": ticks(lowest / 2, highest * 2)} if lowest > 0 else {}
    )
    y = along(alt.Y, "amount", f"{COMMUNICATION} ({unit})", format=",~g", **up)
    series = {"optimal plans": PLAN, BASELINES["data"]: DATA}
    dashes = scale(dict(zip(series, ([1, 0], [5, 3]), strict=True)))
    names_of_lines = legend(series, symbolType="stroke", symbolSize=300, symbolStrokeWidth=2)
    dash = alt.StrokeDash("series:N", scale=dashes, legend=names_of_lines)
    colour = alt.Color("series:N", scale=scale(series), legend=names_of_lines)
    top, middle, edge = (
        alt.Y(f"{field}:Q", scale=alt.Scale(domain=[len(groups), 0], nice=False), axis=None)
        for field in ("top", "middle", "edge")
    )
    choices = coloured({word: symbol(word).colour for word in result.problem.choices}, "choice")
    runs = first, alt.X2("last:Q"), top, alt.Y2("bottom:Q"), choices
    upper = alt.layer(
        mark("breaks", "rule", x, strokeWidth=0.4, color=FAINT),
        mark("bytes", "line", x, y, dash, colour, *SAYS, strokeWidth=1.8),
    )
    lower = alt.layer(
        mark("choices", "rect", *runs, *SAYS, strokeWidth=0),
        mark("names", "rule", edge, color="white", strokeWidth=1),
        *row_names("names", middle),
    )
    height = max(round(stripe * levels * len(groups)), 20)
    parts = [
        part.properties(width=WIDTH - 40, height=pixels)
        for part, pixels in ((upper, 170), (lower, height))
    ]
    names = name_rows(list(groups), -(-len(groups) // _LABELLED))
    data: dict[str, Rows] = {
        "bytes": bytes_rows,
        "breaks": [{"batch": piece.first} for piece in pieces[1:]],
        "choices": _choices(result, pieces, groups),
        "names": [{**row, "middle": row["line"] + 0.5, "edge": row["line"]} for row in names],
    }
    chart = alt.vconcat(*parts).resolve_scale(color="independent", strokeDash="independent")
    return figure(chart, data, _title(result))


def _title(result: AllBatches) -> list[str]:
    problem = result.problem
    network, size = result.network.name, problem.hierarchy.shown
    plans = "1 plan" if result.plans == 1 else f"{result.plans} plans"
    return [
        f"{network}, {size} accelerators, reading {problem.reading}:",
        f"{plans} for batches {result.lo:,} to {result.hi:,}",
    ]


def _bytes(pieces: Sequence[BatchRange]) -> tuple[Rows, str]:
    """Return the bytes of some batches, and their unit."""
    # Whole batches: all breakpoints, and some between.
    first, last = pieces[0].first, pieces[-1].last
    between = {round(batch) for batch in np.geomspace(first, last, _POINTS)}
    amounts: list[tuple[int, str, float]] = []
    for piece in pieces:
        batches = range(piece.first, piece.last + 1, piece.every)
        for batch in sorted({piece.first, piece.last, *filter(batches.__contains__, between)}):
            amounts.append((batch, "optimal plans", float(piece.bytes_at(batch))))
            data = float(piece.data_parallel_bytes_at(batch))
            amounts.append((batch, BASELINES["data"], data))
    size, unit = axis_byte_unit(max(amount for *_, amount in amounts))
    rows = [
        {
            "batch": batch,
            "series": series,
            "amount": short(amount / size),
            "says": f"{series}, batch {batch:,}: {format_bytes(amount)}",
        }
        for batch, series, amount in amounts
    ]
    return rows, unit


def _groups(result: AllBatches, pieces: Sequence[BatchRange]) -> dict[str, int]:
    """Return the layers that are drawn, by label, each with the position of its first layer."""
    histories: dict[object, list[int]] = defaultdict(list)
    for position in range(len(result.layers)):
        histories[tuple(row[position] for piece in pieces for row in result.columns(piece))].append(
            position
        )
    labels = {}
    for positions in histories.values():
        first, last = positions[0], positions[-1]
        more = f" and {len(positions) - 1} more" if len(positions) > 1 else ""
        if 0 < last - first == len(positions) - 1:
            more = f"–{result.layers[last]}"
        labels[result.layers[first] + more] = first
    return labels


def _choices(result: AllBatches, pieces: Sequence[BatchRange], groups: dict[str, int]) -> Rows:
    """Return a bar for each run of batches with the same choice of a layer at a level."""
    levels = max(result.problem.levels, 1)
    edges = [*(piece.first - 0.5 for piece in pieces), pieces[-1].last + 0.5]
    plans = [result.columns(piece) for piece in pieces]
    return [
        {
            "choice": (word := str(result.problem.choices[choice])),
            "top": group + level / levels,
            "bottom": group + (level + 1) / levels,
            "first": edges[run[0]],
            "last": edges[run[-1] + 1],
            "says": f"{label} at H{level + 1}: {word} for batches {pieces[run[0]].first:,} to"
            f" {pieces[run[-1]].last:,}",
        }
        for group, (label, position) in enumerate(groups.items())
        for level in range(result.problem.levels)
        for choice, run in _runs([rows[level][position] for rows in plans])
    ]


def _runs(choices: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Return the runs of equal choices, each with its positions."""
    grouped = groupby(range(len(choices)), key=choices.__getitem__)
    return [(choice, list(run)) for choice, run in grouped]
