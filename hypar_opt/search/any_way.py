"""A bound on the plans of all ways of training, by one table: the ways may have too many states.

A node in another way takes no less than `TimeCost.cut` charges it, which is no more than its whole
weights take (`hypar_opt.costs.reductions.by_stage`). Of the levels over which its gradient is
reduced those at which nothing but the state is split are above all others, and all-reduce together,
in stages as rings say. Those at which gradients are split are next, and then weights; each of both
is reduced in stages of its own, and these are parts of stages of all levels. A reduce-scatter in
each micro-batch and an all-gather move the bytes of an all-reduce or more, weights again for each
pass, in as many messages or more; only reduce-scatters share the latencies of a bucket. So the
least over all places at which levels may be parted, and then over all parts below, is a bound. To
compute again, and micro-batches of even parts, take no less, exchange by exchange.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from hypar_opt.costs.alignments import bounding
from hypar_opt.costs.state_classes import classed
from hypar_opt.costs.state_tables import states_of
from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.search.pairs_of_levels import least_compute
from hypar_opt.solvers.base import MEMORY, Status
from hypar_opt.solvers.elimination.classes import bound_by_classes, solve_classes

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel
    from hypar_opt.search.result import SearchResult
    from hypar_opt.search.way_of_training import WayOfTraining


def is_too_large(way: WayOfTraining, found: SearchResult) -> bool:
    """Return whether other ways, by which rings may take less, have too many states."""
    cost, instance = way.cost, way.instance
    if not _is_around_rings(cost):
        return False
    if found.stopped_by == MEMORY:
        return True
    try:
        return bounding(cost, instance.workload, instance.problem.levels) is not None
    except RefusedError:
        return True


def none_takes_less(way: WayOfTraining, found: SearchResult) -> bool:
    """Return whether one table tells that no plan of another way takes less than a result."""
    return not _is_around_rings(way.cost) or bounded_in_any_way(way, found) is found


def _is_around_rings(cost: CostModel) -> bool:
    return cost.physical is not None and cost.physical.rings is not None


def bound_over_equal_links(way: WayOfTraining) -> Fraction:
    """Return a bound on the plans of all ways, in as many micro-batches; or 0.

    Raises
    ------
    RefusedError, NoAnswerError
    """
    instance, deadline, time = way.instance, way.search.deadline, way.cost.time
    if time is None or instance.problem.groups:
        return Fraction()
    cost, arguments = replace(time, cut=True), (instance.workload, instance.problem.levels)
    bounds = bounding(cost, *arguments) or cost.over_equal_links
    states = states_of(*arguments, deadline)
    allowed = instance.constraints.allowed(states, deadline)
    table = classed(cost, instance.workload, states, allowed, deadline, bounds=bounds)
    return Fraction(bound_by_classes(table, deadline)[0], way.per_unit)


def bounded_in_any_way(way: WayOfTraining, found: SearchResult) -> SearchResult:
    """Return a result of one way with a bound on the plans of all, in as many micro-batches."""
    if found.scope != "joint" or found.bound is None:
        return found
    cost, bound = way.cost, least_compute(way.instance)
    if cost.time is not None and found.stopped_by in (None, MEMORY):
        with suppress(NoAnswerError, RefusedError):
            table = way.instance.with_cost(replace(cost.time, cut=True)).classes(
                way.search.deadline
            )
            bound = solve_classes(table, way.search.deadline, canonical=False).bound or bound
    if found.bound * cost.resolution <= bound:
        return found
    of_all = Fraction(bound, cost.resolution)
    return replace(found, status=Status.FEASIBLE, bound=of_all, stopped_by=MEMORY)
