"""The expected verdict of each row, and its distance from the printed value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal, cast

from hypar_opt.paper.rows import VERDICTS, Measure, PaperRow, Value, Verdict, half_digit, read_toml
from hypar_opt.results import Column, Columns

NEAR = 0.1
"""A row is off if it deviates from the printed value by more than this fraction of it."""


@dataclass(frozen=True)
class Rule:
    """The expectation for matching rows: equal, unless bounds or a text of ours are listed."""

    rows: str
    """Patterns of the labels and the readings that the rule is for."""
    readings: str = "*"
    read_to: float = 0.0
    """How closely a number without a label can be read off the figure, as a fraction of it or in
    its unit: values as close as that are equal."""
    read_to_absolute: float = 0.0
    ratios: Sequence[float] | None = None
    """The lower and the upper bound of ours over printed."""
    ours: str | None = None
    """Our text, if it is not the printed one."""
    cause: Literal["known", "unknown"] = "unknown"
    """Whether the cause of the difference is known."""
    reason: str | None = None
    """That cause, or what else is known."""

    def holds_for(self, label: str, reading: str) -> bool:
        """Return whether the rule is for a row."""
        return fnmatchcase(label, self.rows) and fnmatchcase(reading, self.readings)

    def equal(self, ours: Value, printed: Value) -> bool:
        """Return whether ours equals the printed value, to its last digit or as it can be read."""
        if isinstance(printed, str):
            # >10 is printed where a bar is cut off.
            if printed.startswith(">") and not isinstance(ours, str):
                return ours > float(printed[1:])
            return ours == printed
        if isinstance(ours, str):  # text, although a number is printed
            return False
        read_to = max(half_digit(printed), self.read_to_absolute, self.read_to * abs(printed))
        # Rounded, since 0.15 - 0.1 is more than 0.05 in floating point.
        return round(abs(ours - printed), 12) <= read_to

    def expects(self, ours: Value, printed: Value) -> bool:
        """Return whether ours is as listed: equal, or within the listed bounds."""
        # Texts have no ratio, so our text is listed.
        if self.ours is not None:
            return ours == self.ours
        ratio = ratio_of(ours, printed)
        if self.ratios is None or ratio is None:
            return self.equal(ours, printed)
        lower, upper = self.ratios
        return lower <= ratio <= upper

    @property
    def expectation(self) -> str:
        """The listed expectation, in words."""
        if self.ours is not None:
            return f"with {self.ours} as ours"
        if self.ratios is None:
            return "as equal"
        lower, upper = self.ratios
        return f"with ours {lower:g} to {upper:g} times what is printed"


@cache
def rules() -> dict[str, list[Rule]]:
    """Return the expectations for each figure's rows, ``verdicts.toml``."""
    return {
        figure: [Rule(**fields) for fields in entries]
        for figure, entries in read_toml("verdicts.toml").items()
    }


def rule_of(figure: str, label: str, reading: str) -> Rule:
    """Return the last of a figure's rules that matches a row: exceptions follow the rule."""
    return next(rule for rule in reversed(rules()[figure]) if rule.holds_for(label, reading))


def ratio_of(ours: Value, printed: Value) -> float | None:
    """Return ours over printed; None for texts, and if 0 is printed."""
    if isinstance(ours, str) or isinstance(printed, str) or not printed:
        return None
    return ours / printed


def judge(figure: str, measure: Measure, *, listed: bool = True) -> PaperRow:
    """Compute a row and compare it with the printed value.

    Parameters
    ----------
    listed
        Whether the row's expectation is listed: only for the readings that the paper follows.
    """
    ours, printed = measure.ours(), measure.printed
    rule = rule_of(figure, measure.label, measure.reading)
    ratio = ratio_of(ours, printed)
    equal = rule.equal(ours, printed)
    cause, reason = rule.cause, rule.reason
    if listed and not rule.expects(ours, printed):
        cause, reason = "unknown", f"listed {rule.expectation}, and no longer is"
    elif equal:
        reason = None
    elif not listed:
        cause, reason = "known", f"the paper does not follow the reading {measure.reading} here"
    close = "near" if ratio is not None and abs(ratio - 1) <= NEAR else "off"
    verdict = cast("Verdict", "equal" if equal else f"{close}, cause {cause}")
    return PaperRow(measure.label, measure.reading, ours, printed, ratio, verdict, reason)


def is_unexpected(figure: str, row: PaperRow) -> bool:
    """Return whether a row is no longer as listed."""
    return not rule_of(figure, row.label, row.reading).expects(row.ours, row.printed)


@dataclass(frozen=True)
class FigureSummary:
    """The summary of a figure: the numbers of rows, in all and by verdict."""

    rows: int
    counts: Mapping[Verdict, int]
    furthest: str | None
    """The row whose number is furthest from the printed one, by the larger of ours over printed
    and printed over ours; None if all numbers are equal."""
    deviation: float | None
    """That of the furthest row: ours over printed, minus 1."""
    verdict: str
    """The worst verdict of a row, and the commonest reason for it."""


@dataclass(frozen=True)
class FigureRows:
    """The rows of a figure, and their summary."""

    summary: FigureSummary
    rows: tuple[PaperRow, ...]


def _figures(rows: Mapping[str, Sequence[PaperRow]]) -> dict[str, FigureRows]:
    return {name: FigureRows(figure, tuple(rows[name])) for name, figure in summary(rows).items()}


REPRODUCED = Columns(
    Column("figures", of=_figures, type=Mapping[str, FigureRows]),
    Column("counts", of=lambda rows: count_verdicts(rows), type=Mapping[str, int]),
)
"""What a document says of the rows of each figure."""


def count_verdicts(rows: Mapping[str, Sequence[PaperRow]]) -> dict[Verdict, int]:
    """Return the number of rows of each verdict."""
    counts = Counter(row.verdict for figure_rows in rows.values() for row in figure_rows)
    # All verdicts, including those of no row: programs may read each key.
    return {verdict: counts[verdict] for verdict in VERDICTS}


def summary(rows: Mapping[str, Sequence[PaperRow]]) -> dict[str, FigureSummary]:
    """Return the summary of each figure's rows."""
    return {figure: _summary(figure_rows) for figure, figure_rows in rows.items()}


def _summary(rows: Sequence[PaperRow]) -> FigureSummary:
    different = [row for row in rows if row.verdict != "equal"]
    numbers = {f"{row.label}, {row.reading}": row.ratio for row in different if row.ratio}
    furthest = max(numbers, key=lambda name: max(numbers[name], 1 / numbers[name]), default=None)
    return FigureSummary(
        rows=len(rows),
        counts=count_verdicts({"": rows}),
        furthest=furthest,
        deviation=None if furthest is None else numbers[furthest] - 1,
        verdict=_worst(different),
    )


def _worst(unequal: Sequence[PaperRow]) -> str:
    """Return the worst verdict of rows that are not equal, with its commonest reason."""
    if not unequal:
        return "all equal"
    worst = max((row.verdict for row in unequal), key=VERDICTS.index)
    those = [row.reason for row in unequal if row.verdict == worst]
    ((reason, _),) = Counter(those).most_common(1)
    return f"{len(those)} {worst}: {reason}"
