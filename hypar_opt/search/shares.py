"""The ratio in which H1 is split between two groups of accelerators, to a proved gap."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING

from hypar_opt.costs.group_time import GroupTime
from hypar_opt.costs.sides import SHARES
from hypar_opt.instance.pricing import total_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import Problem, ProblemFields
    from hypar_opt.search.result import SearchRequest, SearchResult

    Search = Callable[[SearchRequest], SearchResult]

GAP = Fraction(1, 1000)
"""The search ends when no share can be better than the best known by more than this part."""

LEAST = "least of all shares"
"""The name of its bound among the statistics of a plan."""

_INTERVALS = 8
"""Of shares at first: they are halved where a better share may be."""


def compute_share(problem: ProblemFields) -> float:
    """Return the share with which both groups compute a layer in equal time, at their peaks."""
    first, second = (group.macs_per_second(1, 1) for group in problem.groups)
    parts = round(SHARES * first / (first + second))
    return min(max(parts, 1), SHARES - 1) / SHARES


def was_searched(plan: Plan) -> bool:
    """Return whether a plan's share of two groups was found by a search, and not stated."""
    return any(LEAST in row for row in plan.solver.statistics)


def share_left_open(problem: Problem) -> bool:
    """Return whether a problem leaves it open in which shares two groups split H1."""
    return bool(problem.groups) and problem.cost == "time" and problem.share is None


def shared_out(
    search: SearchRequest, solve: Search, *, joint: bool
) -> tuple[SearchRequest, list[Mapping[str, float]]]:
    """Return the search at the best share, where the problem leaves it open, and its statistics.

    That is the share in which the groups compute in equal time, unless all levels are searched
    together.
    """
    instance, problem = search.instance, search.instance.problem
    if not share_left_open(problem):
        return search, []
    at_start = replace(search, instance=instance.with_share(compute_share(problem)))
    if not (joint and search.solver.searches):
        return at_start, []
    share, least = best_share(at_start, solve)
    statistics: list[Mapping[str, float]] = [] if least is None else [{LEAST: float(least)}]
    return replace(search, instance=instance.with_share(share)), statistics


def best_share(search: SearchRequest, solve: Search) -> tuple[float, Fraction | None]:
    """Return the first group's share of the least time, and a lower bound on that of all shares.

    Intervals of shares are searched by their lower bounds, the least first, and the choices of each
    priced in its middle. The intervals together are all shares, so that the least of their bounds
    holds for all.

    Parameters
    ----------
    search
        At the share that is tried first: the best one known if the deadline passes.
    solve
        Finds the choices of a problem and bounds its cost.
    """
    instance, cost = search.instance, search.instance.cost
    assert isinstance(cost, GroupTime)
    best = solve(search.quiet)
    least, (share,) = total_cost(instance, best.assignments, best.tensors), cost.shares

    def bounded(first: int, last: int) -> tuple[Fraction, int, int]:
        """Bound an interval from below, and price its choices at the share in its middle."""
        nonlocal least, share
        found = solve(replace(search.quiet, instance=instance.with_cost(cost.between(first, last))))
        middle = max(1, (first + last) // 2)
        at_middle = instance.with_cost(cost.between(middle))
        total = total_cost(at_middle, found.assignments, found.tensors)
        if total < least:
            least, share = total, middle
        return found.bound or Fraction(), first, last

    ends = [SHARES * number // _INTERVALS for number in range(_INTERVALS + 1)]
    intervals = []
    for first, last in pairwise(ends):
        if search.deadline.passed():
            return share / SHARES, None
        intervals.append(bounded(first, last))
    heapify(intervals)
    while intervals[0][0] < least * (1 - GAP) and not search.deadline.passed():
        _, first, last = intervals[0]
        if last - first < 2:  # there is no share between them
            break
        heappop(intervals)
        for half in ((first, (first + last) // 2), ((first + last) // 2, last)):
            heappush(intervals, bounded(*half))
    return share / SHARES, min(least, intervals[0][0])
