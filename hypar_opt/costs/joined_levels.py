"""Reductions over several levels: what joins them, and in how many messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import SplitCounts
from hypar_opt.costs.readings import READINGS, Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.communication import CommunicationCost
    from hypar_opt.costs.table import Integers
    from hypar_opt.workload.tensors import Workload


def over_levels(
    cost: CommunicationCost, workload: Workload, state: Sequence[int]
) -> dict[tuple[int, ...], Integers]:
    """Return what each node's reductions move over all levels of a state, in one pass alone.

    One reduction joins all levels whose choices are charged: of a norm's gradient those in
    data parallelism, and those at which it is whole.

    Parameters
    ----------
    state
        The choices of a layer at all levels, H1 first; the same for every layer.

    Returns
    -------
    dict
        By the levels that a reduction joins, H1 being 0: ``(nodes,)`` charges.
    """
    layers = len(workload.nodes)
    present = sorted(set(state))
    charged = cost.node(workload, SplitCounts.none(layers, cost.choices))[:, present] > 0
    # Python's integers, since a sum over up to 64 levels may exceed int64.
    moved: dict[tuple[int, ...], Integers] = {}
    for pattern in np.unique(charged, axis=0):
        choices = np.array(present)[pattern]
        levels = tuple(h for h, chosen in enumerate(state) if chosen in choices)
        alike = (charged == pattern).all(axis=1)
        for level in levels:
            above = [state[:level].count(other) for other in range(cost.choices)]
            node = cost.node(workload, SplitCounts.uniform(layers, above))[:, state[level]]
            moved[levels] = moved.get(levels, 0) + node.astype(object) * alike
    return moved


def messages_of(cost: CommunicationCost, workload: Workload, phase: Phase) -> Integers:
    """Return the messages of each node's reduction in a pass at a level below the topmost.

    An all-reduce between pairs is recursive halving and doubling, which crosses each level
    twice, and the topmost once. A reduce-scatter or an all-gather crosses each once.

    Returns
    -------
    (nodes,)

    Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005; docs/decisions/0007-arrays-and-time.md.
    """
    # Only `executed` splits an all-reduce of partial sums over two passes; gradients, and the
    # sums of norms, are all-reduced in every reading.
    scattered = READINGS[cost.reading].gathered_error and phase is not Phase.GRADIENT
    return np.array(
        [1 if scattered and not any(node.statistics) else 2 for node in workload.nodes],
        np.int64,
    )


def charged_choices(cost: CommunicationCost, workload: Workload) -> NDArray[np.bool_]:
    """Return which choices reduce something, at whichever level: ``(choices, nodes)``."""
    charged = cost.node(workload, SplitCounts.none(len(workload.nodes), cost.choices)) > 0
    return charged.T
