"""Time on unequal groups: each exchange and pass lasts as long as in the slowest part of H1."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import accumulate, cycle, pairwise, repeat
from operator import mul
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hypar_opt.costs.buckets import LatencyShares
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.kernels import work_of
from hypar_opt.costs.linear_bounds import longest, longest_of_run
from hypar_opt.costs.physical import Rings, array_of
from hypar_opt.costs.reductions import Reduction
from hypar_opt.costs.side_work import Amounts, side_work, work_of_indices
from hypar_opt.costs.sides import (
    Parts,
    Share,
    SideBytes,
    check_of_groups,
)
from hypar_opt.costs.time import TimeCost
from hypar_opt.sharding.repetitions import exchanges_of
from hypar_opt.step.readings import Phase
from hypar_opt.step.states import added_up, levels_of, shape_of
from hypar_opt.step.uneven import split_sizes
from hypar_opt.workload.parallelism import SIDES
from hypar_opt.workload.repeats import COLLECTIVES, IN_HALVES

if TYPE_CHECKING:
    from fractions import Fraction

    from hypar_opt.costs.compute import Work
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload

_KEPT_BYTES = 2**24
"""The most bytes of charges at all corners that are kept of one question."""

Known = dict[Hashable, list[list["Integers"]]]
"""Charges by corner and level, of the same nodes or boundaries in the same states."""


@dataclass(frozen=True, kw_only=True)
class GroupTime(TimeCost):
    """Seconds of one training step on groups of accelerators, whose shares divide what H1 splits.

    Below H1 each part exchanges over its own links. Given the corners of a simplex of shares, each
    charge is a linear function of the shares in it, at one corner, which is no more than what is
    taken: what a part takes is linear in the shares, or no less than a linear function. So what a
    plan takes anywhere in the simplex is no less than the least of its sums at the corners.

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
    corner
        The number of the corner at which the bound is charged.
    weights
        Those of the corners at the point where it is tight, but for what is not linear.
    known
        What is charged at all corners, which those of one simplex share.

    Source: docs/decisions/0025-unequal-groups.md.
    """

    of_parts: tuple[Work, ...]
    links: tuple[tuple[BisectionLink, ...], ...]
    members: tuple[range, ...]
    shares: tuple[Parts, ...]
    corner: int = 0
    weights: tuple[float, ...] = (1.0,)
    known: Known = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of_groups(cls, problem: Problem, workload: Workload) -> Self:
        """Return the cost of a problem on an array of groups.

        Raises
        ------
        HyparError
            If it has options that contradict the array, or is not of the reading of a run.
        """
        array, placement = array_of(problem)
        asked, kept = (problem.hierarchy, problem.element_bytes), problem.constraints.optimizer
        works = {
            group.name: work_of(group.updated_by(kept), *asked, longest=True)
            for group in array.groups
        }
        network, (between, *below) = array.interconnect, placement
        cost = cls(
            communication=CommunicationCost.of_problem(check_of_groups(problem)),
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

    def at(self, shares: Parts) -> Self:
        """Return the cost at some shares."""
        return replace(self, shares=(shares,))

    def between(self, *shares: Parts, weights: Sequence[float] = ()) -> list[Self]:
        """Return the linear bound on the cost between some shares, at each of them.

        Parameters
        ----------
        weights
            As `weights`; by default those of the middle.
        """
        at = tuple(weights) or (1 / len(shares),) * len(shares)
        bound, corners = replace(self, shares=shares, weights=at, known={}), range(len(shares))
        return [replace(bound, corner=corner, known=bound.known) for corner in corners]

    @cached_property
    def _each(self) -> list[Share]:
        """Every part's share at the first corner, then at the next."""
        corners = self.shares if len(self.shares) > 1 else ()
        return [share for parts in self.shares for share in Share.each(parts, corners)]

    @cached_property
    def _sides(self) -> list[TimeCost]:
        """What an exchange takes in each part."""
        return [
            TimeCost(
                communication=self.communication,
                rings=self.rings and replace(self.rings, among=members),
                per_unit=self.per_unit,
                largest=self.largest,
                crossing=self.crossing,
                splits=links,
                work=None,
                bucket_elements=self.bucket_elements,
                latencies=self.latencies,
            )
            for links, members in zip(self.links, self.members, strict=True)
        ]

    @cached_property
    def _received(self) -> dict[Phase, SideBytes]:
        """What parts receive in each pass."""
        own, first = self.communication, self._each[0]
        return {
            phase: replace(SideBytes.among(own.of(phase), first), longest=True)
            for phase in own.phases
        }

    def node(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        """Return each layer's charges: its reductions and, at the last level, its compute."""
        key = "nodes", self.latencies, self.work is None
        charge = partial(self._nodes, workload, nodes, states)
        return self._at_corner(key, (nodes, *states), charge)

    def _nodes(self, workload: Workload, nodes: Indices, states: States) -> list[list[Integers]]:
        levels, shape = levels_of(states), shape_of(nodes, states)
        runs = self.rings.runs(levels) if self.rings else None
        corners = [self.uncharged(levels) for _ in self.shares]
        for phase, received in self._received.items():
            moved = received.nodes_of_each(self._each, workload, nodes, states)
            charged = [
                side.reductions_charged(
                    {(phase, one.number): one for one in _reductions(workload, phase, own, nodes)},
                    *(workload, nodes, shape),
                )
                for side, own in zip(cycle(self._sides), moved, strict=False)
            ]
            self._add_longest(corners, charged, runs)
        if self.work is not None and levels:
            complete = levels == self.work.hierarchy.levels
            at_h1 = each = self._worked(workload, nodes, states if complete else [states[0][:1]])
            if complete and len(self.shares) == 1:
                # H1 already says how much of a layer each part computes at least. Of a bound that
                # is none: of two linear functions either may be longer.
                at_h1 = self._worked(workload, nodes, [states[0][:1]])
            for rows, first, every in zip(corners, at_h1, each, strict=True):
                rows[0] = rows[0] + first.astype(rows[0].dtype)
                rows[-1] = rows[-1] + (every - first).astype(rows[-1].dtype)
        return corners

    def _worked(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        """Return the time of all passes at each corner, as if levels that are not given split all.

        A pass takes the longest of its times, which is not linear: each is a function by itself.
        """
        asked = workload, nodes, states, self.per_unit, self.communication.phases
        known: Amounts = {}
        count = len(self.members)
        if len(self.shares) == 1:
            works = [
                side_work(work, share, known).each_pass(*asked)
                for work, share in zip(self.of_parts, self._each, strict=True)
            ]
            passes = zip(*works, strict=True)
            own = [
                parts[0][0] * reduce(np.maximum, [time for _, times in parts for time in times])
                for parts in passes
            ]
            return [added_up(own)]
        linear = [
            [*work_of_indices(work, share, None, known).each_pass(*asked)]
            for work, share in zip(cycle(self.of_parts), self._each, strict=False)
        ]
        # Exact shares are linear, and need no more.
        exact = not all(work.longest for work in self.of_parts)
        at_any = repeat(np.zeros(1, np.int64)) if exact else self._at_any_share(asked, known)
        charged = []
        for number, least in zip(range(len(linear[0])), at_any, strict=False):
            times = [passes[number][1] for passes in linear]
            functions = [
                [least, *(time for part in times[first : first + count] for time in part)]
                for first in range(0, len(times), count)
            ]
            often = linear[0][number][0]
            charged.append([often * own for own in longest(functions, self.weights)])
        return [added_up(own) for own in zip(*charged, strict=True)]

    def _at_any_share(
        self,
        asked: tuple[Workload, Indices, States, int, Sequence[Phase]],
        known: Amounts,
    ) -> Iterator[Integers]:
        """Yield what each pass takes at least at any shares between the corners.

        Each part has at least its fewest indices. And of any numbers of indices that add up to less
        than n more than all, one of n parts has at least its own: here those at the shares of
        `weights`, and one more in all parts but one.
        """
        workload, nodes, states, *_ = asked
        sizes = split_sizes(workload)[states[0][0], nodes]
        fewest: list[list[Integers]] = []
        here: list[list[Integers]] = []
        beyond: list[list[Integers]] = []
        reached: list[Integers] = []
        for work, share in zip(self.of_parts, self._at_weights, strict=True):
            for passes, indices in (
                (fewest, share.fewest),
                (here, share.indices),
                (beyond, partial(_one_more, share)),
            ):
                part = work_of_indices(work, share, indices, known)
                passes.append([reduce(np.maximum, own) for _, own in part.each_pass(*asked)])
            reached.append(share.most(sizes) - share.indices(sizes))
        for own, at, behind in zip(
            *(zip(*each, strict=True) for each in (fewest, here, beyond)), strict=True
        ):
            yield reduce(np.maximum, [*own, *_least_of_longest(at, behind, reached)])

    @cached_property
    def _at_weights(self) -> list[Share]:
        """Every part's share at the point where the bound is tight, rounded."""
        total = sum(self.shares[0])
        before = [list(accumulate(parts, initial=0)) for parts in self.shares]
        ends = [round(sum(map(mul, self.weights, own))) for own in zip(*before, strict=True)]
        parts = tuple(end - begin for begin, end in pairwise([*ends[:-1], total]))
        return Share.each(parts, self.shares)

    def edge(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> list[Integers]:
        """Return each boundary's charges: its exchanges, always between pairs."""
        asked = (boundaries, *sources, *targets)
        charge = partial(self._edges, workload, boundaries, sources, targets)
        return self._at_corner(("boundaries",), asked, charge)

    def _edges(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> list[list[Integers]]:
        corners = [self.uncharged(levels_of(targets)) for _ in self.shares]
        ends = workload, boundaries, sources, targets
        for phase, received in self._received.items():
            if phase is Phase.GRADIENT:  # no boundary's tensor moves in it
                continue
            moved = received.edges_of_each(self._each, *ends)
            often = exchanges_of(workload, phase)[workload.ends[boundaries, 1]]
            charged = [
                [
                    side.at_rates(row, side.rates(level), often * side.rounds(level))
                    for level, row in enumerate(own)
                ]
                for side, own in zip(cycle(self._sides), moved, strict=False)
            ]
            self._add_longest(corners, charged)
        return corners

    def _add_longest(
        self,
        corners: list[list[Integers]],
        charged: Sequence[list[Integers]],
        runs: Sequence[tuple[int, ...]] | None = None,
    ) -> None:
        """Add the slowest part's charges of a pass, at each level, to those at each corner.

        Parameters
        ----------
        charged
            By part, corner after corner, and level.
        runs
            The levels that an exchange may join; unless given each by itself.
        """
        parts = len(self.members)
        for run in runs or [(level,) for level in range(len(corners[0]))]:
            alone = [[side[level] for level in run] for side in charged]
            of_run = [alone[first : first + parts] for first in range(0, len(alone), parts)]
            for rows, slowest in zip(corners, longest_of_run(of_run, self.weights), strict=True):
                for level, charge in zip(run, slowest, strict=False):
                    rows[level] = rows[level] + charge

    def _at_corner(
        self,
        of: tuple[Hashable, ...],
        asked: Sequence[Indices],
        charge: Callable[[], list[list[Integers]]],
    ) -> list[Integers]:
        """Return what is charged at the corner; what others are is kept until they ask for it."""
        if len(self.shares) == 1:
            return charge()[0]
        arrays = tuple((own.shape, own.tobytes()) for own in asked)
        key = (*of, self.per_unit, self.crossing, arrays)
        if key not in self.known:
            corners = charge()
            if sum(row.nbytes for rows in corners for row in rows) > _KEPT_BYTES:
                return corners[self.corner]
            self.known[key] = corners
        corners = self.known[key]
        if self.corner == len(self.shares) - 1:
            del self.known[key]
        return corners[self.corner]

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

    def level_key(self, level: int) -> Hashable:
        """Return a level's rates, and whether it is H1, between the groups."""
        return super().level_key(level), not level

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return an upper bound on the seconds of any plan: a part may have all of everything."""
        return len(self.members) * super().upper_bound(workload)


def _reductions(
    workload: Workload, phase: Phase, moved: Sequence[Integers], nodes: Indices
) -> Iterator[Reduction]:
    """Yield the reductions of a pass: gradients', of all levels that split the same of weights."""
    count = len(workload.nodes)
    if phase is not Phase.GRADIENT:
        each = [2 if any(node.statistics) else 1 for node in workload.nodes]
        times = exchanges_of(workload, phase)
        yield Reduction(moved, times[nodes], (times * np.array(each))[nodes], len(COLLECTIVES) - 1)
        return
    for number, words in enumerate(COLLECTIVES):
        joins = [workload.repeats.splits(count, level, *words) for level in range(len(moved))]
        if any(own.any() for own in joins):
            halves = workload.repeats.halves_where(workload.users, words[0])
            topmost = halves if words[0] in IN_HALVES else np.ones_like(halves)
            rows = [row * own[nodes] for row, own in zip(moved, joins, strict=True)]
            yield Reduction(rows, topmost[nodes], halves[nodes], number)


def _one_more(share: Share, sizes: Integers) -> Integers:
    return share.indices(sizes) + 1


def _least_of_longest(
    here: Sequence[Integers], beyond: Sequence[Integers], reached: Sequence[Integers]
) -> Iterator[Integers]:
    """Yield lower bounds on the longest of all parts' times, one for each part that is longest.

    Parameters
    ----------
    here, beyond
        The times of parts with some numbers of indices, and with one more each.
    reached
        How many more than those numbers a part may have at most.
    """
    above = reduce(np.maximum, [*here, *beyond])
    for longest_part, own in enumerate(here):
        least = np.where(reached[longest_part] >= 0, own, above)
        for part, other in enumerate(beyond):
            if part != longest_part:
                least = np.minimum(least, np.where(reached[part] >= 1, other, above))
        yield least
