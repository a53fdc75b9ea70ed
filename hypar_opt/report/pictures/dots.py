"""A plan in the form of the paper's Figure 5: a column a layer, a row a level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from hypar_opt.report.pictures.canvas import HYPAR, INK, MODEL, head, new_figure, style
from hypar_opt.report.terminal import amount
from hypar_opt.workload.parallelism import Parallelism

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hypar_opt.plan.plan import Plan

Choices = Sequence[Sequence[Parallelism]]

CELL = 0.27
"""Inches between two layers, and between two levels."""

_LONGEST = 40.0
_MARKS: dict[Parallelism, dict[str, Any]] = {
    Parallelism.DATA: {"marker": "o", "facecolor": "white", "edgecolor": INK},
    Parallelism.MODEL: {"marker": "o", "facecolor": HYPAR, "edgecolor": HYPAR},
    Parallelism.OUTPUT: {"marker": "D", "facecolor": MODEL, "edgecolor": MODEL},
}


@style()
def plan_dots(plan: Plan) -> Figure:
    """Draw a plan as the paper's Figure 5 does, with what each level costs beside it.

    Filled is model parallelism, open data parallelism, a diamond output parallelism.

    Source: Figure 5.
    """
    layers, levels = len(plan.layers), plan.levels
    communication = plan.cost.communication
    cell = min(CELL, _LONGEST / max(layers, levels))
    below, left, right = 0.15 + 0.062 * max(map(len, plan.layers)), 0.42, 0.9
    above = 0.52 if communication is None else 0.64
    width = max(left + cell * layers + right, 4.4)
    height = above + cell * max(levels, 1) + below
    figure = new_figure(width, height)
    axes = figure.add_axes(
        (left / width, below / height, cell * layers / width, cell * max(levels, 1) / height)
    )
    dots(axes, plan.layers, plan.parallelism, cell)
    costs = plan.cost.per_level if communication is None else communication
    beside = {float(level): amount(cost, plan.cost.unit) for level, cost in enumerate(costs)}
    if communication is not None:  # of the total it is but a part
        beside[-0.7] = "communication"
    for level, text in beside.items():
        axes.annotate(
            text,
            (layers - 0.35, level),
            textcoords="offset points",
            xytext=(4, 0),
            va="center",
            fontsize=7,
            annotation_clip=False,
        )
    total = amount(plan.cost.total, plan.cost.unit)
    head(
        figure,
        f"{plan.network.name}, batch {plan.batch}, {2**levels:,} accelerators: {total} a step",
        legend(plan.choices),
        loc="upper left",
        handletextpad=0.2,
    )
    return figure


def legend(choices: Sequence[Parallelism]) -> list[Any]:
    """Return what a legend needs to explain the marks."""
    from matplotlib.lines import Line2D

    return [
        Line2D(
            [],
            [],
            linestyle="",
            marker=_MARKS[choice]["marker"],
            markerfacecolor=_MARKS[choice]["facecolor"],
            markeredgecolor=_MARKS[choice]["edgecolor"],
            markersize=7.5,
            label=f"{choice} parallelism",
        )
        for choice in choices
    ]


def dots(
    axes: Axes,
    layers: Sequence[str],
    rows: Choices,
    cell: float = CELL,
    printed: Choices | None = None,
) -> None:
    """Draw a plan's marks on axes that are ``layers`` cells wide and ``levels`` high.

    The marks of a choice are one collection, whose gid is the choice's name.

    Parameters
    ----------
    printed
        Another plan: a square stands around each mark that is not as in this one.
    """
    size = (72 * cell * 0.55) ** 2
    for choice, mark in _MARKS.items():
        places = [
            (layer, level)
            for level, row in enumerate(rows)
            for layer, found in enumerate(row)
            if found is choice
        ]
        if places:
            small = 0.7 if choice is Parallelism.OUTPUT else 1.0  # a diamond looks larger
            x, y = zip(*places, strict=True)
            axes.scatter(x, y, s=size * small, linewidth=0.9, **mark)
            axes.collections[-1].set_gid(str(choice))
    other = [
        (layer, level)
        for level, (row, theirs) in enumerate(zip(rows, printed or rows, strict=True))
        for layer, (one, two) in enumerate(zip(row, theirs, strict=True))
        if one is not two
    ]
    if other:
        x, y = zip(*other, strict=True)
        axes.scatter(x, y, s=size * 2.6, marker="s", facecolor="none", edgecolor=MODEL)
        axes.collections[-1].set_gid("not as printed")
    axes.set_xlim(-0.5, len(layers) - 0.5)
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.set_xticks(range(len(layers)), layers, rotation=90, fontsize=min(7, 72 * cell * 0.8))
    axes.set_yticks(range(len(rows)), [f"H{level}" for level in range(1, len(rows) + 1)])
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)
    # A faint rule between two kinds of layers, as conv1_1 to conv5_2 and fc1 to fc3.
    stem = [name.rstrip("0123456789_.-") for name in layers]
    start = 0
    for _, run in groupby(stem):
        if start:
            axes.axvline(start - 0.5, color="#cccccc", linewidth=0.6)
        start += len(list(run))
