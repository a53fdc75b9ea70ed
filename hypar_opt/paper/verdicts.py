"""The verdict that each row is expected to have, and the one that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from hypar_opt.paper.rows import Measure, PaperRow, Value, Verdict, read_toml


@dataclass(frozen=True)
class Rule:
    """What is expected of the rows that match; without a verdict they are to be reproduced.

    Parameters
    ----------
    rows, readings
        Patterns of the labels and the readings that the rule is for.
    relative, absolute
        Tolerances within which a row is reproduced: the larger of the two holds.
    ratios
        With a verdict: the lower and the upper bound of ours over printed.
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
        """Return whether the rule is for a row."""
        return fnmatchcase(label, self.rows) and fnmatchcase(reading, self.readings)

    def reproduces(self, ours: Value, printed: Value) -> bool:
        """Return whether ours is what is printed; ``>10`` is printed where a bar is cut off."""
        if isinstance(printed, str):
            if printed.startswith(">") and not isinstance(ours, str):
                return ours > float(printed[1:])
            return ours == printed
        if isinstance(ours, str):  # text where a number is printed
            return False
        return abs(ours - printed) <= max(self.absolute, self.relative * abs(printed))

    def expects(self, ours: Value, printed: Value) -> bool:
        """Return whether ours is as listed: reproduced, or as far off as the rule says."""
        if self.verdict is None:
            return self.reproduces(ours, printed)
        # Texts have no ratio, so a row that differs lists our text.
        if self.ours is not None and ours != self.ours:
            return False
        if self.ratios is None:
            return True
        # A row that differs is checked too: a model that drifts further off is noticed.
        ratio, (lower, upper) = ratio_of(ours, printed), self.ratios
        return ratio is not None and lower <= ratio <= upper

    @property
    def expectation(self) -> str:
        """What a row is listed as, in words."""
        if self.verdict is None:
            return "as reproduced"
        if self.ratios is None:
            return f"with {self.ours} as ours"
        lower, upper = self.ratios
        return f"with ours {lower:g} to {upper:g} times what is printed"


@cache
def rules() -> dict[str, list[Rule]]:
    """Return what is expected of each figure's rows, ``verdicts.toml``."""
    return {
        figure: [Rule(**fields) for fields in entries]
        for figure, entries in read_toml("verdicts.toml").items()
    }


def rule_of(figure: str, label: str, reading: str) -> Rule:
    """Return the last of a figure's rules that holds for a row: exceptions follow the rule."""
    return next(rule for rule in reversed(rules()[figure]) if rule.holds_for(label, reading))


def ratio_of(ours: Value, printed: Value) -> float | None:
    """Return ours over printed; None of texts, and where 0 is printed."""
    if isinstance(ours, str) or isinstance(printed, str) or not printed:
        return None
    return ours / printed


def judge(figure: str, measure: Measure) -> PaperRow:
    """Compute a row and compare it with what is printed."""
    ours, printed = measure.ours(), measure.printed
    rule = rule_of(figure, measure.label, measure.reading)
    verdict, reason = rule.verdict or "reproduced", rule.reason
    if not rule.expects(ours, printed):
        # A row that was open or differed stays so; one that was reproduced now differs.
        verdict = rule.verdict or "differs"
        reason = f"listed {rule.expectation}, and no longer is"
    ratio = ratio_of(ours, printed)
    return PaperRow(measure.label, measure.reading, ours, printed, ratio, verdict, reason)


def is_unexpected(figure: str, row: PaperRow) -> bool:
    """Return whether a row is no longer as listed."""
    return not rule_of(figure, row.label, row.reading).expects(row.ours, row.printed)
