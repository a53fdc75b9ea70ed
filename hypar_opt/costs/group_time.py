"""Time on unequal groups: each exchange and pass lasts as long as in the slowest part of H1."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import combinations
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hypar_opt.costs.buckets import LatencyShares
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.compute import Work
from hypar_opt.costs.physical import Rings, array_of
from hypar_opt.costs.readings import Phase
from hypar_opt.costs.sides import (
    Parts,
    Share,
    SideBytes,
    SideWork,
    between_groups,
    check_reading,
)
from hypar_opt.costs.states import levels_of
from hypar_opt.costs.time import TimeCost
from hypar_opt.workload.parallelism import SIDES

if TYPE_CHECKING:
    from fractions import Fraction

    from hypar_opt.costs.base import Symmetries
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.costs.states import Indices, States
    from hypar_opt.costs.table import Integers
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload

_ROUNDED = 2
"""No charge of shares in between is less than its chord by more, for rounding."""

_EXACT = 1 - 2**-48
"""What is left of a sum of products in floating point that is surely no more than the sum."""


@dataclass(frozen=True, kw_only=True)
class GroupTime(TimeCost):
    """Seconds of one training step on groups of accelerators, whose shares divide what H1 splits.

    Below H1 each part exchanges over its own links. With the corners of a simplex of shares a
    charge is a lower bound for all shares in it: what a part takes is linear in the shares, or no
    less than a linear function, and the longest of several is least where some of them cross.

    Parameters
    ----------
    of_parts
        The work of an accelerator of each part.
    links
        Each level's links as each part uses them, H1 first.
    members
        The numbers of each part's accelerators.
    shares
        Each part's share of what H1 splits: one tuple, or those at the corners of a simplex.

    Source: docs/decisions/0025-unequal-groups.md.
    """

    of_parts: tuple[Work, ...]
    links: tuple[tuple[BisectionLink, ...], ...]
    members: tuple[range, ...]
    shares: tuple[Parts, ...]

    @classmethod
    def of_groups(cls, problem: Problem, workload: Workload) -> Self:
        """Return the cost of a problem on an array of groups.

        Raises
        ------
        HyparError
            If it has options that contradict the array, or is not of the reading of a run.
        """
        array, placement = array_of(problem)
        works = {
            group.name: Work(group, problem.hierarchy, problem.element_bytes, longest=True)
            for group in array.groups
        }
        network, (between, *below) = array.interconnect, placement
        cost = cls(
            communication=CommunicationCost.of_problem(check_reading(problem)),
            rings=Rings.of(array, placement),
            splits=tuple(map(network.bisection, placement)),
            work=max(works.values(), key=lambda work: work.upper_bound(workload)),
            of_parts=tuple(works[group.name] for group in array.groups_of_parts),
            links=tuple(
                (network.bisection(between), *(network.bisection(digit, own) for digit in below))
                for own in array.members
            ),
            members=array.members,
            shares=(problem.part_shares,),
            bucket_elements=array.bucket_elements(problem.element_bytes),
        )
        return cost.in_buckets(workload).in_parts(None, workload)

    def between(self, *shares: Parts) -> Self:
        """Return the cost at some shares, or the least in the simplex between several."""
        return replace(self, shares=shares)

    @property
    def _each(self) -> list[list[Share]]:
        """Every part's share, at each corner."""
        least = tuple(map(min, zip(*self.shares, strict=True))) if len(self.shares) > 1 else ()
        return [Share.each(parts, least) for parts in self.shares]

    @cached_property
    def _sides(self) -> dict[Phase, list[list[TimeCost]]]:
        """What each part takes in a pass, at each corner."""

        def side(phase: Phase, share: Share) -> TimeCost:
            received = SideBytes.among(self.communication.of(phase), share)
            return TimeCost(
                communication=replace(received, longest=True),
                rings=self.rings and replace(self.rings, among=self.members[share.side]),
                per_unit=self.per_unit,
                largest=self.largest,
                crossing=self.crossing,
                splits=self.links[share.side],
                work=None,
                bucket_elements=self.bucket_elements,
                latencies=self.latencies,
            )

        return {
            phase: [[side(phase, share) for share in shares] for shares in self._each]
            for phase in self.communication.phases
        }

    def node(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        """Return each layer's charges: its reductions and, at the last level, its compute."""
        levels = levels_of(states)
        runs = self.rings.runs(levels) if self.rings else None
        rows = self._longest(levels, lambda side: side.node(workload, nodes, states), runs)
        if self.work is not None and levels == self.work.hierarchy.levels > 0:
            asked = (workload, nodes, states, self.per_unit, self.communication.phases)
            # A pass takes the longer of two times, which is not linear: each is bounded by itself.
            corners = [
                [
                    charges
                    for work, share in zip(self.of_parts, shares, strict=True)
                    for charges in SideWork.among(work, share).loading_and_computing(*asked)
                ]
                for shares in self._each
            ]
            rows[-1] = rows[-1] + longer(corners).astype(rows[-1].dtype)
        return rows

    def edge(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> list[Integers]:
        """Return each boundary's charges: its exchanges, always between pairs."""
        return self._longest(
            levels_of(targets),
            lambda side: side.edge(workload, boundaries, sources, targets),
            of_weights=False,
        )

    def of_plan(self, workload: Workload, rows: Rows) -> Self:
        """Return the cost as this plan's own all-reduces share their latencies: what it takes.

        A layer in one part is reduced by itself, there alone.
        """
        if self.latencies is None:
            return self
        together: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        for key, nodes in self.reductions(workload, rows).items():
            for node in nodes:
                choice = workload.choices[rows[0][node]]
                together[choice if choice in SIDES else None, *key].append(node)
        return replace(self, latencies=LatencyShares.of_plan(together, workload.stored))

    def _longest(
        self,
        levels: int,
        charges: Callable[[TimeCost], Sequence[Integers]],
        runs: Sequence[tuple[int, ...]] | None = None,
        *,
        of_weights: bool = True,
    ) -> list[Integers]:
        """Return the sum over passes of the slowest part's charges at each level.

        Parameters
        ----------
        runs
            The levels that an exchange may join; unless given each by itself.
        of_weights
            Whether the pass of gradients charges anything: no boundary's tensor moves in it.
        """
        rows = self.uncharged(levels)
        for phase, corners in self._sides.items():
            if phase is Phase.GRADIENT and not of_weights:
                continue
            by_side = [[charges(side) for side in sides] for sides in corners]
            for run in runs or [(level,) for level in range(levels)]:
                alone = [[[of[level] for level in run] for of in sides] for sides in by_side]
                for level, charge in zip(run, longest_of_run(alone), strict=False):
                    rows[level] = rows[level] + charge
        return rows

    def symmetries(self, workload: Workload, levels: int) -> Symmetries:
        """Return which levels are charged alike: H1, between the groups, as no other."""
        return super().symmetries(workload, levels).told_apart(between_groups(levels))

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return an upper bound on the seconds of any plan: a part may have all of everything."""
        return len(self.members) * super().upper_bound(workload)


def longest_of_run(corners: Sequence[Sequence[Sequence[Integers]]]) -> list[Integers]:
    """Return what an exchange over several levels charges each: where it takes longest.

    Parameters
    ----------
    corners
        The charges of the levels, of the parts, at each corner; between several their sum is
        charged to the first.
    """
    sums = [[sum(levels[1:], levels[0]) for levels in parts] for parts in corners]
    if len(corners) > 1 or len(corners[0][0]) == 1:
        return [longer(sums)]
    (first, *others), (longest, *totals) = corners[0], sums[0]
    rows = [*first]
    for own, total in zip(others, totals, strict=True):
        slower = total > longest
        rows = [np.where(slower, after, row) for after, row in zip(own, rows, strict=True)]
        longest = np.maximum(total, longest)
    return rows


def longer(corners: Sequence[Sequence[Integers]]) -> Integers:
    """Return the longest of several charges, or the least that it can be between some shares.

    Parameters
    ----------
    corners
        The charges at each corner of a simplex, of functions that are at least linear in between.
        Whatever their weights, the longest is at least their mean, and this at least its least
        corner. Those weights are tried with which the corners of two or three functions are equal.
    """
    longest = [reduce(np.maximum, charges) for charges in corners]
    if len(corners) == 1:
        return longest[0]
    functions: list[Sequence[Integers]] = list(zip(*corners, strict=True))
    least = reduce(np.maximum, [reduce(np.minimum, charges) for charges in functions])
    ends = [[own.astype(np.float64) for own in charges] for charges in functions]
    for two in combinations(ends, 2):
        for first, then in combinations(range(len(corners)), 2):
            (before, after), (other, another) = ((own[first], own[then]) for own in two)
            least = np.maximum(least, _mean(two, [other - another, after - before], least.dtype))
    for three in combinations(ends, 3) if len(corners) > 2 else ():
        for first, *others in combinations(range(len(corners)), 3):
            (a, b, c), (d, e, f) = ([own[first] - own[n] for own in three] for n in others)
            weights = [b * f - c * e, c * d - a * f, a * e - b * d]
            least = np.maximum(least, _mean(three, weights, least.dtype))
    bound: Integers = np.maximum(least - _ROUNDED, 0)
    return bound


def _mean(
    functions: Sequence[Sequence[Integers]], weights: Sequence[Integers], dtype: np.dtype
) -> Integers:
    """Return the least corner of a mean of functions; 0 where weights are of both signs."""
    total = sum(weights)
    usable = reduce(np.logical_and, [own * total >= 0 for own in weights]) & (total != 0)
    parts = [np.divide(own, total, out=np.zeros(np.shape(usable)), where=usable) for own in weights]
    means = [
        sum(part * charges for part, charges in zip(parts, at_corner, strict=True))
        for at_corner in zip(*functions, strict=True)
    ]
    least: Integers = np.floor(reduce(np.minimum, means) * _EXACT).astype(np.int64)
    return least.astype(dtype, copy=False)
