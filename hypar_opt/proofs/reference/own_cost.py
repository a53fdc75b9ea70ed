"""The charges of a plug-in's cost model, which is the only definition of them.

This is the only module here that imports code of the search: the arguments of a cost model.
"""

from __future__ import annotations

import itertools
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.costs import COSTS
from hypar_opt.costs.base import BoundaryStates, SplitCounts
from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.reference.exchanges import shares_tensors
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        nodes = len(workload.nodes)
        self.resolution = cost.resolution

        @cache
        def node_charges(counts: Counts) -> list[list[int]]:
            return _integers(cost.node(workload, SplitCounts.uniform(nodes, counts)))

        @cache
        def edges(source: Counts, target: Counts) -> list[Matrix]:
            splits = SplitCounts.uniform(nodes, source), SplitCounts.uniform(nodes, target)
            return _integers(cost.edge(workload, *splits))

        @cache
        def together(state: tuple[int, ...]) -> list[int]:
            charges = [_integers(charge) for charge in cost.of_state(workload, state).values()]
            # The zeros keep a row for each node where there are no such charges.
            return [sum(column) for column in zip([0] * nodes, *charges, strict=True)]

        self._coupled = workload.has_replicas(cost.choices)
        self._weights = workload.is_weight_boundary.tolist()
        self._pairs = partial(cost.pairs, workload)
        self._nodes, self._edges, self._states = node_charges, edges, together
        columns = set(zip(*plan.assignments(), strict=True))
        # The plan's own states: those are the ones whose charge tables of single levels would lack.
        self.joins_levels = any(cost.of_state(workload, column) for column in columns)

    def node(self, level: int, layer: int, counts: Counts) -> Sequence[int]:  # noqa: ARG002
        return self._nodes(counts)[layer]

    def edge(self, level: int, boundary: int, source: Counts, target: Counts) -> Matrix:  # noqa: ARG002
        return self._edges(source, target)[boundary]

    def together(self, boundary: int) -> bool:
        return self._coupled and not self._weights[boundary]

    def pairs(self, boundary: int, sources: Sequence[State], targets: Sequence[State]) -> Integers:
        ends = list(itertools.product(sources, targets))
        columns = np.array(ends, np.intp).reshape(len(ends), 2, -1).transpose(1, 2, 0)
        charges = self._pairs(BoundaryStates.of_one(boundary, *columns)).sum(axis=0)
        return np.array(_integers(charges), object).reshape(len(sources), len(targets))

    def state(self, layer: int, state: Sequence[int]) -> int:
        return self._states(tuple(state))[layer]


def _integers(charges: Integers) -> list[Any]:
    """Return charges as nested lists of Python's integers, and refuse any other number."""
    if not all(isinstance(charge, int) for charge in charges.ravel().tolist()):
        raise CheckFailedError("cost, kind: its charges should be whole numbers")
    return list(charges.tolist())
