"""The routes between accelerators: all shortest paths, counted in links."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import networkx as nx


@dataclass(frozen=True)
class Route:
    """All shortest paths from one accelerator to another, a message being spread evenly.

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


class ShortestPaths:
    """The shortest paths of a graph, searched for once each source.

    Parameters
    ----------
    channels
        The channel from one node to a neighbour.
    latencies
        Seconds of each channel.
    """

    def __init__(
        self,
        graph: nx.Graph[Any],
        channels: Mapping[tuple[Any, Any], int],
        latencies: Sequence[Fraction],
    ) -> None:
        self._graph = graph
        self._channels = channels
        self._latencies = latencies
        self._routes: dict[tuple[int, int], Route] = {}
        self._searches: dict[int, _Search] = {}

    def route(self, source: int, target: int) -> Route:
        """Return the route between two accelerators."""
        if (source, target) not in self._routes:
            self._routes[source, target] = (
                self._along(self._tree_path(source, target))
                if self._is_tree
                else self._over_all_paths(source, target)
            )
        return self._routes[source, target]

    @cached_property
    def _is_tree(self) -> bool:
        return nx.is_tree(self._graph)

    @cached_property
    def _parents(self) -> dict[Any, tuple[Any, int]]:
        """Each node's parent and depth, of a tree, its root being accelerator 0."""
        parents: dict[Any, tuple[Any, int]] = {0: (None, 0)}
        for parent, child in nx.bfs_edges(self._graph, 0):
            parents[child] = parent, parents[parent][1] + 1
        return parents

    def _tree_path(self, source: int, target: int) -> list[Any]:
        """Climb from both ends, the deeper one first, to their lowest common ancestor."""
        parents = self._parents
        up: list[Any] = [source]
        down: list[Any] = [target]
        while up[-1] != down[-1]:
            # Of equal depth only one end climbs, and the other in the next turn.
            if parents[up[-1]][1] >= parents[down[-1]][1]:
                up.append(parents[up[-1]][0])
            else:
                down.append(parents[down[-1]][0])
        return [*up, *down[-2::-1]]

    def _along(self, path: Iterable[Any]) -> Route:
        """Return the route of a single path."""
        channels = tuple(self._channels[hop] for hop in pairwise(path))
        # Channels have few different latencies, and adding fractions is slow.
        counts = Counter(self._latencies[channel] for channel in channels)
        latency = sum((times * latency for latency, times in counts.items()), Fraction())
        return Route(channels, (Fraction(1),) * len(channels), latency, len(channels))

    def _over_all_paths(self, source: int, target: int) -> Route:
        """Count the shortest paths from the source, and walk back from the target.

        Of the traffic through a node, its predecessors have carried shares in proportion to the
        number of paths through them.
        """
        paths, before = self._search(source, target)
        shares: dict[int, Fraction] = {}
        traffic, slowest = {target: Fraction(1)}, {target: Fraction()}
        hops = 0
        while source not in traffic:  # all nodes of a round are as far from the source
            hops += 1
            nearer: dict[Any, Fraction] = {}
            slower: dict[Any, Fraction] = {}
            for node, share_of_node in traffic.items():
                for previous in before[node]:
                    channel = self._channels[previous, node]
                    share = share_of_node * Fraction(paths[previous], paths[node])
                    shares[channel] = share
                    nearer[previous] = nearer.get(previous, 0) + share
                    # The last byte has arrived when the slowest path has delivered its share.
                    seconds = slowest[node] + self._latencies[channel]
                    slower[previous] = max(slower.get(previous, seconds), seconds)
            traffic, slowest = nearer, slower
        return Route(tuple(shares), tuple(shares.values()), slowest[source], hops)

    @cached_property
    def neighbours(self) -> dict[Any, list[Any]]:
        """The neighbours of each node."""
        return {node: list(adjacent) for node, adjacent in self._graph.adjacency()}

    def _search(self, source: int, target: int) -> tuple[dict[Any, int], dict[Any, list[Any]]]:
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
        neighbours = self.neighbours
        # All paths to the target are counted once every node nearer than it has been expanded.
        while target not in distance or (queue and distance[queue[0]] < distance[target]):
            node = queue.popleft()
            farther = distance[node] + 1
            for neighbour in neighbours[node]:
                if neighbour not in distance:
                    distance[neighbour] = farther
                    paths[neighbour], before[neighbour] = 0, []
                    queue.append(neighbour)
                # Also through a node that another path has reached first: all shortest paths count.
                if distance[neighbour] == farther:
                    paths[neighbour] += paths[node]
                    before[neighbour].append(node)
        return paths, before


class _Search(NamedTuple):
    """A breadth-first search that continues when a farther target is asked for."""

    distance: dict[Any, int]
    paths: dict[Any, int]
    before: dict[Any, list[Any]]
    queue: deque[Any]
