"""The cheapest assignments of a graph whose loads add up to at most capacities, one by one.

For each frontier the Pareto front of its completions, in cost and loads, is computed from the end;
from the start, the assignment with the least bound, exact by these fronts, is extended. With loads
at a price, least sums exclude what is in no assignment of interest. Between places with few
frontiers there are few kinds of paths: those of equal blocks are computed once, and fronts are kept
only at these places.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from itertools import pairwise
from operator import add, le
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import RefusedError
from hypar_opt.integers import Integers
from hypar_opt.solvers.frontier_bounds import TOO_MANY, FrontierBounds, best_price
from hypar_opt.solvers.loaded_graph import Frontier, LoadedGraph

if TYPE_CHECKING:
    from hypar_opt.deadline import Deadline

MAX_STEPS = 2**18
"""The most extensions of frontiers by a column."""

MAX_LABELS = 4_000_000
"""The most entries of all fronts."""

_PARTS_OF_GAP = (16, 8, 4, 2, 1)
"""The parts of a gap above the bound in which an optimum is sought in turn."""

_AT_ONCE = 2**20
"""Entries of fronts that are joined at once, in about 0.2 s: between checks of the deadline."""

_AT_ONCE_OF_SEVERAL = 2**13
"""The same with several limits, in about equal time."""

_RESOLUTION = 2**10
"""The parts of the gap to which bounds of equal blocks are rounded."""

Front = tuple[Integers, Integers]
"""Costs ``(paths,)`` and loads ``(paths, limits)`` of the paths that no other dominates.

