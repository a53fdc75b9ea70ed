"""The cheapest assignments of a graph whose loads add up to at most a capacity, one by one.

Layers are decided in their order. What is left to decide depends on the ports of the frontier
alone: the decided layers with a neighbour that is not. For each frontier the Pareto front of what
completes it, in cost and load, is computed from the end; from the start, the assignment with the
least bound is extended, which these fronts tell exactly.

Source: docs/decisions/0036-ways-by-layer.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.table import Integers
from hypar_opt.errors import RefusedError
from hypar_opt.solvers.capacity import Front, pareto_front

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.state_classes import ClassTable
    from hypar_opt.deadline import Deadline

MAX_STEPS = 2**16
"""The most extensions of frontiers by a column, over all layers."""

MAX_LABELS = 4_000_000
"""The most entries of all fronts."""

Frontier = tuple[int, ...]
"""The ports of some decided layers."""


@dataclass(frozen=True, eq=False)
class LoadedGraph:
    """A graph's charges and loads; each layer has columns of its own.

    Parameters
    ----------
    costs, loads
        By layer: ``(columns,)``.
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
    def ported(self) -> list[list[int]]:
        """The ports that each layer's columns have."""
        return [np.unique(own).tolist() for own in self.ports]

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

    def check_size(self) -> None:
        """Refuse what has too many frontiers.

        Raises
        ------
        RefusedError
        """
        steps = 0
        for layer, frontier in enumerate(self.frontiers[:-1]):
            steps += len(self.costs[layer]) * prod(len(self.ported[one]) for one in frontier)
            if steps > MAX_STEPS:
                raise RefusedError("layers have too many ways to be compared within a capacity")


def cheapest_within(
    graph: LoadedGraph, capacity: int, most: int, deadline: Deadline
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield assignments within a capacity with their costs, in the order of these.

    Parameters
    ----------
    most
        The highest cost that is of interest.

    Raises
    ------
    RefusedError
        If there are too many frontiers, or what completes them.
    NoAnswerError
        If the deadline passes.
    """
    return LabelledGraph.of(graph, capacity, most, deadline).cheapest(capacity, most, deadline)


@dataclass(frozen=True, eq=False)
class LabelledGraph:
    """The Pareto fronts of what completes each frontier, within a capacity and up to a cost."""

    graph: LoadedGraph
    extension: _Extension
    fronts: Sequence[Mapping[Frontier, Front]]

    @classmethod
    def of(cls, graph: LoadedGraph, capacity: int, most: int, deadline: Deadline) -> LabelledGraph:
        """Find them; the parameters and the errors are those of `cheapest_within`."""
        graph.check_size()
        extension = _Extension(graph)
        return cls(graph, extension, _fronts(graph, extension, capacity, most, deadline))

    def cheapest(
        self, capacity: int, most: int, deadline: Deadline
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield assignments as `cheapest_within`, for no more of both than is labelled."""
        layers = len(self.graph.costs)
        # Of equal bounds the one that is decided furthest is extended.
        waiting: list[tuple[int, int, int, int, Frontier, tuple[int, ...]]] = []
        start = _least(self.fronts[0][()], capacity)
        if start is not None and start <= most:
            waiting.append((start, 0, 0, 0, (), ()))
        while waiting:
            bound, undecided, cost, load, frontier, decided = heappop(waiting)
            layer = -undecided
            if layer == layers:
                yield bound, decided
                continue
            deadline.check()
            charged = self.extension.charges(layer, frontier)
            for column, further in enumerate(charged.tolist()):
                after = self.extension.after(layer, frontier, column)
                loaded = load + int(self.graph.loads[layer][column])
                rest = _least(self.fronts[layer + 1][after], capacity - loaded)
                if rest is not None and cost + further + rest <= most:
                    own = cost + further
                    entry = own + rest, -layer - 1, own, loaded, after, (*decided, column)
                    heappush(waiting, entry)


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
    kinds = table.boundary_kinds.tolist()
    for kind, (source, target) in zip(kinds, table.ends.tolist(), strict=True):
        charged = table.pairs(kind, columns[source], columns[target])
        pair = place[source], place[target]
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
    undecided = [len(own) for own in beside]  # of each layer's neighbours
    left, near, order = dict.fromkeys(range(len(sizes))), set[int](), list[int]()
    combinations = 1

    def after(layer: int) -> int:
        done = (n for n in beside[layer] if n not in left and undecided[n] == 1)
        rest = combinations // prod(sizes[n] for n in done)
        return rest * sizes[layer] if undecided[layer] else rest

    while left:
        layer = min(near or [next(iter(left))], key=lambda own: (after(own), own))
        combinations = after(layer)
        del left[layer]
        near = (near | beside[layer]) & left.keys()
        for other in beside[layer]:
            undecided[other] -= 1
        order.append(layer)
    return order


class _Extension:
    """What it costs to decide one more layer, and the frontier that this leaves."""

    def __init__(self, graph: LoadedGraph) -> None:
        self._graph = graph
        # Where each frontier finds its columns in the one before with the new column behind.
        self._kept = [
            [(*frontier, layer).index(one) for one in graph.frontiers[layer + 1]]
            for layer, frontier in enumerate(graph.frontiers[:-1])
        ]
        self._read = [
            [(graph.frontiers[layer].index(one), graph.edges[one, layer]) for one in earlier]
            for layer, earlier in enumerate(graph.before)
        ]

    def charges(self, layer: int, frontier: Frontier) -> Integers:
        """Return what each column of a layer costs beside those of a frontier."""
        total = self._graph.costs[layer]
        for place, pairs in self._read[layer]:
            total = total + pairs[frontier[place]][self._graph.ports[layer]]
        return total

    def after(self, layer: int, frontier: Frontier, column: int) -> Frontier:
        """Return the frontier once a layer is decided."""
        every = (*frontier, int(self._graph.ports[layer][column]))
        return tuple([every[place] for place in self._kept[layer]])


def _fronts(
    graph: LoadedGraph, extension: _Extension, capacity: int, most: int, deadline: Deadline
) -> list[dict[Frontier, Front]]:
    """Return the Pareto front of what completes each frontier, before each layer."""
    end = [np.zeros(1, np.result_type(*own)) for own in (graph.costs, graph.loads)]
    fronts: list[dict[Frontier, Front]] = [{(): (end[0], end[1])}]
    labels = 0
    for layer in reversed(range(len(graph.costs))):
        deadline.check()
        found: dict[Frontier, Front] = {}
        ports = [graph.ported[one] for one in graph.frontiers[layer]]
        loads = graph.loads[layer]
        for frontier in product(*ports):
            charged = extension.charges(layer, frontier)
            rest = [
                fronts[-1][extension.after(layer, frontier, column)]
                for column in range(len(charged))
            ]
            costs = np.concatenate([own + c for own, (c, _) in zip(charged, rest, strict=True)])
            held = np.concatenate([own + w for own, (_, w) in zip(loads, rest, strict=True)])
            fits = ((held <= capacity) & (costs <= most)).astype(bool)
            found[frontier] = pareto_front(costs[fits], held[fits])
            labels += len(found[frontier][0])
            if labels > MAX_LABELS:
                raise RefusedError("layers have too many ways to be compared within a capacity")
        fronts.append(found)
    return fronts[::-1]


def _least(front: Front, capacity: int) -> int | None:
    """Return the least cost of a front's entries within a capacity; None if none fits."""
    costs, loads = front
    fitting = int(np.searchsorted(loads, capacity, "right"))
    return int(costs[fitting - 1]) if fitting else None
