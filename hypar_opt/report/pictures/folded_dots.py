"""A plan of a graph or a long chain: one row per group of equal layers, one column per level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypar_opt.report.glyphs import explained, legend, stored_symbol
from hypar_opt.report.labels import level_costs
from hypar_opt.report.layer_groups import Stored
from hypar_opt.report.pictures.canvas import new_figure
from hypar_opt.report.pictures.marks import (
    CELL,
    MARKS,
    MAX_LENGTH,
    add_plan_legend,
    draw_marks,
    evenly,
    scatter,
    write_above,
)
from hypar_opt.report.plan_grid import plan_grid
from hypar_opt.sharding.layouts import BATCH, CHANNEL, WHOLE
from hypar_opt.units import format_cost

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hypar_opt.plan.plan import Plan
    from hypar_opt.report.plan_grid import GridRow, PlanGrid

    Lines = Sequence[tuple[str, GridRow | None]]

_SEPARATED = 0.7
"""Cells between the choices and the layouts of stored tensors."""

_MAX_ROWS = 44
"""Beyond this many rows, the next ones are beside the first."""

_MAX_PANELS = 8
"""Groups of rows side by side; with more rows each group is longer."""


def folded_dots(plan: Plan, which: Stored) -> Figure:
    """Draw one row per group of equal layers, one column per level, and its cost below."""
    grid = plan_grid(plan, stored=which)
    lines, stored = grid.lines("    "), bool(grid.layouts)
    parts = evenly(len(lines), max(_MAX_ROWS, -(-len(lines) // _MAX_PANELS)))
    rows = len(parts[0])
    # Rows are lower if all layers differ.
    cell = min(CELL, MAX_LENGTH / rows)
    above, below, right = 0.75, 0.95, 0.3
    left = 0.25 + 0.062 * max(len(label) for label, _ in lines)
    columns = 2 * plan.levels + _SEPARATED if stored else max(plan.levels, 1)
    panel = left + CELL * columns + right
    # Wide enough for the legend's words, about 0.06 inches per character.
    drawn_words = _drawn_words(plan, grid)
    words = [0.06 * len(label) + 0.4 for _, label in legend(drawn_words)]
    width = max(panel * len(parts), 4.4, sum(words))
    height = above + cell * rows + below
    figure = new_figure(width, height)
    for n, part in enumerate(parts):
        bottom = below + cell * (rows - len(part))
        axes = figure.add_axes(
            (
                (n * panel + left) / width,
                bottom / height,
                CELL * columns / width,
                cell * len(part) / height,
            )
        )
        own = [lines[position] for position in part]
        _draw_lines(axes, plan, own, cell)
        _label_lines(axes, own, cell)
        axes.set_xlim(-0.5, columns - 0.5)
        axes.set_xticks([])
        for level, name in enumerate(plan.level_names):
            write_above(axes, level, name)
        if stored:
            write_above(axes, (3 * plan.levels - 1) / 2 + _SEPARATED, "stored")
    # Below the first rows, though they are for all.
    _write_level_costs(figure.axes[0], plan)
    add_plan_legend(figure, plan, drawn_words)
    return figure


def _draw_lines(
    axes: Axes, plan: Plan, lines: Sequence[tuple[str, GridRow | None]], cell: float
) -> None:
    """Draw each row's choices, and beside them the layouts of its output."""
    choices = [
        (level, n, choice)
        for n, (_, row) in enumerate(lines)
        for level, choice in enumerate(row.choices if row else ())
    ]
    size = draw_marks(axes, choices, cell)
    for layout in (BATCH, CHANNEL, WHOLE):
        points = [
            (plan.levels + _SEPARATED + level, n)
            for n, (_, row) in enumerate(lines)
            for level, own in enumerate(row.stored if row else ())
            if own is layout
        ]
        mark = MARKS[stored_symbol(layout)]
        scatter(axes, points, f"stored {layout}", s=size * 0.6, linewidth=0.9, **mark)


def _label_lines(axes: Axes, lines: Lines, cell: float) -> None:
    """Write the layers' names on the left."""
    axes.set_ylim(len(lines) - 0.5, -0.5)
    size = min(7, 72 * cell * 0.8)
    axes.set_yticks(range(len(lines)), [label for label, _ in lines], fontsize=size)
    for text, (_, row) in zip(axes.get_yticklabels(), lines, strict=True):
        text.set_horizontalalignment("left")
        text.set_fontweight("normal" if row else "bold")
    longest = max(len(label) for label, _ in lines)
    axes.tick_params(axis="y", length=0, pad=72 * (0.062 * longest + 0.05) * size / 7)
    axes.spines[:].set_visible(False)


def _write_level_costs(axes: Axes, plan: Plan) -> None:
    """Write the cost of each level below its column."""
    costs = [format_cost(cost, plan.cost.unit) for cost in level_costs(plan.cost)]
    axes.set_xticks(range(plan.levels), costs, rotation=90, fontsize=7)
    axes.tick_params(axis="x", length=0, pad=3)


def _drawn_words(plan: Plan, grid: PlanGrid) -> list[str]:
    """Return the words of all marks, with `whole` also if only a stored tensor has it."""
    words = explained(plan)
    return [*words, WHOLE] if WHOLE in grid.layouts and WHOLE not in words else words
