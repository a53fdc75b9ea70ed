"""Choices and layouts as marks: a symbol's shape, colour and fill, and their legend."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt

from hypar_opt.display.figures.style import SAYS, at, legend, mark
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
)
from hypar_opt.workload.parallelism import PART_WORDS

CELL = 22
"""Pixels between two layers, and between two levels."""

STAR = "M0,-1L.26,-.36L.95,-.31L.42,.13L.59,.81L0,.44L-.59,.81L-.42,.13L-.95,-.31L-.26,-.36Z"
_HEXAGON = "M0,-1L.87,-.5L.87,.5L0,1L-.87,.5L-.87,-.5Z"
_PENTAGON = "M0,-1L.95,-.31L.59,.81L-.59,.81L-.95,-.31Z"
_CROSSED = "M-.8,-.8L.8,.8M.8,-.8L-.8,.8"
_UPRIGHT = "M0,-1L0,1"
_HOURGLASS = "M-.8,-.9L.8,-.9L-.8,.9L.8,.9Z"

_PART_SHAPES = (
    *("triangle-left", "triangle-right", "triangle-up", "triangle-down"),
    *(_PENTAGON, _HEXAGON, _CROSSED, _HOURGLASS),
)

SHAPES: dict[Symbol, tuple[str, bool]] = {
    DATA_SYMBOL: ("circle", False),
    MODEL_SYMBOL: ("circle", True),
    QUERIES_SYMBOL: (_HEXAGON, True),
    OUTPUT_SYMBOL: ("diamond", True),
    TOKENS_SYMBOL: ("diamond", False),
    SPATIAL_SYMBOLS[0]: ("stroke", False),
    SPATIAL_SYMBOLS[1]: (_UPRIGHT, False),
    EXPERTS_SYMBOL: (STAR, True),
    ADDENDS_SYMBOL: ("cross", True),
    WHOLE_SYMBOL: ("square", False),
}
"""Vega's shape of each symbol, and whether it is filled."""


def shape_of(symbol: Symbol) -> tuple[str, bool]:
    """Return a symbol's shape, and whether it is filled; parts of H1 take some by turns."""
    if symbol in SHAPES:
        return SHAPES[symbol]
    # Of neighbouring stages two differ.
    return _PART_SHAPES[(int(symbol.ascii_glyph) - 1) % len(_PART_SHAPES)], True


def marks(
    name: str, columns: float, lines: float, words: Mapping[Symbol, str], *, small: bool = False
) -> alt.Chart:
    """Return marks at the fields ``column`` and ``line`` of rows, by their ``choice``.

    Parameters
    ----------
    words
        The choice of each symbol, as the rows have it, and the legend, but parts of H1.
    """
    named = [word for word in words.values() if word not in PART_WORDS]
    entries = legend(named, values=named, symbolSize=110)
    shapes = [shape_of(symbol)[0] for symbol in words]
    colours = [symbol.colour for symbol in words]
    fills = [symbol.colour if shape_of(symbol)[1] else "transparent" for symbol in words]
    looks = [
        channel(
            "choice:N", legend=entries, scale=alt.Scale(domain=list(words.values()), range=values)
        )
        for channel, values in ((alt.Shape, shapes), (alt.Stroke, colours), (alt.Fill, fills))
    ]
    x, y = at(alt.X, -0.5, columns - 0.5, "column"), at(alt.Y, -0.5, lines - 0.5, "line")
    size = (0.55 * CELL) ** 2 * (0.6 if small else 1.0)
    return mark(name, "point", x, y, *looks, *SAYS, size=size, opacity=1, strokeWidth=1.3)
