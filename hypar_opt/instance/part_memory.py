"""The memory of accelerators of each part of H1, between groups that have unequal shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.device_load import papers_loads
from hypar_opt.errors import HyparError, InfeasibleError, argument
from hypar_opt.integers import exact_dtype
from hypar_opt.step.states import of_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.table import CostTable
    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload


NO_LEVELS = (
    f"{argument('constraints.memory')} in unequal groups of accelerators needs"
    f" {argument('search', 'joint')}"
)


@dataclass(frozen=True, eq=False)
class PartMemory:
    """What each part of H1 holds, and may hold.

    Parameters
    ----------
    corners
        Those of a simplex of shares, for the least that each part holds between them; none for the
        problem's shares.
    """

    problem: Problem
    workload: Workload
    corners: tuple[tuple[int, ...], ...] = ()

    def loads(self, states: NDArray[np.intp]) -> Integers:
        """Return what nodes hold in each part, as if all held as much.

        Parameters
        ----------
        states : (levels, states)

        Returns
        -------
        (parts, nodes, states)
        """
        every_node = np.arange(len(self.workload.nodes))[:, None]
        shape = len(every_node), states.shape[1]
        return np.stack(
            [np.broadcast_to(own, shape) for own in self._held(every_node, [states[:, None]])]
        )

    def _held(self, nodes: Indices, states: States) -> list[Integers]:
        return papers_loads(self.workload, nodes, states, self.problem, self.corners)

    def of_plan(self, rows: Sequence[Sequence[int]]) -> list[int]:
        """Return the bytes of an accelerator of each part in a plan, ``(levels, nodes)``."""
        nodes = np.arange(len(self.workload.nodes))
        loads = self._held(nodes, of_rows(rows, len(nodes)))
        return [-(-sum(own.tolist()) // self.problem.accelerators) for own in loads]

    def limited(self, table: CostTable, allowed: NDArray[np.bool_], loads: Integers) -> CostTable:
        """Return a table with the capacity of each part.

        Raises
        ------
        InfeasibleError
            If the least loads of all together exceed them.
        """
        count, memory = self.problem.accelerators, self.problem.part_memory
        together = loads.sum(axis=0)
        least = np.where(allowed, together, together.max(initial=0)).min(axis=1).sum()
        if least > sum(memory) * count:
            mean = -(-int(least) // (count * len(memory)))
            raise InfeasibleError(
                f"{argument('constraints.memory')}: no plan fits {max(memory):,} bytes per"
                f" accelerator; on average they hold at least {mean:,}"
            )
        limits = [(load, own * count) for load, own in zip(loads, memory, strict=True)]
        table = with_memory_penalties(self.workload, table)
        (load, capacity), *others = limits
        return replace(
            table, allowed=allowed, load=load, capacity=capacity, more_limits=tuple(others)
        )

    def check(self, rows: Sequence[Sequence[int]]) -> None:
        """Refuse a plan, ``(levels, nodes)``, of which a part holds more than it has.

        Raises
        ------
        HyparError
            With the bytes.
        """
        for needed, memory in zip(self.of_plan(rows), self.problem.part_memory, strict=True):
            if needed > memory:
                raise HyparError(
                    f"constraints: the plan takes {needed:,} bytes, memory is {memory:,}"
                )


def with_memory_penalties(workload: Workload, table: CostTable) -> CostTable:
    """Charge a penalty above all costs where shared weights are split otherwise than by a user.

    Storing them whole takes memory, so that other layers may have to change too.
    """
    weights = workload.is_weight_boundary
    if not weights.any():
        return table
    penalty = 1 + table.largest
    dtype = exact_dtype(penalty * (1 + int(weights.sum())))
    edge = table.edge.astype(np.result_type(table.edge, dtype))
    # In the table's integers: a penalty may exceed int64.
    edge[weights] = penalty * (edge[weights] > 0).astype(edge.dtype)
    return replace(table, node=table.node.astype(edge.dtype), edge=edge)
