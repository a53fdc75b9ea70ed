"""A plan in the form of the paper's Figure 5: a column a layer, a row a level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from hypar_opt.report.labels import level_costs
from hypar_opt.report.pictures.canvas import DATA, HYPAR, INK, MODEL, add_legend, new_figure, style
from hypar_opt.units import format_cost
from hypar_opt.workload.parallelism import Parallelism

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hypar_opt.plan.plan import Plan

Choices = Sequence[Sequence[Parallelism]]
"""Levels x layers."""

CELL = 0.27
"""Inches between two layers, and between two levels."""

_MAX_LENGTH = 40.0
"""Inches of a plan's longer side: a deeper network has smaller cells."""

_MARKS: dict[Parallelism, dict[str, Any]] = {
    Parallelism.DATA: {"marker": "o", "facecolor": "white", "edgecolor": INK},
    Parallelism.MODEL: {"marker": "o", "facecolor": HYPAR, "edgecolor": HYPAR},
    Parallelism.OUTPUT: {"marker": "D", "facecolor": MODEL, "edgecolor": MODEL},
}


def _mark(choice: Parallelism) -> dict[str, Any]:
    """Return how a choice is drawn; as a square, where no mark of its own is defined."""
    return _MARKS.get(choice, {"marker": "s", "facecolor": DATA, "edgecolor": DATA})


@style()
def plan_dots(plan: Plan) -> Figure:
    """Draw a plan as the paper's Figure 5 does, with what each level costs beside it.

    Filled is model parallelism, open data parallelism, a diamond output parallelism.

    Source: Figure 5.
    """
    layers, levels = len(plan.layers), plan.levels
    cell = min(CELL, _MAX_LENGTH / max(layers, levels))
    # Layers' names hang below the grid, about 0.062 inches a character.
    below, left, right = 0.15 + 0.062 * max(map(len, plan.layers)), 0.42, 0.9
    # The heading of the levels' costs takes a line more.
    above = 0.52 if plan.cost.communication is None else 0.64
    width = max(left + cell * layers + right, 4.4)
    height = above + cell * max(levels, 1) + below
    figure = new_figure(width, height)
    axes = figure.add_axes(
        (left / width, below / height, cell * layers / width, cell * max(levels, 1) / height)
    )
    draw_choices(axes, plan.layers, plan.parallelism, cell)
    _write_level_costs(axes, plan)
    total = format_cost(plan.cost.total, plan.cost.unit)
    add_legend(
        figure,
        f"{plan.network.name}, batch {plan.batch}, {2**levels:,} accelerators: {total} a step",
        choice_handles(plan.vocabulary),
        loc="upper left",
        handletextpad=0.2,
    )
    return figure


def _write_level_costs(axes: Axes, plan: Plan) -> None:
    """Write what each level costs to the right of its row."""
    texts = {
        float(level): format_cost(cost, plan.cost.unit)
        for level, cost in enumerate(level_costs(plan.cost))
    }
    if plan.cost.communication is not None:  # of the total it is but a part
        texts[-0.7] = "communication"
    for level, text in texts.items():
        axes.annotate(
            text,
            (len(plan.layers) - 0.35, level),
            textcoords="offset points",
            xytext=(4, 0),
            va="center",
            fontsize=7,
            annotation_clip=False,
        )


def choice_handles(choices: Sequence[Parallelism]) -> list[Any]:
    """Return what a legend needs to explain the marks."""
    from matplotlib.lines import Line2D

    return [
        Line2D(
            [],
            [],
            linestyle="",
            marker=_mark(choice)["marker"],
            markerfacecolor=_mark(choice)["facecolor"],
            markeredgecolor=_mark(choice)["edgecolor"],
            markersize=7.5,
            label=f"{choice} parallelism",
        )
        for choice in choices
    ]


def draw_choices(
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
    size = (72 * cell * 0.55) ** 2  # square points
    # Operators may declare choices beyond the paper's and AccPar's.
    used = (choice for row in rows for choice in row if choice not in _MARKS)
    for choice in dict.fromkeys((*_MARKS, *used)):
        smaller = 0.7 if choice is Parallelism.OUTPUT else 1.0  # a diamond looks larger
        points = [
            (layer, level)
            for level, row in enumerate(rows)
            for layer, own in enumerate(row)
            if own is choice
        ]
        _scatter(axes, points, str(choice), s=size * smaller, linewidth=0.9, **_mark(choice))
    differing = [
        (layer, level)
        for level, (row, printed_row) in enumerate(zip(rows, printed or rows, strict=True))
        for layer, (own, other) in enumerate(zip(row, printed_row, strict=True))
        if own is not other
    ]
    square = {"marker": "s", "facecolor": "none", "edgecolor": MODEL}
    _scatter(axes, differing, "not as printed", s=size * 2.6, **square)
    _label_axes(axes, layers, len(rows), cell)


def _scatter(axes: Axes, points: Sequence[tuple[int, int]], gid: str, **options: Any) -> None:
    if points:
        x, y = zip(*points, strict=True)
        axes.scatter(x, y, **options)
        axes.collections[-1].set_gid(gid)


def _label_axes(axes: Axes, layers: Sequence[str], levels: int, cell: float) -> None:
    axes.set_xlim(-0.5, len(layers) - 0.5)
    axes.set_ylim(max(levels, 1) - 0.5, -0.5)  # H1 on top
    axes.set_xticks(range(len(layers)), layers, rotation=90, fontsize=min(7, 72 * cell * 0.8))
    axes.set_yticks(range(levels), [f"H{level}" for level in range(1, levels + 1)])
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)
    # A faint rule between two kinds of layers, as conv1_1 to conv5_2 and fc1 to fc3.
    stems = [name.rstrip("0123456789_.-") for name in layers]
    start = 0
    for _, run in groupby(stems):
        if start:
            axes.axvline(start - 0.5, color="#cccccc", linewidth=0.6)
        start += len(list(run))
