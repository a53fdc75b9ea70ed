"""A plan in the form of the paper's Figure 5: a column a layer, a row a level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from hypar_opt.plan.layouts import StoredLayout
from hypar_opt.report.glyphs import (
    DATA_SYMBOL,
    MODEL_SYMBOL,
    OUTPUT_SYMBOL,
    WHOLE_SYMBOL,
    Symbol,
    explained,
    legend,
    stored_symbol,
    symbol,
)
from hypar_opt.report.labels import level_costs
from hypar_opt.report.pictures.canvas import INK, add_legend, new_figure, style
from hypar_opt.report.structure import Stored, folded, is_short_chain, stored_outputs
from hypar_opt.units import format_cost
from hypar_opt.workload.parallelism import Parallelism

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hypar_opt.plan.plan import Plan
    from hypar_opt.report.folding import FoldedLayers

Choices = Sequence[Sequence[Parallelism]]
"""Levels x layers."""

CELL = 0.27
"""Inches between two layers, and between two levels."""

_MAX_LENGTH = 40.0
"""Inches of a plan's longer side: a deeper network has smaller cells."""

_MARKS: dict[Symbol, dict[str, Any]] = {
    own: {"marker": marker, "facecolor": own.colour if filled else "white", "edgecolor": own.colour}
    for own, marker, filled in (
        (DATA_SYMBOL, "o", False),
        (MODEL_SYMBOL, "o", True),
        (OUTPUT_SYMBOL, "D", True),
        (WHOLE_SYMBOL, "s", False),
    )
}
"""The symbols' glyphs, as matplotlib has them."""

_SEPARATED = 0.7
"""Cells between the choices and the layouts of what is stored."""


@style()
def plan_dots(plan: Plan, *, layouts: bool = False) -> Figure:
    """Draw a plan as the paper's Figure 5 does, with what each level costs beside it.

    Filled is model parallelism, open data parallelism, a diamond output parallelism. A graph, or a
    long chain, has a row a layer instead, in which layers that are alike are one; beside the
    choices stands how a tensor with several readers is stored.

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
    """Draw a column a layer and a row a level."""
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
    _add_title(figure, plan)
    return figure


def _folded_dots(plan: Plan, which: Stored) -> Figure:
    """Draw a row for all layers that are alike, a column a level, and its cost below."""
    lines = _lines(plan, which)
    stored = _stored_points(plan, which, lines)
    # Of a plan whose layers all differ the rows are lower.
    cell = min(CELL, _MAX_LENGTH / len(lines))
    above, below, right = 0.75, 0.95, 0.3
    left = 0.25 + 0.062 * max(len(label) for label, _ in lines)
    columns = 2 * plan.levels + _SEPARATED if stored else max(plan.levels, 1)
    # Wide enough for the legend's words, about 0.06 inches a character.
    words = [0.06 * len(label) + 0.4 for _, label in legend(_drawn_words(plan, which))]
    width = max(left + CELL * columns + right, 4.4, sum(words))
    height = above + cell * len(lines) + below
    figure = new_figure(width, height)
    axes = figure.add_axes(
        (left / width, below / height, CELL * columns / width, cell * len(lines) / height)
    )
    rows = [
        [level[layers.positions[0]] for level in plan.parallelism] if layers else None
        for _, layers in lines
    ]
    size = draw_marks(
        axes, [(level, n, own) for n, row in enumerate(rows) for level, own in _numbered(row)], cell
    )
    for layout in StoredLayout:
        points = [(x, y) for x, y, own in stored if own is layout]
        mark = _MARKS[stored_symbol(layout)]
        _scatter(axes, points, f"stored {layout}", s=size * 0.6, linewidth=0.9, **mark)
    _label_lines(axes, plan, lines, cell, columns)
    if stored:
        write_above(axes, (3 * plan.levels - 1) / 2 + _SEPARATED, "stored")
    _add_title(figure, plan, which)
    return figure


def _stored_points(
    plan: Plan, which: Stored, lines: Sequence[tuple[str, FoldedLayers | None]]
) -> list[tuple[float, int, StoredLayout]]:
    """Return where a layout is drawn, beside the choices of the layer that writes the tensor."""
    stored = stored_outputs(plan, which)
    points = []
    for n, (_, layers) in enumerate(lines):
        # All that are shown in a row are alike.
        own = next((stored[p] for p in layers.positions if stored[p]), None) if layers else None
        points += [
            (plan.levels + _SEPARATED + level, n, layout) for level, layout in enumerate(own or ())
        ]
    return points


def _lines(plan: Plan, which: Stored) -> list[tuple[str, FoldedLayers | None]]:
    """Return the rows from top to bottom, a block's below a heading unless all are alike."""
    lines: list[tuple[str, FoldedLayers | None]] = []
    for section in folded(plan, stored=which):
        if section.block and len(section.rows) == 1:
            lines.append((section.heading(), section.rows[0]))
            continue
        if section.block:
            lines.append((section.heading(), None))
        lines += [("    " * bool(section.block) + row.label(), row) for row in section.rows]
    return lines


