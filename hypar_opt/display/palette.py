"""The colours of figures, on pages and in files, and of choices on terminals too.

One colour has one meaning in every figure of a kind. Series can be told apart without full colour
vision, after Okabe and Ito, Color Universal Design (2008), and are visible on white and on black.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from typing import Final

from hypar_opt.display.labels import BASELINES

CHOICES = (
    ("#3d85c6", ("#d9e9f8", "#1c5d97"), ("#1d3850", "#8cc4f5")),
    ("#df8a20", ("#f6b45c", "#573200"), ("#c47c1d", "#fff3df")),
    ("#9a52bd", ("#e3cdf0", "#6a2f8b"), ("#4b2c60", "#e0bdf5")),
    ("#c2457f", ("#f6d3e2", "#8d2158"), ("#58203c", "#f2b3d0")),
    ("#1d9a8d", ("#cdeceb", "#0b5c5c"), ("#16494a", "#9fe3e1")),
    ("#6f9a1f", ("#dfeec2", "#43610c"), ("#30430f", "#c8e695")),
    ("#5b50c8", ("#dcd9f7", "#3a308f"), ("#2b2663", "#bdb7f2")),
    ("#c6403a", ("#f8d6d3", "#8a231d"), ("#5a211d", "#f4b3ad")),
    ("#3a9a5c", ("#cfe8d5", "#1d5c33"), ("#1f4a2d", "#b5e6c4")),
)
"""Of data, model, output parallelism and so on, as `hypar_opt.display.glyphs` names them.

Each has a glyph too; then come the fill and the ink of a page's cells, light and dark."""

DATA, MODEL = CHOICES[0][0], CHOICES[1][0]

INK, FAINT, GRID, BLOCK = "#222222", "#767676", "#80808047", "#8080801a"
"""Text; what is less important; lines behind a figure; the ground of a block."""

MARK = "#d55e00"
"""Rings, stars and limits, visible on both ends of `AMOUNTS`."""

PLAN = "#009e73"
"""HyPar's plan, or the plan that a page is about."""

SERIES = (
    *("#0072b2", "#e69f00", "#cc79a7", "#56b4e9", "#a68a00", "#d55e00", "#7d5ba6", "#8b8f99"),
    *("#332288", "#117733", "#44aa99", "#882255", "#999933", "#ddcc77"),
)
"""What has no colour of its own, in this order."""

PLANS = {
    "HyPar": PLAN,
    "This plan": PLAN,
    BASELINES["data"]: DATA,
    BASELINES["model"]: MODEL,
    BASELINES["trick"]: "#8b8f99",
    "H tree": PLAN,
    "performance": PLAN,
}
"""A plan of one choice has the choice's colour."""

PASSES = {"forward": "#56b4e9", "gradient": "#e6c229", "backward": "#a8457f"}
"""Passes of a step; full colour computes, pale colour communicates."""

PALE = 0.42
"""Opacity of communication, and of what the paper prints."""

WORK = "#5b7794"
"""Seconds of all passes together."""

AMOUNTS: Final = "cividis"
"""Vega's scheme for the cells of maps: the same with and without colour vision, and in print."""

DOTS = "#9aa3ab"
"""Background points, from which others stand out."""

UNFIT = "#d0d0d0"
"""Cells of a map of what does not fit."""

ACCELERATOR = "#5b6f80"
"""An accelerator of a topology."""

LOADS = ("#b4bfc9", "#e0952f", "#b51c3d")
"""Shares of a step, from none to the highest."""

RATES = ("#86b3d9", "#08306b")
"""Bandwidths, from the lowest to the highest."""


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each name: a plan's, or the next of `SERIES` that no other name has."""
    fixed = {name: PLANS.get(name, "") for name in names}
    free = cycle([colour for colour in SERIES if colour not in fixed.values()] or SERIES)
    return {name: colour or next(free) for name, colour in fixed.items()}


def shades(count: int) -> list[str]:
    """Return as many colours between the ends of `RATES`, evenly spread; one is the last end."""
    ends = [[int(end[n : n + 2], 16) for n in (1, 3, 5)] for end in RATES]
    parts = [n / (count - 1) for n in range(count)] if count > 1 else [1.0] * count
    return [
        "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(*ends, strict=True))
        for part in parts
    ]
