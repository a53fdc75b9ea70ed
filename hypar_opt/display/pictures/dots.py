"""Plans in the form of the paper's Figure 5, and of graphs: one row per group of equal layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from hypar_opt.display.folding import fold
from hypar_opt.display.glyphs import explained, stored_symbol
from hypar_opt.display.labels import level_costs
from hypar_opt.display.pictures.canvas import (
    add_axes,
    add_legend,
    new_figure,
    style,
    write_near,
)
from hypar_opt.display.pictures.marks import (
    CELL,
    MAX_LENGTH,
    SQUARE,
    add_plan_legend,
    choice_handles,
    draw_marks,
    evenly,
    label_rows,
    legend_width,
    mark_of,
    scatter,
    write_above,
)
from hypar_opt.display.plan_grid import Stored, drawn_choices, is_short_chain, plan_grid
from hypar_opt.errors import HyparError
from hypar_opt.sharding.layouts import BATCH, CHANNEL, COLUMN, EXPERT, ROW, TOKEN, WHOLE
from hypar_opt.units import format_cost

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hypar_opt.display.plan_grid import GridRow
    from hypar_opt.plan.plan import Plan

    Choices = Sequence[Sequence[str]]  # levels x layers

_MAX_LAYERS = 32
"""Layers per line; a longer chain continues below."""

_SEPARATED = 0.7
"""Cells between the choices and the layouts of stored tensors."""

_GAP = 0.8
"""Cells between two plans side by side."""

_MAX_ROWS, _MAX_PANELS = 44, 8
"""Beyond this many rows, the next ones are beside the first, in up to this many panels."""


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
    return _folded_dots(plan, Stored.ALL if layouts else Stored.SHARED)


def _chain_dots(plan: Plan) -> Figure:
    """Draw one column per layer and one row per level; a long chain in several lines."""
    levels = max(plan.levels, 1)
    parts = evenly(len(plan.layers), _MAX_LAYERS)
    cell = min(CELL, MAX_LENGTH / max(len(parts[0]), levels * len(parts)))
    # Layers' names hang below the grid, about 0.062 inches per character.
    below, left, right = 0.15 + 0.062 * max(map(len, plan.layers)), 0.42, 0.9
    # The heading of the levels' costs takes one more line.
    above = 0.52 if plan.cost.communication is None else 0.64
    line = cell * levels + below
    figure = new_figure(max(left + cell * len(parts[0]) + right, 4.4), above + line * len(parts))
    for n, part in enumerate(parts):
        bottom = (len(parts) - 1 - n) * line + below
        axes = add_axes(figure, left, bottom, cell * len(part), cell * levels)
        own = slice(part.start, part.stop)
        draw_choices(axes, plan.layers[own], [row[own] for row in plan.parallelism], cell)
    # Beside the first line, though they are for all.
    costs: list[tuple[float, str]] = list(enumerate(_level_costs(plan)))
    if plan.cost.communication is not None:  # only a part of the total
        costs.append((-0.7, "communication"))
    for level, text in costs:
        at = len(parts[0]) - 0.35, level
        write_near(figure.axes[0], text, at, (4, 0), va="center", annotation_clip=False)
    add_plan_legend(figure, plan, explained(plan))
    return figure


def _level_costs(plan: Plan) -> list[str]:
    return [format_cost(cost, plan.cost.unit) for cost in level_costs(plan.cost)]


def draw_choices(
    axes: Axes,
    layers: Sequence[str],
    rows: Choices,
    cell: float = CELL,
    printed: Choices | None = None,
) -> None:
    """Draw a plan's marks on axes that are ``layers`` cells wide and ``levels`` high.

    The marks of a choice are one collection, whose gid is the choice's name. Those that differ
    from another plan, ``printed``, are framed by squares.
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
    scatter(axes, differing, "not as printed", s=size * 2.6, **SQUARE)
    axes.set_xlim(-0.5, len(layers) - 0.5)
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)  # H1 on top
    axes.set_xticks(range(len(layers)), layers, rotation=90, fontsize=min(7, 72 * cell * 0.8))
    axes.set_yticks(range(len(rows)), [f"H{level}" for level in range(1, len(rows) + 1)])
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)
    # A faint rule between two kinds of layers, as conv1_1 to conv5_2 and fc1 to fc3.
    stems = [name.rstrip("0123456789_.-") for name in layers]
    for n, (before, stem) in enumerate(pairwise(stems)):
        if before != stem:
            axes.axvline(n + 0.5, color="#cccccc", linewidth=0.6)


