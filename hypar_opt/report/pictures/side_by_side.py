"""Plans of one network side by side: one row per layer, one column per level of each plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError
from hypar_opt.report.folding import fold
from hypar_opt.report.glyphs import explained, legend
from hypar_opt.report.layer_groups import drawn_choices
from hypar_opt.report.pictures.canvas import add_legend, new_figure, style
from hypar_opt.report.pictures.marks import CELL, choice_handles, draw_marks, write_above

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hypar_opt.plan.plan import Plan

_GAP = 0.8
"""Cells between two plans."""


@style()
def plans_side_by_side(plans: Mapping[str, Plan]) -> Figure:
    """Draw plans of one network; block repetitions that are equal in all plans are drawn once.

    Parameters
    ----------
    plans
        The plans by heading.

    Raises
    ------
    HyparError
        If there is no plan, or if the plans are of several networks.
    """
    every = list(plans.values())
    if len({plan.network.digest for plan in every}) != 1:
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
    labels = [0.06 * len(label) + 0.4 for _, label in legend(words)]
    width = max(left + CELL * columns + 0.3, 4.4, sum(labels))
    height = above + CELL * len(lines) + below
    figure = new_figure(width, height)
    axes = figure.add_axes(
        (left / width, below / height, CELL * columns / width, CELL * len(lines) / height)
    )
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
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xticks([])
    axes.set_yticks(range(len(lines)), [label for label, _ in lines])
    axes.tick_params(axis="y", length=0, pad=72 * (left - 0.15))
    for text, (_, position) in zip(axes.get_yticklabels(), lines, strict=True):
        text.set_horizontalalignment("left")
        text.set_fontweight("bold" if position is None else "normal")
    axes.spines[:].set_visible(False)
    title = f"{first.network.name}, {first.accelerators:,} accelerators: a column a level, H1 first"
    add_legend(figure, title, choice_handles(words), loc="upper left", handletextpad=0.2)
    return figure
