"""The shares in which H1 is divided between groups of accelerators, to a proved gap."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from heapq import heappop, heappush, heapreplace
from itertools import combinations, count, permutations
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.group_time import GroupTime
from hypar_opt.errors import InfeasibleError, NoAnswerError
from hypar_opt.instance.constraints import ConstraintSet
from hypar_opt.instance.pricing import total_cost
from hypar_opt.plan.share_of_group import SHARES, shares_of_parts
from hypar_opt.search.result import part_of
from hypar_opt.search.within_memory import within_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.instance.instance import Instance
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import Problem, ProblemFields
    from hypar_opt.search.result import Assignments, SearchRequest, SearchResult

    Search = Callable[[SearchRequest], SearchResult]

Shares = tuple[int, ...]
"""The share of each group, of `SHARES`."""

Simplex = tuple[Shares, ...]
"""The corners between which shares are searched: of two groups the ends of an interval."""

GAP = Fraction(1, 1000)
"""The search ends when no shares can be better than the best known by more than this part."""

MAX_BOUNDED = 32
"""Upper bound on the simplices that are bounded: of two groups, mostly fewer meet the gap."""

_STEEP = 8
"""How much of its time a plan gains where a share grows by a part of all, about, at most."""

_SAME = 1e-9
"""What rounding leaves of a weight of 0."""

LEAST = "least of all shares"
"""The name of its bound among the statistics of a plan."""


def compute_share(problem: ProblemFields) -> float | tuple[float, ...]:
    """Return the shares with which all groups compute a layer in equal time, at their peaks.

    The first one's of two groups; else those of all.
    """
    return as_stated(_compute_shares(problem))


def _compute_shares(problem: ProblemFields) -> Shares:
    rates = [group.count * group.macs_per_second(1, 1) for group in problem.groups]
    return whole_shares(rates)


def equal_shares(problem: ProblemFields) -> float | tuple[float, ...]:
    """Return the shares with which all accelerators have as much."""
    return as_stated(whole_shares([group.count for group in problem.groups]))


def as_stated(shares: Shares) -> float | tuple[float, ...]:
    """Return shares as a problem states them."""
    if len(shares) == 2:
        return shares[0] / SHARES
    return tuple(share / SHARES for share in shares)


def whole_shares(weights: Sequence[Fraction | int], step: int = 1) -> Shares:
    """Return shares in proportion to weights, in whole steps, at least one each."""
    total, steps = sum(weights), SHARES // step
    most = steps - len(weights) + 1
    shares = [min(max(round(steps * Fraction(own) / total), 1), most) for own in weights]
    while (over := sum(shares) - steps) != 0:
        largest = shares.index(max(shares))
        shares[largest] = max(1, shares[largest] - over)
    return tuple(step * share for share in shares)


def was_searched(plan: Plan) -> bool:
    """Return whether the shares of a plan's groups were found by a search, and not stated."""
    return any(LEAST in row for row in plan.solver.statistics)


def share_left_open(problem: Problem) -> bool:
    """Return whether a problem leaves it open in which shares groups divide H1."""
    return bool(problem.groups) and problem.cost == "time" and problem.share is None


def shared_out(
    search: SearchRequest, solve: Search, *, joint: bool
) -> tuple[SearchRequest, list[Mapping[str, float]]]:
    """Return the search at the best shares, where the problem leaves them open, and its statistics.

    Those are the shares in which the groups compute in equal time, unless all levels are searched
    together.
    """
    instance, problem = search.instance, search.instance.problem
    if not share_left_open(problem):
        return search, []
    step = step_of(problem)
    start = whole_shares(_compute_shares(problem), step)
    at_start = replace(search, instance=instance.with_share(as_stated(start)))
    if not (joint and search.solver.searches):
        return at_start, []
    finding = replace(at_start, progress=part_of(search.progress, 0, 2))
    share, least, plan = best_share(finding, solve)
    statistics: list[Mapping[str, float]] = [] if least is None else [{LEAST: float(least)}]
    instance, progress = instance.with_share(share), part_of(search.progress, 1, 2)
    return replace(search, instance=instance, progress=progress, known=plan), statistics


def fitting(
    asked: SearchRequest, at_shares: SearchRequest, solve: Search
) -> tuple[SearchRequest, SearchResult]:
    """Search within a device's memory at shares of the fastest plan; if none fits, in equal parts.

    Raises
    ------
    InfeasibleError
        If none is found there, either.
    """
    try:
        return within_memory(at_shares, solve)
    except InfeasibleError:
        instance = asked.instance
        if share_left_open(instance.problem):
            equal = instance.with_share(equal_shares(instance.problem))
            with suppress(InfeasibleError):
                return within_memory(replace(asked, instance=equal), solve)
        raise


def step_of(problem: ProblemFields) -> int:
    """Return the step of the shares that are searched: even ones divide the batch."""
    divisor = gcd(SHARES, problem.batch) if problem.constraints.even else SHARES
    return SHARES // divisor if divisor >= len(problem.groups) else 1


