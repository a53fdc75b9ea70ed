"""The order of a plan's levels: where bytes leave it free, the one that takes the least time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs import COSTS
from hypar_opt.costs.product import canonical_states, expanded, factored, in_mixed_radix
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import HyparError
from hypar_opt.search.pins import Pin

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel
    from hypar_opt.costs.table import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.search.instance import Instance
    from hypar_opt.workload.tensors import Workload

Rows = Sequence[tuple[int, ...]]
Order = tuple[int, ...]
"""Which of a plan's distinct rows each level has, H1 first."""

MOST_ORDERS = 50_000
"""Orders that are compared; of more, those are that swapping two levels at a time leads to."""


def fastest_order(instance: Instance, rows: Rows, deadline: Deadline = NEVER) -> Rows:
    """Return a plan's rows, levels x layers, in the order that takes the least time.

    Where permuting the levels changes no bytes and an array's levels differ, its time in
    closed form decides, by the problem's own reading. The rows stay as they are where no
    order takes less, where the cost of time does not charge the problem, or once the deadline
    comes.
    """
    problem = instance.problem
    if problem.array is None or problem.placement is None or not levels_permute(problem):
        return rows
    alike = neighbours_alike(problem)
    if all(alike):
        return rows
    choices = list(dict.fromkeys(rows))
    own = tuple(map(choices.index, rows))
    try:
        timed = problem.model_copy(update={"cost": "time"})
        cost = COSTS["time"].from_problem(timed, instance.workload)
        distinct = np.array(choices, np.intp)
        times = _times_of(cost, instance.workload, distinct, problem.levels, deadline)
        orders = list(islice(_orders(Counter(own), alike), MOST_ORDERS + 1))
        best = _first_fastest([own, *orders], times)
        if len(orders) > MOST_ORDERS:
            best = _swapped(own, times)
    except HyparError:  # too many states, none of the cost's problems, or no time
        return rows
    return [choices[row] for row in best]


def levels_permute(problem: Problem) -> bool:
    """Return whether every plan costs the same, and is allowed alike, in any order of its levels.

    In bytes and with two choices a layer's charges telescope, and a boundary's charge at a level
    is that of its pair of choices alone. With output parallelism a boundary weighs more the more
    often its target has taken it above, so the order matters, as it does where a level has a
    weight or a pin of its own.

    Source: docs/decisions/0005-joint-optimum.md.
    """
    pins = map(Pin.parse, problem.constraints.fix)
    return (
        problem.cost == "bytes"
        and len(problem.choices) == 2
        and len(set(problem.level_weights)) <= 1
        and all(pin.level is None for pin in pins)
    )


def neighbours_alike(problem: Problem) -> list[bool]:
    """Return whether each level and the next have as much of the array, and may change places."""
    if problem.array is None or problem.placement is None:
        return [True] * (problem.levels - 1)
    array = problem.array.description
    splits = [array.interconnect.bisection(bit) for bit in problem.placement]
    # A ring crosses several levels, so that links alike do not make levels alike.
    return [array.collective == "pairwise" and one == other for one, other in pairwise(splits)]


def _first_fastest(orders: Sequence[Order], times: Callable[[NDArray[np.intp]], Integers]) -> Order:
    return orders[int(np.argmin(times(np.array(orders, np.intp))))]


def _swapped(order: Order, times: Callable[[NDArray[np.intp]], Integers]) -> Order:
    """Swap the two levels that saves the most time, until none saves any."""
    while True:
        swapped = [order]
        for one, other in combinations(range(len(order)), 2):
            each = list(order)
            each[one], each[other] = each[other], each[one]
            swapped.append(tuple(each))
        best = _first_fastest(swapped, times)
        if best == order:
            return order
        order = best


def _orders(left: Counter[int], alike: Sequence[bool], before: Order = ()) -> Iterator[Order]:
    """Yield the distinct orders of some rows; at levels alike in one order only."""
    if not left.total():
        yield before
        return
    least = before[-1] if before and alike[len(before) - 1] else 0
    for kind in sorted(left):
        if left[kind] and kind >= least:
            yield from _orders(left - Counter([kind]), alike, (*before, kind))


def _times_of(
    cost: CostModel, workload: Workload, kinds: NDArray[np.intp], levels: int, deadline: Deadline
) -> Callable[[NDArray[np.intp]], Integers]:
    """Return what prices many orders, ``(orders, levels)``, of rows ``(kinds, layers)`` at once."""
    weights = 2 ** np.arange(levels - 1, -1, -1)
    table = factored(cost, workload, levels, deadline)
    if table is None:
        plain = expanded(cost, workload, levels, deadline)
        places = np.argsort(in_mixed_radix(canonical_states(levels, 2, deadline), 2))

    def times(orders: NDArray[np.intp]) -> Integers:
        # A layer's state as a number whose binary digits are its choices, H1's first.
        states = [kinds[orders, layer] @ weights for layer in range(len(workload.layers))]
        total: Integers = np.zeros(len(orders), np.int64)
        if table is None:
            states = [places[each] for each in states]
            for layer, state in enumerate(states):
                total = total + plain.node[layer, state]
            for edge, (source, target) in zip(plain.edge, plain.ends.tolist(), strict=True):
                total = total + edge[states[source], states[target]]
            return total
        for layer, state in enumerate(states):
            deadline.check()
            total = total + table.node[layer, state]
        for place, (source, target) in enumerate(table.ends.tolist()):
            deadline.check()
            for level, pairs in enumerate(table.pairs):
                above = states[target] >> levels - level if pairs.shape[1] > 1 else 0
                ends = (states[layer] >> levels - 1 - level & 1 for layer in (source, target))
                total = total + pairs[place][(above, *ends)]
        return total

    return times
