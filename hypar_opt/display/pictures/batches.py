"""The plans of all batches: which choices each layer makes, and the bytes, over the batch."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.display.glyphs import Symbol, symbol
from hypar_opt.display.pictures.canvas import DATA, FAINT, HYPAR, add_legend, new_figure, style
from hypar_opt.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hypar_opt.studies.batches import AllBatches
    from hypar_opt.studies.batches.ranges import BatchRange

_POINTS = 200
"""Points of a line between two ends of the axis: a line is a curve on logarithmic axes."""

_LABELLED = 40
"""Rows of layers that have labels of readable size."""


@style()
def batch_ranges(every: AllBatches) -> Figure:
    """Draw the bytes of the optimal plans and of Data Parallelism, and the plans by batch.

    Layers that make the same choices at every batch are one row, with a stripe for each level, H1
    on top. Both axes of batches and that of bytes are logarithmic.
    """
    # Where plans depend on the remainder of the batch, those of even batches, and so on.
    pieces = [piece for piece in every if piece.every == 1 or piece.first % piece.every == 0]
    groups, levels = _groups(every, pieces), every.problem.levels
    height = 0.16 + max(0.05 * levels, 0.13) * min(len(groups), _LABELLED)
    figure = new_figure(6.6, 2.9 + height, layout="constrained")
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(2, height))
    _draw_bytes(upper, pieces)
    _draw_choices(lower, every, pieces, groups)
    for axes in (upper, lower):
        axes.set_xscale("log")
        axes.set_xlim(pieces[0].first - 0.5, pieces[-1].last + 0.5)
    lower.xaxis.set_major_formatter(lambda batch, _: f"{batch:,.0f}")
    lower.xaxis.set_minor_formatter(lambda *_: "")
    divisor = max(piece.every for piece in pieces)
    multiples = "" if divisor == 1 else f", drawn for multiples of {divisor}"
    lower.set_xlabel(f"batch{multiples}")
    add_legend(figure, _title(every), _handles(every))
    return figure


def _title(every: AllBatches) -> str:
    problem = every.problem
    plans = "1 plan" if every.plans == 1 else f"{every.plans} plans"
    return (
        f"{every.network.name}, {problem.hierarchy.shown} accelerators, reading {problem.reading}:"
        f" {plans} for batches {every.lo:,} to {every.hi:,}"
    )


def _handles(every: AllBatches) -> list[object]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Line2D([], [], color=HYPAR, label="optimal plans"),
        Line2D([], [], color=DATA, linestyle="--", label="Data Parallelism"),
        *(Patch(color=own.colour, label=choice) for own, choice in _symbols(every)),
    ]


def _symbols(every: AllBatches) -> list[tuple[Symbol, str]]:
    return [(symbol(choice), choice) for choice in every.problem.choices]


def _draw_bytes(axes: Axes, pieces: Sequence[BatchRange]) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    # Whole batches: all breakpoints, and some between.
    first, last = pieces[0].first, pieces[-1].last
    between = {round(batch) for batch in np.geomspace(first, last, _POINTS)}
    batches, least, data = [], [], []
    for piece in pieces:
        own = range(piece.first, piece.last + 1, piece.every)
        for batch in sorted({piece.first, piece.last, *filter(own.__contains__, between)}):
            batches.append(batch)
            least.append(float(piece.bytes_at(batch)))
            data.append(float(piece.data_parallel_bytes_at(batch)))
    # Nothing to move has no place on a logarithmic axis.
    if min(*least, *data) > 0:
        axes.set_yscale("log")
        wide = max(*least, *data) > 10 * min(*least, *data)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if wide else range(1, 10)))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: format_bytes(value))
    axes.plot(batches, data, color=DATA, linestyle="--", linewidth=1.1)
    axes.plot(batches, least, color=HYPAR, linewidth=1.4)
    for piece in pieces[1:]:
        axes.axvline(piece.first, color=FAINT, linewidth=0.3)
    axes.set_ylabel("moved in a step")


def _groups(every: AllBatches, pieces: Sequence[BatchRange]) -> dict[str, int]:
    """Return the layers that are drawn, by label, each with the position of its first layer."""
    histories: dict[object, list[int]] = defaultdict(list)
    for position in range(len(every.layers)):
        histories[tuple(row[position] for piece in pieces for row in every.columns(piece))].append(
            position
        )
    labels = {}
    for positions in histories.values():
        more = f" and {len(positions) - 1} more" if len(positions) > 1 else ""
        labels[every.layers[positions[0]] + more] = positions[0]
    return labels


def _draw_choices(
    axes: Axes, every: AllBatches, pieces: Sequence[BatchRange], groups: dict[str, int]
) -> None:
    levels = max(every.problem.levels, 1)
    edges = [*(piece.first - 0.5 for piece in pieces), pieces[-1].last + 0.5]
    plans = [every.columns(piece) for piece in pieces]
    # One bar for each run of batches with the same choice, since a picture may have many ranges.
    bars = [
        (group + level / levels, edges[run[0]], edges[run[-1] + 1] - edges[run[0]], choice)
        for group, position in enumerate(groups.values())
        for level in range(every.problem.levels)
        for choice, run in _runs([rows[level][position] for rows in plans])
    ]
    if bars:
        heights, starts, widths, choices = zip(*bars, strict=True)
        symbols = [own for own, _ in _symbols(every)]
        colours = [symbols[choice].colour for choice in choices]
        axes.barh(heights, widths, 1 / levels, starts, align="edge", color=colours)
    for number in range(1, len(groups)):
        axes.axhline(number, color="white", linewidth=0.8)
    for edge in edges[1:-1]:
        axes.axvline(edge, color="white", linewidth=0.4)
    axes.set_ylim(len(groups), 0)
    size = 6 if len(groups) <= _LABELLED else 6 * _LABELLED / len(groups)
    axes.set_yticks(np.arange(len(groups)) + 0.5, list(groups), fontsize=size)
    axes.tick_params(axis="y", length=0)
    axes.spines[:].set_visible(False)


def _runs(choices: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Return the runs of equal choices, each with its positions."""
    grouped = groupby(range(len(choices)), key=choices.__getitem__)
    return [(choice, list(run)) for choice, run in grouped]
