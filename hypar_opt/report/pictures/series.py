"""Series of numbers in a picture, with the colours of ours and of printed ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

from hypar_opt.report.pictures.canvas import CYCLE, DATA, HYPAR, MODEL

Numbers = Sequence[float | None]
"""One number per group; None for a missing one."""

Series = Mapping[str, Numbers]
"""Numbers by name of the series."""

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
    """Return one colour per name: a fixed one, or the next unused one."""
    # A plan has a fixed colour in all pictures; other series take the rest in turn.
    own = {name: _COLORS.get(name, "") for name in names}
    free = cycle([color for color in CYCLE if color not in own.values()] or CYCLE)
    return {name: color or next(free) for name, color in own.items()}


def positive(*series: Numbers) -> list[float]:
    """Return the numbers that a logarithmic axis can show."""
    return [value for numbers in series for value in numbers if value is not None and value > 0]
