"""Choices and layouts as marks on axes, shared by the pictures of plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hypar_opt.display.glyphs import (
    ADDENDS_SYMBOL,
    DATA_SYMBOL,
    EXPERTS_SYMBOL,
    MODEL_SYMBOL,
    OUTPUT_SYMBOL,
    QUERIES_SYMBOL,
    SPATIAL_SYMBOLS,
    TOKENS_SYMBOL,
    WHOLE_SYMBOL,
    Symbol,
    legend,
    symbol,
    symbol_of_part,
)
from hypar_opt.display.pictures.canvas import INK, add_legend, write_near
from hypar_opt.units import format_cost
from hypar_opt.workload.parallelism import ALL_CHOICES, part_word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hypar_opt.plan.plan import Plan

CELL = 0.27
"""Inches between two layers, and between two levels."""

MAX_LENGTH = 40.0
"""Inches of a plan's longer side: deeper networks have smaller cells."""

_OF_PARTS = "<>^vphX8"

MARKS: dict[Symbol, dict[str, Any]] = {
    own: {"marker": marker, "facecolor": own.colour if filled else "white"}
    | ({} if marker in "_|" else {"edgecolor": own.colour})  # strokes have no edge
    for own, marker, filled in (
        (DATA_SYMBOL, "o", False),
        (MODEL_SYMBOL, "o", True),
        (QUERIES_SYMBOL, "h", True),
        (OUTPUT_SYMBOL, "D", True),
        (TOKENS_SYMBOL, "D", False),
        *((own, marker, True) for own, marker in zip(SPATIAL_SYMBOLS, "_|", strict=True)),
        (EXPERTS_SYMBOL, "*", True),
        (ADDENDS_SYMBOL, "P", True),
        (WHOLE_SYMBOL, "s", False),
        *((symbol_of_part(part_word(n)), own, True) for n, own in enumerate(_OF_PARTS)),
    )
}
"""Matplotlib's markers for the symbols, of parts of H1 for the first eight."""


def mark_of(symbol: Symbol) -> dict[str, Any]:
    """Return the marker of a symbol; further parts of H1 have those of the first by turns."""
    if symbol in MARKS:
        return MARKS[symbol]
    # Of neighbouring stages two differ.
    return MARKS[symbol_of_part(part_word((int(symbol.ascii_glyph) - 1) % len(_OF_PARTS)))]


def evenly(count: int, most: int) -> list[range]:
    """Return the fewest runs of positions of about equal length, at most ``most`` each."""
    size = -(-count // max(-(-count // most), 1))
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


SQUARE = {"marker": "s", "facecolor": "none", "edgecolor": INK}
"""The frame of a mark that differs from another plan's."""


def choice_handles(choices: Sequence[str]) -> list[Any]:
    """Return the handles of a legend for the marks."""
    return [handle(mark_of(symbol), words) for symbol, words in legend(choices)]


def handle(mark: Mapping[str, Any], words: str) -> Any:
    """Return the handle of a legend for one mark."""
    from matplotlib.lines import Line2D

    return Line2D(
        [],
        [],
        linestyle="",
        marker=mark["marker"],
        markerfacecolor=mark["facecolor"],
        markeredgecolor=mark.get("edgecolor", mark["facecolor"]),
        markersize=7.5,
        label=words,
    )


def add_plan_legend(figure: Figure, plan: Plan, words: Sequence[str]) -> None:
    """Write a plan's problem and total, and below them the legend of words, above the axes."""
    total = format_cost(plan.cost.total, plan.cost.unit)
    add_legend(
        figure,
        f"{plan.network.name}, batch {plan.batch}, {plan.accelerators:,} accelerators:"
        f" {total} a step",
        choice_handles(words),
        loc="upper left",
        handletextpad=0.2,
    )


def draw_marks(axes: Axes, choices: Sequence[tuple[float, int, str]], cell: float) -> float:
    """Draw a mark for each choice, at its x and y; return the size of one, in square points."""
    size = (72 * cell * 0.55) ** 2
    points: dict[str, list[tuple[float, int]]] = {choice: [] for choice in ALL_CHOICES}
    for x, y, choice in choices:
        points.setdefault(choice, []).append((x, y))
    for choice, own in points.items():
        mark = mark_of(symbol(choice))
        smaller = 0.7 if mark["marker"] == "D" else 1.0  # a diamond looks larger
        scatter(axes, own, str(choice), s=size * smaller, linewidth=0.9, **mark)
    return size


def scatter(axes: Axes, points: Sequence[tuple[float, int]], gid: str, **options: Any) -> None:
    """Draw marks as one named collection."""
    if points:
        x, y = zip(*points, strict=True)
        axes.scatter(x, y, **options)
        axes.collections[-1].set_gid(gid)


def write_above(axes: Axes, column: float, text: str) -> None:
    """Write a column's heading above the first row."""
    write_near(axes, text, (column, -0.5), (0, 2), ha="center", annotation_clip=False)


def label_rows(
    axes: Axes, lines: Sequence[tuple[str, object | None]], pad: float, **options: Any
) -> None:
    """Write rows' names to the left of the axes, ``pad`` inches away; those of no row are bold."""
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_yticks(range(len(lines)), [label for label, _ in lines], **options)
    for text, (_, row) in zip(axes.get_yticklabels(), lines, strict=True):
        text.set_horizontalalignment("left")
        text.set_fontweight("bold" if row is None else "normal")
    axes.tick_params(axis="y", length=0, pad=72 * pad)
    axes.set_xticks([])
    axes.spines[:].set_visible(False)


def legend_width(words: Sequence[str]) -> float:
    """Return the inches that a legend takes, with about 0.06 for each character."""
    return sum(0.06 * len(label) + 0.4 for _, label in legend(words))
