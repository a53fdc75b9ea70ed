"""The shares in which H1 is divided between groups of accelerators, to a proved gap."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import heappop, heappush, heapreplace
from itertools import count, permutations
from math import floor, gcd
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import InfeasibleError, NoAnswerError
from hypar_opt.instance.constraints import ConstraintSet
from hypar_opt.instance.pricing import total_cost
from hypar_opt.plan.share_of_group import SHARES, shares_of_parts
from hypar_opt.search.free_modes import fastest_training
from hypar_opt.search.memory.modes import TrainingMode
from hypar_opt.search.result import part_of
from hypar_opt.search.simplices import bisected, initial_cover, integer_shares, weights_near
from hypar_opt.solvers.elimination.classes import classes_within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hypar_opt.costs.groups import GroupTime
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.instance.instance import Instance
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import Problem, ProblemFields
    from hypar_opt.search.result import Assignments, SearchRequest, SearchResult
    from hypar_opt.search.simplices import Shares, Simplex

    Search = Callable[[SearchRequest], SearchResult]

GAP = Fraction(1, 1000)
"""The search ends when no shares can improve on the best known ones by more than this."""

MAX_BOUNDED = 64
"""The most simplices that are bounded: with two groups, mostly fewer meet the gap."""

_STEEP = 8
"""About the most that a plan's time gains, relatively, per change of a share."""

LEAST = "least of all shares"
"""The name of the bound among the statistics of a plan."""


def compute_share(problem: ProblemFields) -> float | tuple[float, ...]:
    """Return the shares with which all groups compute a layer in equal time, at their peaks.

    With two groups it is the first one's share; else those of all.
    """
    return as_stated(_compute_shares(problem))


def _compute_shares(problem: ProblemFields) -> Shares:
    rates = [group.count * group.macs_per_second(1, 1) for group in problem.groups]
    return integer_shares(rates)


def equal_shares(problem: ProblemFields) -> float | tuple[float, ...]:
    """Return the shares with which all accelerators have equally much."""
    return as_stated(integer_shares([group.count for group in problem.groups]))


def as_stated(shares: Shares) -> float | tuple[float, ...]:
    """Return shares as a problem states them."""
    if len(shares) == 2:
        return shares[0] / SHARES
    return tuple(share / SHARES for share in shares)


def was_searched(plan: Plan) -> bool:
    """Return whether the shares of a plan's groups were searched, and not stated."""
    return any(LEAST in row for row in plan.solver.statistics)


def share_left_open(problem: Problem) -> bool:
    """Return whether a problem leaves open the shares in which groups divide H1."""
    return bool(problem.groups) and problem.cost == "time" and problem.share is None


def shared_out(
    search: SearchRequest, solve: Search, *, joint: bool
) -> tuple[SearchRequest, list[Mapping[str, float]]]:
    """Return the search at the best shares, if the problem leaves them open, and its statistics.

    Unless all levels are searched together, these are shares with which groups compute in equal
    time.
    """
    instance, problem = search.instance, search.instance.problem
    if not share_left_open(problem):
        return search, []
    step = step_of(problem)
    start = integer_shares(_compute_shares(problem), step)
    at_start = replace(search, instance=instance.with_share(as_stated(start)))
    if not (joint and search.solver.searches):
        return at_start, []
    finding = replace(at_start, progress=part_of(search.progress, 0, 2))
    if problem.device_memory is not None:
        way = TrainingMode.of(at_start, fastest_training(at_start.instance))
        finding = replace(finding, instance=way.instance)
    share, shortest, plan = best_share(finding, solve)
    statistics: list[Mapping[str, float]] = [] if shortest is None else [{LEAST: float(shortest)}]
    instance, progress = instance.with_share(share), part_of(search.progress, 1, 2)
    return replace(search, instance=instance, progress=progress, incumbent=plan), statistics


def step_of(problem: ProblemFields) -> int:
    """Return the step of the shares that are searched: even ones divide the batch."""
    divisor = gcd(SHARES, problem.batch) if problem.constraints.even else SHARES
    return SHARES // divisor if divisor >= len(problem.groups) else 1


def best_share(
    search: SearchRequest, solve: Search
) -> tuple[float | tuple[float, ...], Fraction | None, Assignments | None]:
    """Return the shares of the least time, a lower bound on that of all shares, and the plan.

    Simplices of shares are searched in the order of their lower bounds, and the choices of each are
    priced in its middle. Together they cover all shares, so the least of their bounds holds for
    all.

    Parameters
    ----------
    search
        The search at the shares that are tried first, which are the answer if the deadline passes.
    solve
        Returns the choices of a problem and a bound on its cost.
    """
    return _ShareSearch(search, solve).best()