def best_share(
    search: SearchRequest, solve: Search
) -> tuple[float | tuple[float, ...], Fraction | None, Assignments | None]:
    """Return the shares of the least time, a lower bound on that of all shares, and the plan.

    Simplices of shares are searched by their lower bounds, the least first, and the choices of each
    priced in its middle. Together they are all shares, so that the least of their bounds holds for
    all.

    Parameters
    ----------
    search
        At the shares that are tried first: the best ones known if the deadline passes.
    solve
        Finds the choices of a problem and bounds its cost.
    """
    return _ShareSearch(search, solve).best()


class _ShareSearch:
    """The best shares known, and the simplices of those that may be better."""

    def __init__(self, search: SearchRequest, solve: Search) -> None:
        self._search, self._solve = search, solve
        self._problem = search.instance.problem
        cost = search.instance.cost
        assert isinstance(cost, GroupTime)
        self._cost, self._step = cost, step_of(self._problem)
        self._number = count()
        self._improved: set[Rows] = set()
        """The plans whose shares were improved."""
        self._tried: dict[Shares, Fraction] = {}
        """Bounds at shares searched by themselves, as where constraints depend on them."""
        self._charged: Fraction | None = None
        """The least that tables charge at any shares, which with buckets is less than is taken."""
        self._best: tuple[Fraction, Shares, Assignments] | None = None
        self._entries: list[tuple[Fraction, int, Simplex, bool]] = []
        """Simplices that are left, the least bound first; and whether it is its own."""

    def best(self) -> tuple[float | tuple[float, ...], Fraction | None, Assignments | None]:
        """Return the shares of the least time that is found, a bound on all, and the plan."""
        start = self._problem.group_shares
        assert start is not None
        with suppress(NoAnswerError):  # the deadline has passed
            self._search_from(start)
        known = [bound for bound, *_ in self._entries[:1]] + [*self._tried.values()]
        if self._best is None:
            return as_stated(start), min(known, default=None), None
        least, shares, plan = self._best
        return as_stated(shares), min([*known, least]), plan

    def _search_from(self, start: Shares) -> None:
        self._try(start)
        # Bounds on the shares in simplices; those of a half at first of the whole. Most charges
        # have corners where groups compute in equal time, and at the best shares known.
        entries = self._entries
        for simplex in _between(start, self._best[1] if self._best else start):
            entries.append((Fraction(), next(self._number), simplex, False))
        bounded = 0
        while entries and not self._search.deadline.passed():
            bound, _, simplex, own = entries[0]
            if bound >= self._limit or bounded == MAX_BOUNDED:
                break
            if not own:
                bounded += 1
                self._search.progress(bounded, MAX_BOUNDED)
                bound = max(bound, self._bound(simplex))
                heapreplace(entries, (bound, next(self._number), simplex, True))
                continue
            halves = _halved(simplex, self._step)
            if not halves and not self._problem.depends_on_shares:
                break  # there are no shares between them
            for shares in () if halves else simplex:
                if min(shares):
                    self._try(shares)
            heappop(entries)
            for half in halves:
                heappush(entries, (bound, next(self._number), half, False))

    @property
    def _limit(self) -> Fraction:
        """The bound from which no shares are better by more than `GAP`."""
        return _NEVER if self._charged is None else self._charged * (1 - GAP)

    def _bound(self, simplex: Simplex) -> Fraction:
        """Bound the shares between some from below, and keep good ones with the plans of the bound.

        Each charge is linear between them, and so the least of all plans at one of the corners.
        """
        corners = list(map(self._of_parts, simplex))
        instance, middle = self._search.instance, _middle(simplex, self._step)
        if self._problem.depends_on_shares:
            instance = instance.with_shares_between(corners)
        bounds, fits = [], not self._problem.bounds_shares
        for cost in self._cost.between(*corners):
            found = self._solved(instance.with_cost(cost), own=False)
            if found is None:
                return _NEVER
            bounds.append(found.bound or Fraction())
            if not self._problem.bounds_shares:
                fits = self._allowed(middle, found) and fits
                self._improve(middle, found)
        if not fits:
            self._try(middle)
        return min(bounds)

    def _of_parts(self, shares: Shares) -> tuple[int, ...]:
        """Return the share of each part of H1."""
        assert self._problem.array is not None
        return shares_of_parts(shares, self._problem.array.description.parts_of_groups)

    def _solved(self, instance: Instance, *, own: bool) -> SearchResult | None:
        """Return the best choices at some shares; None where no plan is feasible.

        Parameters
        ----------
        own
            Whether they are charged what they take, and no bound between shares.
        """
        try:
            return self._solve(replace(self._search.quiet, instance=instance, falls_back=own))
        except InfeasibleError:
            return None

    def _try(self, shares: Shares) -> None:
        """Search at some shares alone."""
        if shares in self._tried:
            return
        found = self._solved(self._at(shares), own=True)
        if found is None:
            self._tried[shares] = _NEVER
            return
        self._tried[shares] = found.bound or Fraction()
        if self._problem.bounds_shares:
            self._keep(shares, found)
            self._charge(shares, found)
        else:
            self._improve(shares, found)

    def _allowed(self, shares: Shares, found: SearchResult) -> bool:
        """Return whether constraints allow at some shares what they do between others."""
        if self._problem.bounds_shares or not self._problem.depends_on_shares:
            return True
        instance = self._search.instance.with_share(as_stated(shares))
        limits = ConstraintSet(instance.problem, instance.workload)
        return limits.allow(found.assignments)

    def _improve(self, shares: Shares, found: SearchResult) -> None:
        """Keep the best shares for a plan near some: one group's share grows, another's shrinks."""
        if found.assignments in self._improved:
            return
        self._improved.add(found.assignments)
        least, move = self._keep(shares, found), SHARES // 4
        while move >= max(self._step, SHARES // 2000) and not self._search.deadline.passed():
            if self._best is None or least > self._best[0] * (1 + Fraction(_STEEP * move, SHARES)):
                break  # too far from the best plan for what is left of the moves
            for own, other in permutations(range(len(shares)), 2):
                moved = [*shares]
                moved[own], moved[other] = shares[own] + move, shares[other] - move
                if moved[other] > 0 and (taken := self._keep(tuple(moved), found)) < least:
                    least, shares = taken, tuple(moved)
                    break
            else:
                move = move // 2 // self._step * self._step
        if least < _NEVER:
            self._charge(shares, found)

    def _keep(self, shares: Shares, found: SearchResult) -> Fraction:
        """Keep shares if a plan is the best known with them; return what it takes."""
        if not self._allowed(shares, found):
            return _NEVER
        total = total_cost(self._at(shares), found.assignments, found.tensors)
        if self._best is None or total < self._best[0]:
            self._best = total, shares, found.assignments
        return total

    def _charge(self, shares: Shares, found: SearchResult) -> None:
        """Keep what tables charge a plan at some shares, if it is the least known."""
        rows, tensors = found.assignments, found.tensors
        charged = total_cost(self._at(shares), rows, tensors, charged=True)
        if self._charged is None or charged < self._charged:
            self._charged = charged

    def _at(self, shares: Shares) -> Instance:
        """Return the problem at some shares."""
        instance = self._search.instance
        if self._problem.depends_on_shares:
            instance = instance.with_share(as_stated(shares))
        return instance.with_cost(self._cost.at(self._of_parts(shares)))


_NEVER = Fraction(2**62)
"""The bound on shares of which no plan is feasible."""


def _between(*points: Shares) -> list[Simplex]:
    """Return simplices of all shares with corners at some of them."""
    count = len(points[0])
    simplices = [tuple(tuple(SHARES * (n == own) for n in range(count)) for own in range(count))]
    for point in points:
        simplices = [part for simplex in simplices for part in _around(simplex, point)]
    return simplices


def _around(simplex: Simplex, point: Shares) -> Iterator[Simplex]:
    """Yield the parts of a simplex around a point in it; all of it if the point is not."""
    weights = np.linalg.solve(np.array(simplex, float).T, np.array(point, float))
    if weights.min() < -_SAME:
        yield simplex
        return
    for corner in np.flatnonzero(weights > _SAME).tolist():
        yield tuple(point if n == corner else end for n, end in enumerate(simplex))


def _halved(simplex: Simplex, step: int) -> list[Simplex]:
    """Return a simplex's halves, of its longest edge; none where no shares lie between its ends."""
    pairs = combinations(range(len(simplex)), 2)
    long = max(pairs, key=lambda pair: _length(*(simplex[n] for n in pair)))
    middle = _middle(tuple(simplex[n] for n in long), step, at_ends=True)
    if middle in (simplex[long[0]], simplex[long[1]]):
        return []
    return [tuple(middle if n == end else own for n, own in enumerate(simplex)) for end in long]


def _length(first: Shares, second: Shares) -> int:
    return sum((a - b) ** 2 for a, b in zip(first, second, strict=True))


def _middle(simplex: Simplex, step: int, *, at_ends: bool = False) -> Shares:
    """Return the shares in the middle of a simplex, in whole steps.

    Parameters
    ----------
    at_ends
        Whether a group may have nothing, as at the ends of all shares.
    """
    sums = [sum(column) for column in zip(*simplex, strict=True)]
    if not at_ends:
        return whole_shares(sums, step) if len(sums) > 2 else _first_share(sums[0] // 2, step)
    steps = [own // (len(simplex) * step) for own in sums]
    for n in range(SHARES // step - sum(steps)):
        steps[n] += 1
    return tuple(step * own for own in steps)


def _first_share(share: int, step: int) -> Shares:
    first = step * max(1, share // step)
    return first, SHARES - first
