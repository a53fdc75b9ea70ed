"""The cheapest path along a chain whose loads have to fit a capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import Integers
from hypar_opt.errors import RefusedError
from hypar_opt.solvers.feasibility import allowed_choices

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable
    from hypar_opt.deadline import Deadline

_LARGEST_SORT = 2**20
"""Paths that are sorted at once: about a fifth of a second, between two looks at the clock."""

MOST_LABELS = 20_000_000
"""Partial plans kept under a capacity, over all layers."""


def within_capacity(table: CostTable, deadline: Deadline) -> tuple[int | None, tuple[int, ...]]:
    """Return the least cost within a table's capacity, and the canonical assignment that has it.

    For each choice of a layer it carries along the Pareto front, in cost and load, of all
    paths that end there. The cost is None where no assignment fits the capacity.

    Raises
    ------
    RefusedError
        If the fronts grow beyond `MOST_LABELS`.
    NoAnswerError
        If the deadline passes.
    """
    problem = _Capacitated.of(table)
    fronts = _fronts(problem, deadline)
    objective = min((int(costs.min()) for costs, _ in fronts[-1] if len(costs)), default=None)
    if objective is None:
        return None, ()
    return objective, _traced_back(problem, fronts, objective)


Front = tuple[Integers, Integers]
"""Costs and loads of the paths that no other beats in both: loads rise, costs fall."""


@dataclass(frozen=True, eq=False)
class _Capacitated:
    """A chain's charges and loads in one dtype, which holds every sum of them."""

    node: Integers
    edge: Integers
    load: Integers
    allowed: NDArray[np.bool_]
    capacity: int

    @classmethod
    def of(cls, table: CostTable) -> _Capacitated:
        assert table.load is not None
        assert table.capacity is not None
        dtype = np.result_type(table.node, table.edge, table.load)
        node, edge, load = (
            part.astype(dtype) for part in (table.node, table.chain_edges(), table.load)
        )
        return cls(node, edge, load, allowed_choices(table), table.capacity)

    def least_load_behind(self) -> list[int]:
        """Return, for each layer, what the layers behind it load at the least."""
        lightest = [
            min((weight for weight, ok in zip(row, may, strict=True) if ok), default=None)
            for row, may in zip(self.load.tolist(), self.allowed.tolist(), strict=True)
        ]
        behind = [0] * len(lightest)
        for layer in range(len(lightest) - 2, -1, -1):
            least = lightest[layer + 1]
            behind[layer] = behind[layer + 1] + (self.capacity + 1 if least is None else least)
        return behind


def _fronts(problem: _Capacitated, deadline: Deadline) -> list[list[Front]]:
    """Return the Pareto front of the paths to each choice of each layer."""
    behind = problem.least_load_behind()
    layers, choices = problem.node.shape
    nothing = np.zeros(0, problem.node.dtype)
    fronts: list[list[Front]] = []
    labels = 0
    for layer in range(layers):
        front: list[Front] = []
        for choice in range(choices):
            deadline.check()
            costs = loads = nothing
            if problem.allowed[layer, choice]:
                if layer == 0:
                    costs = loads = np.zeros(1, problem.node.dtype)
                else:
                    steps = problem.edge[layer - 1, :, choice]
                    extended = zip(fronts[-1], steps, strict=True)
                    costs, loads = _merged([(c + s, w) for (c, w), s in extended], deadline)
                costs = costs + problem.node[layer, choice]
                loads = loads + problem.load[layer, choice]
                # A path that the layers behind cannot complete within the capacity is dropped.
                fits = loads <= problem.capacity - behind[layer]
                costs, loads = pareto_front(costs[fits], loads[fits])
            front.append((costs, loads))
            labels += len(costs)
        if labels > MOST_LABELS:
            raise RefusedError(
                f"a capacity leaves more than {MOST_LABELS:,} partial plans to compare; try cpsat"
            )
        fronts.append(front)
    return fronts


def _traced_back(
    problem: _Capacitated, fronts: list[list[Front]], objective: int
) -> tuple[int, ...]:
    """Return, from the last layer back, the first choice from which the least cost can be had."""
    remaining, room = objective, problem.capacity
    assignment: list[int] = []
    for layer in range(len(fronts) - 1, -1, -1):
        for choice, (costs, loads) in enumerate(fronts[layer]):
            step = int(problem.edge[layer, choice, assignment[-1]]) if assignment else 0
            if ((costs == remaining - step) & (loads <= room)).any():
                assignment.append(choice)
                remaining -= step + int(problem.node[layer, choice])
                room -= int(problem.load[layer, choice])
                break
    return tuple(reversed(assignment))


def _merged(fronts: list[Front], deadline: Deadline) -> Front:
    """Return several fronts as one set of paths; large ones two by two, each pair a front again."""
    while len(fronts) > 1 and sum(len(costs) for costs, _ in fronts) > _LARGEST_SORT:
        merged = []
        for start in range(0, len(fronts), 2):
            deadline.check()
            costs, loads = (
                np.concatenate(part) for part in zip(*fronts[start : start + 2], strict=True)
            )
            merged.append(pareto_front(costs, loads))
        fronts = merged
    costs, loads = (np.concatenate(part) for part in zip(*fronts, strict=True))
    return costs, loads


def pareto_front(costs: Integers, loads: Integers) -> Front:
    """Drop each path that another matches in load and in cost, keeping one of equals."""
    if len(costs) == 0:
        return costs, loads
    order = np.lexsort((costs, loads))
    costs, loads = costs[order], loads[order]
    least = np.minimum.accumulate(costs)
    keep = np.ones(len(costs), bool)
    keep[1:] = costs[1:] < least[:-1]
    return costs[keep], loads[keep]
