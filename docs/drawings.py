"""The drawings of ``start-here.md``: a layer on two accelerators, and the levels of eight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypar_opt.display.pictures.canvas import (
    DATA,
    FAINT,
    HYPAR,
    INK,
    MODEL,
    new_figure,
    paler,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIRST, SECOND = HYPAR, MODEL
"""The two accelerators."""

BOTH = "#d9dbe0"

HEIGHT, WIDTH = 1.0, 1.0

_GAP = 0.3
"""Between two groups of accelerators."""
TENSORS = ("input", "weights", "output")

SPLITS = {
    "data: by batch": (
        ("rows", "both", "rows"),
        "Each has half of the images and all weights.",
        "All-reduced: the gradients of the weights.",
    ),
    "model: by input channel": (
        ("columns", "rows", "partial"),
        "Each has half of the input channels and their weights.",
        "Reduced: the output, a partial sum on each.",
    ),
    "output: by output channel": (
        ("both", "columns", "columns"),
        "Each has half of the output channels and their weights.",
        "Gathered: the input, which both read whole.",
    ),
}


@style()
def layer_splits() -> Figure:
    """Draw the three ways of splitting a fully-connected layer between two accelerators."""
    figure = new_figure(7.4, 4.3)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.25, 9.0), ylim=(-0.55, 5.0))
    axes.set_axis_off()
    for row, (name, (parts, holds, moves)) in enumerate(SPLITS.items()):
        bottom = 3.3 - 1.6 * row
        axes.text(-0.1, bottom + 1.18, name, weight="bold", fontsize=9)
        for n, (tensor, part) in enumerate(zip(TENSORS, parts, strict=True)):
            left = 1.55 * n
            _matrix(axes, left, bottom, part)
            if not row:
                axes.text(left + WIDTH / 2, bottom + 1.45, tensor, ha="center")
            if n < 2:
                sign = "×" if n == 0 else "="
                axes.text(left + 1.27, bottom + 0.42, sign, ha="center", fontsize=11)
        axes.text(4.55, bottom + 0.62, holds)
        axes.text(4.55, bottom + 0.22, moves, color=DATA, weight="bold")
    axes.text(-0.1, -0.25, "rows of the input are images, columns are channels", color=FAINT)
    for n, (color, text) in enumerate(
        ((FIRST, "one accelerator"), (SECOND, "the other"), (BOTH, "on both"))
    ):
        _box(axes, 4.55 + 1.55 * n, -0.29, 0.16, 0.16, color)
        axes.text(4.8 + 1.55 * n, -0.25, text)
    return figure


def _matrix(axes: Axes, left: float, bottom: float, part: str) -> None:
    half = HEIGHT / 2
    if part == "rows":
        _box(axes, left, bottom + half, WIDTH, half, FIRST)
        _box(axes, left, bottom, WIDTH, half, SECOND)
    elif part == "columns":
        _box(axes, left, bottom, half, HEIGHT, FIRST)
        _box(axes, left + half, bottom, half, HEIGHT, SECOND)
    elif part == "both":
        _box(axes, left, bottom, WIDTH, HEIGHT, BOTH)
    else:
        # Two matrices of the whole size, which are added.
        _box(axes, left + 0.1, bottom + 0.1, WIDTH * 0.9, HEIGHT * 0.9, SECOND)
        _box(axes, left, bottom, WIDTH * 0.9, HEIGHT * 0.9, FIRST)
        axes.text(left + 0.45, bottom + 0.42, "+", ha="center", fontsize=12, color="white")


def _box(
    axes: Axes, left: float, bottom: float, width: float, height: float, color: Any, **more: Any
) -> None:
    from matplotlib.patches import Rectangle

    fill = color if color == BOTH else paler(color, 0.25)
    axes.add_patch(
        Rectangle((left, bottom), width, height, facecolor=fill, edgecolor="white", **more)
    )


@style()
def hierarchy() -> Figure:
    """Draw eight accelerators, divided level by level."""
    figure = new_figure(7.4, 3.0)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-1.5, 8.1), ylim=(-0.75, 3.9))
    axes.set_axis_off()
    words = ("8 accelerators", "4", "2", "1")
    for level in range(4):
        groups, top = 2**level, 3.2 - 1.1 * level
        size = 8 / groups
        for group in range(groups):
            left, right = group * size + _GAP / 2, (group + 1) * size - _GAP / 2
            _box(axes, left, top, right - left, 0.5, BOTH)
            shown = words[0] if level == 0 else words[level]
            axes.text((left + right) / 2, top + 0.18, shown, ha="center", color=INK)
            if level < 3:
                middle = (left + right) / 2
                for half in (-1, 1):
                    axes.plot(
                        [middle, middle + half * size / 4],
                        [top, top - 0.55],
                        color=FAINT,
                        linewidth=0.7,
                    )
                _exchange(axes, middle, top - 0.85)
        if level < 3:
            axes.text(-1.4, top - 0.4, f"H{level + 1}", weight="bold", fontsize=9)
    axes.text(
        0, -0.55, "At each level the two halves of every group exchange what the choices require."
    )
    return figure


def _exchange(axes: Axes, middle: float, height: float) -> None:
    arrow = {"arrowstyle": "<->", "color": MODEL, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    reach = _GAP / 2 + 0.03
    axes.annotate("", (middle + reach, height), (middle - reach, height), arrowprops=arrow)
