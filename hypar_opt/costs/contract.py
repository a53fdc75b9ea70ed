"""What a cost of another package says of itself, checked on a few states."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import CostModel
from hypar_opt.errors import HyparError
from hypar_opt.step.states import added_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.integers import Integers
    from hypar_opt.step.states import States
    from hypar_opt.workload.tensors import Workload

_STATES = 8
"""Of each node."""

PAGE = "see docs/adding-a-cost.md"


def check_contract(cost: CostModel, name: str, workload: Workload, levels: int) -> None:
    """Check that a cost charges each level of its states, and boundaries as it says.

    On the same states in one block and in several, which it should charge alike.

    Raises
    ------
    HyparError
        Naming the method, and what it should return.
    """
    if not levels:
        return
    rows = _some_states(workload, levels)
    every, boundaries = np.arange(len(workload.nodes))[:, None], np.arange(len(workload.ends))
    sources, targets = workload.ends.T

    def of_nodes(states: States) -> Sequence[Integers]:
        return cost.node(workload, every, states)

    def of_boundaries(states: States) -> Sequence[Integers]:
        ends = ([block[:, nodes] for block in states] for nodes in (sources, targets))
        return cost.edge(workload, boundaries[:, None], *ends)

    for method, charges in (("node", of_nodes), ("edge", of_boundaries)):
        at_once, apart = charges([rows]), charges([row[None] for row in rows])
        for found in (at_once, apart):
            if len(found) != levels:
                raise HyparError(
                    f"cost {name!r}: {method} should return the charges of each of {levels}"
                    f" levels, got {len(found)}: states are blocks of levels; {PAGE}"
                )
        if (added_up(at_once) != added_up(apart)).any():
            raise HyparError(
                f"cost {name!r}: {method} should charge states alike in one block of levels and"
                f" in several; {PAGE}"
            )
    # Where replicas repeat an exchange its charge is of all levels, whatever the cost.
    if type(cost).by_levels is not CostModel.by_levels or workload.has_replicas or levels < 2:
        return
    charged, above = of_boundaries([rows]), of_boundaries([rows[:-1]])
    if any((own != alone).any() for own, alone in zip(charged, above, strict=False)):
        raise HyparError(
            f"cost {name!r}: by_levels should be defined: what it charges boundaries at a level"
            f" depends on choices below; {PAGE}"
        )


def _some_states(workload: Workload, levels: int) -> NDArray[np.intp]:
    """Return a few states of each node: ``(levels, nodes, states)``."""
    rng = Random(0)
    own = [np.flatnonzero(~lacks).tolist() for lacks in workload.forbidden]
    drawn = [[[rng.choice(some) for _ in range(_STATES)] for some in own] for _ in range(levels)]
    return np.array(drawn, np.intp)
