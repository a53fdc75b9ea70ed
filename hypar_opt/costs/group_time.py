"""Time on two unequal groups: each exchange and pass lasts as long as in the slower one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.compute import Work
from hypar_opt.costs.physical import array_of
from hypar_opt.costs.readings import Phase
from hypar_opt.costs.sides import (
    Share,
    SideBytes,
    SideWork,
    between_groups,
    check_reading,
    parts_of_share,
)
from hypar_opt.costs.states import levels_of
from hypar_opt.costs.time import TimeCost

if TYPE_CHECKING:
    from fractions import Fraction

    from hypar_opt.costs.base import Symmetries
    from hypar_opt.costs.states import Indices, States
    from hypar_opt.costs.table import Integers
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload

Sides = tuple[TimeCost, TimeCost]

_ROUNDED = 2
"""No charge of a share in between is less than its chord by more, for rounding."""


@dataclass(frozen=True, kw_only=True)
class GroupTime(TimeCost):
    """Seconds of one training step on two groups, in each part of which H1 splits by their shares.

    Below H1 each group exchanges over its own links. With the two ends of an interval as shares a
    charge is a lower bound for all shares between them: what a group takes is linear in its share
    or concave, and so at least its chord; the longer of two chords is least at an end or where they
    cross.

    Parameters
    ----------
    of_group
        The work of each group's accelerators.
    links
        Each level's links as either group uses them, H1 first.
    shares
        The first group's share of what H1 splits, of `SHARES`: one, or the ends of an interval.

    Source: docs/decisions/0025-unequal-groups.md.
    """

    of_group: tuple[Work, Work]
    links: tuple[tuple[BisectionLink, ...], tuple[BisectionLink, ...]]
    shares: tuple[int, ...]

    @classmethod
    def of_groups(cls, problem: Problem, workload: Workload) -> Self:
        """Return the cost of a problem on an array of two groups.

        Raises
        ------
        HyparError
            If it has options that contradict the array, or is not of the reading of a run.
        """
        array, placement = array_of(problem)
        first, second = (
            Work(group, problem.hierarchy, problem.element_bytes, longest=True)
            for group in array.groups
        )
        whole, network = problem.hierarchy.accelerators, array.interconnect
        between, *below = placement
        links = tuple(
            (
                network.bisection(between),
                *(network.among(digit, start, whole // 2) for digit in below),
            )
            for start in (0, whole // 2)
        )
        cost = cls(
            communication=CommunicationCost.of_problem(check_reading(problem)),
            rings=None,
            splits=tuple(map(network.bisection, placement)),
            work=max(first, second, key=lambda work: work.upper_bound(workload)),
            of_group=(first, second),
            links=(links[0], links[1]),
            shares=(parts_of_share(problem.share),),
        )
        return cost.in_parts(None, workload)

    def between(self, *shares: int) -> Self:
        """Return the cost at one share, or the least in an interval of them."""
        return replace(self, shares=shares)

    @cached_property
    def _sides(self) -> dict[Phase, list[Sides]]:
        """What either group takes in a pass, at each of the shares."""

        def side(phase: Phase, share: Share) -> TimeCost:
            return TimeCost(
                communication=SideBytes.among(self.communication.of(phase), share),
                rings=None,
                per_unit=self.per_unit,
                largest=self.largest,
                splits=self.links[share.side],
                work=None,
            )

        return {
            phase: [
                (side(phase, first), side(phase, second))
                for first, second in map(Share.both, self.shares)
            ]
            for phase in self.communication.phases
        }

    def node(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        """Return each layer's charges: its reductions and, at the last level, its compute."""
        levels = levels_of(states)
        rows = self._longest(levels, lambda side: side.node(workload, nodes, states))
        if self.work is not None and levels == self.work.hierarchy.levels > 0:
            asked = (workload, nodes, states, self.per_unit, self.communication.phases)
            ends = [
                [
                    SideWork.among(work, share).charges(*asked)
                    for work, share in zip(self.of_group, Share.both(parts), strict=True)
                ]
                for parts in self.shares
            ]
            rows[-1] = rows[-1] + longer(ends).astype(rows[-1].dtype)
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

    def _longest(
        self,
        levels: int,
        charges: Callable[[TimeCost], Sequence[Integers]],
        *,
        of_weights: bool = True,
    ) -> list[Integers]:
        """Return the sum over passes of the slower group's charges at each level.

        Parameters
        ----------
        of_weights
            Whether the pass of gradients charges anything: no boundary's tensor moves in it.
        """
        rows = self.uncharged(levels)
        for phase, ends in self._sides.items():
            if phase is Phase.GRADIENT and not of_weights:
                continue
            by_side = [[charges(side) for side in sides] for sides in ends]
            for level in range(levels):
                pairs = [[rows_of[level] for rows_of in sides] for sides in by_side]
                rows[level] = rows[level] + longer(pairs)
        return rows

    def symmetries(self, workload: Workload, levels: int) -> Symmetries:
        """Return which levels are charged alike: H1, between the groups, as no other."""
        return super().symmetries(workload, levels).told_apart(between_groups(levels))

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return an upper bound on the seconds of any plan: a group may have all of everything."""
        return 2 * super().upper_bound(workload)


def longer(ends: Sequence[Sequence[Integers]]) -> Integers:
    """Return the longer of both groups' charges, or the least that it can be between two shares.

    Parameters
    ----------
    ends
        The charges of the first and the second group, at one share or two.
    """
    longest = [np.maximum(*pair) for pair in ends]
    if len(ends) == 1:
        return longest[0]
    (first, second), (last, other) = (tuple(map(_as_floats, pair)) for pair in ends)
    apart, then = first - second, last - other
    crosses = apart * then < 0
    where = np.divide(apart, apart - then, out=np.zeros(np.shape(crosses)), where=crosses)
    crossing = np.floor(first + where * (last - first))
    least: Integers = np.minimum(*longest)
    least = np.where(crosses, np.minimum(crossing, least).astype(least.dtype), least)
    bound: Integers = np.maximum(least - _ROUNDED, 0)
    return bound


def _as_floats(charges: Integers) -> Integers:
    floats: Integers = charges.astype(np.float64)
    return floats
