"""A graph's charges and loads, and the frontiers of its layers in an order.

Layers are decided in their order. What is left to decide depends on the ports of the frontier
alone: the decided layers with a neighbour that is not.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.integers import Integers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.state_classes import ClassTable

Frontier = tuple[int, ...]
"""The ports of some decided layers."""


@dataclass(frozen=True, eq=False)
class LoadedGraph:
    """A graph's charges and loads; each layer has columns of its own.

    Parameters
    ----------
    costs
        By layer: ``(columns,)``.
    loads
        By layer: ``(columns, limits)``. Prices are those of the first limit's.
    ports
        What a layer's neighbours see of each column, by layer: ``(columns,)``.
    edges
        By pairs of layers, the earlier one first: ``(ports, ports)``.
    """

    costs: Sequence[Integers]
    loads: Sequence[Integers]
    ports: Sequence[NDArray[np.intp]]
    edges: Mapping[tuple[int, int], Integers]

    @cached_property
    def zero(self) -> Integers:
        """The sum of no charges or loads, ``(1,)``: of integers of any size where some are."""
        arrays = (*self.costs, *self.loads, *self.edges.values())
        return np.zeros(1, np.result_type(*{array.dtype for array in arrays}))

    @cached_property
    def frontiers(self) -> list[tuple[int, ...]]:
        """Before each layer, and after the last: the decided layers with an undecided neighbour."""
        last = dict.fromkeys(range(len(self.costs)), -1)
        for one, other in self.edges:
            last[one] = max(last[one], other)
        return [
            tuple(one for one in range(layer) if last[one] >= layer)
            for layer in range(len(self.costs) + 1)
        ]

    @cached_property
    def before(self) -> list[list[int]]:
        """The earlier neighbours of each layer."""
        earlier: list[list[int]] = [[] for _ in self.costs]
        for one, other in sorted(self.edges):
            earlier[other].append(one)
        return earlier


def edges_between(
    table: ClassTable, columns: Sequence[NDArray[np.intp]], order: Sequence[int]
) -> dict[tuple[int, int], Integers]:
    """Return what pairs of layers are charged, by their places in an order.

    Parameters
    ----------
    columns
        Those of a table that are left of each layer.
    """
    place = {node: n for n, node in enumerate(order)}
    edges: dict[tuple[int, int], Integers] = {}
    cache: dict[Hashable, Integers] = {}
    contents = [column.tobytes() for column in columns]
    kinds = table.boundary_kinds.tolist()
    for kind, (source, target) in zip(kinds, table.ends.tolist(), strict=True):
        key = kind, contents[source], contents[target]
        if key not in cache:
            cache[key] = table.pairs(kind, columns[source], columns[target])
        pair, charged = (place[source], place[target]), cache[key]
        if pair[0] > pair[1]:
            pair, charged = pair[::-1], charged.T
        edges[pair] = edges[pair] + charged if pair in edges else charged
    return edges


def narrow_order(sizes: Sequence[int], ends: NDArray[np.intp]) -> list[int]:
    """Return layers of so many columns in an order whose frontiers have few combinations.

    Greedy: of the frontier's neighbours, the one that leaves the fewest is next.
    """
    beside: list[set[int]] = [set() for _ in sizes]
    for one, other in ends.tolist():
        beside[one].add(other)
        beside[other].add(one)
    undecided = [len(neighbours) for neighbours in beside]  # of each layer's neighbours
    remaining, near, order = dict.fromkeys(range(len(sizes))), set[int](), list[int]()
    combinations = 1

    def after(layer: int) -> int:
        done = (n for n in beside[layer] if n not in remaining and undecided[n] == 1)
        rest = combinations // prod(sizes[n] for n in done)
        return rest * sizes[layer] if undecided[layer] else rest

    while remaining:
        layer = min(near or [next(iter(remaining))], key=lambda n: (after(n), n))
        combinations = after(layer)
        del remaining[layer]
        near = (near | beside[layer]) & remaining.keys()
        for other in beside[layer]:
            undecided[other] -= 1
        order.append(layer)
    return order


class Extension:
    """What it costs to decide one more layer, and the frontier that this leaves."""

    def __init__(self, graph: LoadedGraph) -> None:
        self._graph = graph
        # Where each frontier finds its ports in the one before with the new port behind.
        self.kept = [
            [(*frontier, layer).index(one) for one in graph.frontiers[layer + 1]]
            for layer, frontier in enumerate(graph.frontiers[:-1])
        ]
        self.read = [
            [(graph.frontiers[layer].index(one), graph.edges[one, layer]) for one in earlier]
            for layer, earlier in enumerate(graph.before)
        ]

    def charges(self, layer: int, frontier: Frontier) -> Integers:
        """Return what each column of a layer costs beside those of a frontier."""
        total = self._graph.costs[layer]
        for place, pairs in self.read[layer]:
            total = total + pairs[frontier[place]][self._graph.ports[layer]]
        return total

    def after(self, layer: int, frontier: Frontier, column: int) -> Frontier:
        """Return the frontier once a layer is decided."""
        entries = (*frontier, int(self._graph.ports[layer][column]))
        return tuple([entries[place] for place in self.kept[layer]])

    def each_after(
        self, table: NDArray[np.float64], layer: int, frontier: Frontier
    ) -> NDArray[np.float64]:
        """Return what a table has for the frontier that each column leaves, ``(columns,)``."""
        entries: tuple[Any, ...] = (*frontier, self._graph.ports[layer])
        values = table[tuple([entries[place] for place in self.kept[layer]])]
        return np.broadcast_to(values, len(self._graph.ports[layer]))
