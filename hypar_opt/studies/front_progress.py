"""How much of a Pareto front is done, which is not known before its end."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import log
from typing import TYPE_CHECKING

from hypar_opt.errors import Sentence, argument
from hypar_opt.search.result import Progress

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan

TIGHTER = Fraction(15, 16)
"""Of the memory of a point, what the next may take at most, where a front is of devices."""

_WITH_GAPS = 2
"""Points in a row that are not proved, after which a front ends unless its points are stated."""


def left_open(plans: Sequence[Plan]) -> Sentence | None:
    """Return why a front of some plans goes no further, if so many of the last have a gap."""
    if not all(plan.solver.gap for plan in plans[-_WITH_GAPS:]) or len(plans) < _WITH_GAPS:
        return None
    return Sentence(
        f"plans of less memory are hard to prove; {argument('points')} takes how many to seek"
    )


def report(progress: Progress, done: int, of: int, found: int, points: int | None) -> None:
    """Report the larger share: of the memory that is behind, or of the points that are to come."""
    shares = [(done, of), (found, points or 0)]
    progress(*max(shares, key=lambda share: share[0] / share[1] if share[1] else 0))


def position(first: int, limit: int, least: int, found: int, points: int | None) -> tuple[int, int]:
    """Return the number of the next point of a device's front, from 0, and how many there may be.

    Parameters
    ----------
    first, limit, least
        Bytes of the first point, of the next one at most, and those that no plan holds less than.
    """
    steps, at, end = (log(max(memory, 1)) / -log(TIGHTER) for memory in (first, limit, least))
    behind = int(steps - at)
    total = behind + max(int(at - end), 0) + 1
    return (found, points) if points is not None and points <= total else (behind, total)