@dataclass(frozen=True, order=True)
class _PartOfShares:
    """A part of all shares, ordered by its bound.

    Parameters
    ----------
    number
        The tie-breaker between parts of equal bounds.
    bounded
        Whether the bound was computed for this part, and not for a larger one.
    near
        The shares at which its bound should be tight: the best shares of the bound's plan.
    states : (nodes, states)
        Those that nodes may have in a plan of interest; None for any.
    """

    bound: Fraction
    number: int
    simplex: Simplex
    near: Shares
    states: NDArray[np.bool_] | None = None
    bounded: bool = False


class _ShareSearch:
    """The best known shares, and simplices of shares that may be better."""

    def __init__(self, search: SearchRequest, solve: Search) -> None:
        self._search, self._solve = search, solve
        self._problem = search.instance.problem
        # Only for time on groups are shares left open.
        self._cost, self._step = cast("GroupTime", search.instance.cost), step_of(self._problem)
        self._number = count()
        self._improved: dict[Rows, tuple[Fraction, Shares]] = {}
        """The time of plans at their best shares, and these shares."""
        self._tried: dict[Shares, Fraction] = {}
        """Bounds at shares that were searched individually, as if constraints depend on them."""
        self._charged: Fraction | None = None
        """The least charge in tables at any shares, which with buckets is less than the time."""
        self._best: tuple[Fraction, Shares, Assignments] | None = None
        self._parts: list[_PartOfShares] = []
        """The remaining parts, the least bound first."""

    def best(self) -> tuple[float | tuple[float, ...], Fraction | None, Assignments | None]:
        """Return the shares of the least known time, a bound on all, and the plan."""
        start = self._problem.group_shares
        assert start is not None
        with suppress(NoAnswerError):  # the deadline has passed
            self._search_from(start)
        bounds = [part.bound for part in self._parts[:1]] + [*self._tried.values()]
        if self._charged is not None:
            bounds.append(self._charged)  # as plans that are excluded may
        if self._best is None:
            return as_stated(start), min(bounds, default=None), None
        shortest, shares, plan = self._best
        return as_stated(shares), min([*bounds, shortest]), plan

    def _search_from(self, start: Shares) -> None:
        self._try(start)
        parts, near = self._parts, self._best[1] if self._best else start
        for simplex in initial_cover(near):
            parts.append(_PartOfShares(Fraction(), next(self._number), simplex, near))
        bounded = 0
        while parts and not self._search.deadline.passed():
            part = parts[0]
            if part.bound >= self._limit or bounded == MAX_BOUNDED:
                break
            if not part.bounded:
                bounded += 1
                self._search.progress(bounded, MAX_BOUNDED)
                heapreplace(parts, self._bounded(part))
                continue
            smaller = bisected(part.simplex, part.near, self._step)
            # Parts have whole indices, so times jump between neighbouring shares: each is tried.
            for shares in () if smaller else part.simplex:
                if min(shares):
                    self._try(shares)
            heappop(parts)
            for piece in smaller:
                number = next(self._number)
                heappush(parts, replace(part, number=number, simplex=piece, bounded=False))

    @property
    def _limit(self) -> Fraction:
        """The bound from which on no shares are better by more than `GAP`."""
        return _NEVER if self._charged is None else self._charged * (1 - GAP)

    def _bounded(self, part: _PartOfShares) -> _PartOfShares:
        """Bound a part of all shares from below, and keep good shares for the plans of the bound.

        Charges are linear between corners, so the least of all plans is at one of them. A plan that
        is no slower than the best known one has states that are admissible at one of the corners.
        """
        simplex, instance = part.simplex, self._search.instance
        middle = integer_shares([*map(sum, zip(*simplex, strict=True))], self._step)
        corners, near = list(map(self._shares_of_parts, simplex)), part.near
        if part.states is not None:
            instance = instance.restricted_to(part.states)
        if self._problem.depends_on_shares:
            instance = instance.with_shares_between(corners)
        lowest, fits = _NEVER, not self._problem.bounds_shares
        limit, class_states = self._charged, []
        for cost in self._cost.between(*corners, weights=weights_near(simplex, near)):
            at_corner = instance.with_cost(cost)
            result = self._solved(at_corner, exact=False)
            if result is None:
                return replace(part, bound=_NEVER, bounded=True)
            best = middle
            if not self._problem.bounds_shares:
                fits = self._allowed(middle, result) and fits
                best = self._improve(middle, result)
            if (bound := result.bound or Fraction()) < lowest:
                lowest, near = bound, best
            if (table := at_corner.cached_classes) is not None and limit is not None:
                units = floor(limit * table.resolution)
                class_states.append(classes_within(table, units, self._search.deadline))
        if not fits:
            self._try(middle)
        states = np.logical_or.reduce(class_states) if class_states else part.states
        bound = max(part.bound, lowest)
        return replace(part, bound=bound, near=near, states=states, bounded=True)

    def _shares_of_parts(self, shares: Shares) -> tuple[int, ...]:
        """Return the share of each part of H1."""
        assert self._problem.array is not None
        return shares_of_parts(shares, self._problem.array.description.parts_of_groups)

    def _solved(self, instance: Instance, *, exact: bool) -> SearchResult | None:
        """Return the best choices at some shares; None where no plan is feasible.

        Parameters
        ----------
        exact
            Whether charges are times, not bounds between shares.
        """
        try:
            return self._solve(
                replace(self._search.without_progress, instance=instance, uses_fallback=exact)
            )
        except InfeasibleError:
            return None

    def _try(self, shares: Shares) -> None:
        """Search at some shares alone."""
        if shares in self._tried:
            return
        result = self._solved(self._at(shares), exact=True)
        if result is None:
            self._tried[shares] = _NEVER
            return
        self._tried[shares] = result.bound or Fraction()
        if self._problem.bounds_shares:
            self._keep(shares, result)
            self._charge(shares, result)
        else:
            self._improve(shares, result)

    def _allowed(self, shares: Shares, result: SearchResult) -> bool:
        """Return whether constraints at some shares allow a plan that they allow between others."""
        if self._problem.bounds_shares or not self._problem.depends_on_shares:
            return True
        instance = self._search.instance.with_share(as_stated(shares))
        limits = ConstraintSet(instance.problem, instance.workload)
        return limits.allow(result.assignments)

    def _improve(self, shares: Shares, result: SearchResult) -> Shares:
        """Keep and return the best shares for a plan: one group's grows, another's shrinks.

        Its time jumps where a part has one more index, so a plan is improved again from shares that
        are better than those found before.
        """
        previous = self._improved.get(result.assignments)
        total, move = self._keep(shares, result), SHARES // 4
        if previous is not None and previous[0] <= total:
            return previous[1]
        while move >= self._step and not self._search.deadline.passed():
            if self._best is None or total > self._best[0] * (1 + Fraction(_STEEP * move, SHARES)):
                break  # too far from the best plan for the remaining moves
            for giver, other in permutations(range(len(shares)), 2):
                moved = [*shares]
                moved[giver], moved[other] = shares[giver] + move, shares[other] - move
                if moved[other] > 0 and (cost := self._keep(tuple(moved), result)) < total:
                    total, shares = cost, tuple(moved)
                    break
            else:
                move = move // 2 // self._step * self._step
        if total < _NEVER:
            self._charge(shares, result)
        self._improved[result.assignments] = total, shares
        return shares

    def _keep(self, shares: Shares, result: SearchResult) -> Fraction:
        """Keep shares if they make a plan the best known; return its time."""
        if not self._allowed(shares, result):
            return _NEVER
        total = total_cost(self._at(shares), result.assignments, result.tensors)
        if self._best is None or total < self._best[0]:
            self._best = total, shares, result.assignments
        return total

    def _charge(self, shares: Shares, result: SearchResult) -> None:
        """Keep the charge of a plan in tables at some shares, if it is the least known."""
        rows, tensors = result.assignments, result.tensors
        charged = total_cost(self._at(shares), rows, tensors, charged=True)
        if self._charged is None or charged < self._charged:
            self._charged = charged

    def _at(self, shares: Shares) -> Instance:
        """Return the problem at some shares."""
        instance = self._search.instance
        if self._problem.depends_on_shares:
            instance = instance.with_share(as_stated(shares))
        return instance.with_cost(self._cost.at(self._shares_of_parts(shares)))


_NEVER = Fraction(2**62)
"""The bound on shares without a feasible plan."""