By ascending loads of the first limit.
"""

Loads = tuple[int, ...]
"""Loads of decided layers, by limit."""

Paths = Sequence[tuple[Frontier, Front]]
"""The fronts of paths from a frontier to later ones."""


def cheapest_within(
    graph: LoadedGraph,
    capacities: Sequence[int],
    highest: int,
    deadline: Deadline,
    price: Fraction | None = None,
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield assignments within capacities with their costs, in the order of these.

    Parameters
    ----------
    capacities : (limits,)
    highest
        The highest cost of interest.
    price
        The price of a unit of the first limit's load, at which sums exclude assignments; by default
        the best price.

    Raises
    ------
    RefusedError
        If there are too many frontiers, or completions of them.
    NoAnswerError
        If the deadline passes.
    """
    limits = {highest}
    if price is None:
        price, bound, upper = best_price(graph, capacities[0])
        if upper is not None:
            sought = (bound + -(-(upper - bound) // part) for part in _PARTS_OF_GAP)
            limits |= {min(limit, highest) for limit in sought}
    last = -1
    for upto in sorted(limits):
        at_most = upto + int(price * capacities[0])
        labels = LabelledGraph.of(graph, capacities, at_most, deadline, price)
        for cost, chosen in labels.cheapest(capacities, upto, deadline):
            if cost > last:
                yield cost, chosen
        last = upto


@dataclass(frozen=True, eq=False)
class LabelledGraph:
    """The Pareto fronts of completions of frontiers, within capacities and up to a sum.

    Parameters
    ----------
    fronts
        By narrow place, the completions of each frontier.
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
        cls,
        graph: LoadedGraph,
        capacities: Sequence[int],
        highest: int,
        deadline: Deadline,
        price: Fraction,
    ) -> LabelledGraph:
        """Compute the fronts; parameters and errors are those of `cheapest_within`.

        Parameters
        ----------
        highest
            The highest sum of interest: of a cost, and of the first limit's load at the price.
        """
        bounds = FrontierBounds.of(graph, highest, price)
        between = _PathsBetween(bounds, deadline)
        places = bounds.narrow_places
        fronts: dict[int, dict[Frontier, Front]] = {places[-1]: {(): _none(graph)}}
        ends: list[int] = []
        paths: list[Mapping[Frontier, Paths]] = []
        for first, last in pairwise(places):
            ends += [last] * (last - first)
            paths += between.of(first, last)
        labels = 0
        room = np.array(capacities, graph.zero.dtype)
        # Layers decided before a place load at least as much as their lightest columns.
        lightest = [room - room, *(loads.min(axis=0) for loads in graph.loads)]
        before = np.cumsum(lightest, axis=0)
        for first, last in reversed([*pairwise(places)]):
            deadline.check()
            fronts[first] = {
                frontier: _joined(
                    bounds,
                    bounds.most - bounds.before[first][frontier],
                    paths[first].get(frontier, ()),
                    fronts[last],
                    room - before[first],
                    deadline,
                )
                for frontier in bounds.alive[first]
            }
            labels += sum(len(costs) for costs, _ in fronts[first].values())
            if labels > MAX_LABELS:
                raise RefusedError(TOO_MANY)
        return cls(bounds, fronts, ends, paths)

    def cheapest(
        self, capacities: Sequence[int], highest: int, deadline: Deadline
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield assignments as `cheapest_within`, up to the labelled costs and capacities."""
        layers = len(self.bounds.graph.costs)
        # Of equal bounds the one with most decided layers is extended.
        waiting: list[tuple[int, int, int, Loads, Frontier, tuple[int, ...]]] = []
        start = self._least(0, (), capacities)
        if start is not None and start <= highest:
            waiting.append((start, 0, 0, (0,) * len(capacities), (), ()))
        while waiting:
            bound, undecided, cost, load, frontier, decided = heappop(waiting)
            layer = -undecided
            if layer == layers:
                yield bound, decided
                continue
            deadline.check()
            extended = self._extended(layer, frontier, cost, load, capacities)
            for column, total, spent, loaded, after in extended:
                if total <= highest:
                    entry = total, -layer - 1, spent, loaded, after, (*decided, column)
                    heappush(waiting, entry)

    def first_of_cheapest(
        self, capacities: Sequence[int], highest: int, order: Sequence[int], deadline: Deadline
    ) -> tuple[int, list[int]] | None:
        """Return the least cost, and the canonical assignment of that cost; None if it is higher.

        The canonical one is first if columns are compared from the last layer back.

        Parameters
        ----------
        highest
            The highest cost of interest.
        order
            The number of each layer, from 0.

        Returns
        -------
        cost
        columns : (layers,)
            By their numbers.
        """
        lowest = self._least(0, (), capacities)
        if lowest is None or lowest > highest:
            return None
        digits = max(map(len, self.bounds.graph.costs)).bit_length()
        # A label is an assignment, whose columns are digits of its rank, and its loads.
        labels: dict[tuple[Frontier, int], list[tuple[int, Loads]]]
        labels = {((), 0): [(0, (0,) * len(capacities))]}
        decided = [False] * len(order)
        undecided = len(order)
        """Of the highest number, and one."""
        for layer, number in enumerate(order):
            deadline.check()
            further: dict[tuple[Frontier, int], list[tuple[int, Loads]]] = {}
            for (frontier, cost), of_frontier in labels.items():
                for rank, load in of_frontier:
                    extended = self._extended(layer, frontier, cost, load, capacities)
                    for column, total, spent, loaded, after in extended:
                        if total == lowest:
                            label = rank | column << digits * number, loaded
                            further.setdefault((after, spent), []).append(label)
            decided[number] = True
            while undecided and decided[undecided - 1]:
                undecided -= 1
            # All can be completed: if layers from the last back are decided, their digits decide.
            shift = digits * undecided
            least_rank = min(rank >> shift for few in further.values() for rank, _ in few)
            labels = {
                key: _pareto_labels(label for label in few if label[0] >> shift == least_rank)
                for key, few in further.items()
            }
        ((rank, _),) = labels[(), lowest]
        return lowest, [rank >> digits * number & 2**digits - 1 for number in range(len(order))]

    def _extended(
        self, layer: int, frontier: Frontier, cost: int, load: Loads, capacities: Sequence[int]
    ) -> Iterator[tuple[int, int, int, Loads, Frontier]]:
        """Yield a layer's columns with which a frontier can be completed within the capacities.

        With each comes the least cost of a completion, and the resulting cost, loads and frontier.
        """
        extension, loads = self.bounds.extension, self.bounds.graph.loads[layer].tolist()
        for column, further in enumerate(extension.charges(layer, frontier).tolist()):
            after = extension.after(layer, frontier, column)
            loaded = tuple(map(add, load, loads[column]))
            room = [capacity - taken for capacity, taken in zip(capacities, loaded, strict=True)]
            rest = self._least(layer + 1, after, room)
            if rest is not None:
                yield column, cost + further + rest, cost + further, loaded, after

    def _least(self, layer: int, frontier: Frontier, room: Sequence[int]) -> int | None:
        """Return the least cost that completes a frontier within loads; None if impossible."""
        graph = self.bounds.graph
        if layer in self.fronts:
            paths_so_far: Paths = [(frontier, _none(graph))]
            fronts = self.fronts[layer]
        else:
            paths_so_far, fronts = (
                self.paths[layer].get(frontier, ()),
                self.fronts[self.ends[layer]],
            )
        sums: list[int] = []
        for end, (costs, loads) in paths_so_far:
            rest, amounts = fronts.get(end, (costs[:0], loads[:0]))
            if len(room) == 1:
                fitting = amounts[:, 0].searchsorted(room[0] - loads[:, 0], "right")
                fits = fitting > 0
                sums += (costs[fits] + rest[fitting[fits] - 1]).tolist()
            else:
                fits = _fit(loads[:, None] + amounts, room)
                sums += (costs[:, None] + rest)[fits].tolist()
        return min(sums, default=None)


def _none(graph: LoadedGraph) -> Front:
    """Return the front of the path of no layers."""
    limits = graph.loads[0].shape[1] if graph.loads else 1
    return graph.zero, np.zeros((1, limits), graph.zero.dtype)


def _fit(loads: Integers, room: Sequence[int] | Integers) -> NDArray[np.bool_]:
    """Return which loads, ``(..., limits)``, fit the remaining room."""
    fits: NDArray[np.bool_] = np.array(loads <= np.array(room, loads.dtype), bool)
    return np.asarray(fits.all(axis=-1))


def _pareto_labels(labels: Iterable[tuple[int, Loads]]) -> list[tuple[int, Loads]]:
    """Return labels, by ascending ranks, without those that a lower rank dominates in loads."""
    front: list[tuple[int, Loads]] = []
    for rank, load in sorted(labels):
        if not any(all(map(le, other, load)) for _, other in front):
            front.append((rank, load))
    return front


def _joined(
    bounds: FrontierBounds,
    above: float,
    paths: Paths,
    fronts: Mapping[Frontier, Front],
    room: Integers,
    deadline: Deadline,
) -> Front:
    """Return the front of a frontier's completions, given the fronts at the ends of its paths.

    Parameters
    ----------
    above
        The highest sum of interest, minus the least before the frontier.
    room : (limits,)
        The capacities, minus the least loads before it.
    """
    none = _none(bounds.graph)
    at_once = _AT_ONCE if len(room) == 1 else _AT_ONCE_OF_SEVERAL
    parts, entries = [(none[0][:0], none[1][:0])], 0
    for end, (charges, amounts) in paths:
        tail = fronts[end]
        step = max(1, at_once // max(1, len(tail[0])))
        for start in range(0, len(charges), step):
            cost = (charges[start : start + step, None] + tail[0]).ravel()
            load = amounts[start : start + step, None] + tail[1]
            load = load.reshape(-1, load.shape[-1])
            of_interest = _fit(load, room) & (bounds.charged(cost, load) <= above)
            parts.append((cost[of_interest], load[of_interest]))
            entries += len(parts[-1][0])
            if entries > at_once:
                deadline.check()
                parts, entries = [_front_of(parts)], 0
    return _front_of(parts)


def _front_of(parts: Iterable[Front]) -> Front:
    """Return the Pareto front of paths: those that no other path dominates, one of equals."""
    costs, loads = map(np.concatenate, zip(*parts, strict=True))
    order = np.lexsort((costs, *loads.T[::-1]))
    costs, loads = costs[order], loads[order]
    keep = np.ones(len(costs), bool)
    if loads.shape[1] == 1:
        # By ascending load, a path is dominated unless it costs less than all lighter ones.
        keep[1:] = costs[1:] < np.minimum.accumulate(costs)[:-1]
    else:
        entries = np.column_stack((costs, loads))
        for number, entry in enumerate(entries):
            keep[number] = not (entries[:number][keep[:number]] <= entry).all(axis=1).any()
    return costs[keep], loads[keep]


class _PathsBetween:
    """The paths between narrow places, computed once for equal layers."""

    def __init__(self, bounds: FrontierBounds, deadline: Deadline) -> None:
        self._bounds, self._deadline = bounds, deadline
        self._steps = 0
        self._part = max((bounds.most - bounds.lowest) / _RESOLUTION, bounds.most * 2.0**-40)
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
        """Return the paths between two places, from each frontier of the first.

        Raises
        ------
        RefusedError, NoAnswerError
        """
        bounds = self._bounds
        ends = bounds.alive[last]
        behind = np.array([bounds.behind[last][end] for end in ends])
        lowest = behind.min(initial=bounds.most)
        # Rounded so that they are equal for equal layers, and exclude no more.
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
        none = _none(graph)
        beyond: Mapping[Frontier, Paths] = {end: [(end, none)] for end in bounds.alive[last]}
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
                    costs, amounts = _front_of(joined)
                    limit = (room - further[end]) * self._part
                    within = bounds.charged(costs, amounts) <= limit
                    front = costs[within], amounts[within]
                    if len(front[0]):
                        fronts.append((end, front))
                if fronts:
                    of_layer[frontier] = fronts
            paths.append(of_layer)
            beyond = of_layer
        return paths[::-1]
