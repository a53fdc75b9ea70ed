"""The printed values, and the rows that set ours beside them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from statistics import geometric_mean
from typing import Any, Literal

from hypar_opt.units import format_number

Verdict = Literal["reproduced", "differs", "open"]
Value = float | str
"""A number, or digits of choices; ``>10`` is printed where a bar is cut off."""


@dataclass(frozen=True)
class PaperRow:
    """One printed number or string, and ours.

    Parameters
    ----------
    label
        Network and column, as ``VGG-A hypar``.
    reading
        Of the communication model; ``any`` where it does not matter.
    ratio
        Ours over printed; None of strings, and where 0 is printed.
    verdict
        ``reproduced``; ``differs``, where the cause is known or ours is wrong; ``open``, where
        nothing tried gives what is printed.
    reason
        Why a row is not reproduced; None where it is.
    """

    label: str
    reading: str
    ours: Value
    printed: Value
    ratio: float | None
    verdict: Verdict
    reason: str | None


@dataclass(frozen=True)
class Measure:
    """A row whose own value is computed by calling ``ours``."""

    label: str
    reading: str
    printed: Value
    ours: Callable[[], Value]


@cache
def published() -> dict[str, Any]:
    """Return what the paper prints, ``figures.toml``."""
    return read_toml("figures.toml")


def read_toml(file: str) -> dict[str, Any]:
    """Return the content of a TOML file of this package."""
    # As package data, which is there also where the package is not a folder.
    return tomllib.loads(files(__package__).joinpath(file).read_text(encoding="utf-8"))


def column(
    name: str,
    ours: Callable[[str], float],
    values: Sequence[Value],
    mean: float | None = None,
    reading: str = "figures",
) -> list[Measure]:
    """Return a column of a figure, a row a network, and its geometric mean.

    Parameters
    ----------
    ours
        Our value of a network.
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
        our_mean = partial(_geometric_mean, ours, networks)
        measures.append(Measure(f"geometric mean {name}", reading, mean, our_mean))
    return measures


def _geometric_mean(ours: Callable[[str], float], networks: Sequence[str]) -> float:
    return geometric_mean(map(ours, networks))


def format_rows(rows: Sequence[PaperRow]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return a figure's rows as text, and the reasons that their verdicts number.

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
    """Return a number to four digits, or more where it is an integer; text as it is."""
    return value if isinstance(value, str) else format_number(value)