def _folded_dots(plan: Plan, which: Stored) -> Figure:
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
    # `whole` is explained also if only a stored tensor has it.
    drawn, whole = explained(plan), WHOLE
    drawn += [whole] if WHOLE in grid.layouts and whole not in drawn else []
    width = max(panel * len(parts), 4.4, legend_width(drawn))
    figure = new_figure(width, above + cell * rows + below)
    size = min(7, 72 * cell * 0.8)
    for n, part in enumerate(parts):
        bottom = below + cell * (rows - len(part))
        axes = add_axes(figure, n * panel + left, bottom, CELL * columns, cell * len(part))
        own = [lines[position] for position in part]
        _draw_lines(axes, plan, own, cell)
        longest = max(len(label) for label, _ in own)
        label_rows(axes, own, (0.062 * longest + 0.05) * size / 7, fontsize=size)
        axes.set_xlim(-0.5, columns - 0.5)
        for level, name in enumerate(plan.level_names):
            write_above(axes, level, name)
        if stored:
            write_above(axes, (3 * plan.levels - 1) / 2 + _SEPARATED, "stored")
    # Below the first rows, though they are for all.
    axes = figure.axes[0]
    axes.set_xticks(range(plan.levels), _level_costs(plan), rotation=90, fontsize=7)
    axes.tick_params(axis="x", length=0, pad=3)
    add_plan_legend(figure, plan, drawn)
    return figure


def _draw_lines(
    axes: Axes, plan: Plan, lines: Sequence[tuple[str, GridRow | None]], cell: float
) -> None:
    """Draw each row's choices, and beside them the layouts of its output."""
    rows = [(n, row) for n, (_, row) in enumerate(lines) if row]
    choices = [(level, n, own) for n, row in rows for level, own in enumerate(row.choices)]
    size = draw_marks(axes, choices, cell)
    for layout in (BATCH, CHANNEL, TOKEN, ROW, COLUMN, EXPERT, WHOLE):
        points = [
            (plan.levels + _SEPARATED + level, n)
            for n, row in rows
            for level, own in enumerate(row.stored)
            if own is layout
        ]
        mark = mark_of(stored_symbol(layout))
        scatter(axes, points, f"stored {layout}", s=size * 0.6, linewidth=0.9, **mark)


@style()
def plans_side_by_side(plans: Mapping[str, Plan]) -> Figure:
    """Draw plans of the same layers: one row per layer, one column per level of each plan.

    Repetitions of a block that are equal in all plans are drawn once.

    Parameters
    ----------
    plans
        The plans by heading.

    Raises
    ------
    HyparError
        If there is no plan, or if the plans are of networks with other layers: of one network, for
        sequences of any length.
    """
    every = list(plans.values())
    if len({(plan.network.name, plan.layers) for plan in every}) != 1:
        raise HyparError("plans side by side should be of one network")
    first = every[0]
    # A layer's choices in all plans: layers must be equal in all of them to be folded.
    keys = list(zip(*map(drawn_choices, every), strict=True))
    lines: list[tuple[str, int | None]] = []
    for section in fold(first.layers, first.network.description.repeats, keys, runs=False):
        lines += [(section.heading(), None)] if section.block else []
        indent = "    " * bool(section.block)
        lines += [(indent + row.label(), row.positions[0]) for row in section.rows]
    left, above, below = 0.25 + 0.062 * max(len(label) for label, _ in lines), 0.9, 0.15
    starts, end = [], 0.0
    for name, plan in plans.items():
        starts.append(end)
        # At least as wide as its heading.
        end += max(plan.levels, 0.062 * len(name) / CELL) + _GAP
    columns = max(end - _GAP, 1)
    words = list(dict.fromkeys(word for plan in every for word in explained(plan)))
    width = max(left + CELL * columns + 0.3, 4.4, legend_width(words))
    figure = new_figure(width, above + CELL * len(lines) + below)
    axes = add_axes(figure, left, below, CELL * columns, CELL * len(lines))
    points = [
        (start + level, n, row[position])
        for start, plan in zip(starts, every, strict=True)
        for level, row in enumerate(plan.parallelism)
        for n, (_, position) in enumerate(lines)
        if position is not None
    ]
    draw_marks(axes, points, CELL)
    for start, (name, plan) in zip(starts, plans.items(), strict=True):
        write_above(axes, start + (plan.levels - 1) / 2, name)
    axes.set_xlim(-0.5, columns - 0.5)
    label_rows(axes, lines, left - 0.15)
    title = (
        f"{first.network.name}, {first.accelerators:,} accelerators: one column per level, H1 first"
    )
    add_legend(figure, title, choice_handles(words), loc="upper left", handletextpad=0.2)
    return figure
