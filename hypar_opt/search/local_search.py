"""Local search: one node after another takes its cheapest state beside its neighbours'."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.state_classes import ClassTable
    from hypar_opt.costs.table import Integers
    from hypar_opt.deadline import Deadline

MAX_ROUNDS = 20
"""Rounds over all nodes; fewer if none can improve."""


def improved(table: ClassTable, start: Sequence[int], deadline: Deadline) -> tuple[int, ...]:
    """Return an assignment in which no node alone has a cheaper state, from another assignment.

    If the deadline passes, it is as far improved as it is by then.
    """
    around: list[list[tuple[int, bool, int]]] = [[] for _ in table.node_kinds]
    for kind, (source, target) in zip(
        table.boundary_kinds.tolist(), table.ends.tolist(), strict=True
    ):
        around[source].append((kind, True, target))
        around[target].append((kind, False, source))
    every = np.arange(table.node.shape[1])

    @lru_cache(maxsize=4096)
    def beside(kind: int, is_source: bool, other: int) -> Integers:
        """Return what all states are charged beside one of a neighbour."""
        one = np.array([other])
        ends = (every, one) if is_source else (one, every)
        return table.pairs(kind, *ends).reshape(-1)

    states = list(start)
    for _ in range(MAX_ROUNDS):
        before = list(states)
        for node, boundaries in enumerate(around):
            if deadline.passed():
                return tuple(states)
            kind = table.node_kinds[node]
            total = table.node[kind].copy()
            for boundary, is_source, other in boundaries:
                total += beside(boundary, is_source, states[other])
            total[~table.allowed[kind]] = total.max() + 1
            cheapest = int(total.argmin())
            # Its own state stays unless another is cheaper.
            if total[cheapest] < total[states[node]]:
                states[node] = cheapest
        if states == before:
            break
    return tuple(states)
