"""Bytes and time of a step on unequal groups of accelerators, whose shares divide H1.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import accumulate, pairwise, repeat
from operator import mul
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hypar_opt.costs.buckets import LatencyShares
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.physical import Rings, array_of
from hypar_opt.costs.time import TimeCost
from hypar_opt.costs.work import Work
from hypar_opt.errors import HyparError, argument
from hypar_opt.sharding.passes import Phase
from hypar_opt.step.shares import Amounts, CountOfIndices, Parts, Share, WorkOfPart, received
from hypar_opt.step.states import exact_sum, levels_of, shape_of
from hypar_opt.step.uneven import split_sizes
from hypar_opt.workload.parallelism import EQUAL_PART_CHOICES, PART_WORDS

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.step.operations import Collective
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload

_KEPT_BYTES = 2**24
"""Charges at all corners that take more bytes than this are not kept."""

Cache = dict[Hashable, list[list["Integers"]]]
"""Charges by corner and level, of the same nodes or boundaries in the same states."""

_Passes = list[list[tuple["Integers | int", Sequence["Integers"]]]]
"""By part and pass: how often a step repeats it, and the times of which the longest counts."""

_ROUNDED = 2
"""The most by which rounding may put a charge between corners below its chord."""


def check_of_groups(problem: Problem) -> Problem:
    """Return a problem of unequal groups, whose reading and choices are checked.

    Raises
    ------
    HyparError
        If its reading is no run's, or a choice has equal parts.
    """
    if problem.reading != "executed":
        wanted = argument("reading", "executed")
        raise HyparError(f"unequal groups of accelerators need {wanted}, got {problem.reading}")
    for word in EQUAL_PART_CHOICES:
        if word in problem.choices:
            raise HyparError(
                f"{argument('choices')}: {word} has equal parts, unlike groups of accelerators;"
                " leave it out"
            )
    return problem


@dataclass(frozen=True)
class GroupBytes(CommunicationCost):
    """The bytes of all parts together: the mean of what each receives, scaled to equal parts.

    Parameters
    ----------
    parts
        Each part's share of a tensor that H1 splits.
    """

    parts: Parts = (1, 1)

    @classmethod
    def of_groups(cls, problem: Problem) -> Self:
        """Return the bytes of a problem with unequal parts.

        Raises
        ------
        HyparError
            If it is not of the reading that a run has.
        """
        check_of_groups(problem)
        return cls.of_problem(problem, unequal=True, parts=problem.part_shares)

    @cached_property
    def resolution(self) -> int:
        """Charges per byte: halves, to which the mean of all parts is rounded."""
        return 2 * super().resolution

    def moved(self, operations: Sequence[Collective]) -> Integers:
        """Return the charges of what each part receives, scaled to equal parts."""
        shares = Share.of_parts(self.parts)
        by_operation = received(operations, shares, lambda level: self.scale(level) // 2)
        return exact_sum([part.quarters for parts in by_operation for part in parts])

    def mean(self, moved: Integers) -> Integers:
        count = len(self.parts)
        return (2 * moved + count // 2) // count


@dataclass(frozen=True, kw_only=True)
class GroupTime(TimeCost):
    """Seconds of one training step on groups of accelerators, whose shares divide what H1 splits.

    Below H1 each part exchanges over its own links. Given the corners of a simplex of shares, each
    charge is the value at one corner of a linear function of the shares that is a lower bound on
    the time: a part's time is linear in the shares, or has a linear lower bound. So the minimum of
    a plan's sums over the corners is a lower bound on its time anywhere in the simplex.

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
        Barycentric coordinates of the point at which the bound is tight, except for what is not
        linear.
    cache
        Charges at all corners, shared by the costs of one simplex.

    Source: docs/algorithms.md.
    """

    of_parts: tuple[Work, ...]
    links: tuple[tuple[BisectionLink, ...], ...]
    members: tuple[range, ...]
    shares: tuple[Parts, ...]
    corner: int = 0
    weights: tuple[float, ...] = (1.0,)
    cache: Cache = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of_groups(cls, problem: Problem, workload: Workload) -> Self:
        """Return the cost of a problem on an array of groups.

        Raises
        ------
        HyparError
            If it has options that contradict the array, or is not of the reading of a run.
        """
        check_of_groups(problem)
        array, placement = array_of(problem)
        device = problem.hierarchy, problem.element_bytes
        works = tuple(
            Work(group.updated_by(problem.constraints.optimizer), *device, by_largest_shard=True)
            for group in array.groups_of_parts
        )
        network, (between, *below) = array.interconnect, placement
        cost = cls(
            communication=CommunicationCost.of_problem(problem, unequal=True),
            rings=Rings.of(array, placement),
            splits=tuple(map(network.bisection, placement)),
            work=max(works, key=lambda work: work.upper_bound(workload)),
            of_parts=works,
            links=tuple(
                (network.bisection(between), *(network.bisection(digit, part) for digit in below))
                for part in array.members
            ),
            members=array.members,
            shares=(problem.part_shares,),
            bucket_elements=array.bucket_elements(problem.element_bytes),
        )
        return cost.in_buckets(workload).in_units(None, workload)

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
        bound = replace(self, shares=shares, weights=at, cache={})
        return [replace(bound, corner=corner) for corner in range(len(shares))]

    @cached_property
    def _shares_at_corners(self) -> list[tuple[Share, ...]]:
        """Every part's share, at each corner."""
        corners = self.shares if len(self.shares) > 1 else ()
        return [Share.of_parts(parts, corners) for parts in self.shares]

    @cached_property
    def _sides(self) -> list[TimeCost]:
        """The cost of an exchange in each part."""
        charges = replace(self.communication, element_bytes=4 // self.communication.resolution)
        return [
            TimeCost(
                communication=charges,
                rings=self.rings and replace(self.rings, among=members),
                per_unit=self.per_unit,
                max_total=self.max_total,
                crossing=self.crossing,
                splits=links,
                work=None,
                latencies=self.latencies,
            )
            for links, members in zip(self.links, self.members, strict=True)
        ]

    def node(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        """Return each layer's charges: its reductions and, at the last level, its compute."""
        key = "nodes", self.latencies, self.work is None
        charge = partial(self._nodes, workload, nodes, states)
        return self._at_corner(key, (nodes, *states), charge)

    def _nodes(self, workload: Workload, nodes: Indices, states: States) -> list[list[Integers]]:
        levels = levels_of(states)
        operations = self.communication.rules(workload, levels).node(nodes, states)
        runs = self.rings.runs(levels) if self.rings else [(level,) for level in range(levels)]
        corners = self._slowest(operations, runs, workload, nodes, shape_of(nodes, states), levels)
        if self.work is not None and levels:
            complete = levels == self.work.hierarchy.levels
            at_h1 = totals = self._worked(workload, nodes, states if complete else [states[0][:1]])
            if complete and len(self.shares) == 1:
                # H1 alone gives a lower bound on the compute of each part. Not so for linear
                # bounds: of two linear functions either may be longer.
                at_h1 = self._worked(workload, nodes, [states[0][:1]])
            for rows, top, total in zip(corners, at_h1, totals, strict=True):
                rows[0] = rows[0] + top.astype(rows[0].dtype)
                rows[-1] = rows[-1] + (total - top).astype(rows[-1].dtype)
        return corners

    def _worked(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        """Return the time of all passes at each corner, as if levels that are not given split all.

        A pass lasts as long as its longest time. That maximum is not linear, so each time is
        bounded by a function of its own.
        """
        arguments = workload, nodes, states, self.per_unit, self.communication.phases
        equal: Amounts = {}

        def passes(shares: Sequence[Share], counts: Sequence[CountOfIndices | None]) -> _Passes:
            return [
                [*replace(work, part=WorkOfPart(share, count, equal)).pass_times(*arguments)]
                for work, share, count in zip(self.of_parts, shares, counts, strict=True)
            ]

        at_share = len(self.shares) == 1
        of_corners = [
            passes(shares, [share.indices if at_share else None for share in shares])
            for shares in self._shares_at_corners
        ]
        at_any: Iterator[Integers] = repeat(np.zeros(1, np.int64))
        # At a single point, and of exact shares, which are linear, these are the times.
        if not at_share and all(work.by_largest_shard for work in self.of_parts):
            sizes = split_sizes(workload)[states[0][0], nodes]
            at_any = self._at_any_share(partial(passes, self._at_weights), sizes)
        corners: list[list[Integers]] = [[] for _ in self.shares]
        for number, (often, _) in enumerate(of_corners[0][0]):
            lower = next(at_any)
            functions = [
                [lower, *(time for part in parts for time in part[number][1])]
                for parts in of_corners
            ]
            for rows, slowest in zip(corners, longest(functions, self.weights), strict=True):
                rows.append(often * slowest)
        return list(map(exact_sum, corners))

    def _at_any_share(
        self,
        passes: Callable[[Sequence[CountOfIndices]], _Passes],
        sizes: Integers,
    ) -> Iterator[Integers]:
        """Yield a lower bound on each pass at any shares between the corners.

        Each part has at least its fewest indices. And if numbers of indices for n parts add up to
        less than n more than all indices, at least one part has as many as its number: the numbers
        are those at the shares of `weights`, and one more in all parts but one.

        Parameters
        ----------
        passes
            Returns the times of parts with some numbers of indices.
        sizes
            Of the axes that H1 splits.
        """
        shares = self._at_weights

        def times(counts: Sequence[CountOfIndices]) -> Iterator[tuple[Integers, ...]]:
            """Return the time of each pass, of each part."""
            of_parts = passes(counts)
            slowest = [[reduce(np.maximum, linear) for _, linear in part] for part in of_parts]
            return zip(*slowest, strict=True)

        fewest = times([share.min_indices for share in shares])
        at_weights = times([share.indices for share in shares])
        beyond = times([partial(_one_more, share) for share in shares])
        reached = [share.max_indices(sizes) - share.indices(sizes) for share in shares]
        for low, at, behind in zip(fewest, at_weights, beyond, strict=True):
            yield reduce(np.maximum, [*low, *_least_of_longest(at, behind, reached)])

    @cached_property
    def _at_weights(self) -> tuple[Share, ...]:
        """Every part's share at the point where the bound is tight, rounded."""
        total = sum(self.shares[0])
        before = [list(accumulate(parts, initial=0)) for parts in self.shares]
        ends = [round(sum(map(mul, self.weights, end))) for end in zip(*before, strict=True)]
        parts = tuple(end - begin for begin, end in pairwise([*ends[:-1], total]))
        return Share.of_parts(parts, self.shares)

    def edge(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> list[Integers]:
        """Return each boundary's charges: its exchanges, always between pairs."""
        levels = levels_of(targets)

        def charge() -> list[list[Integers]]:
            rules, runs = self.communication.rules(workload, levels), [(n,) for n in range(levels)]
            operations = rules.boundary(boundaries, sources, targets)
            return self._slowest(operations, runs, workload, boundaries, (), levels)

        return self._at_corner(("boundaries",), (boundaries, *sources, *targets), charge)

    def _slowest(
        self,
        operations: Iterable[Collective],
        runs: Sequence[tuple[int, ...]],
        *arguments: Any,
    ) -> list[list[Integers]]:
        """Return the slowest part's charges of each pass, by corner and level.

        Parameters
        ----------
        runs
            The levels that an exchange may join.
        arguments
            As `TimeCost.charges` takes it.
        """
        corners = [self.uncharged(sum(map(len, runs))) for _ in self.shares]
        shares = tuple(share for parts in self._shares_at_corners for share in parts)
        of_phases: dict[Phase, list[Collective]] = {}
        for operation in operations:
            of_phases.setdefault(operation.phase, []).append(operation)
        for collectives in of_phases.values():
            parts = zip(
                *received(collectives, shares, self.communication.scale, by_longest_message=True),
                strict=True,
            )
            charged = [
                [side.charges(next(parts), *arguments) for side in self._sides] for _ in self.shares
            ]
            for run in runs:
                self._add_longest(corners, charged, run)
        return corners

    def _add_longest(
        self,
        corners: list[list[Integers]],
        charged: Sequence[Sequence[Sequence[Integers]]],
        run: tuple[int, ...],
    ) -> None:
        """Add the charges of levels that an exchange may join, in the part where it takes longest.

        Between several corners the first level is charged for all.

        Parameters
        ----------
        charged
            By corner, part and level.
        """
        first, *below = run
        totals = [
            [sum((side[level] for level in below), side[first]) for side in parts]
            for parts in charged
        ]
        charges = [[charge] for charge in longest(totals, self.weights)]
        if len(corners) == 1 and below:
            charges = [_highest([[side[n] for n in run] for side in charged[0]], totals[0])]
        for rows, of_run in zip(corners, charges, strict=True):
            for level, charge in zip(run, of_run, strict=False):
                rows[level] = rows[level] + charge

    def _at_corner(
        self,
        of: tuple[Hashable, ...],
        indices: Sequence[Indices],
        charge: Callable[[], list[list[Integers]]],
    ) -> list[Integers]:
        """Return the charges at the corner; those at the others are cached until they are read."""
        if len(self.shares) == 1:
            return charge()[0]
        arrays = tuple((array.shape, array.tobytes()) for array in indices)
        key = (*of, self.per_unit, self.crossing, arrays)
        if key not in self.cache:
            corners = charge()
            if sum(row.nbytes for rows in corners for row in rows) > _KEPT_BYTES:
                return corners[self.corner]
            self.cache[key] = corners
        corners = self.cache[key]
        if self.corner == len(self.shares) - 1:
            del self.cache[key]
        return corners[self.corner]

    def for_plan(self, workload: Workload, rows: Rows) -> Self:
        """Return the cost in which all-reduces share their latencies as they do in a plan.

        A layer in one part is reduced within that part.
        """
        if self.latencies is None:
            return self
        together: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        for key, nodes in self.reductions(workload, rows).items():
            for node in nodes:
                choice = workload.choices[rows[0][node]]
                together[choice if choice in PART_WORDS else None, *key].append(node)
        return replace(self, latencies=LatencyShares.of_plan(together, workload.stored))

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return an upper bound on the seconds of any plan: a part may have all of everything."""
        return len(self.members) * super().upper_bound(workload)


def _one_more(share: Share, sizes: Integers) -> Integers:
    return share.indices(sizes) + 1


def _least_of_longest(
    at: Sequence[Integers], beyond: Sequence[Integers], reached: Sequence[Integers]
) -> Iterator[Integers]:
    """Yield lower bounds on the longest of all parts' times, one for each part that may be longest.

    Parameters
    ----------
    at, beyond
        The times of parts with some numbers of indices, and with one more each.
    reached
        How many more than those numbers a part may have at most.
    """
    above = reduce(np.maximum, [*at, *beyond])
    for longest_part, time in enumerate(at):
        bound = np.where(reached[longest_part] >= 0, time, above)
        for part, longer in enumerate(beyond):
            if part != longest_part:
                bound = np.minimum(bound, np.where(reached[part] >= 1, longer, above))
        yield bound


def longest(corners: Sequence[Sequence[Integers]], weights: Sequence[float]) -> list[Integers]:
    """Return the longest of several charges; between corners, a linear lower bound on it.

    That is the function that is longest at one point, a tangent of the maximum: tangents at one
    point add up to a tangent of the sum, which is tight at its minimum.

    Parameters
    ----------
    corners
        The charges at each corner of a simplex, of functions that are no less than linear in
        between. A function that is negative at a corner is ignored.
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
        pairs = zip(weights, charges, strict=True)
        parts = [weight * charge.astype(np.float64) for weight, charge in pairs]
        return np.where(reduce(np.minimum, charges) < 0, -1, reduce(np.add, parts))

    functions = [*zip(*corners, strict=True)]
    best = _highest(functions, [*map(height, functions)])
    return [np.maximum(charge - _ROUNDED, 0) for charge in best]


def _highest(
    functions: Sequence[Sequence[Integers]], heights: Sequence[Integers]
) -> list[Integers]:
    """Return the rows of the function that is highest at each position; of ties, the first."""
    best, highest = [*functions[0]], heights[0]
    for function, height in zip(functions[1:], heights[1:], strict=True):
        higher = height > highest
        if higher.any():
            best = [np.where(higher, *pair) for pair in zip(function, best, strict=True)]
            highest = np.maximum(height, highest)
    return best
