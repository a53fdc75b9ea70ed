"""Where a topology's accelerators, switches and links are drawn."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import networkx as nx

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array

Point = tuple[float, float]
_SLANT = (0.3, 0.26)
"""How far the planes of a grid of three dimensions are apart."""
_STUB = 0.4
"""How much is drawn of each end of a link around a grid's ends."""
_MOST_SPRUNG = 500
"""Nodes from which networkx asks for SciPy."""


@dataclass(frozen=True)
class Drawing:
    """Positions of nodes, and the strokes of each link in the order of the array's wires.

    ``even`` is whether both axes have one scale.
    """

    nodes: dict[Hashable, Point]
    strokes: tuple[tuple[tuple[Point, Point], ...], ...]
    even: bool


def draw(array: Array) -> Drawing:
    """Place a tree as a tree, a grid of up to three dimensions as a grid, a ring as a circle."""
    topology, interconnect = array.topology, array.interconnect
    graph = interconnect.graph
    shape = getattr(topology, "shape", ())
    if topology.kind in {"torus", "mesh"} and 2 <= len(shape) <= 3:
        return _grid(array, shape)
    even = True
    nodes: dict[Hashable, Point]
    if nx.is_tree(graph) and all(graph.degree[n] <= 1 for n in range(interconnect.accelerators)):
        nodes, even = _tree(graph), False
    elif len(graph) < _MOST_SPRUNG and any(not isinstance(node, int) for node in graph):
        nodes = _points(nx.spring_layout(graph, seed=1, iterations=300))
    else:
        nodes = _points(nx.circular_layout(graph))
    strokes = tuple(((nodes[link.source], nodes[link.target]),) for link in interconnect.links)
    return Drawing(nodes, strokes, even)


def _points(found: dict[Hashable, Any]) -> dict[Hashable, Point]:
    # Rounded, so that the page is the same on all machines.
    return {node: (round(float(x), 4), round(float(y), 4)) for node, (x, y) in found.items()}


def _tree(graph: nx.Graph[Any]) -> dict[Hashable, Point]:
    """Put the leaves in a row, and each switch over the middle of what it holds."""
    left = graph.copy()
    while len(left) > 2:
        left.remove_nodes_from([node for node, degree in left.degree if degree <= 1])
    root = min(left, key=lambda node: isinstance(node, int))
    depth = nx.single_source_shortest_path_length(graph, root)
    places: dict[Hashable, float] = {}
    leaves = 0
    for node in nx.dfs_postorder_nodes(graph, root):
        below = [places[other] for other in graph[node] if depth[other] > depth[node]]
        if below:
            places[node] = (min(below) + max(below)) / 2
        else:
            places[node] = float(leaves)
            leaves += 1
    return {node: (place, -float(depth[node])) for node, place in places.items()}


def _grid(array: Array, shape: tuple[int, ...]) -> Drawing:
    """Draw rows and columns, planes behind one another; a link around as two stubs."""
    places = dict(enumerate(product(*map(range, shape))))

    def point(place: tuple[float, ...]) -> Point:
        *planes, row, column = place
        behind = planes[0] if planes else 0.0
        x, y = column + _SLANT[0] * behind, -row + _SLANT[1] * behind
        return round(x, 4), round(y, 4)

    strokes: list[tuple[tuple[Point, Point], ...]] = []
    for link in array.interconnect.links:
        start, end = places[_number(link.source)], places[_number(link.target)]
        step = tuple(b - a for a, b in zip(start, end, strict=True))
        if max(map(abs, step)) == 1:
            strokes.append(((point(start), point(end)),))
            continue
        stub = tuple(-math.copysign(_STUB, each) if each else 0.0 for each in step)
        strokes.append(
            tuple(
                (point(place), point(tuple(p + sign * s for p, s in zip(place, stub, strict=True))))
                for place, sign in ((start, 1), (end, -1))
            )
        )
    return Drawing({n: point(place) for n, place in places.items()}, tuple(strokes), even=True)


def _number(node: Hashable) -> int:
    assert isinstance(node, int)
    return node
