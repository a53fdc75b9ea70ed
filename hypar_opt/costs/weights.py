"""Weights that several layers use, in a table: no optimum stores them otherwise than it may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import Integers, exact_dtype
from hypar_opt.sharding.weights import replicated

if TYPE_CHECKING:
    from hypar_opt.workload.tensors import Workload


def with_penalties(
    workload: Workload, node: Integers, edges: Sequence[Integers], states: Sequence[Sequence[int]]
) -> tuple[Integers, list[Integers]]:
    """Charge weights that are split otherwise than a layer that uses them more than that saves.

    Weights' node neighbours only the layers that use them, over boundaries that charge nothing
    else. To store the weights whole where a layer splits them otherwise costs at most the node's
    highest charge. A penalty (big-M) above that, in the table's own unit, leaves no optimum with
    such a pair.

    Parameters
    ----------
    node : (nodes, n)
    edges
        Each ``(boundaries, ..., columns, columns)``; a plan's cost is a sum over all of them.
    states : (columns, levels)
        The choices that a column of ``edges`` stands for.

    Returns
    -------
    tuple
        ``node`` and ``edges``, with integers that hold every sum of them.
    """
    weights = np.flatnonzero(workload.is_weight_boundary)
    if not weights.size:
        return node, list(edges)
    penalty: Integers = 1 + node.max(axis=1).astype(object)[workload.ends[weights, 0]]
    highest = [part.reshape(len(part), -1).max(axis=1) for part in (node, *edges)]
    largest = sum(sum(part.tolist()) for part in highest) + len(edges) * sum(penalty.tolist())
    dtype = np.result_type(node, *edges, exact_dtype(largest))
    whole = replicated(workload, workload.ends[weights[0], 0])
    penalised = [edge.astype(dtype) for edge in edges]
    for edge in penalised:
        shape = (-1, *[1] * (edge.ndim - 1))
        edge[weights] += penalty.astype(dtype).reshape(shape) * _unlike_columns(states, whole)
    return node.astype(dtype, copy=False), penalised


def unlike(stored: NDArray[np.intp], used: NDArray[np.intp], whole: int) -> NDArray[np.bool_]:
    """Return where a layer splits weights, and splits them otherwise than they are stored.

    Of weights that are stored whole, which is the choice ``whole``, it slices its part for free.
    """
    differ: NDArray[np.bool_] = (stored != whole) & (stored != used)
    return differ


def _unlike_columns(states: Sequence[Sequence[int]], whole: int) -> NDArray[np.bool_]:
    """Return the pairs of columns, stored and used, that are unlike at any level."""
    pairs = np.zeros((len(states), len(states)), bool)
    for choices in zip(*states, strict=True):
        here = np.array(choices, np.intp)
        pairs |= unlike(here[:, None], here, whole)
    return pairs
