"""How close a figure's rows come to what is printed, in one row."""

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
        How many rows there are.
    counts
        How many of them have each verdict.
    furthest
        The row whose number is furthest from what is printed, by the larger of ours over printed
        and printed over ours; None where all numbers are equal.
    deviation
        How far: ours over printed, less 1.
    verdict
        The worst verdict of a row, and what is known of most of the rows that have it.
    """

    rows: int
    counts: Mapping[Verdict, int]
    furthest: str | None
    deviation: float | None
    verdict: str


def count_verdicts(rows: Mapping[str, Sequence[PaperRow]]) -> dict[Verdict, int]:
    """Return how many rows there are of each verdict."""
    counts = Counter(row.verdict for figure_rows in rows.values() for row in figure_rows)
    # All of them, also those that no row has: a program may read each key.
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
    """Word the worst verdict of rows that are not equal, with its commonest reason."""
    if not apart:
        return "all equal"
    worst = max((row.verdict for row in apart), key=VERDICTS.index)
    those = [row.reason for row in apart if row.verdict == worst]
    ((reason, _),) = Counter(those).most_common(1)
    return f"{len(those)} {worst}: {reason}"
