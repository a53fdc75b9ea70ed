"""A graph's charges and loads, and the frontiers of its layers in an order.

Layers are decided in their order. The remaining decisions depend only on the ports of the frontier:
the decided layers with an undecided neighbour.
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
    """A graph's charges and loads; each layer has its own columns.

    Parameters
    ----------
    costs
        By layer: ``(columns,)``.
    loads
        By layer: ``(columns, limits)``. Prices apply to the first limit.
    ports
        The port of each column, on which edges to neighbours depend, by layer: ``(columns,)``.
    edges
        By pairs of layers, the earlier one first: ``(ports, ports)``.
    """

    costs: Sequence[Integers]
    loads: Sequence[Integers]
    ports: Sequence[NDArray[np.intp]]
    edges: Mapping[tuple[int, int], Integers]

    @cached_property
    def zero(self) -> Integers:
        """An empty sum of charges or loads, ``(1,)``, of Python's integers if any array is."""
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
    """Return the charges of pairs of layers, by their positions in an order.

    Parameters
    ----------
    columns
        The remaining columns of each layer.
    """
    position = {node: n for n, node in enumerate(order)}
    edges: dict[tuple[int, int], Integers] = {}
    cache: dict[Hashable, Integers] = {}
    contents = [column.tobytes() for column in columns]
    kinds = table.boundary_kinds.tolist()
    for kind, (source, target) in zip(kinds, table.ends.tolist(), strict=True):
        key = kind, contents[source], contents[target]
        if key not in cache:
            cache[key] = table.pairs(kind, columns[source], columns[target])
        pair, charged = (position[source], position[target]), cache[key]
        if pair[0] > pair[1]:
            pair, charged = pair[::-1], charged.T
        edges[pair] = edges[pair] + charged if pair in edges else charged
    return edges


def narrow_order(sizes: Sequence[int], ends: NDArray[np.intp]) -> list[int]:
    """Return an order of layers whose frontiers have few combinations of columns.

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
    """The cost of deciding one more layer, and the resulting frontier."""

    def __init__(self, graph: LoadedGraph) -> None:
        self._graph = graph
        # The positions of each frontier's ports in the previous frontier followed by the new port.
        self.kept = [
            [(*frontier, layer).index(one) for one in graph.frontiers[layer + 1]]
            for layer, frontier in enumerate(graph.frontiers[:-1])
        ]
        self.read = [
            [(graph.frontiers[layer].index(one), graph.edges[one, layer]) for one in earlier]
            for layer, earlier in enumerate(graph.before)
        ]

    def charges(self, layer: int, frontier: Frontier) -> Integers:
        """Return the cost of each column of a layer, given the ports of a frontier."""
        total = self._graph.costs[layer]
        for place, pairs in self.read[layer]:
            total = total + pairs[frontier[place]][self._graph.ports[layer]]
        return total

    def after(self, layer: int, frontier: Frontier, column: int) -> Frontier:
        """Return the frontier once a layer is decided."""
        entries = (*frontier, int(self._graph.ports[layer][column]))
        return tuple([entries[place] for place in self.kept[layer]])

    def remaining_after(
        self, table: NDArray[np.float64], layer: int, frontier: Frontier
    ) -> NDArray[np.float64]:
        """Return a table's entries for the frontier after each column, ``(columns,)``."""
        entries: tuple[Any, ...] = (*frontier, self._graph.ports[layer])
        values = table[tuple([entries[place] for place in self.kept[layer]])]
        return np.broadcast_to(values, len(self._graph.ports[layer]))
