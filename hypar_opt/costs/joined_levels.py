"""Reductions over several levels: what joins them, and in how many messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.readings import READINGS, Phase
from hypar_opt.costs.states import added_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.communication import CommunicationCost
    from hypar_opt.costs.table import Integers
    from hypar_opt.workload.tensors import Workload


Levels = tuple[int, ...]
Places = tuple["NDArray[np.intp]", ...]
"""Indices of an array's entries."""


def joined(rows: Sequence[Integers], shape: tuple[int, ...]) -> tuple[Integers, Integers]:
    """Return which levels each node's reduction joins, and what it moves over all of them.

    One reduction joins all levels that are charged: of a norm's gradient those in data
    parallelism, and those at which it is whole.

    Parameters
    ----------
    rows
        What `CostModel.node` charges a pass at each level.
    shape
        Of the nodes and their states.

    Returns
    -------
    levels, moved
        Both of the shape; of levels a number whose bit of 2^h says whether it joins level h.
    """
    levels: Integers = np.zeros(shape, np.int64)
    for level, row in enumerate(rows):
        levels += (row > 0).astype(np.int64) << level
    return levels, np.broadcast_to(added_up(rows), shape)


def with_topmost(
    levels: Integers, rows: Sequence[Integers], charge: Callable[[Levels, Places], Integers]
) -> list[Integers]:
    """Return charges of sets of levels, each reported with the topmost of its levels.

    Parameters
    ----------
    levels
        Which levels each node joins, as `joined` returns them.
    rows
        A charge of nothing for each level, of the type of charges.
    charge
        Returns what the nodes at some places are charged, given the levels that they join.
    """
    charged = [np.zeros(levels.shape, row.dtype) for row in rows]
    order = levels.reshape(-1).argsort(kind="stable")
    distinct, first = np.unique(levels.reshape(-1)[order], return_index=True)
    for bits, places in zip(distinct.tolist(), np.split(order, first[1:]), strict=True):
        if bits:
            joins = tuple(level for level in range(len(rows)) if bits >> level & 1)
            here = np.unravel_index(places, levels.shape)
            charged[joins[0]][here] = charge(joins, here)
    return charged


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
