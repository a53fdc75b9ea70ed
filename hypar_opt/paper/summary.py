"""Summaries of figures: how close their rows come to the printed values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypar_opt.paper.rows import VERDICTS, PaperRow, Verdict


@dataclass(frozen=True)
class FigureSummary:
    """The rows of a figure together.

    Parameters
    ----------
    rows
        The number of rows.
    counts
        The number of rows of each verdict.
    furthest
        The row whose number is furthest from the printed one, by the larger of ours over printed
        and printed over ours; None if all numbers are equal.
    deviation
        Its deviation: ours over printed, minus 1.
    verdict
        The worst verdict of a row, and the commonest reason for it.
    """

    rows: int
    counts: Mapping[Verdict, int]
    furthest: str | None
    deviation: float | None
    verdict: str


def count_verdicts(rows: Mapping[str, Sequence[PaperRow]]) -> dict[Verdict, int]:
    """Return the number of rows of each verdict."""
    counts = Counter(row.verdict for figure_rows in rows.values() for row in figure_rows)
    # All verdicts, including those of no row: programs may read each key.
    return {verdict: counts[verdict] for verdict in VERDICTS}


def summary(rows: Mapping[str, Sequence[PaperRow]]) -> dict[str, FigureSummary]:
    """Return the summary of each figure's rows."""
    return {figure: _summary(figure_rows) for figure, figure_rows in rows.items()}


def _summary(rows: Sequence[PaperRow]) -> FigureSummary:
    apart = [row for row in rows if row.verdict != "equal"]
    numbers = {f"{row.label}, {row.reading}": row.ratio for row in apart if row.ratio}
    furthest = max(numbers, key=lambda name: max(numbers[name], 1 / numbers[name]), default=None)
    return FigureSummary(
        rows=len(rows),
        counts=count_verdicts({"": rows}),
        furthest=furthest,
        deviation=None if furthest is None else numbers[furthest] - 1,
        verdict=_worst(apart),
    )


def _worst(apart: Sequence[PaperRow]) -> str:
    """Return the worst verdict of rows that are not equal, with its commonest reason."""
    if not apart:
        return "all equal"
    worst = max((row.verdict for row in apart), key=VERDICTS.index)
    those = [row.reason for row in apart if row.verdict == worst]
    ((reason, _),) = Counter(those).most_common(1)
    return f"{len(those)} {worst}: {reason}"
