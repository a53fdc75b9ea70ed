"""The best placement: which bisection of an array is which level."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import chain, combinations
from typing import TYPE_CHECKING

from hypar_opt.costs.physical import Rings
from hypar_opt.deadline import TIME_LIMIT, Deadline
from hypar_opt.errors import HyparError, RefusedError, argument

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import Problem
    from hypar_opt.search.result import Progress

MAX_ORDERS = 50_000
"""The number of orders of bisections that are enumerated; distinct ones are solved."""


def best_placement(
    problem: Problem, solve: Callable[[Problem], Plan], progress: Progress, deadline: Deadline
) -> Plan:
    """Solve for every distinct placement of an array; ties go to the first, the default.

    Placements that give every exchange equal links are equivalent. If the deadline passes, the
    best of those solved is returned, without a bound.

    Raises
    ------
    HyparError
        If the problem has no array, or its cost does not depend on one.
    RefusedError
        If the topology allows too many orders.
    """
    placements = _distinct_placements(problem, deadline)
    best: Plan | None = None
    for done, placement in enumerate(placements):
        # A bound over all training settings takes about as long as the search that it would spare.
        progress(done, len(placements))
        plan = solve(problem.placed(placement))
        if best is None or plan.cost.total < best.cost.total:
            best = plan
        if deadline.passed():
            break
    progress(len(placements), len(placements))
    assert best is not None
    if not deadline.passed():
        return best
    # A bound for the solved placements does not cover the others.
    stopped = {"status": "feasible", "bound": None, "gap": None, "stopped_by": TIME_LIMIT}
    return best.model_copy(update={"solver": best.solver.model_copy(update=stopped)})


def _distinct_placements(problem: Problem, deadline: Deadline) -> list[tuple[int, ...]]:
    """Return one placement for each distinct set of links of the levels, the default first."""
    if problem.array is None or problem.cost == "bytes":
        time = argument("cost", "time")
        raise HyparError(
            f"{argument('place', True)} goes with {argument('array')} and {time} or energy"
        )
    array = problem.array.description
    distinct: dict[tuple[Hashable, ...], tuple[int, ...]] = {}
    for count, placement in enumerate(array.orders()):
        if count >= MAX_ORDERS:
            place = argument("place", True)
            raise RefusedError(f"{place}: {array.name} allows {MAX_ORDERS} orders or more")
        if distinct and deadline.passed():
            break
        # The first order of equal links is kept; the array's default placement comes first.
        distinct.setdefault(_links_of(array, placement), placement)
    return list(distinct.values())


def _links_of(array: Array, placement: tuple[int, ...]) -> tuple[Hashable, ...]:
    """Return the parts of the levels, and the links of all possible exchanges of a plan."""
    pairs: tuple[Hashable, ...] = (
        array.hierarchy(placement),
        *map(array.interconnect.bisection, placement),
    )
    rings = Rings.of(array, placement)
    if rings is None:
        return pairs
    # A plan may reduce over any subset of the levels, around separate rings.
    levels = range(len(placement))
    subsets = chain.from_iterable(combinations(levels, size + 1) for size in levels)
    return (*pairs, *(tuple(map(rings.link, rings.stages(subset))) for subset in subsets))
