"""The printed values, and rows that compare ours with them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from statistics import geometric_mean
from typing import Any, Literal, Self, get_args

from hypar_opt.units import format_number

Verdict = Literal[
    "equal",
    "near, cause known",
    "near, cause unknown",
    "off, cause known",
    "off, cause unknown",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Value = float | str
"""A number, or digits of choices; ``>10`` is printed for a bar that is cut off."""


class PrintedNumber(float):
    """A number that is printed with so many digits."""

    decimals: int

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.decimals = len(text.partition(".")[2])
        return number


def half_digit(printed: float) -> float:
    """Return half of the unit of the last digit, the largest rounding error."""
    if isinstance(printed, PrintedNumber):
        return 0.5 * 10.0**-printed.decimals
    return 0.5 if isinstance(printed, int) else 0.0


@dataclass(frozen=True)
class PaperRow:
    """One printed number or string, and ours."""

    label: str
    """Network and column, as ``VGG-A hypar``."""
    reading: str
    """Of the communication model; ``any`` if it does not matter."""
    ours: Value
    printed: Value
    ratio: float | None
    """Ours over printed; None for strings, and if 0 is printed."""
    verdict: Verdict
    """``equal``: to the last digit that is printed, or as closely as the figure can be read;
    ``near``: within 10 %; ``off``: further. If not equal, either the cause is known, or nothing
    that was tried reproduces the printed value."""
    reason: str | None
    """Why a row is not equal, or what is known about it; None if it is equal."""


@dataclass(frozen=True)
class Measure:
    """A row whose value is computed by calling ``ours``."""

    label: str
    reading: str
    printed: Value
    ours: Callable[[], Value]


@cache
def published() -> dict[str, Any]:
    """Return the paper's printed values, ``figures.toml``."""
    return read_toml("figures.toml", PrintedNumber)


def read_toml(file: str, parse_float: Callable[[str], float] = float) -> dict[str, Any]:
    """Return the content of a TOML file of this package."""
    # As package data, which also works if the package is not in a folder.
    text = files(__package__).joinpath(file).read_text(encoding="utf-8")
    return tomllib.loads(text, parse_float=parse_float)


def column(
    name: str,
    ours: Callable[[str], float],
    values: Sequence[Value],
    mean: float | None = None,
    reading: str = "figures",
) -> list[Measure]:
    """Return a column of a figure, with one row per network, and its geometric mean.

    Parameters
    ----------
    ours
        Computes our value for a network.
    values, mean
        The printed ones, in the order of the paper's networks.
    """
    # Columns print values in the order of the networks, without their names.
    networks: list[str] = published()["networks"]
    measures = [
        # partial binds the network now; a lambda would see the last one of the loop.
        Measure(f"{network} {name}", reading, value, partial(ours, network))
        for network, value in zip(networks, values, strict=True)
    ]
    if mean is not None:
        label = f"geometric mean {name}"
        measures.append(Measure(label, reading, mean, lambda: geometric_mean(map(ours, networks))))
    return measures


def format_rows(rows: Sequence[PaperRow]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return a figure's rows as text, and the reasons to which their verdicts refer.

    The cells are label, reading, ours, printed, ratio and verdict.
    """
    # Many rows share a reason: the table refers to it by a number.
    reasons = list(dict.fromkeys(row.reason for row in rows if row.reason))
    cells: list[tuple[str, ...]] = [
        (
            row.label,
            row.reading,
            format_value(row.ours),
            format_value(row.printed),
            "-" if row.ratio is None else f"{row.ratio:.3f}",
            f"{row.verdict} ({reasons.index(row.reason) + 1})" if row.reason else row.verdict,
        )
        for row in rows
    ]
    return cells, reasons


def format_value(value: Value) -> str:
    """Return a printed number as it is printed, others to four digits, and text unchanged."""
    if isinstance(value, PrintedNumber):
        return f"{value:.{value.decimals}f}"
    return value if isinstance(value, str) else format_number(value)
