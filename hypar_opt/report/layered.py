"""A layered drawing of an operator graph: tensors flow downwards.

The order within a rank and the columns are igraph's (K. Sugiyama, S. Tagawa and M. Toda, "Methods
for visual understanding of hierarchical system structures", IEEE Trans. SMC 11(2), 1981); the ranks
are ours, so that each repetition of a block has separate ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.report.operator_graph import OperatorGraph

Point = tuple[float, int]
"""A column, which may be fractional, and a rank; 0 is leftmost and topmost."""

_MAX_BENDS = 4000
"""Bends of all edges together; the layout's time is about quadratic in them."""


@dataclass(frozen=True)
class GraphDrawing:
    """The positions of a graph's nodes, and the course of its edges.

    Parameters
    ----------
    nodes
        One point per node.
    edges
        The points of each edge from source to target, one per rank; only the ends of an edge that
        is too long for the layout.
    frames
        The upper left and lower right corners of each frame, around its nodes and the edges to
        them.
    """

    nodes: tuple[Point, ...]
    edges: tuple[tuple[Point, ...], ...]
    frames: tuple[tuple[Point, Point], ...]

    @property
    def columns(self) -> float:
        """The rightmost column."""
        return max(x for points in (self.nodes, *self.edges) for x, _ in points)

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return 1 + max(rank for _, rank in self.nodes)


def check_installed(extra: str) -> None:
    """Refuse, before any work, if the library that draws graphs is not installed.

    Parameters
    ----------
    extra
        The extra that installs it, for the message.

    Raises
    ------
    HyparError
        Naming what to install.
    """
    try:
        import igraph  # noqa: F401
    except ImportError:
        raise HyparError(
            f"drawing a graph needs igraph: pip install 'hypar-opt[{extra}]'"
        ) from None


def layered(graph: OperatorGraph) -> GraphDrawing:
    """Return the layered drawing of a graph.

    Raises
    ------
    ImportError
        If igraph is not installed; see `check_installed`.
    """
    import igraph

    ranks = _ranks(graph)
    # Edges between neighbouring ranks only, so that igraph need not bend them.
    bends, paths = list(ranks), []
    bent = _bent(graph, ranks)
    for edge, (source, target) in enumerate(graph.edges):
        path = [source]
        if edge in bent:
            for rank in range(ranks[source] + 1, ranks[target]):
                path.append(len(bends))
                bends.append(rank)
        paths.append([*path, target])
    segments = [
        segment for edge, path in enumerate(paths) if edge in bent for segment in pairwise(path)
    ]
    drawn = igraph.Graph(n=len(bends), edges=segments, directed=True)
    columns = _apart([x for x, _ in drawn.layout_sugiyama(layers=bends)], bends)
    left = min(columns)
    points: list[Point] = [(x - left, rank) for x, rank in zip(columns, bends, strict=True)]
    nodes = tuple(points[: len(graph.nodes)])
    edges = tuple(tuple(points[n] for n in path) for path in paths)
    frames = tuple(_corners(graph, nodes, edges, n) for n in range(len(graph.frames)))
    return GraphDrawing(nodes, edges, frames)


def _apart(columns: Sequence[float], ranks: Sequence[int]) -> list[float]:
    """Move columns apart, to at least 1 in each rank, as little as possible.

    igraph sometimes puts two nodes in one place. Least squares, by pooling adjacent violators.
    """
    by_rank: dict[int, list[int]] = {}
    for node in sorted(range(len(columns)), key=columns.__getitem__):
        by_rank.setdefault(ranks[node], []).append(node)
    apart = list(columns)
    for nodes in by_rank.values():
        # Minus its number, a node's column may not be less than the previous one.
        pools: list[tuple[float, int]] = []
        for number, node in enumerate(nodes):
            pool = (columns[node] - number, 1)
            while pools and pools[-1][0] > pool[0]:
                mean, size = pools.pop()
                total = size + pool[1]
                pool = ((mean * size + pool[0] * pool[1]) / total, total)
            pools.append(pool)
        means = [mean for mean, size in pools for _ in range(size)]
        for number, (node, mean) in enumerate(zip(nodes, means, strict=True)):
            apart[node] = mean + number
    return apart


def _bent(graph: OperatorGraph, ranks: Sequence[int]) -> set[int]:
    """Return the edges that are led around the nodes between: all, or the shortest."""
    spans = [ranks[target] - ranks[source] for source, target in graph.edges]
    bent, bends = set(), 0
    for edge in sorted(range(len(spans)), key=spans.__getitem__):
        bends += spans[edge] - 1
        if bends > _MAX_BENDS:
            break
        bent.add(edge)
    return bent


def _ranks(graph: OperatorGraph) -> list[int]:
    """Return each node's rank: one below its lowest source, and not above its frame."""
    sources: list[list[int]] = [[] for _ in graph.nodes]
    for source, target in graph.edges:
        sources[target].append(source)
    ranks: list[int] = []
    floors: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        rank = 1 + max((ranks[source] for source in sources[number]), default=-1)
        if node.frame is not None:
            # The sources of a repetition are above all of it.
            if node.frame not in floors:
                floors[node.frame] = _floor(graph, sources, ranks, node.frame)
            rank = max(rank, floors[node.frame])
        ranks.append(rank)
    return _lowered(graph, sources, ranks)


def _floor(
    graph: OperatorGraph, sources: Sequence[Sequence[int]], ranks: Sequence[int], frame: int
) -> int:
    """Return the topmost rank of a frame whose nodes come next."""
    members = [n for n, node in enumerate(graph.nodes) if node.frame == frame]
    outside = [source for n in members for source in sources[n] if source < len(ranks)]
    # Other repetitions of the block are never beside this one, whatever it reads.
    block = graph.frames[frame].block
    before = [
        n
        for n, node in enumerate(graph.nodes[: len(ranks)])
        if node.frame is not None and graph.frames[node.frame].block == block
    ]
    return 1 + max((ranks[n] for n in (*outside, *before)), default=-1)


def _lowered(graph: OperatorGraph, sources: Sequence[Sequence[int]], ranks: list[int]) -> list[int]:
    """Move nodes without sources, such as learned tables, to just above their first readers."""
    first_reader: dict[int, int] = {}
    for source, target in graph.edges:
        first_reader[source] = min(first_reader.get(source, ranks[target]), ranks[target])
    return [
        max(rank, first_reader.get(n, rank + 1) - 1) if n and not sources[n] else rank
        for n, rank in enumerate(ranks)
    ]


def _corners(
    graph: OperatorGraph, nodes: Sequence[Point], edges: Sequence[Sequence[Point]], frame: int
) -> tuple[Point, Point]:
    """Return the corners of a frame around its nodes and the bends of edges to them."""
    points = [point for node, point in zip(graph.nodes, nodes, strict=True) if node.frame == frame]
    top, bottom = min(rank for _, rank in points), max(rank for _, rank in points)
    bends = [
        point
        for (_, target), path in zip(graph.edges, edges, strict=True)
        if graph.nodes[target].frame == frame
        for point in path[1:-1]
        if top <= point[1] <= bottom
    ]
    columns = [x for x, _ in (*points, *bends)]
    return (min(columns), top), (max(columns), bottom)
