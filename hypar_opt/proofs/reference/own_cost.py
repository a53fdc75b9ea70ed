"""The charges of a plug-in's cost model, which is the only definition of them.

This is the only module here that imports code of the search: the arguments of a cost model.
"""

from __future__ import annotations

import itertools
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.costs import COSTS
from hypar_opt.costs.level_tables import joins_levels
from hypar_opt.costs.states import added_up
from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.reference.exchanges import shares_tensors
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.base import CostModel
    from hypar_opt.costs.table import Integers
    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.reference.exchanges import Counts, Matrix, State


class OwnCost:
    """`hypar_opt.proofs.reference.charges.Charges` of a plug-in's cost model.

    Raises
    ------
    CheckFailedError
        If the plan has another unit than the cost model, or a charge is not an integer.
    """

    def __init__(self, plan: Plan) -> None:
        workload = workload_of(
            plan.network.description, plan.batch, shared_tensors=shares_tensors(plan)
        )
        cost: CostModel = COSTS[plan.cost.kind].from_problem(plan.problem, workload)
        if plan.cost.unit != cost.unit:
            raise CheckFailedError(f"cost, unit: should be {cost.unit!r}, got {plan.cost.unit!r}")
        nodes = np.arange(len(workload.nodes))[:, None]
        self.resolution = cost.resolution
        choices, columns = np.arange(cost.choices), workload.ends[:, 0].size
        shape = columns, cost.choices, cost.choices

        @cache
        def node_charges(counts: Counts) -> list[list[int]]:
            charges = cost.node(workload, nodes, [*_in_order(counts, 2), choices[None, None]])[-1]
            return _integers(np.broadcast_to(charges, (len(nodes), cost.choices)))

        @cache
        def edges(source: Counts, target: Counts) -> list[Matrix]:
            here = choices[None, None, :, None], choices[None, None, None]
            ends = [*_in_order(source, 3), here[0]], [*_in_order(target, 3), here[1]]
            charges = cost.edge(workload, np.arange(columns)[:, None, None], *ends)[-1]
            return _integers(np.broadcast_to(charges, shape))

        @cache
        def together(state: tuple[int, ...]) -> list[int]:
            """Return what all levels charge together beyond what each is charged by itself."""
            levels = [np.array([c])[:, None, None] for c in state]
            total = added_up(cost.node(workload, nodes, levels))
            charges = _integers(np.broadcast_to(total, (len(nodes), 1)))
            by_level = [
                [row[choice] for row in node_charges(tuple(map(state[:level].count, choices)))]
                for level, choice in enumerate(state)
            ]
            return [
                charge - sum(alone)
                for (charge,), alone in zip(charges, zip(*by_level, strict=True), strict=True)
            ]

        self._coupled = workload.has_replicas(cost.choices)
        self._weights = workload.is_weight_boundary.tolist()
        self._pairs = partial(cost.edge, workload)
        self._nodes, self._edges, self._states = node_charges, edges, together
        self.joins_levels = joins_levels(cost, workload, plan.levels)

    def node(self, level: int, layer: int, counts: Counts) -> Sequence[int]:  # noqa: ARG002
        return self._nodes(counts)[layer]

    def edge(self, level: int, boundary: int, source: Counts, target: Counts) -> Matrix:  # noqa: ARG002
        return self._edges(source, target)[boundary]

    def together(self, boundary: int) -> bool:
        return self._coupled and not self._weights[boundary]

    def pairs(self, boundary: int, sources: Sequence[State], targets: Sequence[State]) -> Integers:
        ends = list(itertools.product(sources, targets))
        columns = np.array(ends, np.intp).reshape(len(ends), 2, -1).transpose(1, 2, 0)
        charges = added_up(self._pairs(np.array([boundary]), *([block] for block in columns)))
        every = np.broadcast_to(charges, len(ends))
        return np.array(_integers(every), object).reshape(len(sources), len(targets))

    def state(self, layer: int, state: Sequence[int]) -> int:
        return self._states(tuple(state))[layer]


def _integers(charges: Integers) -> list[Any]:
    """Return charges as nested lists of Python's integers, and refuse any other number."""
    if not all(isinstance(charge, int) for charge in charges.ravel().tolist()):
        raise CheckFailedError("cost, kind: its charges should be whole numbers")
    return list(charges.tolist())


def _in_order(counts: Counts, axes: int) -> list[NDArray[np.intp]]:
    """Return the levels of a state that makes each choice so often, with axes behind them."""
    shape = [1] * (axes + 1)
    return [np.full(shape, choice) for choice, count in enumerate(counts) for _ in range(count)]
