"""The cheapest assignments of a graph whose loads add up to at most a capacity, one by one.

For each frontier the Pareto front of what completes it, in cost and load, is computed from the end;
from the start, the assignment with the least bound is extended, which these fronts tell exactly.
With loads at a price, least sums leave out what is in no assignment of interest. Between places
with few frontiers, paths are of few kinds: those of equal blocks are found once, and fronts are
kept at these places alone.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.errors import RefusedError
from hypar_opt.integers import Integers
from hypar_opt.solvers.capacity import Front, pareto_front
from hypar_opt.solvers.frontier_bounds import TOO_MANY, FrontierBounds, best_price
from hypar_opt.solvers.loaded_graph import Frontier, LoadedGraph

if TYPE_CHECKING:
    from hypar_opt.deadline import Deadline

MAX_STEPS = 2**18
"""The most extensions of frontiers by a column."""

MAX_LABELS = 4_000_000
"""The most entries of all fronts."""

_PARTS_OF_GAP = (16, 8, 4, 2, 1)
"""Of a gap, the parts above the bound in which an optimum is sought in turn."""

_AT_ONCE = 2**20
"""Entries of fronts that are joined at once."""

_RESOLUTION = 2**10
"""So many parts of the gap tell bounds of equal blocks apart."""

Paths = Sequence[tuple[Frontier, Front]]
"""The fronts of paths from a frontier to others further on."""


def cheapest_within(
    graph: LoadedGraph,
    capacity: int,
    most: int,
    deadline: Deadline,
    price: Fraction | None = None,
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield assignments within a capacity with their costs, in the order of these.

    Parameters
    ----------
    most
        The highest cost that is of interest.
    price
        That of a unit of load, at which sums are to leave out assignments; by default the best.

    Raises
    ------
    RefusedError
        If there are too many frontiers, or what completes them.
    NoAnswerError
        If the deadline passes.
    """
    limits = {most}
    if price is None:
        price, bound, upper = best_price(graph, capacity)
        if upper is not None:
            sought = (bound + -(-(upper - bound) // part) for part in _PARTS_OF_GAP)
            limits |= {min(limit, most) for limit in sought}
    last = -1
    for upto in sorted(limits):
        labels = LabelledGraph.of(graph, capacity, upto, deadline, price)
        for cost, chosen in labels.cheapest(capacity, upto, deadline):
            if cost > last:
                yield cost, chosen
        last = upto


@dataclass(frozen=True, eq=False)
class LabelledGraph:
    """The Pareto fronts of what completes frontiers, within a capacity and up to a cost.

    Parameters
    ----------
    fronts
        By narrow place: what completes each frontier.
    ends
        By layer, the next of these places.
    paths
        By layer, from each frontier to those at that place.
    """

    bounds: FrontierBounds
    fronts: Mapping[int, Mapping[Frontier, Front]]
    ends: Sequence[int]
    paths: Sequence[Mapping[Frontier, Paths]]

    @classmethod
    def of(
        cls, graph: LoadedGraph, capacity: int, most: int, deadline: Deadline, price: Fraction
    ) -> LabelledGraph:
        """Find them; the parameters and the errors are those of `cheapest_within`."""
        bounds = FrontierBounds.of(graph, capacity, most, price)
        between = _PathsBetween(bounds, deadline)
        none = graph.zero
        places = bounds.narrow_places
        fronts: dict[int, dict[Frontier, Front]] = {places[-1]: {(): (none, none)}}
        ends: list[int] = []
        paths: list[Mapping[Frontier, Paths]] = []
        for first, last in pairwise(places):
            ends += [last] * (last - first)
            paths += between.of(first, last)
        labels = 0
        for first, last in reversed([*pairwise(places)]):
            deadline.check()
            fronts[first] = {
                frontier: _joined(
                    bounds, first, frontier, paths[first], fronts[last], capacity, most
                )
                for frontier in bounds.alive[first]
            }
            labels += sum(len(costs) for costs, _ in fronts[first].values())
            if labels > MAX_LABELS:
                raise RefusedError(TOO_MANY)
        return cls(bounds, fronts, ends, paths)

    def cheapest(
        self, capacity: int, most: int, deadline: Deadline
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield assignments as `cheapest_within`, for no more of both than is labelled."""
        graph, extension = self.bounds.graph, self.bounds.extension
        layers = len(graph.costs)
        # Of equal bounds the one that is decided furthest is extended.
        waiting: list[tuple[int, int, int, int, Frontier, tuple[int, ...]]] = []
        start = self._least(0, (), capacity)
        if start is not None and start <= most:
            waiting.append((start, 0, 0, 0, (), ()))
        while waiting:
            bound, undecided, cost, load, frontier, decided = heappop(waiting)
            layer = -undecided
            if layer == layers:
                yield bound, decided
                continue
            deadline.check()
            charged = extension.charges(layer, frontier)
            for column, further in enumerate(charged.tolist()):
                after = extension.after(layer, frontier, column)
                loaded = load + int(graph.loads[layer][column])
                rest = self._least(layer + 1, after, capacity - loaded)
                if rest is not None and cost + further + rest <= most:
                    spent = cost + further
                    entry = spent + rest, -layer - 1, spent, loaded, after, (*decided, column)
                    heappush(waiting, entry)

    def _least(self, layer: int, frontier: Frontier, room: int) -> int | None:
        """Return the least cost that completes a frontier with a load; None if nothing does."""
        graph = self.bounds.graph
        if layer in self.fronts:
            ways: Paths = [(frontier, (graph.zero, graph.zero))]
            fronts = self.fronts[layer]
        else:
            ways, fronts = self.paths[layer].get(frontier, ()), self.fronts[self.ends[layer]]
        sums = []
        for end, (costs, loads) in ways:
            rest, amounts = fronts.get(end, (costs[:0], loads[:0]))
            fitting = amounts.searchsorted(room - loads, "right")
            fits = fitting > 0
            sums += (costs[fits] + rest[fitting[fits] - 1]).tolist()
        return min(sums, default=None)


def _joined(
    bounds: FrontierBounds,
    layer: int,
    frontier: Frontier,
    paths: Mapping[Frontier, Paths],
    fronts: Mapping[Frontier, Front],
    capacity: int,
    most: int,
) -> Front:
    """Return the front of what completes a frontier, given that of where its paths lead."""
    above = bounds.most - bounds.before[layer][frontier]
    costs, loads = [bounds.graph.zero[:0]], [bounds.graph.zero[:0]]
    for end, (charges, amounts) in paths.get(frontier, ()):
        rest = fronts[end]
        step = max(1, _AT_ONCE // max(1, len(rest[0])))
        for start in range(0, len(charges), step):
            cost = (charges[start : start + step, None] + rest[0]).ravel()
            load = (amounts[start : start + step, None] + rest[1]).ravel()
            of_interest = (load <= capacity) & (cost <= most)
            of_interest = of_interest.astype(bool) & (bounds.charged(cost, load) <= above)
            costs.append(cost[of_interest])
            loads.append(load[of_interest])
    return pareto_front(np.concatenate(costs), np.concatenate(loads))


class _PathsBetween:
    """The paths between narrow places, found once for layers that are alike."""

    def __init__(self, bounds: FrontierBounds, deadline: Deadline) -> None:
        self._bounds, self._deadline = bounds, deadline
        self._steps = 0
        self._part = max((bounds.most - bounds.least) / _RESOLUTION, bounds.most * 2.0**-40)
        self._known: dict[Hashable, Sequence[Mapping[Frontier, Paths]]] = {}
        numbers: dict[Hashable, int] = {}

        def number(array: Integers) -> int:
            content: Hashable = array.tobytes()
            if array.dtype == object:
                content = tuple(array.ravel().tolist())
            return numbers.setdefault((array.shape, content), len(numbers))

        graph, extension = bounds.graph, bounds.extension
        self._alike = [
            (
                *(number(part[layer]) for part in (graph.costs, graph.loads, graph.ports)),
                *((place, number(pairs)) for place, pairs in extension.read[layer]),
                *extension.kept[layer],
            )
            for layer in range(len(graph.costs))
        ]

    def of(self, first: int, last: int) -> Sequence[Mapping[Frontier, Paths]]:
        """Return, for the layers between two places, the paths from each frontier to the second.

        Raises
        ------
        RefusedError, NoAnswerError
        """
        bounds = self._bounds
        ends = bounds.alive[last]
        behind = np.array([bounds.behind[last][end] for end in ends])
        lowest = behind.min(initial=bounds.most)
        # Rounded so that they are equal for layers that are alike, and leave out no more.
        more = np.floor((behind - lowest) / self._part).astype(int).tolist()
        above = [
            [
                int(np.ceil((bounds.most - lowest - bounds.before[layer][frontier]) / self._part))
                for frontier in bounds.alive[layer]
            ]
            for layer in range(first, last)
        ]
        key = repr((self._alike[first:last], bounds.alive[first : last + 1], more, above))
        if key not in self._known:
            self._known[key] = self._found(first, last, more, above)
        return self._known[key]

    def _found(
        self, first: int, last: int, more: Sequence[int], above: Sequence[Sequence[int]]
    ) -> Sequence[Mapping[Frontier, Paths]]:
        bounds, graph, extension = self._bounds, self._bounds.graph, self._bounds.extension
        none = graph.zero
        beyond: Mapping[Frontier, Paths] = {
            end: [(end, (none, none))] for end in bounds.alive[last]
        }
        further = dict(zip(bounds.alive[last], more, strict=True))
        paths = []
        for layer in reversed(range(first, last)):
            self._deadline.check()
            of_layer: dict[Frontier, Paths] = {}
            for frontier, room in zip(bounds.alive[layer], above[layer - first], strict=True):
                charges, loads = extension.charges(layer, frontier), graph.loads[layer]
                parts: dict[Frontier, list[Front]] = {}
                for column, cost in enumerate(charges.tolist()):
                    after = extension.after(layer, frontier, column)
                    for end, (rest, rest_loads) in beyond.get(after, ()):
                        self._steps += 1
                        parts.setdefault(end, []).append((rest + cost, rest_loads + loads[column]))
                if self._steps > MAX_STEPS:
                    raise RefusedError(TOO_MANY)
                fronts = []
                for end, joined in parts.items():
                    costs, amounts = map(np.concatenate, zip(*joined, strict=True))
                    limit = (room - further[end]) * self._part
                    within = bounds.charged(costs, amounts) <= limit
                    front = pareto_front(costs[within], amounts[within])
                    if len(front[0]):
                        fronts.append((end, front))
                if fronts:
                    of_layer[frontier] = fronts
            paths.append(of_layer)
            beyond = of_layer
        return paths[::-1]
