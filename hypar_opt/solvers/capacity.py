"""The cheapest path along a chain whose loads have to fit capacities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import RefusedError
from hypar_opt.integers import Integers
from hypar_opt.solvers.feasibility import allowed_choices

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable
    from hypar_opt.deadline import Deadline

_MAX_SORTED = 2**20
"""Paths sorted at once, in about 0.2 s: the interval between checks of the deadline."""

MAX_LABELS = 20_000_000
"""Upper bound on the labels (partial plans) kept under a capacity, over all layers."""


def within_capacity(table: CostTable, deadline: Deadline) -> tuple[int | None, tuple[int, ...]]:
    """Return the least cost within a table's capacity, and the canonical assignment of that cost.

    Dynamic programming with labels, as for a resource-constrained shortest path: for every
    choice of a layer it keeps the Pareto front, in cost and load, of the paths that end in it.
    The cost is None if no assignment fits the capacity.

    Raises
    ------
    RefusedError
        If the fronts grow beyond `MAX_LABELS`.
    NoAnswerError
        If the deadline passes.
    """
    for load, capacity in table.limits if table.more_limits else ():
        # With one limit alone fronts are short, and its optimum often keeps to the others.
        alone = replace(table, load=load, capacity=capacity, more_limits=())
        objective, assignment = within_capacity(alone, deadline)
        if objective is None or table.exceeded(assignment) is None:
            return objective, assignment
    problem = _Capacitated.of(table)
    fronts = _fronts(problem, deadline)
    objective = min((int(costs.min()) for costs, _ in fronts[-1] if len(costs)), default=None)
    if objective is None:
        return None, ()
    return objective, _traced_back(problem, fronts, objective)


Front = tuple[Integers, Integers]
"""Costs ``(paths,)`` and loads ``(paths, limits)`` of the paths that no other dominates."""


@dataclass(frozen=True, eq=False)
class _Capacitated:
    """A chain's charges and loads, in one dtype that holds all their sums.

    Parameters
    ----------
    load : (layers, choices, limits)
    capacity : (limits,)
    """

    node: Integers
    edge: Integers
    load: Integers
    allowed: NDArray[np.bool_]
    capacity: Integers

    @classmethod
    def of(cls, table: CostTable) -> _Capacitated:
        loads, capacities = zip(*table.limits, strict=True)
        # Python integers (dtype object) in all three if a sum of one may not fit int64.
        dtype = np.result_type(table.node, table.edge, *loads)
        load = np.stack([of_limit.astype(dtype) for of_limit in loads], axis=2)
        node, edge = (charges.astype(dtype) for charges in (table.node, table.chain_edges()))
        return cls(node, edge, load, allowed_choices(table), np.array(capacities, dtype))

    def least_load_after(self) -> Integers:
        """Return a lower bound on the loads of all layers after each, ``(layers, limits)``."""
        after = np.zeros((len(self.load), len(self.capacity)), self.load.dtype)
        for layer in range(len(self.load) - 2, -1, -1):
            load = self.load[layer + 1, self.allowed[layer + 1]]
            # A layer without an allowed choice exceeds any capacity.
            lowest = load.min(axis=0) if len(load) else self.capacity + 1
            after[layer] = after[layer + 1] + lowest
        return after


def _fronts(problem: _Capacitated, deadline: Deadline) -> list[list[Front]]:
    """Return the Pareto front of the paths to every choice of every layer."""
    load_after = problem.least_load_after()
    layers, choices = problem.node.shape
    dtype, limits = problem.node.dtype, len(problem.capacity)
    empty, none = np.zeros(0, dtype), np.zeros((0, limits), dtype)
    fronts: list[list[Front]] = []
    labels = 0
    for layer in range(layers):
        front: list[Front] = []
        for choice in range(choices):
            deadline.check()
            costs, loads = empty, none
            if problem.allowed[layer, choice]:
                if layer == 0:
                    costs, loads = np.zeros(1, dtype), np.zeros((1, limits), dtype)
                else:
                    steps = problem.edge[layer - 1, :, choice]
                    extended = zip(fronts[-1], steps, strict=True)
                    costs, loads = _merged([(c + s, w) for (c, w), s in extended], deadline)
                costs = costs + problem.node[layer, choice]
                loads = loads + problem.load[layer, choice]
                # A path that the later layers cannot complete within the capacity is dropped.
                fits = (loads <= problem.capacity - load_after[layer]).all(axis=1)
                costs, loads = _undominated(costs[fits], loads[fits])
            front.append((costs, loads))
            labels += len(costs)
        if labels > MAX_LABELS:
            raise RefusedError(
                f"a capacity leaves more than {MAX_LABELS:,} partial plans to compare; try cpsat"
            )
        fronts.append(front)
    return fronts


def _traced_back(
    problem: _Capacitated, fronts: list[list[Front]], objective: int
) -> tuple[int, ...]:
    """Return, from the last layer back, the first choice that attains the least cost.

    The capacity left decides too: a choice may attain the cost with a load that does not fit.
    """
    remaining, capacity_left = objective, problem.capacity.copy()
    assignment: list[int] = []
    for layer in range(len(fronts) - 1, -1, -1):
        for choice, (costs, loads) in enumerate(fronts[layer]):
            step = int(problem.edge[layer, choice, assignment[-1]]) if assignment else 0
            if ((costs == remaining - step) & (loads <= capacity_left).all(axis=1)).any():
                assignment.append(choice)
                remaining -= step + int(problem.node[layer, choice])
                capacity_left = capacity_left - problem.load[layer, choice]
                break
    return tuple(reversed(assignment))


def _merged(fronts: list[Front], deadline: Deadline) -> Front:
    """Return the union of several fronts; large ones are merged pairwise, keeping Pareto fronts."""
    while len(fronts) > 1 and sum(len(costs) for costs, _ in fronts) > _MAX_SORTED:
        merged = []
        for start in range(0, len(fronts), 2):
            deadline.check()
            costs, loads = (
                np.concatenate(entries) for entries in zip(*fronts[start : start + 2], strict=True)
            )
            merged.append(_undominated(costs, loads))
        fronts = merged
    costs, loads = (np.concatenate(entries) for entries in zip(*fronts, strict=True))
    return costs, loads


def _undominated(costs: Integers, loads: Integers) -> Front:
    """Return the front of paths with one load or several."""
    if loads.shape[1] == 1:
        costs, first = pareto_front(costs, loads[:, 0])
        return costs, first[:, None]
    order = np.lexsort((*loads.T[::-1], costs))
    costs, loads = costs[order], loads[order]
    front: list[int] = []
    for number, load in enumerate(loads):
        if not (loads[front] <= load).all(axis=1).any():
            front.append(number)
    return costs[front], loads[front]


def pareto_front(costs: Integers, loads: Integers) -> Front:
    """Return the Pareto front of paths: those that no other path dominates, one of equals."""
    if len(costs) == 0:
        return costs, loads
    order = np.lexsort((costs, loads))
    costs, loads = costs[order], loads[order]
    lowest_cost = np.minimum.accumulate(costs)
    # By ascending load, a path is dominated unless it costs less than all lighter ones.
    keep = np.ones(len(costs), bool)
    keep[1:] = costs[1:] < lowest_cost[:-1]
    return costs[keep], loads[keep]
