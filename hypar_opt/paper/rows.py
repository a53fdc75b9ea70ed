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
    """What is expected of the rows that match; without a verdict they are to be reproduced.

    Parameters
    ----------
    relative, absolute
        How far from what is printed a row is still reproduced: the larger of the two.
    ratios
        With a verdict: ours over printed, at least and at most.
    ours
        With a verdict: our text.
    """

    rows: str
    readings: str = "*"
    relative: float = 0.0
    absolute: float = 0.0
    verdict: Verdict | None = None
    reason: str | None = None
    ratios: Sequence[float] | None = None
    ours: str | None = None

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

    def is_kept(self, ours: Value, printed: Value) -> bool:
        """Return whether ours is as listed: reproduced, or as far off as it is said to be."""
        if self.verdict is None:
            return self.meets(ours, printed)
        if self.ours is not None and ours != self.ours:
            return False
        if self.ratios is None:
            return True
        ratio, (least, most) = ratio_of(ours, printed), self.ratios
        return ratio is not None and least <= ratio <= most

    @property
    def listed(self) -> str:
        """What a row is listed as, in words."""
        if self.verdict is None:
            return "as reproduced"
        if self.ratios is None:
            return f"with {self.ours} as ours"
        least, most = self.ratios
        return f"with ours {least:g} to {most:g} times what is printed"


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


def ratio_of(ours: Value, printed: Value) -> float | None:
    """Return ours over printed; None of texts, and where 0 is printed."""
    if isinstance(ours, str) or isinstance(printed, str) or not printed:
        return None
    return ours / printed


def judge(figure: str, measure: Measure) -> Row:
    """Compute a row and compare it with what is printed."""
    label, reading, wanted, ours = measure.label, measure.reading, measure.printed, measure.ours()
    rule = rule_of(figure, label, reading)
    verdict, reason = rule.verdict or "reproduced", rule.reason
    if not rule.is_kept(ours, wanted):
        verdict = rule.verdict or "differs"
        reason = f"listed {rule.listed}, and no longer is"
    return Row(label, reading, ours, wanted, ratio_of(ours, wanted), verdict, reason)


def is_lost(figure: str, row: Row) -> bool:
    """Return whether a row is no longer as listed."""
    return not rule_of(figure, row.label, row.reading).is_kept(row.ours, row.printed)


def shown(rows: Sequence[Row]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return a figure's rows as text, and the reasons that their verdicts number.

    The cells are label, reading, ours, printed, ratio and verdict.
    """
    reasons = list(dict.fromkeys(row.reason for row in rows if row.reason))
    cells: list[tuple[str, ...]] = [
        (
            row.label,
            row.reading,
            text(row.ours),
            text(row.printed),
            "-" if row.ratio is None else f"{row.ratio:.3f}",
            f"{row.verdict} ({reasons.index(row.reason) + 1})" if row.reason else row.verdict,
        )
        for row in rows
    ]
    return cells, reasons


def text(value: Value) -> str:
    """Return a number to four digits, or more where it is a whole one."""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.4g}"


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
