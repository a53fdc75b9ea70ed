"""The order of a plan's levels: the fastest, if bytes do not depend on the order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.contract import cost_of
from hypar_opt.costs.shared_nodes import rows_with_shared
from hypar_opt.costs.state_charges import state_indices
from hypar_opt.costs.state_table import StateTable
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import HyparError
from hypar_opt.instance.pins import Pin

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel
    from hypar_opt.instance.instance import Instance
    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload

Rows = Sequence[tuple[int, ...]]
Order = tuple[int, ...]
"""The index of each level's row among a plan's distinct rows, H1 first."""

MAX_ORDERS = 50_000
"""The number of orders that are compared; beyond it a local search swaps two levels."""


def fastest_order(instance: Instance, rows: Rows, deadline: Deadline = NEVER) -> Rows:
    """Return a plan's rows, ``(levels, layers)``, in the order that takes the least time.

    If permuting the levels does not change bytes, and an array's levels differ, the closed form of
    the time decides, under the problem's reading. The rows keep their order if no other is faster,
    if the cost of time cannot charge the problem, or if the deadline passes.

    Source: docs/decisions/0005-joint-optimum.md.
    """
    problem = instance.problem
    if problem.array is None or problem.placement is None or not levels_permute(problem):
        return rows
    interchangeable = equal_neighbours(problem)
    if all(interchangeable):
        return rows
    choices = list(dict.fromkeys(rows))
    given_order = tuple(map(choices.index, rows))
    # A level's bytes, and so its shared layouts, do not depend on the levels above it.
    nodes = rows_with_shared(instance.workload, instance.cost, choices)
    try:
        timed = problem.model_copy(update={"cost": "time"})
        rows_by_level = [nodes[row] for row in given_order]
        # In any order the same nodes are reduced together.
        cost = cost_of(timed, instance.workload).for_plan(instance.workload, rows_by_level)
        distinct = np.array(nodes, np.intp)
        times = _times_of(cost, instance.workload, distinct, problem.levels, deadline)
        orders = list(islice(_orders(Counter(given_order), interchangeable), MAX_ORDERS + 1))
        # The given order comes first and argmin takes the first minimum: it stays unless another is
        # strictly faster.
        best = _first_fastest([given_order, *orders], times)
        if len(orders) > MAX_ORDERS:
            best = _swapped(given_order, times)
    except HyparError:  # too many states, a problem that time cannot charge, or the deadline
        return rows
    return [choices[row] for row in best]


def levels_permute(problem: Problem) -> bool:
    """Return whether permuting a plan's levels changes neither its cost nor its feasibility.

    In bytes and with two choices a layer's charges telescope, and a boundary's charge at a level
    depends on its pair of choices alone. With output parallelism a boundary tensor grows with the
    number of times that its target made that choice above, so the order matters, as it does where
    levels differ in parts, weights or pins, or an all-to-all crosses several.

    Source: docs/decisions/0005-joint-optimum.md.
    """
    return len(problem.choices) == 2 and levels_equal(problem) and not problem.joins_levels


def levels_equal(problem: Problem) -> bool:
    """Return whether, in bytes, all levels have equal parts, weights and pins."""
    pins = map(Pin.parse, problem.constraints.fix)
    weigh = zip(
        problem.hierarchy.sizes, problem.level_weights or (1,) * problem.levels, strict=True
    )
    same = problem.cost == "bytes" and len(set(weigh)) <= 1 and not problem.training.by_level
    return same and all(pin.level is None for pin in pins)


def equal_neighbours(problem: Problem) -> list[bool]:
    """Return, for each level, whether it has the same links as the next and may be exchanged."""
    if problem.array is None or problem.placement is None:
        return [True] * (problem.levels - 1)
    array = problem.array.description
    links = map(array.interconnect.bisection, problem.placement)
    splits = list(zip(problem.hierarchy.sizes, links, strict=True))
    # A ring crosses several levels, so equal links do not make levels interchangeable.
    return [array.collective == "pairwise" and one == other for one, other in pairwise(splits)]


def _first_fastest(orders: Sequence[Order], times: Callable[[NDArray[np.intp]], Integers]) -> Order:
    """Return the fastest order; of equals, the first."""
    return orders[int(np.argmin(times(np.array(orders, np.intp))))]


def _swapped(order: Order, times: Callable[[NDArray[np.intp]], Integers]) -> Order:
    """Swap the pair of levels that saves the most time, until no swap saves any."""
    while True:
        swapped = [order]
        for one, other in combinations(range(len(order)), 2):
            candidate = list(order)
            candidate[one], candidate[other] = candidate[other], candidate[one]
            swapped.append(tuple(candidate))
        best = _first_fastest(swapped, times)
        if best == order:
            return order
        order = best


def _orders(
    remaining: Counter[int], interchangeable: Sequence[bool], before: Order = ()
) -> Iterator[Order]:
    """Yield the distinct orders of rows; at interchangeable levels in one order only."""
    if not remaining.total():
        yield before
        return
    # Among interchangeable neighbours rows ascend, so that each set is yielded once.
    lowest = before[-1] if before and interchangeable[len(before) - 1] else 0
    for row in sorted(remaining):
        if remaining[row] and row >= lowest:
            yield from _orders(remaining - Counter([row]), interchangeable, (*before, row))


def _times_of(
    cost: CostModel, workload: Workload, kinds: NDArray[np.intp], levels: int, deadline: Deadline
) -> Callable[[NDArray[np.intp]], Integers]:
    """Return a function from orders, ``(orders, levels)``, to their times, ``(orders,)``.

    Orders index the distinct rows ``kinds``, ``(rows, layers)``.
    """
    weights = 2 ** np.arange(levels - 1, -1, -1)
    # A table over states prices all orders by look-ups: one table for up to 50,000 orders.
    states = StateTable.of(cost, workload, levels, deadline)
    table = states.by_level(deadline)
    if table is None:
        plain = states.dense(deadline)
        column_of = np.argsort(state_indices(states.states, [2] * levels))

    def times(orders: NDArray[np.intp]) -> Integers:
        # A layer's state as a number whose binary digits are its choices, H1's first.
        numbers = [kinds[orders, layer] @ weights for layer in range(len(workload.nodes))]
        total: Integers = np.zeros(len(orders), np.int64)
        if table is None:
            numbers = [column_of[number] for number in numbers]
            for layer, number in enumerate(numbers):
                total = total + plain.node[layer, number]
            for edge, (source, target) in zip(plain.edge, plain.ends.tolist(), strict=True):
                total = total + edge[numbers[source], numbers[target]]
            return total
        for layer, number in enumerate(numbers):
            deadline.check()
            total = total + table.node[layer, number]
        for boundary, (source, target) in enumerate(table.ends.tolist()):
            deadline.check()
            for level, pairs in enumerate(table.pairs):
                # Bits of the state are choices, H1's the highest: those above a level are a shift
                # away.
                above = numbers[target] >> levels - level if pairs.shape[1] > 1 else 0
                ends = (numbers[layer] >> levels - 1 - level & 1 for layer in (source, target))
                total = total + pairs[boundary][(above, *ends)]
        return total

    return times
