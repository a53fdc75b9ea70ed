"""The routes of any graph: all shortest paths, counted in links, by search."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from hypar_opt.hardware.traffic import Indices, Paths, Route, Traffic, directions

if TYPE_CHECKING:
    import networkx as nx

    from hypar_opt.hardware.links import Graph, Link


class ShortestPaths(Paths):
    """The shortest paths of a graph, by one breadth-first search per source."""

    def __init__(self, graph: Graph | nx.Graph[Any], links: Sequence[Link]) -> None:
        self._graph = graph
        # The channel from a node to a neighbour, and its latency in seconds.
        self._channels: dict[tuple[Any, Any], tuple[int, Fraction]] = {}
        both = (channels.tolist() for channels in directions(links))
        for link, forth, back in zip(links, *both, strict=True):
            self._channels[link.source, link.target] = forth, link.latency
            self._channels[link.target, link.source] = back, link.latency
        self._routes: dict[tuple[int, int], Route] = {}
        self._searches: dict[int, _Search] = {}

    def route(self, source: int, target: int) -> Route:
        """Return the route between two accelerators."""
        if (source, target) not in self._routes:
            self._routes[source, target] = self._over_all_paths(source, target)
        return self._routes[source, target]

    def traffic(self, senders: Indices, receivers: Indices) -> Traffic:
        """Return the routes of messages from each sender to its receiver."""
        pairs = zip(senders.tolist(), receivers.tolist(), strict=True)
        return Traffic.of_routes([self.route(*pair) for pair in pairs])

    def _over_all_paths(self, source: int, target: int) -> Route:
        """Count the shortest paths from the source, and walk back from the target.

        The traffic through a node comes from its predecessors in proportion to the number of
        shortest paths through them.
        """
        paths, predecessors = self._search(source, target)
        shares: dict[int, Fraction] = {}
        traffic, slowest = {target: Fraction(1)}, {target: Fraction()}
        hops = 0
        while source not in traffic:  # all nodes of an iteration are equally far from the source
            hops += 1
            next_traffic: dict[Any, Fraction] = {}
            next_slowest: dict[Any, Fraction] = {}
            for node, share_of_node in traffic.items():
                for previous in predecessors[node]:
                    channel, latency = self._channels[previous, node]
                    share = share_of_node * Fraction(paths[previous], paths[node])
                    shares[channel] = share
                    next_traffic[previous] = next_traffic.get(previous, 0) + share
                    # The last byte has arrived when the slowest path has delivered its share.
                    seconds = slowest[node] + latency
                    next_slowest[previous] = max(next_slowest.get(previous, seconds), seconds)
            traffic, slowest = next_traffic, next_slowest
        return Route(tuple(shares), tuple(shares.values()), slowest[source], hops)

    @cached_property
    def neighbours(self) -> dict[Any, list[Any]]:
        """The neighbours of every node."""
        return {node: list(self._graph[node]) for node in self._graph}

    def _search(self, source: int, target: int) -> tuple[dict[Any, int], dict[Any, list[Any]]]:
        """Search from one source, breadth first, and no farther than the target.

        Returns
        -------
        The number of shortest paths to every node, and its predecessors on them.
        """
        if source not in self._searches:
            self._searches[source] = _Search(
                {source: 0}, {source: 1}, {source: []}, deque([source])
            )
        distance, paths, predecessors, queue = self._searches[source]
        neighbours = self.neighbours
        # No farther than the target, so that a large mesh is not searched from every source.
        # All paths to the target are counted once every node nearer than it has been expanded.
        while target not in distance or (queue and distance[queue[0]] < distance[target]):
            node = queue.popleft()
            farther = distance[node] + 1
            for neighbour in neighbours[node]:
                if neighbour not in distance:
                    distance[neighbour] = farther
                    paths[neighbour], predecessors[neighbour] = 0, []
                    queue.append(neighbour)
                # Also if another path has reached the neighbour first: all shortest paths count.
                if distance[neighbour] == farther:
                    paths[neighbour] += paths[node]
                    predecessors[neighbour].append(node)
        return paths, predecessors


class _Search(NamedTuple):
    """The state of a breadth-first search, resumed when a route to a farther target is needed."""

    distance: dict[Any, int]
    paths: dict[Any, int]
    predecessors: dict[Any, list[Any]]
    queue: deque[Any]
