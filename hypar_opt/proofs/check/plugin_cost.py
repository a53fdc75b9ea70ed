"""The charges of a plug-in's cost model, which is the only definition of them.

This is the only module here that imports code of the search: the arguments of a cost model.
"""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs import COSTS
from hypar_opt.errors import CheckFailedError
from hypar_opt.instance.instance import Instance
from hypar_opt.proofs.check.folds import Charges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.base import CostModel
    from hypar_opt.integers import Integers
    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.check.nodes import State


class PluginCost(Charges):
    """The charges of a plug-in's cost model.

    Raises
    ------
    CheckFailedError
        If the plan has another unit than the cost model, or a charge is not an integer.
    """

    def __init__(self, plan: Plan) -> None:
        self._workload = Instance.of_plan(plan).workload
        cost: CostModel = COSTS[plan.cost.kind].from_problem(plan.problem, self._workload)
        if plan.cost.unit != cost.unit:
            raise CheckFailedError(f"cost, unit: should be {cost.unit!r}, got {plan.cost.unit!r}")
        self._cost, self.resolution = cost, cost.resolution
        self._in_state = cache(self._charge_nodes)

    def node(self, node: int, state: State) -> int:
        return sum(charges[node] for charges in self._in_state(state))

    def joins_levels(self, node: int, state: State) -> bool:
        prefixes = [state[: level + 1] for level in range(len(state))]
        return self.node(node, state) != sum(
            self._in_state(prefix)[-1][node] for prefix in prefixes
        )

    def for_plan(self, chosen: Sequence[State]) -> PluginCost:
        rows = list(zip(*chosen, strict=True))
        clone = copy(self)
        clone._cost = self._cost.for_plan(self._workload, rows)
        clone._in_state = cache(clone._charge_nodes)
        return clone

    def edge(self, edge: int, sources: Sequence[State], targets: Sequence[State]) -> Integers:
        ends = (_block(sources)[:, :, None], _block(targets)[:, None])
        total: Integers = np.zeros((len(sources), len(targets)), object)
        states = ([block] if len(block) else [] for block in ends)
        for charges in self._cost.edge(self._workload, np.array([[edge]]), *states):
            total += _integers(charges, total.shape)
        return total

    def _charge_nodes(self, state: State) -> list[list[int]]:
        """Return what all nodes are charged at each level of a state."""
        nodes = np.arange(len(self._workload.nodes))
        levels = self._cost.node(self._workload, nodes, [_block([state])] if state else [])
        return [_integers(charges, nodes.shape).tolist() for charges in levels]


def _block(states: Sequence[State]) -> NDArray[np.intp]:
    """Return states as a cost model takes them: ``(levels, states)``."""
    return np.array(states, np.intp).T


def _integers(charges: Integers, shape: tuple[int, ...]) -> Integers:
    """Return charges that broadcast as Python's integers, and refuse any other number."""
    if not all(isinstance(charge, int) for charge in charges.ravel().tolist()):
        raise CheckFailedError("cost, kind: its charges should be whole numbers")
    table: Integers = np.broadcast_to(charges.astype(object), (1, *shape))
    return table.reshape(shape)
