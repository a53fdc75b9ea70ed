"""How much of a Pareto front is done, which is not known before its end."""

from __future__ import annotations

from fractions import Fraction
from math import log

from hypar_opt.search.result import Progress

TIGHTER = Fraction(15, 16)
"""Of the memory of a point, what the next may take at most, where a front is of devices."""


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
    steps, at, end = (log(max(own, 1)) / -log(TIGHTER) for own in (first, limit, least))
    behind = int(steps - at)
    total = behind + max(int(at - end), 0) + 1
    return (found, points) if points is not None and points <= total else (behind, total)
