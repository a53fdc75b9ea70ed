"""The drawings of ``start-here.md``: a layer on two accelerators, and the levels of eight."""

from __future__ import annotations

from typing import Any

import altair as alt

from hypar_opt.display.figures.style import Figure, at, figure, of
from hypar_opt.display.palette import DATA, FAINT, INK, MODEL, PLAN

FIRST, SECOND, BOTH = PLAN, MODEL, "#c3c8d0"
"""The two accelerators, and what both have."""

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

PARTS = {
    "rows": ((0, 0, 1, 0.5, FIRST), (0, 0.5, 1, 1, SECOND)),
    "columns": ((0, 0, 0.5, 1, FIRST), (0.5, 0, 1, 1, SECOND)),
    "both": ((0, 0, 1, 1, BOTH),),
    # Two matrices of the whole size, which are added.
    "partial": ((0.1, 0, 1, 0.9, SECOND), (0, 0.1, 0.9, 1, FIRST)),
}
"""Each part of a tensor: its left, upper, right and lower end, and whose it is."""

_GAP = 0.3
"""Between two groups of accelerators."""


def _drawn(
    boxes: list[dict[str, Any]],
    words: list[dict[str, Any]],
    lines: list[dict[str, Any]],
    size: tuple[float, float],
    pixels: float,
) -> Figure:
    """Draw boxes, texts and lines at places from the upper left corner."""
    x, y = at(alt.X, 0, size[0]), at(alt.Y, 0, size[1])
    colour = alt.Color("colour:N", scale=None)
    ends = {"x2": alt.X2("x2:Q"), "y2": alt.Y2("y2:Q")}
    texts = [
        of("words")
        .transform_filter(alt.datum.align == align)
        .transform_filter(alt.datum.weight == weight)
        .mark_text(align=align, baseline="middle", fontWeight=weight, fontSize=11)
        .encode(x, y, colour, text="text:N")
        for align in ("left", "center")
        for weight in ("normal", "bold")
    ]
    layers = [
        of("lines").mark_rule(strokeWidth=1.4).encode(x, y, colour, **ends),
        of("boxes").mark_rect(stroke="white").encode(x, y, colour, **ends),
        *texts,
    ]
    data = {"boxes": boxes, "words": words, "lines": lines}
    width, height = (round(pixels * own) for own in size)
    return figure(alt.layer(*layers), data, width=width, height=height)


def _word(x: float, y: float, text: str, **style: str) -> dict[str, Any]:
    return {
        "x": x,
        "y": y,
        "text": text,
        "align": "left",
        "weight": "normal",
        "colour": INK,
        **style,
    }


def layer_splits() -> Figure:
    """Draw the three ways of splitting a fully-connected layer between two accelerators."""
    boxes: list[dict[str, Any]] = []
    words = [_word(1.55 * n + 0.5, 0, name, align="center") for n, name in enumerate(TENSORS)]
    for row, (name, (parts, holds, moves)) in enumerate(SPLITS.items()):
        top = 0.6 + 1.6 * row
        words.append(_word(0, top - 0.2, name, weight="bold"))
        for n, part in enumerate(parts):
            boxes += [
                {
                    "x": 1.55 * n + left,
                    "y": top + upper,
                    "x2": 1.55 * n + right,
                    "y2": top + lower,
                    "colour": own,
                }
                for left, upper, right, lower, own in PARTS[part]
            ]
            signs = {0: "×", 1: "="}
            if n in signs:
                words.append(_word(1.55 * n + 1.27, top + 0.5, signs[n], align="center"))
            if part == "partial":
                plus = {"align": "center", "colour": "white", "weight": "bold"}
                words.append(_word(1.55 * n + 0.45, top + 0.55, "+", **plus))
        words.append(_word(4.55, top + 0.32, holds))
        words.append(_word(4.55, top + 0.72, moves, colour=DATA, weight="bold"))
    note = "rows of the input are images, columns are channels"
    words.append(_word(0, 5.45, note, colour=FAINT))
    for left, own, text in (
        (5.0, FIRST, "one accelerator"),
        (7.0, SECOND, "the other"),
        (8.6, BOTH, "on both"),
    ):
        boxes.append({"x": left, "y": 5.36, "x2": left + 0.18, "y2": 5.54, "colour": own})
        words.append(_word(left + 0.27, 5.45, text))
    return _drawn(boxes, words, [], (9.9, 5.7), 60)


def hierarchy() -> Figure:
    """Draw eight accelerators, divided level by level."""
    boxes: list[dict[str, Any]] = []
    words: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    for level in range(4):
        groups, top = 2**level, 1.1 * level
        size = 8 / groups
        for group in range(groups):
            left, right = 1 + group * size + _GAP / 2, 1 + (group + 1) * size - _GAP / 2
            middle = (left + right) / 2
            boxes.append({"x": left, "y": top, "x2": right, "y2": top + 0.5, "colour": BOTH})
            count = "8 accelerators" if level == 0 else f"{8 // groups}"
            words.append(_word(middle, top + 0.25, count, align="center"))
            for half in (-1, 1) if level < 3 else ():
                end = middle + half * size / 4
                lines.append(
                    {"x": middle, "y": top + 0.5, "x2": end, "y2": top + 1.1, "colour": FAINT}
                )
            if level < 3:
                reach = {"x": middle - _GAP, "x2": middle + _GAP}
                lines.append({**reach, "y": top + 1.35, "y2": top + 1.35, "colour": MODEL})
        if level < 3:
            words.append(_word(0.1, top + 0.85, f"H{level + 1}", weight="bold"))
    says = "At each level the two halves of every group exchange what the choices require."
    words.append(_word(1, 4.15, says))
    return _drawn(boxes, words, lines, (9.2, 4.4), 62)
