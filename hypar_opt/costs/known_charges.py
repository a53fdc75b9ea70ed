"""What costs of one workload's states charge alike, so that it is worked once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.state_tables import nodes_by_state

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel
    from hypar_opt.deadline import Deadline
    from hypar_opt.integers import Integers
    from hypar_opt.step.states import Indices
    from hypar_opt.workload.tensors import Workload


@dataclass(eq=False)
class KnownCharges:
    """What kinds of boundaries are charged at least and at most, by the last cost that was asked.

    Parameters
    ----------
    cost
        Or of a time, `TimeCost.of_boundaries`.
    of_kinds
        By kind: what `PairsOfStates.least` finds.
    of_nodes
        By node without weights, and how often its passes run: what `nodes_by_state` finds. None
        where costs that charge boundaries alike may charge these otherwise.
    """

    cost: CostModel | None = None
    of_kinds: dict[int, tuple[Integers, int]] = field(default_factory=dict)
    of_nodes: dict[tuple[int, ...], Integers] | None = None

    def of(self, cost: CostModel) -> dict[int, tuple[Integers, int]]:
        """Return what is known of a cost's kinds, and will be."""
        if cost != self.cost:
            self.cost, self.of_kinds = cost, {}
            self.of_nodes = None if self.of_nodes is None else {}
        return self.of_kinds

    def nodes_by_state(
        self, cost: CostModel, workload: Workload, nodes: Indices, levels: int, deadline: Deadline
    ) -> Integers:
        """Return what nodes are charged, as the function of this name."""
        if self.of_nodes is None:
            return nodes_by_state(cost, workload, nodes, levels, deadline)
        repeats, count = workload.repeats, len(workload.nodes)
        passes = [*repeats.passes(count), repeats.forward_exchanges(count)]
        keys = [*zip(nodes.tolist(), *(own[nodes].tolist() for own in passes), strict=True)]
        missing = [number for number, key in enumerate(keys) if key not in self.of_nodes]
        rows = dict(self.of_nodes)
        if missing:
            found = nodes_by_state(cost, workload, nodes[missing], levels, deadline)
            rows |= {keys[number]: row for number, row in zip(missing, found, strict=True)}
        # What is split of weights concerns no others.
        self.of_nodes = {key: row for key, row in rows.items() if not workload.stored[key[0]]}
        return np.array([rows[key] for key in keys])
