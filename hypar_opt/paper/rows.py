"""What is printed, what is expected of it, and the verdict on what we get."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib.resources import files
from statistics import geometric_mean
from typing import Any, Literal

Verdict = Literal["reproduced", "differs", "open"]
Value = float | str


@dataclass(frozen=True)
class Row:
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
        Of every row that is not reproduced.
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
    """A row whose own value is still to be computed."""

    label: str
    reading: str
    printed: Value
    ours: Callable[[], Value]


@dataclass(frozen=True)
class Rule:
    """What is expected of the rows that match; without a verdict they are to be reproduced."""

    rows: str
    readings: str = "*"
    relative: float = 0.0
    absolute: float = 0.0
    verdict: Verdict | None = None
    reason: str | None = None

    def holds_for(self, label: str, reading: str) -> bool:
        return fnmatchcase(label, self.rows) and fnmatchcase(reading, self.readings)

    def meets(self, ours: Value, printed: Value) -> bool:
        """Return whether ours is what is printed; ``>10`` is printed where a bar is cut off."""
        if isinstance(printed, str):
            if printed.startswith(">") and not isinstance(ours, str):
                return ours > float(printed[1:])
            return ours == printed
        if isinstance(ours, str):
            return False
        return abs(ours - printed) <= max(self.absolute, self.relative * abs(printed))


@cache
def printed() -> dict[str, Any]:
    """Return what the paper prints, ``figures.toml``."""
    return _read("figures.toml")


@cache
def rules() -> dict[str, list[Rule]]:
    """Return what is expected of each figure's rows, ``verdicts.toml``."""
    return {
        figure: [Rule(**each) for each in entries]
        for figure, entries in _read("verdicts.toml").items()
    }


def rule_of(figure: str, label: str, reading: str) -> Rule:
    """Return the last of a figure's rules that holds for a row."""
    return next(rule for rule in reversed(rules()[figure]) if rule.holds_for(label, reading))


def judge(figure: str, measure: Measure) -> Row:
    """Compute a row and compare it with what is printed."""
    ours, wanted = measure.ours(), measure.printed
    rule = rule_of(figure, measure.label, measure.reading)
    verdict, reason = rule.verdict, rule.reason
    if verdict is None and rule.meets(ours, wanted):
        verdict = "reproduced"
    elif verdict is None:
        verdict, reason = "differs", "listed as reproduced, and no longer is"
    ratio = None
    if not isinstance(ours, str) and not isinstance(wanted, str) and wanted:
        ratio = ours / wanted
    return Row(measure.label, measure.reading, ours, wanted, ratio, verdict, reason)


def is_lost(figure: str, row: Row) -> bool:
    """Return whether a row is listed as reproduced and no longer is."""
    return row.verdict != "reproduced" and not rule_of(figure, row.label, row.reading).verdict


def column(
    name: str,
    ours: Callable[[str], float],
    values: Sequence[Value],
    mean: float | None = None,
    reading: str = "figures",
) -> list[Measure]:
    """Return a column of a figure, a row a network, and its geometric mean."""
    networks: list[str] = printed()["networks"]
    rows = [
        Measure(f"{network} {name}", reading, value, partial(ours, network))
        for network, value in zip(networks, values, strict=True)
    ]
    if mean is not None:
        over_all = partial(_mean, ours, networks)
        rows.append(Measure(f"geometric mean {name}", reading, mean, over_all))
    return rows


def _mean(ours: Callable[[str], float], networks: Sequence[str]) -> float:
    return geometric_mean(map(ours, networks))


def _read(file: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(file).read_text(encoding="utf-8"))
