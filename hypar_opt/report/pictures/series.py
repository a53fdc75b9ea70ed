"""Series of numbers in one picture: their colours, and how ours differ from the printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

from hypar_opt.report.pictures.canvas import CYCLE, DATA, HYPAR, MODEL

Numbers = Sequence[float | None]
"""One number for each group; None where there is none."""

Series = Mapping[str, Numbers]
"""Numbers by the series' name."""

HATCH = "//////"
"""Fill of bars that the paper prints."""

_COLORS = {
    "HyPar": HYPAR,
    "Model Parallelism": MODEL,
    "Data Parallelism": DATA,
    "H tree": HYPAR,
    "performance": HYPAR,
}


def colors_of(names: Iterable[str]) -> dict[str, str]:
    """Return a colour a name: its own, or the next that none of them has."""
    # A plan has its colour in every picture; other series share what is left, in turn.
    own = {name: _COLORS.get(name, "") for name in names}
    free = cycle([color for color in CYCLE if color not in own.values()] or CYCLE)
    return {name: color or next(free) for name, color in own.items()}


def positive(*series: Numbers) -> list[float]:
    """Return the numbers that a logarithmic axis can show."""
    return [value for numbers in series for value in numbers if value is not None and value > 0]
