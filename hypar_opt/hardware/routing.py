"""The routes between accelerators: all shortest paths, counted in links."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True)
class Route:
    """All shortest paths from one accelerator to another, over which a message is spread evenly.

    Parameters
    ----------
    channels, shares
        Channels, and the fraction of a byte that crosses each; these add up to ``hops``.
    latency
        Seconds of the slowest of the paths, the sum of its links'.
    hops
        Links of any of the paths, which are equally long.
    """

    channels: tuple[int, ...]
    shares: tuple[Fraction, ...]
    latency: Fraction
    hops: int


class ShortestPaths:
    """The shortest paths of a graph, by one breadth-first search per source.

    Parameters
    ----------
    channels
        The channel from a node to a neighbour.
    latencies
        For every channel, in seconds.
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

    # A tree has one path a pair, and finding it by climbing needs no search of the graph.
    @cached_property
    def _is_tree(self) -> bool:
        import networkx as nx

        return nx.is_tree(self._graph)

    @cached_property
    def _parents(self) -> dict[Any, tuple[Any, int]]:
        """The parent and the depth of every node of a tree, with accelerator 0 as its root."""
        import networkx as nx

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
            # At equal depth only one end climbs; the other follows in the next iteration.
            if parents[up[-1]][1] >= parents[down[-1]][1]:
                up.append(parents[up[-1]][0])
            else:
                down.append(parents[down[-1]][0])
        return [*up, *down[-2::-1]]

    def _along(self, path: Iterable[Any]) -> Route:
        """Return the route of a single path."""
        channels = tuple(self._channels[hop] for hop in pairwise(path))
        # Channels have few distinct latencies, and adding fractions is slow.
        counts = Counter(self._latencies[channel] for channel in channels)
        latency = sum((times * latency for latency, times in counts.items()), Fraction())
        return Route(channels, (Fraction(1),) * len(channels), latency, len(channels))

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
                    channel = self._channels[previous, node]
                    share = share_of_node * Fraction(paths[previous], paths[node])
                    shares[channel] = share
                    next_traffic[previous] = next_traffic.get(previous, 0) + share
                    # The last byte has arrived when the slowest path has delivered its share.
                    seconds = slowest[node] + self._latencies[channel]
                    next_slowest[previous] = max(next_slowest.get(previous, seconds), seconds)
            traffic, slowest = next_traffic, next_slowest
        return Route(tuple(shares), tuple(shares.values()), slowest[source], hops)

    @cached_property
    def neighbours(self) -> dict[Any, list[Any]]:
        """The neighbours of every node."""
        return {node: list(adjacent) for node, adjacent in self._graph.adjacency()}

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