def _numbered(row: Sequence[Parallelism] | None) -> list[tuple[int, Parallelism]]:
    return list(enumerate(row or ()))


def _label_lines(
    axes: Axes,
    plan: Plan,
    lines: Sequence[tuple[str, FoldedLayers | None]],
    cell: float,
    columns: float,
) -> None:
    """Write the layers to the left, and each level's name and cost above and below its column."""
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    size = min(7, 72 * cell * 0.8)
    axes.set_yticks(range(len(lines)), [label for label, _ in lines], fontsize=size)
    for text, (_, layers) in zip(axes.get_yticklabels(), lines, strict=True):
        text.set_horizontalalignment("left")
        text.set_fontweight("normal" if layers else "bold")
    longest = max(len(label) for label, _ in lines)
    axes.tick_params(axis="y", length=0, pad=72 * (0.062 * longest + 0.05) * size / 7)
    costs = [format_cost(cost, plan.cost.unit) for cost in level_costs(plan.cost)]
    axes.set_xticks(range(plan.levels), costs, rotation=90, fontsize=7)
    axes.tick_params(axis="x", length=0, pad=3)
    for level in range(plan.levels):
        write_above(axes, level, f"H{level + 1}")
    axes.spines[:].set_visible(False)


def write_above(axes: Axes, column: float, text: str) -> None:
    """Write a column's heading above the first row."""
    axes.annotate(
        text,
        (column, -0.5),
        textcoords="offset points",
        xytext=(0, 2),
        ha="center",
        fontsize=7,
        annotation_clip=False,
    )


def _drawn_words(plan: Plan, which: Stored) -> list[Parallelism]:
    """Return the words of what is drawn: `whole` also where only a tensor is stored so."""
    words = explained(plan)
    stored = {layout for own in stored_outputs(plan, which) for layout in own or ()}
    whole = Parallelism(StoredLayout.WHOLE)
    return [*words, whole] if StoredLayout.WHOLE in stored and whole not in words else words


def _add_title(figure: Figure, plan: Plan, which: Stored = Stored.NONE) -> None:
    total = format_cost(plan.cost.total, plan.cost.unit)
    count = 2**plan.levels
    add_legend(
        figure,
        f"{plan.network.name}, batch {plan.batch}, {count:,} accelerators: {total} a step",
        choice_handles(_drawn_words(plan, which)),
        loc="upper left",
        handletextpad=0.2,
    )


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
            marker=_MARKS[symbol]["marker"],
            markerfacecolor=_MARKS[symbol]["facecolor"],
            markeredgecolor=_MARKS[symbol]["edgecolor"],
            markersize=7.5,
            label=words,
        )
        for symbol, words in legend(choices)
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
    _scatter(axes, differing, "not as printed", s=size * 2.6, **square)
    _label_axes(axes, layers, len(rows), cell)


def draw_marks(axes: Axes, choices: Sequence[tuple[float, int, Parallelism]], cell: float) -> float:
    """Draw a mark for each choice, at its x and y; return the size of one, in square points."""
    size = (72 * cell * 0.55) ** 2
    points: dict[Parallelism, list[tuple[float, int]]] = {choice: [] for choice in Parallelism}
    for x, y, choice in choices:
        points.setdefault(choice, []).append((x, y))
    for choice, own in points.items():
        mark = _MARKS[symbol(choice)]
        smaller = 0.7 if mark["marker"] == "D" else 1.0  # a diamond looks larger
        _scatter(axes, own, str(choice), s=size * smaller, linewidth=0.9, **mark)
    return size


def _scatter(axes: Axes, points: Sequence[tuple[float, int]], gid: str, **options: Any) -> None:
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
