"""The shares of groups of accelerators at which plans take least within a device's memory.

What a part holds grows with its share, and what fits all parts lies around the shares that fill
their memories equally. So plans are sought at the shares of the fastest plan and at those; the
better one's shares are improved, and a bound is sought there.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

from hypar_opt.deadline import TIME_LIMIT
from hypar_opt.errors import InfeasibleError, NoAnswerError
from hypar_opt.plan.share_of_group import SHARES
from hypar_opt.search.free_modes import fastest_training
from hypar_opt.search.memory.incumbent import NothingFitsError
from hypar_opt.search.memory.modes import CountedPlan, TrainingMode, capacity_of
from hypar_opt.search.memory.search import within_memory
from hypar_opt.search.result import SearchResult
from hypar_opt.search.shares import as_stated, share_left_open, step_of
from hypar_opt.search.simplices import integer_shares
from hypar_opt.solvers.base import Status

if TYPE_CHECKING:
    from hypar_opt.instance.instance import Instance
    from hypar_opt.search.result import Search, SearchRequest
    from hypar_opt.search.simplices import Shares

_SMALLEST_MOVE = SHARES // 1000
"""The smallest step by which shares are moved to improve a plan."""


def search_within_memory(
    request: SearchRequest, at_shares: SearchRequest, solve: Search
) -> tuple[SearchRequest, SearchResult]:
    """Search within a device's memory, at shares that suit it where these are left open.

    Parameters
    ----------
    at_shares
        The request at the shares of the fastest plan, whether it fits or not.

    Raises
    ------
    NothingFitsError
        If no plan is found that fits.
    """
    problem = request.instance.problem
    if problem.device_memory is None or not share_left_open(problem):
        return within_memory(at_shares, solve)
    if at_shares.incumbent is None:  # not searched
        with suppress(InfeasibleError, NothingFitsError):
            return within_memory(at_shares, solve)
    else:
        fastest = TrainingMode.of(at_shares, fastest_training(at_shares.instance))
        plan = SearchResult(at_shares.incumbent, Status.FEASIBLE, "joint", None)
        if fastest.counted(plan).fits:
            return within_memory(at_shares, solve)
    best: CountedPlan | None = None
    for shares in _candidate_shares(at_shares.instance):
        if best is not None and request.deadline.passed():
            break
        with suppress(InfeasibleError, NoAnswerError):
            search, result = within_memory(
                _at(request.without_progress, shares), solve, bounds=False
            )
            counted = TrainingMode(search).counted(result)
            if counted.fits and (best is None or counted.amount < best.amount):
                best = counted
    if best is None:
        try:
            return within_memory(at_shares, solve)
        except NothingFitsError as error:
            error.proved &= error.at_any_share  # others may
            raise
    best = _improved(best)
    at_best = _at(at_shares, _shares(best.mode.instance))
    unproved = replace(best.result, status=Status.FEASIBLE, bound=None)
    if request.deadline.passed():
        unproved = replace(unproved, stopped_by=TIME_LIMIT)
        return replace(at_best, instance=best.mode.instance), unproved
    with suppress(InfeasibleError, NoAnswerError):
        search, result = within_memory(at_best, solve)
        if best.amount >= TrainingMode(search).counted(result).amount:
            return search, result
        unproved = replace(unproved, bound=result.bound, stopped_by=result.stopped_by)
    return replace(at_best, instance=best.mode.instance), unproved


def _at(search: SearchRequest, shares: Shares) -> SearchRequest:
    return replace(search, instance=search.instance.with_share(as_stated(shares)))


def _shares(instance: Instance) -> Shares:
    shares = instance.problem.group_shares
    assert shares is not None
    return shares


def _candidate_shares(instance: Instance) -> list[Shares]:
    """Return the shares of the fastest plan, and those that fill the groups' memories equally."""
    groups = instance.problem.groups
    memories = [group.count * capacity_of(instance, group) for group in groups]
    return [_shares(instance), integer_shares(memories, step_of(instance.problem))]


def _improved(best: CountedPlan) -> CountedPlan:
    """Return a plan at better shares at which it fits: one group's grows, another's shrinks."""
    mode, step = best.mode, step_of(best.mode.instance.problem)
    move = SHARES // 4 // step * step
    while move >= max(step, _SMALLEST_MOVE) and not mode.search.deadline.passed():
        shares = _shares(best.mode.instance)
        for larger, smaller in permutations(range(len(shares)), 2):
            moved = [*shares]
            moved[larger], moved[smaller] = shares[larger] + move, shares[smaller] - move
            if moved[smaller] <= 0:
                continue
            at_moved = TrainingMode(_at(mode.search, tuple(moved)))
            if at_moved.instance.constraints.allow(best.result.assignments):
                counted = at_moved.counted(best.result)
                if counted.fits and counted.amount < best.amount:
                    best = counted
                    break
        else:
            move = move // 2 // step * step
    return best
