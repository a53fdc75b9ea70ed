"""Shared weights in a table: a penalty keeps mismatched layouts out of every optimum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.sharding.weights import replicated

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable, Limit
    from hypar_opt.workload.tensors import Workload


def with_penalties(
    workload: Workload, node: Integers, edges: Sequence[Integers], states: Sequence[Sequence[int]]
) -> tuple[Integers, list[Integers]]:
    """Charge a penalty where shared weights are split differently than by a layer that uses them.

    The weights' node has boundaries only with the layers that use them, without other
    charges. Storing the weights whole instead costs at most the node's highest charge, so with a
    penalty (big-M) above that, in the table's unit, no optimum has such a mismatch.

    Parameters
    ----------
    node : (nodes, n)
    edges
        Arrays ``(boundaries, ..., columns, columns)``; a plan costs their sum.
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


def mismatch(stored: NDArray[np.intp], used: NDArray[np.intp], whole: int) -> NDArray[np.bool_]:
    """Return where a layer splits weights differently than they are stored.

    A layer slices its part of weights that are stored whole (the choice ``whole``) for free.
    """
    differ: NDArray[np.bool_] = (stored != whole) & (stored != used)
    return differ


def _unlike_columns(states: Sequence[Sequence[int]], whole: int) -> NDArray[np.bool_]:
    """Return the pairs of columns, stored and used, that differ at any level."""
    pairs = np.zeros((len(states), len(states)), bool)
    for choices in zip(*states, strict=True):
        columns = np.array(choices, np.intp)
        pairs |= mismatch(columns[:, None], columns, whole)
    return pairs


def constrained(
    workload: Workload,
    table: CostTable,
    allowed: NDArray[np.bool_] | None,
    limits: tuple[Limit, ...],
) -> CostTable:
    """Return a table with the choices that are allowed, and loads with their capacities.

    Storing shared weights whole takes memory, so that other layers may have to change too: with
    capacities, a penalty above all costs is charged where a layer splits them differently.
    """
    weights = workload.is_weight_boundary
    if limits and weights.any():
        penalty = 1 + table.max_total
        dtype = exact_dtype(penalty * (1 + int(weights.sum())))
        edge = table.edge.astype(np.result_type(table.edge, dtype))
        # In the table's integers: a penalty may exceed int64.
        edge[weights] = penalty * (edge[weights] > 0).astype(edge.dtype)
        table = replace(table, node=table.node.astype(edge.dtype), edge=edge)
    return replace(table, allowed=allowed, limits=limits)
