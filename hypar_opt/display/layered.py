"""A layered drawing of an operator graph: tensors flow downwards.

The order within a rank is by barycentres (K. Sugiyama, S. Tagawa and M. Toda, "Methods for visual
understanding of hierarchical system structures", IEEE Trans. SMC 11(2), 1981), the columns by
weighted medians (E. Gansner, E. Koutsofios, S. North and K. Vo, "A technique for drawing directed
graphs", IEEE Trans. Software Engineering 19(3), 1993). Each repetition of a block has separate
ranks.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from hypar_opt.display.operator_graph import OperatorGraph

Point = tuple[float, int]
"""A column, which may be fractional, and a rank; 0 is leftmost and topmost."""

Segment = tuple[int, int]
"""A node, or bend, and one in the rank below that an edge leads to."""

_MAX_BENDS = 4000
"""Bends of all edges together."""

_SWEEPS = 24
"""Passes down and up the ranks, to order them and to place their nodes."""

_BEND, _BOX, _MAIN = 1, 10**5, 10**10
"""The weights of bends, of boxes, and of those on the longest path, which is one column."""

_STRAIGHTNESS = {(_BEND, _BEND): 8, (_BOX, _BOX): 2, (_MAIN, _MAIN): 4}
"""The weights of segments that are to be straight; 1 otherwise."""


@dataclass(frozen=True)
class GraphDrawing:
    """The positions of a graph's nodes, and the course of its edges."""

    nodes: tuple[Point, ...]
    """One point per node."""
    edges: tuple[tuple[Point, ...], ...]
    """The points of each edge from source to target, one per rank; only the ends of an edge that
    is too long for the layout."""
    frames: tuple[tuple[Point, Point], ...]
    """The upper left and lower right corners of each frame, around its nodes and the edges to
    them."""

    @property
    def columns(self) -> float:
        """The rightmost column."""
        return max(x for points in (self.nodes, *self.edges) for x, _ in points)

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return 1 + max(rank for _, rank in self.nodes)


def layered(graph: OperatorGraph) -> GraphDrawing:
    """Return the layered drawing of a graph."""
    ranks = _ranks(graph)
    # Edges between neighbouring ranks only: those that are longer bend in each rank between.
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
    main = _longest_path(graph)
    weights = [_MAIN if n in main else _BOX for n in range(len(ranks))]
    weights += [_BEND] * (len(bends) - len(ranks))
    rows = _in_order(bends, segments)
    columns = _columns(rows, segments, weights)
    _straighten(paths, rows, columns)
    left = min(columns)
    points: list[Point] = [
        (round(column - left, 3), rank) for column, rank in zip(columns, bends, strict=True)
    ]
    nodes = tuple(points[: len(graph.nodes)])
    edges = tuple(tuple(points[n] for n in path) for path in paths)
    frames = tuple(_corners(graph, nodes, edges, n) for n in range(len(graph.frames)))
    return GraphDrawing(nodes, edges, frames)


