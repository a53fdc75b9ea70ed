"""The positions at which a topology's accelerators, switches and links are drawn."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import product
from typing import Any

import networkx as nx

from hypar_opt.display.trees import tree_places
from hypar_opt.hardware.array import Array

Point = tuple[float, float]
_SLANT = (0.3, 0.26)
"""x and y offset between the planes of a three-dimensional grid, in cells."""
_STUB = 0.4
"""Length of a wrap-around link's two stubs, in cells."""
_SPRING_LIMIT = 500
"""For this many nodes or more, networkx needs SciPy for a spring layout."""


@dataclass(frozen=True)
class Drawing:
    """The positions of nodes and links."""

    nodes: dict[Hashable, Point]
    """The position of every node."""
    strokes: tuple[tuple[tuple[Point, Point], ...], ...]
    """The lines of every link, in the order of the interconnect's links."""
    even: bool
    """Whether both axes have one scale."""


def draw(array: Array) -> Drawing:
    """Draw a tree as a tree, a grid of up to three dimensions as a grid, a ring as a circle."""
    topology, interconnect = array.topology, array.interconnect
    graph = nx.Graph(interconnect.graph)
    shape = getattr(topology, "shape", ())
    # A grid of more than three dimensions cannot be read in a plane.
    if topology.kind in {"torus", "mesh"} and 2 <= len(shape) <= 3:
        return _grid(array, shape)
    even = True
    nodes: dict[Hashable, Point]
    if tree := tree_places(interconnect):
        nodes, even = {node: (own.column, -float(own.depth)) for node, own in tree.items()}, False
    # Without switches, as in a ring, a circle is clearer than springs.
    elif len(graph) < _SPRING_LIMIT and any(not isinstance(node, int) for node in graph):
        nodes = _points(nx.spring_layout(graph, seed=1, iterations=300))
    else:
        nodes = _points(nx.circular_layout(graph))
    strokes = tuple(((nodes[link.source], nodes[link.target]),) for link in interconnect.links)
    return Drawing(nodes, strokes, even)


def _points(positions: dict[Hashable, Any]) -> dict[Hashable, Point]:
    # Rounded, so that the page is the same on all machines.
    return {node: (round(float(x), 4), round(float(y), 4)) for node, (x, y) in positions.items()}


def _grid(array: Array, shape: tuple[int, ...]) -> Drawing:
    """Draw rows and columns, planes behind one another; a wrap-around link as two stubs."""
    positions = dict(enumerate(product(*map(range, shape))))
    strokes = [
        _grid_strokes(positions[_number(link.source)], positions[_number(link.target)])
        for link in array.interconnect.links
    ]
    nodes: dict[Hashable, Point] = {
        number: _projected(position) for number, position in positions.items()
    }
    return Drawing(nodes, tuple(strokes), even=True)


def _projected(position: tuple[float, ...]) -> Point:
    """Return the point of a position of two or three dimensions."""
    *planes, row, column = position
    behind = planes[0] if planes else 0.0
    x, y = column + _SLANT[0] * behind, -row + _SLANT[1] * behind
    return round(x, 4), round(y, 4)


def _grid_strokes(start: tuple[int, ...], end: tuple[int, ...]) -> tuple[tuple[Point, Point], ...]:
    """Return the line between neighbours, or the two stubs of a wrap-around link."""
    step = tuple(b - a for a, b in zip(start, end, strict=True))
    if max(map(abs, step)) == 1:
        return ((_projected(start), _projected(end)),)
    # A wrap-around link leaves the grid away from its other end.
    stub = tuple(-math.copysign(_STUB, size) if size else 0.0 for size in step)
    outer = tuple(a + b for a, b in zip(start, stub, strict=True))
    opposite = tuple(a - b for a, b in zip(end, stub, strict=True))
    return (
        (_projected(start), _projected(outer)),
        (_projected(end), _projected(opposite)),
    )


def _number(node: Hashable) -> int:
    assert isinstance(node, int)
    return node
