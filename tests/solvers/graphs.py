"""Random graphs, and all their assignments priced at once."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import CostTable
from hypar_opt.costs.thresholds import ThresholdTable


def random_graph(
    rng: np.random.Generator,
    layers: int,
    edges: int,
    choices: int = 2,
    largest: int = 3,
    *,
    submodular: bool = False,
) -> CostTable:
    """Return a graph with edges in both directions, and several between two layers.

    Costs are so small that many assignments tie.
    """
    source = rng.integers(0, layers, edges)
    target = (source + rng.integers(1, max(layers, 2), edges)) % max(layers, 2)
    node = rng.integers(0, largest + 1, (layers, choices))
    edge = rng.integers(0, largest + 1, (edges, choices, choices))
    if submodular:
        like = edge[:, 0, 0] + edge[:, 1, 1] - edge[:, 1, 0]
        edge[:, 0, 1] = np.maximum(edge[:, 0, 1], like)
    return CostTable(node, edge, np.stack([source, target], axis=1))


def with_forbidden(rng: np.random.Generator, table: CostTable, share: float = 0.2) -> CostTable:
    """Return the table with some choices forbidden, but never all of a layer."""
    allowed = rng.random(table.node.shape) >= share
    allowed[np.arange(table.layers), rng.integers(0, table.choices, table.layers)] = True
    return replace(table, allowed=allowed)


def canonical_assignments(layers: int, choices: int) -> NDArray[np.intp]:
    """Return all assignments in canonical order, ``(assignments, layers)``."""
    numbers = np.arange(choices**layers)[:, None]
    return numbers // choices ** np.arange(layers) % choices


def optimum(table: CostTable) -> tuple[int, tuple[int, ...]] | None:
    """Return the least cost and the first assignment of that cost; None if none is feasible."""
    assignments = canonical_assignments(table.layers, table.choices)
    costs = table.node[np.arange(table.layers), assignments].sum(axis=1)
    for (u, v), edge in zip(table.ends.tolist(), table.edge, strict=True):
        costs = costs + edge[assignments[:, u], assignments[:, v]]
    if table.allowed is not None:
        is_allowed = table.allowed[np.arange(table.layers), assignments].all(axis=1)
        assignments, costs = assignments[is_allowed], costs[is_allowed]
    for load, capacity in table.limits:
        fits = load[np.arange(table.layers), assignments].sum(axis=1) <= capacity
        assignments, costs = assignments[fits], costs[fits]
    if not len(costs):
        return None
    best = int(costs.argmin())
    return int(costs[best]), tuple(map(int, assignments[best]))


def thresholds(table: CostTable, levels: int, parts: int = 2) -> ThresholdTable:
    """Return the joint table of a graph of two choices that is alike at every level."""
    data, model = table.node.T.tolist()
    dd, dm, md, mm = table.edge.reshape(-1, 4).T.tolist()
    ends = [(u, v) for u, v in table.ends.tolist()]
    return ThresholdTable(data, model, ends, (dd, dm, md, mm), levels, parts)


def grid(side: int, choices: int = 2) -> CostTable:
    """Return a square grid, whose elimination width is its side."""
    cells = np.arange(side * side).reshape(side, side)
    across = np.stack([cells[:, :-1].ravel(), cells[:, 1:].ravel()], axis=1)
    down = np.stack([cells[:-1].ravel(), cells[1:].ravel()], axis=1)
    ends = np.concatenate([across, down])
    node = np.zeros((side * side, choices), np.int64)
    return CostTable(node, np.zeros((len(ends), choices, choices), np.int64), ends)


def blocks(count: int, rng: np.random.Generator | None = None) -> CostTable:
    """Return a transformer's graph: in every block two residual adds, each of a shared tensor.

    All blocks cost the same, unless there is an ``rng``.
    """
    ends, tensor = [], 0
    for _ in range(count):
        for branch in (4, 3):
            first = tensor + 1
            path = [tensor, *range(first, first + branch), first + branch]
            ends += [*pairwise(path), (tensor, first + branch)]
            tensor = first + branch
    layers = tensor + 1
    if rng is None:
        rng = np.random.default_rng(7)
        node, size = rng.integers(0, 10**6, (9, 2)), rng.integers(0, 10**6, 11)
        node, size = node[np.arange(layers) % 9], size[np.arange(len(ends)) % 11]
    else:
        node, size = rng.integers(0, 10**6, (layers, 2)), rng.integers(0, 10**6, len(ends))
    edge = np.zeros((len(ends), 2, 2), np.int64)
    edge[:, 0, 1] = edge[:, 1, 0] = size
    return CostTable(node, edge, np.array(ends))