def _longest_path(graph: OperatorGraph) -> set[int]:
    """Return the nodes of a longest path to the last node, the middle one of equals."""
    sources, _ = _neighbours(len(graph.nodes), graph.edges)
    length: list[int] = []
    for of_node in sources:
        length.append(1 + max((length[source] for source in of_node), default=-1))
    node, path = len(length) - 1, {len(length) - 1}
    while sources[node]:
        longest = [source for source in sources[node] if length[source] == length[node] - 1]
        node = sorted(longest)[(len(longest) - 1) // 2]
        path.add(node)
    return path


def _in_order(ranks: Sequence[int], segments: Sequence[Segment]) -> list[list[int]]:
    """Return the nodes of each rank from left to right, such that few edges cross."""
    above, below = _neighbours(len(ranks), segments)
    rows: list[list[int]] = [[] for _ in range(1 + max(ranks))]
    for node, rank in enumerate(ranks):
        rows[rank].append(node)
    best, fewest = rows, _crossings(rows, below)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        downwards = sweep % 2 == 0
        rows = list(rows)
        for rank in range(1, len(rows)) if downwards else range(len(rows) - 2, -1, -1):
            beside = rows[rank - 1] if downwards else rows[rank + 1]
            place = {node: number for number, node in enumerate(beside)}
            near = above if downwards else below
            # A node without neighbours keeps its place.
            centres = {
                node: fmean(place[other] for other in near[node]) if near[node] else number
                for number, node in enumerate(rows[rank])
            }
            rows[rank] = sorted(rows[rank], key=centres.__getitem__)
        crossings = _crossings(rows, below)
        if crossings < fewest:
            best, fewest = rows, crossings
    return best


def _neighbours(nodes: int, segments: Sequence[Segment]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the neighbours above and below each node."""
    above: list[list[int]] = [[] for _ in range(nodes)]
    below: list[list[int]] = [[] for _ in range(nodes)]
    for source, target in segments:
        above[target].append(source)
        below[source].append(target)
    return above, below


def _crossings(rows: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> int:
    """Return how many pairs of edges between neighbouring ranks cross."""
    crossings = 0
    for row, under in pairwise(rows):
        place = {node: number for number, node in enumerate(under)}
        seen: list[int] = []  # the ends of the edges further left, in order
        for node in row:
            ends = sorted(place[target] for target in below[node])
            crossings += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return crossings


def _columns(
    rows: Sequence[Sequence[int]], segments: Sequence[Segment], weights: Sequence[int]
) -> list[float]:
    """Return a column for each node, at least 1 apart in each rank, with few edges aslant.

    Parameters
    ----------
    weights
        If two nodes want one place, the lighter one moves.
    """
    above, below = _neighbours(sum(map(len, rows)), segments)
    columns = [0.0] * len(above)
    for row in rows:
        for number, node in enumerate(row):
            columns[node] = float(number)

    def towards(node: int, near: Sequence[int]) -> float:
        if not near:
            return columns[node]
        straight = [_STRAIGHTNESS.get((weights[node], weights[other]), 1) for other in near]
        return _median([columns[other] for other in near], straight)

    for sweep in range(_SWEEPS):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [towards(node, near[node]) for node in row]
            columns_apart = _spaced_columns(wanted, [weights[node] for node in row])
            for node, column in zip(row, columns_apart, strict=True):
                columns[node] = column
    return columns


def _straighten(
    paths: Iterable[Sequence[int]], rows: Sequence[Sequence[int]], columns: list[float]
) -> None:
    """Move the bends of each edge to the column of the outermost, in place, where that is free."""
    place = {node: (row, number) for row in rows for number, node in enumerate(row)}

    def free(node: int, column: float) -> bool:
        row, number = place[node]
        beside = [*row[max(number - 1, 0) : number], *row[number + 1 : number + 2]]
        return all(abs(columns[other] - column) >= 1 for other in beside) and all(
            (columns[other] < column) == (columns[other] < columns[node]) for other in beside
        )

    for source, *bends, _ in paths:
        if bends:
            column = max((columns[n] for n in bends), key=lambda x: abs(x - columns[source]))
            if all(free(node, column) for node in bends):
                for node in bends:
                    columns[node] = column


def _median(values: Sequence[float], weights: Sequence[int]) -> float:
    """Return the weighted median, the mean of both where there are two."""
    ordered = sorted(zip(values, weights, strict=True))
    half, before = sum(weights) / 2, 0
    for number, (value, weight) in enumerate(ordered):
        before += weight
        if before == half:
            return (value + ordered[number + 1][0]) / 2
        if before > half:
            break
    return value


def _spaced_columns(wanted: Sequence[float], weights: Sequence[int]) -> list[float]:
    """Return the columns of a row in its order, at least 1 apart, nearest to those wanted.

    Weighted least squares, by pooling adjacent violators.
    """
    # Minus its number, a node's column may not be less than the previous one.
    pools: list[tuple[float, int, int]] = []
    for number, (column, weight) in enumerate(zip(wanted, weights, strict=True)):
        mean, total, size = column - number, weight, 1
        while pools and pools[-1][0] > mean:
            pool, more, count = pools.pop()
            mean = (pool * more + mean * total) / (more + total)
            total, size = total + more, size + count
        pools.append((mean, total, size))
    means = [mean for mean, _, size in pools for _ in range(size)]
    return [mean + number for number, mean in enumerate(means)]


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
    sources, _ = _neighbours(len(graph.nodes), graph.edges)
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
    # Other repetitions of the block are never next to this one, regardless of its inputs.
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
