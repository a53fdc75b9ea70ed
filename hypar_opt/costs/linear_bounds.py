"""The longest of what several parts take, at some shares; between shares linear bounds on it.

Source: docs/decisions/0025-unequal-groups.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.table import Integers

_ROUNDED = 2
"""No charge of shares in between is less than its chord by more, for rounding."""

_EXACT = 1 - 2**-48
"""What is left of a sum of products in floating point that is surely no more than the sum."""

_LEAST = 16
"""How many corners of a linear bound its least one counts as, where one of several is taken."""


def longest_of_run(corners: Sequence[Sequence[Sequence[Integers]]]) -> list[list[Integers]]:
    """Return what an exchange over several levels charges each: where it takes longest.

    Parameters
    ----------
    corners
        The charges of the levels, of the parts, at each corner; between several their sum is
        charged to the first.

    Returns
    -------
    list
        At each corner the charges of the levels.
    """
    sums = [[sum(levels[1:], levels[0]) for levels in parts] for parts in corners]
    if len(corners) > 1 or len(corners[0][0]) == 1:
        return [[charges] for charges in longer(sums)]
    (first, *others), (longest, *totals) = corners[0], sums[0]
    rows = [*first]
    for own, total in zip(others, totals, strict=True):
        slower = total > longest
        rows = [np.where(slower, after, row) for after, row in zip(own, rows, strict=True)]
        longest = np.maximum(total, longest)
    return [rows]


def longer(corners: Sequence[Sequence[Integers]]) -> list[Integers]:
    """Return the longest of several charges; or a linear function that it is no less than.

    Parameters
    ----------
    corners
        The charges at each corner of a simplex, of functions that are at least linear in between.
        Whatever their weights, the longest is at least their mean. Those weights are tried with
        which the corners of two or three functions are equal.

    Returns
    -------
    list
        At each corner the function's, that of which the least corner is highest.
    """
    if len(corners) == 1:
        return [reduce(np.maximum, corners[0])]
    # Parts of a group mostly take as long as each other, and passes as long as they compute.
    functions: list[Sequence[Integers]] = []
    for function in zip(*corners, strict=True):
        if not any(_is_no_longer(function, own) for own in functions):
            functions = [own for own in functions if not _is_no_longer(own, function)]
            functions.append(function)
    best = _Best(functions[0])
    for charges in functions[1:]:
        best.or_else(charges)
    ends = [[own.astype(np.float64) for own in charges] for charges in functions]
    for two in combinations(ends, 2):
        for first, then in combinations(range(len(corners)), 2):
            (before, after), (other, another) = ((own[first], own[then]) for own in two)
            best.or_mean(two, [other - another, after - before])
    for three in combinations(ends, 3) if len(corners) > 2 else ():
        for first, *others in combinations(range(len(corners)), 3):
            (a, b, c), (d, e, f) = ([own[first] - own[n] for own in three] for n in others)
            best.or_mean(three, [b * f - c * e, c * d - a * f, a * e - b * d])
    return [np.maximum(own - _ROUNDED, 0) for own in best.corners]


def _is_no_longer(function: Sequence[Integers], other: Sequence[Integers]) -> bool:
    """Return whether a function is nowhere above another."""
    return all(bool((own <= more).all()) for own, more in zip(function, other, strict=True))


class _Best:
    """The corners of the linear function that is high at its least corner, entry by entry.

    Of functions about as high there one that is high at others: near a corner at which functions
    cross, not their mean.
    """

    def __init__(self, corners: Sequence[Integers]) -> None:
        self.corners = list(corners)
        self._height = _height(corners)

    def or_else(self, corners: Sequence[Integers]) -> None:
        """Take another function where it is higher."""
        height = _height(corners)
        higher = height > self._height
        if higher.any():
            self.corners = [
                np.where(higher, other, own)
                for other, own in zip(corners, self.corners, strict=True)
            ]
            self._height = np.maximum(self._height, height)

    def or_mean(self, functions: Sequence[Sequence[Integers]], weights: Sequence[Integers]) -> None:
        """Take the mean of functions where its least corner is higher, and no weight negative."""
        total = sum(weights)
        usable = reduce(np.logical_and, [own * total >= 0 for own in weights]) & (total != 0)
        if not usable.any():
            return
        parts = [
            np.divide(own, total, out=np.zeros(np.shape(usable)), where=usable) for own in weights
        ]
        means = [
            sum(part * charges for part, charges in zip(parts, at_corner, strict=True))
            for at_corner in zip(*functions, strict=True)
        ]
        dtype = self.corners[0].dtype
        self.or_else([np.floor(own * _EXACT).astype(np.int64).astype(dtype) for own in means])


def _height(corners: Sequence[Integers]) -> NDArray[np.float64]:
    each = [own.astype(np.float64) for own in corners]
    height: NDArray[np.float64] = _LEAST * reduce(np.minimum, each) + reduce(np.add, each)
    return height
