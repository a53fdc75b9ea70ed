"""The longest of what several parts take, at some shares; between shares linear bounds on it.

Source: docs/decisions/0025-unequal-groups.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.integers import Integers

_ROUNDED = 2
"""No charge of shares in between is less than its chord by more, for rounding."""


def longest_of_run(
    corners: Sequence[Sequence[Sequence[Integers]]], weights: Sequence[float]
) -> list[list[Integers]]:
    """Return what an exchange over several levels charges each: where it takes longest.

    Parameters
    ----------
    corners
        The charges of the levels, of the parts, at each corner; between several their sum is
        charged to the first.
    weights
        As `longest` takes them.

    Returns
    -------
    list
        At each corner the charges of the levels.
    """
    sums = [[sum(levels[1:], levels[0]) for levels in parts] for parts in corners]
    if len(corners) > 1 or len(corners[0][0]) == 1:
        return [[charges] for charges in longest(sums, weights)]
    (first, *others), (total, *totals) = corners[0], sums[0]
    rows = [*first]
    for own, other in zip(others, totals, strict=True):
        slower = other > total
        rows = [np.where(slower, after, row) for after, row in zip(own, rows, strict=True)]
        total = np.maximum(other, total)
    return [rows]


def longest(corners: Sequence[Sequence[Integers]], weights: Sequence[float]) -> list[Integers]:
    """Return the longest of several charges; or a linear function that it is no less than.

    That is the one of several that is longest at one point, which is a tangent of the longest: the
    sum of tangents at a point is one of the sum, and so is tight where that is least.

    Parameters
    ----------
    corners
        The charges at each corner of a simplex, of functions that are at least linear in between.
        One that is negative at a corner says nothing.
    weights
        The point, as its weights of the corners.

    Returns
    -------
    list
        At each corner the function's.
    """
    if len(corners) == 1:
        return [reduce(np.maximum, corners[0])]

    def height(charges: Sequence[Integers]) -> NDArray[np.float64]:
        parts = [part * own.astype(np.float64) for part, own in zip(weights, charges, strict=True)]
        return np.where(reduce(np.minimum, charges) < 0, -1, reduce(np.add, parts))

    best, *others = zip(*corners, strict=True)
    highest = height(best)
    for function in others:
        own = height(function)
        longer = own > highest
        if longer.any():
            best = tuple(np.where(longer, *pair) for pair in zip(function, best, strict=True))
            highest = np.maximum(own, highest)
    return [np.maximum(own - _ROUNDED, 0) for own in best]
