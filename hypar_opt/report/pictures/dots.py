"""A plan in the form of the paper's Figure 5: one column per layer, one row per level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from hypar_opt.report.glyphs import explained
from hypar_opt.report.labels import level_costs
from hypar_opt.report.layer_groups import Stored, is_short_chain
from hypar_opt.report.pictures.canvas import INK, new_figure, style
from hypar_opt.report.pictures.folded_dots import folded_dots
from hypar_opt.report.pictures.marks import (
    CELL,
    MAX_LENGTH,
    add_plan_legend,
    draw_marks,
    evenly,
    scatter,
)
from hypar_opt.units import format_cost

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hypar_opt.plan.plan import Plan

    Choices = Sequence[Sequence[str]]  # levels x layers

_MAX_LAYERS = 32
"""Layers per line; a longer chain continues below."""


@style()
def plan_dots(plan: Plan, *, layouts: bool = False) -> Figure:
    """Draw a plan as in the paper's Figure 5, with the cost of each level beside it.

    Filled dots are model parallelism, open dots data parallelism, diamonds output parallelism. A
    graph, or a long chain, has one row per layer instead, with equal layers folded into one, and
    the layouts of tensors with several readers beside the choices.

    Parameters
    ----------
    layouts
        Show how every layer's output is stored.

    Source: Figure 5.
    """
    if is_short_chain(plan) and not layouts:
        return _chain_dots(plan)
    return folded_dots(plan, Stored.ALL if layouts else Stored.SHARED)


def _chain_dots(plan: Plan) -> Figure:
    """Draw one column per layer and one row per level; a long chain in several lines."""
    levels = max(plan.levels, 1)
    parts = evenly(len(plan.layers), _MAX_LAYERS)
    cell = min(CELL, MAX_LENGTH / max(len(parts[0]), levels * len(parts)))
    # Layers' names hang below the grid, about 0.062 inches per character.
    below, left, right = 0.15 + 0.062 * max(map(len, plan.layers)), 0.42, 0.9
    # The heading of the levels' costs takes one more line.
    above = 0.52 if plan.cost.communication is None else 0.64
    width = max(left + cell * len(parts[0]) + right, 4.4)
    line = cell * levels + below
    height = above + line * len(parts)
    figure = new_figure(width, height)
    for n, part in enumerate(parts):
        bottom = (len(parts) - 1 - n) * line + below
        axes = figure.add_axes(
            (left / width, bottom / height, cell * len(part) / width, cell * levels / height)
        )
        own = slice(part.start, part.stop)
        draw_choices(axes, plan.layers[own], [row[own] for row in plan.parallelism], cell)
    # Beside the first line, though they are for all.
    _write_level_costs(figure.axes[0], plan, len(parts[0]))
    add_plan_legend(figure, plan, explained(plan))
    return figure


def _write_level_costs(axes: Axes, plan: Plan, columns: int) -> None:
    """Write the cost of each level to the right of its row."""
    texts = {
        float(level): format_cost(cost, plan.cost.unit)
        for level, cost in enumerate(level_costs(plan.cost))
    }
    if plan.cost.communication is not None:  # only a part of the total
        texts[-0.7] = "communication"
    for level, text in texts.items():
        axes.annotate(
            text,
            (columns - 0.35, level),
            textcoords="offset points",
            xytext=(4, 0),
            va="center",
            fontsize=7,
            annotation_clip=False,
        )


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
        Another plan: marks that differ from it are framed by squares.
    """
    size = draw_marks(
        axes,
        [(layer, level, own) for level, row in enumerate(rows) for layer, own in enumerate(row)],
        cell,
    )
    differing = [
        (layer, level)
        for level, (row, printed_row) in enumerate(zip(rows, printed or rows, strict=True))
        for layer, (own, other) in enumerate(zip(row, printed_row, strict=True))
        if own is not other
    ]
    square = {"marker": "s", "facecolor": "none", "edgecolor": INK}
    scatter(axes, differing, "not as printed", s=size * 2.6, **square)
    _label_axes(axes, layers, len(rows), cell)


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
