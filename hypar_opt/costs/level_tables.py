"""The table of one level, given the choices above it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.table import CostTable
from hypar_opt.costs.weights import with_penalties
from hypar_opt.integers import exact_dtype
from hypar_opt.step.states import exact_sum, states_from_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypar_opt.costs.base import CostModel
    from hypar_opt.integers import Integers
    from hypar_opt.step.states import Indices
    from hypar_opt.workload.tensors import Workload


def level_table(
    cost: CostModel, workload: Workload, above: Sequence[Sequence[int]] = ()
) -> CostTable:
    """Return the cost table of a level: the charges of its choices, given those above.

    An exchange that replicas repeat is charged what the level adds: the charges with this level,
    minus those without it.

    Parameters
    ----------
    above : (levels, nodes)
        The choices of all nodes at the levels above, H1 first.
    """
    choices, rows = np.arange(len(workload.choices)), states_from_rows(above, len(workload.nodes))
    nodes = np.arange(len(workload.nodes))[:, None]
    states = [*(row[..., None] for row in rows), choices[None, None]]
    charges = _added(
        workload,
        cost.node(workload, nodes, states),
        lambda: cost.node(workload, nodes, states[:-1]),
    )
    node: Integers = np.broadcast_to(charges, (len(nodes), len(choices)))
    numbers = np.arange(len(workload.ends))[:, None, None]
    ends = choices[None, None, :, None], choices[None, None, None]
    edges = level_edges(cost, workload, rows, numbers, ends)
    edge: Integers = np.broadcast_to(edges, (len(numbers), len(choices), len(choices)))
    # Of int64 where every sum fits it.
    highest = node.max(axis=1, initial=0), edge.max(axis=(1, 2), initial=0)
    dtype = exact_dtype(sum(sum(part.tolist()) for part in highest))
    each_choice = [(choice,) for choice in choices.tolist()]
    node, (edge,) = with_penalties(workload, node.astype(dtype), [edge.astype(dtype)], each_choice)
    return CostTable(
        node=node,
        edge=edge,
        ends=workload.ends,
        baselines=workload.baselines,
        unit=cost.unit,
        resolution=cost.resolution,
    )


def level_edges(
    cost: CostModel,
    workload: Workload,
    rows: Sequence[Indices],
    boundaries: Indices,
    level_choices: Sequence[Indices],
) -> Integers:
    """Return what a level adds to the charges of boundaries, given the choices above it.

    Parameters
    ----------
    rows : (levels, nodes), ...
        The choices above.
    boundaries : (boundaries, 1, ...)
    level_choices : (1, boundaries, ...)
        The choices of their sources, and of their targets, at the level.
    """
    ends = [workload.ends[boundaries, end] for end in range(2)]
    sources, targets = ([row[:, nodes] for row in rows] for nodes in ends)
    charges = cost.edge(
        workload, boundaries, [*sources, level_choices[0]], [*targets, level_choices[1]]
    )
    return _added(workload, charges, lambda: cost.edge(workload, boundaries, sources, targets))


def _added(
    workload: Workload, charges: Sequence[Integers], above: Callable[[], Sequence[Integers]]
) -> Integers:
    """Return what the last level adds to charges, given a function for those without it.

    Clipped at zero: another level can speed up a torus, whose rings run at the same time.
    """
    if workload.has_replicas:
        added: Integers = np.maximum(exact_sum(charges) - exact_sum(above()), 0)
        return added
    # The charges of the levels above do not depend on this level's choices.
    return charges[-1]


def joins_levels(cost: CostModel, workload: Workload, levels: int) -> bool:
    """Return whether a level's charge of a node may depend on choices below, as around a ring.

    No table of a single level has such a charge. The last level is compared under equal choices at
    all levels, which a ring joins.
    """
    nodes = np.arange(len(workload.nodes))[:, None]
    states = np.arange(len(workload.choices))[None, None]
    charges, above = (cost.node(workload, nodes, [states] * n) for n in (levels, levels - 1))
    return any((row != alone).any() for row, alone in zip(charges, above, strict=False))
