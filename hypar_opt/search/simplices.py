"""Simplices of shares of groups of accelerators: intervals for two groups, triangles for three."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.plan.share_of_group import SHARES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

Shares = tuple[int, ...]
"""The share of each group, in parts of `SHARES`."""

Simplex = tuple[Shares, ...]
"""The corners between which shares are searched: for two groups the ends of an interval."""

_SAME = 1e-6
"""The most that rounding may leave in place of 0."""

_INTERIOR_MARGIN = 2
"""The distance from corners, in shares, at which a bound is tight: at corners the maximum
changes."""


def integer_shares(weights: Sequence[Fraction | int], step: int = 1) -> Shares:
    """Return shares in proportion to weights, in whole steps, at least one each."""
    total, steps = sum(weights), SHARES // step
    limit = steps - len(weights) + 1
    shares = [min(max(round(steps * Fraction(weight) / total), 1), limit) for weight in weights]
    while (over := sum(shares) - steps) != 0:
        largest = shares.index(max(shares))
        shares[largest] = max(1, shares[largest] - over)
    return tuple(step * share for share in shares)


def initial_cover(point: Shares) -> Iterator[Simplex]:
    """Yield simplices that together cover all shares, with a corner at a point."""
    groups = range(len(point))
    ends = [tuple(SHARES * (n == group) for n in groups) for group in groups]
    for corner in groups:
        yield tuple(point if n == corner else end for n, end in enumerate(ends))


def weights_near(simplex: Simplex, point: Shares) -> list[float]:
    """Return the barycentric coordinates of the point of a simplex that is nearest to another."""
    weights = np.maximum(_weights(simplex, point), 0.0)
    count, (one, other) = len(simplex), _longest_edge(simplex)
    inward = min(0.5, _INTERIOR_MARGIN * count / _length(simplex[one], simplex[other]))
    return ((1 - inward) * weights / weights.sum() + inward / count).tolist()  # type: ignore[no-any-return]


def bisected(simplex: Simplex, point: Shares, step: int) -> list[Simplex]:
    """Return two parts of a simplex, cut where its longest edge is nearest to a point, or in half.

    Empty if no shares lie between that edge's ends.
    """
    edge = _longest_edge(simplex)
    ends, weights = [simplex[n] for n in edge], _weights(simplex, point)[[*edge]]
    if weights.min() > _SAME and (between := _mean(ends, weights, step)) not in ends:
        point = between
    elif (point := _mean(ends, np.ones(2), step)) in ends:
        return []
    return [
        tuple(point if n == corner else end for n, end in enumerate(simplex)) for corner in edge
    ]


def _mean(corners: Sequence[Shares], weights: NDArray[np.float64], step: int) -> Shares:
    """Return the mean of some shares, in whole steps."""
    mean = weights @ np.array(corners) / weights.sum() / step
    steps = np.floor(mean + _SAME).astype(int).tolist()
    for n in range(SHARES // step - sum(steps)):
        steps[n] += 1
    return tuple(step * count for count in steps)


def _weights(simplex: Simplex, point: Shares) -> NDArray[np.float64]:
    corners, at = np.array(simplex, float).T, np.array(point, float)
    weights: NDArray[np.float64]
    try:
        weights = np.linalg.solve(corners, at)
    except np.linalg.LinAlgError:  # in whole steps its corners may lie on one line
        weights = np.linalg.lstsq(corners, at)[0]
    return weights


def _longest_edge(simplex: Simplex) -> tuple[int, int]:
    pairs = combinations(range(len(simplex)), 2)
    return max(pairs, key=lambda pair: _length(*(simplex[n] for n in pair)))


def _length(first: Shares, second: Shares) -> float:
    return float(np.linalg.norm(np.subtract(first, second)))
