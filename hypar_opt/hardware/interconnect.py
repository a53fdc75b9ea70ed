"""An array's links, the routes over them, and what a level's exchange gets of them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import networkx as nx

from hypar_opt.errors import HyparError


@dataclass(frozen=True)
class Link:
    """One link between two nodes, each an accelerator or a switch.

    Parameters
    ----------
    bytes_per_second
        Of each direction if ``full_duplex``, else of both together.
    latency
        Seconds that a message takes to cross it.
    """

    source: Hashable
    target: Hashable
    bytes_per_second: Fraction
    latency: Fraction
    full_duplex: bool

    @property
    def name(self) -> str:
        return f"{self.source}-{self.target}"


@dataclass(frozen=True)
class Route:
    """All shortest paths from one accelerator to another, each with the same share.

    Parameters
    ----------
    channels, shares
        What of a byte crosses each channel; the shares add up to ``hops``.
    latency
        Seconds of the slowest of the paths, its links added up.
    hops
        Links of each path.
    """

    channels: tuple[int, ...]
    shares: tuple[Fraction, ...]
    latency: Fraction
    hops: int


@dataclass(frozen=True)
class BisectionLink:
    """What the array gives an exchange in which every accelerator sends as many bytes at once.

    Parameters
    ----------
    seconds_per_byte
        Of the exchange's bytes, those of all accelerators added up.
    latency
        Seconds of the slowest message.
    hops
        Links that a byte crosses, on average.
    """

    seconds_per_byte: Fraction
    latency: Fraction
    hops: Fraction


class Interconnect:
    """A graph of accelerators, switches and links, with its routes.

    A full-duplex link has a channel a direction, a half-duplex one a single channel. Traffic
    between two accelerators is spread over all shortest paths (in links), evenly.

    Parameters
    ----------
    graph
        Accelerators are the nodes 0 .. N - 1, whatever else is a switch. Edges carry
        ``bytes_per_second``, ``latency`` (Fractions) and ``full_duplex``.

    Raises
    ------
    HyparError
        If accelerators are no power of two, not numbered from 0, or not all connected.
    """

    def __init__(self, graph: nx.Graph[Any]) -> None:
        self.graph = graph
        self.accelerators = sum(isinstance(node, int) for node in graph)
        if self.accelerators & (self.accelerators - 1) or not self.accelerators:
            raise HyparError(
                f"the number of accelerators should be a power of two, got {self.accelerators}"
            )
        if not all(number in graph for number in range(self.accelerators)):
            raise HyparError("accelerators should be numbered 0, 1, 2, ...")
        reached = nx.node_connected_component(graph, 0)
        lost = next((number for number in range(self.accelerators) if number not in reached), None)
        if lost is not None:
            raise HyparError(f"accelerators should all be connected; no path from 0 to {lost}")
        self.links = tuple(
            Link(source, target, data["bytes_per_second"], data["latency"], data["full_duplex"])
            for source, target, data in graph.edges(data=True)
        )
        self.channel_link: tuple[int, ...] = tuple(
            place for place, link in enumerate(self.links) for _ in range(1 + link.full_duplex)
        )
        """The link of each channel."""
        self._channel: dict[tuple[Any, Any], int] = {}
        channel = 0
        for link in self.links:
            self._channel[link.source, link.target] = channel
            channel += link.full_duplex
            self._channel[link.target, link.source] = channel
            channel += 1
        self._routes: dict[tuple[int, int], Route] = {}
        self._splits: dict[tuple[tuple[int, ...], bool], BisectionLink] = {}
        self._searches: dict[int, _Search] = {}

    @property
    def levels(self) -> int:
        """Halvings down to one accelerator."""
        return self.accelerators.bit_length() - 1

    @cached_property
    def capacities(self) -> tuple[Fraction, ...]:
        """Bytes a second of each channel."""
        return tuple(self.links[place].bytes_per_second for place in self.channel_link)

    @property
    def most_hops(self) -> int:
        """Links that no shortest path has more of: it visits a node once at most."""
        return len(self.graph) - 1

    @cached_property
    def longest_latency(self) -> Fraction:
        """Seconds that no shortest path takes more of."""
        return self.most_hops * max(self._latencies, default=Fraction())

    @cached_property
    def _latencies(self) -> tuple[Fraction, ...]:
        """Seconds of each channel."""
        return tuple(self.links[place].latency for place in self.channel_link)

    def route(self, source: int, target: int) -> Route:
        """Return the route between two accelerators."""
        if (source, target) not in self._routes:
            path = self._path_of_tree(source, target) if self._is_tree else None
            self._routes[source, target] = (
                self._shortest(source, target) if path is None else self._along(path)
            )
        return self._routes[source, target]

    def bisection(self, bit: int) -> BisectionLink:
        """Return what the halving by one bit of the accelerators' numbers gives an exchange.

        Every accelerator exchanges with the one whose number differs in that bit.
        """
        return self._split((bit,), ring=False)

    def ring(self, bits: Iterable[int]) -> BisectionLink:
        """Return what a round gives rings over the accelerators that differ in some bits alone.

        All groups are at work at once; every accelerator sends to the next in its ring.
        """
        return self._split(tuple(sorted(bits)), ring=True)

    def receivers(self, bits: Iterable[int], *, ring: bool) -> list[int]:
        """Return whom each accelerator sends to.

        Parameters
        ----------
        bits
            Those in which the numbers of a group's accelerators differ.
        ring
            To the next of the group in the order of their numbers, and the last to the first;
            else to the one that differs in all these bits.
        """
        mask = sum(1 << bit for bit in bits)
        # With all other bits set, adding one carries from bit to bit of the mask.
        return [
            number & ~mask | ((number | ~mask) + 1) & mask if ring else number ^ mask
            for number in range(self.accelerators)
        ]

    def _split(self, bits: tuple[int, ...], *, ring: bool) -> BisectionLink:
        """Return what a pattern in which each accelerator sends to one other gives an exchange.

        The most loaded channel decides: no flow over it gets more than its share of it until
        all are done, and every other flow gets as much or more.
        """
        if (bits, ring) not in self._splits:
            loads = [Fraction()] * len(self.channel_link)
            routes = [self.route(*pair) for pair in enumerate(self.receivers(bits, ring=ring))]
            for route in routes:
                for channel, share in zip(route.channels, route.shares, strict=True):
                    loads[channel] += share
            slowest = max(
                load / capacity for load, capacity in zip(loads, self.capacities, strict=True)
            )
            self._splits[bits, ring] = BisectionLink(
                seconds_per_byte=slowest / self.accelerators,
                latency=max(route.latency for route in routes),
                hops=Fraction(sum(route.hops for route in routes), self.accelerators),
            )
        return self._splits[bits, ring]

    @cached_property
    def _is_tree(self) -> bool:
        return nx.is_tree(self.graph)

    @cached_property
    def _parents(self) -> dict[Any, tuple[Any, int]]:
        """Each node's parent and depth, of a tree, its root being accelerator 0."""
        parents: dict[Any, tuple[Any, int]] = {0: (None, 0)}
        for parent, child in nx.bfs_edges(self.graph, 0):
            parents[child] = parent, parents[parent][1] + 1
        return parents

    def _path_of_tree(self, source: int, target: int) -> list[Any]:
        parents = self._parents
        up: list[Any] = [source]
        down: list[Any] = [target]
        while up[-1] != down[-1]:
            if parents[up[-1]][1] >= parents[down[-1]][1]:
                up.append(parents[up[-1]][0])
            else:
                down.append(parents[down[-1]][0])
        return [*up, *down[-2::-1]]

    def _along(self, path: Iterable[Any]) -> Route:
        nodes = list(path)
        steps = list(pairwise(nodes))
        channels = tuple(self._channel[step] for step in steps)
        # Few latencies differ, and adding fractions is slow.
        each = Counter(self._latencies[channel] for channel in channels)
        latency = sum((times * latency for latency, times in each.items()), Fraction())
        return Route(channels, (Fraction(1),) * len(steps), latency, len(steps))

    def _shortest(self, source: int, target: int) -> Route:
        """Count the shortest paths from the source once, and walk back from the target.

        Of the traffic that passes a node, each predecessor has carried as much as there are
        paths through it.
        """
        paths, before = self._ways_from(source, target)
        shares: dict[int, Fraction] = {}
        passing, slowest = {target: Fraction(1)}, {target: Fraction()}
        hops = 0
        while source not in passing:  # all nodes of a round are as far from the source
            hops += 1
            nearer: dict[Any, Fraction] = {}
            slower: dict[Any, Fraction] = {}
            for node, traffic in passing.items():
                for previous in before[node]:
                    channel = self._channel[previous, node]
                    share = traffic * Fraction(paths[previous], paths[node])
                    shares[channel] = share
                    nearer[previous] = nearer.get(previous, 0) + share
                    seconds = slowest[node] + self._latencies[channel]
                    slower[previous] = max(slower.get(previous, seconds), seconds)
            passing, slowest = nearer, slower
        return Route(tuple(shares), tuple(shares.values()), slowest[source], hops)

    @cached_property
    def _neighbours(self) -> dict[Any, list[Any]]:
        return {node: list(beside) for node, beside in self.graph.adjacency()}

    def _ways_from(self, source: int, target: int) -> tuple[dict[Any, int], dict[Any, list[Any]]]:
        """Search from one source, breadth first, and no farther than the target.

        Returns
        -------
        The number of shortest paths to each node, and the nodes before it on them.
        """
        if source not in self._searches:
            self._searches[source] = _Search(
                {source: 0}, {source: 1}, {source: []}, deque([source])
            )
        distance, paths, before, queue = self._searches[source]
        neighbours = self._neighbours
        # All paths to the target are counted once every node nearer than it has been left.
        while target not in distance or (queue and distance[queue[0]] < distance[target]):
            node = queue.popleft()
            farther = distance[node] + 1
            for neighbour in neighbours[node]:
                if neighbour not in distance:
                    distance[neighbour] = farther
                    paths[neighbour], before[neighbour] = 0, []
                    queue.append(neighbour)
                if distance[neighbour] == farther:
                    paths[neighbour] += paths[node]
                    before[neighbour].append(node)
        return paths, before


class _Search(NamedTuple):
    """A breadth-first search that goes on when a farther target is asked for."""

    distance: dict[Any, int]
    paths: dict[Any, int]
    before: dict[Any, list[Any]]
    queue: deque[Any]
