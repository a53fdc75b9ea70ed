"""An array's topology: accelerators, switches and links, by bandwidth or by a step's load."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import altair as alt
import networkx as nx

from hypar_opt.display.figures.style import (
    SAYS,
    WIDTH,
    Figure,
    Rows,
    at,
    figure,
    legend,
    mark,
    short,
)
from hypar_opt.display.labels import accelerators
from hypar_opt.display.palette import ACCELERATOR, FAINT, LOADS, shades
from hypar_opt.display.trees import tree_places
from hypar_opt.errors import RefusedError
from hypar_opt.hardware.topologies.grid import GridTopology
from hypar_opt.units import format_bytes, format_rate, format_si

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.links import Link
    from hypar_opt.simulator.result import StepResult

Point = tuple[float, float]
Points = Mapping[Hashable, Point]

MAX_DRAWN = 4096
"""Accelerators of an array to draw: with more, they cannot be told apart."""

_MIN_WIDTH, _MAX_WIDTH, _MIN_HEIGHT, _MAX_HEIGHT = 300, 1600, 110, 560
_STEP, _FAR = 34, 3.0
"""Pixels between neighbouring accelerators, and the least of these in large arrays."""

_NUMBERED = 13
"""Pixels between accelerators that have room for their numbers."""

_SHEAR = (0.34, 0.28)
"""Offset of a third dimension's next plane, in steps of the first two."""

_STUB = 0.4
"""Length of a wrap-around link's two stubs, in steps."""

_SPRING_LIMIT = 500
"""For this many nodes or more, networkx needs SciPy for a spring layout."""


def topology(array: Array) -> Figure:
    """Draw an array's accelerators and switches, and its links by bandwidth.

    A grid is drawn row by row, with wrap-around links as stubs; a tree has its switches above the
    nodes they join; any other graph is a circle, or, with switches, as springs would hold it.

    Raises
    ------
    RefusedError
        If the array has more than `MAX_DRAWN` accelerators.
    """
    count = array.interconnect.accelerators
    if count > MAX_DRAWN:
        raise RefusedError(f"at most {MAX_DRAWN:,} accelerators are drawn, got {count:,}")
    rates = sorted({link.bytes_per_second for link in array.interconnect.links})
    names = [format_rate(rate) for rate in rates]
    ramp = alt.Scale(domain=names, range=shades(len(names)))
    entries = legend(names, symbolType="stroke", symbolStrokeWidth=2.5)
    colour = alt.Color("rate:O", scale=ramp, sort=names, legend=entries)
    links = [
        {"rate": rate, "says": f"{link.name}: {rate}"}
        for link in array.interconnect.links
        for rate in [format_rate(link.bytes_per_second)]
    ]
    title = f"{array.name}: {accelerators(count)}, {array.topology.kind}"
    return _drawn(array, links, colour, title)


def link_loads(array: Array, step: StepResult) -> Figure:
    """Draw every link, coloured by the share of the step that it is at capacity."""
    shares = [
        link.seconds_at_capacity / step.seconds if step.seconds else 0.0 for link in step.links
    ]
    # In whole percents, the ticks of a small range would be equal.
    highest = max(shares, default=0.0) or 1.0
    shown: dict[str, Any] = {"format": ".0%" if highest > 0.04 else ".2%", "tickCount": 4}
    shown |= {"direction": "horizontal", "gradientLength": 200, "gradientThickness": 9}
    heading = alt.Legend(title="share of the step that a link is full", **shown)
    ramp = alt.Scale(domain=[0, highest], range=list(LOADS), interpolate="rgb")
    colour = alt.Color("share:Q", scale=ramp, legend=heading)
    links = [
        {
            "share": short(share),
            "says": f"{link.link}: {format_bytes(link.bytes)}, busy {format_si(link.busy, 's')},"
            f" full {format_si(link.seconds_at_capacity, 's')}, {share:.1%}",
        }
        for link, share in zip(step.links, shares, strict=True)
    ]
    return _drawn(array, links, colour)


def _drawn(array: Array, links: Rows, colour: alt.Color, title: str = "") -> Figure:
    points = places(array)
    (left, right), (low, high) = (
        (min(coordinates), max(coordinates)) for coordinates in zip(*points.values(), strict=True)
    )
    columns = right - left
    across, up = columns or 1.0, high - low or 1.0
    width = min(max(_STEP * across, _MIN_WIDTH), WIDTH)
    # Of a large array neighbours must not touch.
    width = min(max(width, _FAR * columns), _MAX_WIDTH)
    height = min(max(width * up / across, _MIN_HEIGHT), _MAX_HEIGHT)
    if not tree_places(array.interconnect):
        width = height * across / up  # grids and circles keep their shape
    step = width / (across + 1)
    margin = 0.5 if across > 3 else 0.25 * across
    x, y = at(alt.X, left - margin, right + margin), at(alt.Y, -high - 0.08 * up, 0.08 * up - low)
    slowest = min((link.bytes_per_second for link in array.interconnect.links), default=1)
    strokes = [
        {
            **style,
            "x": short(start[0]),
            "y": short(-start[1]),
            "x2": short(end[0]),
            "y2": short(-end[1]),
            # Bandwidths differ by orders of magnitude, so the width grows with their logarithm.
            "doublings": min(int(link.bytes_per_second / slowest).bit_length() - 1, 5),
        }
        for link, style in zip(array.interconnect.links, links, strict=True)
        for start, end in strokes_of(link, array, points)
    ]
    widths = alt.Scale(domain=[0, 5], range=[1.3, 4])
    width_of = alt.StrokeWidth("doublings:Q", scale=widths, legend=None)
    ends = x, y, alt.X2("x2:Q"), alt.Y2("y2:Q")
    nodes = [
        {
            "node": str(node),
            "kind": (kind := "accelerator" if isinstance(node, int) else "switch"),
            "x": short(point[0]),
            "y": short(-point[1]),
            "says": f"{kind} {node}",
        }
        for node, point in points.items()
    ]
    area = min((0.82 * step) ** 2, 300.0)
    kinds = (("accelerator", "circle", ACCELERATOR, 1.0), ("switch", "square", FAINT, 0.5))
    layers = [
        mark("links", "rule", *ends, colour, width_of, *SAYS),
        *(
            mark(
                "nodes",
                "point",
                x,
                y,
                *SAYS,
                where=f"datum.kind == '{kind}'",
                shape=shape,
                filled=True,
                opacity=1,
                color=ink,
                size=max(share * area, 3),
            )
            for kind, shape, ink, share in kinds
        ),
    ]
    if step >= _NUMBERED:
        look = {"fontSize": min(0.5 * math.sqrt(area), 10), "color": "white"}
        where = "datum.kind == 'accelerator'"
        layers.append(mark("nodes", "text", x, y, alt.Text("node:N"), where=where, **look))
    data: dict[str, Rows] = {"links": strokes, "nodes": nodes}
    return figure(alt.layer(*layers), data, title, width=round(width), height=round(height))


def places(array: Array) -> Points:
    """Return the position of each node, in any unit, x to the right and y upwards."""
    interconnect, kind = array.interconnect, array.topology
    if isinstance(kind, GridTopology) and len(kind.shape) > 1:
        positions = product(*map(range, kind.shape))
        return {
            number: _projected(position, kind.shape) for number, position in enumerate(positions)
        }
    tree = tree_places(interconnect) if interconnect.accelerators > 1 else None
    if tree is not None:
        # Wide trees would be flat, so their levels are farther apart.
        height = max(place.height for place in tree.values())
        tall = max(interconnect.accelerators / (2.5 * height), 1.0)
        return {node: (place.column, place.height * tall) for node, place in tree.items()}
    graph: nx.Graph[Any] = nx.Graph(interconnect.graph)
    # Without switches, as in a ring, a circle is clearer than springs.
    has_switches = any(not isinstance(node, int) for node in graph)
    springs = has_switches and 2 < len(graph) < _SPRING_LIMIT
    radius = max(interconnect.accelerators / math.tau, 1.0)
    layout = partial(nx.spring_layout, seed=1, iterations=300) if springs else nx.circular_layout
    # Rounded, so that a figure is the same on all machines.
    return {
        node: (round(radius * float(x), 3), round(radius * float(y), 3))
        for node, (x, y) in layout(graph).items()
    }


def _projected(position: Sequence[float], shape: Sequence[int]) -> Point:
    """Return a grid's point: the last two dimensions flat, a third one slanted behind.

    Of more than three, the first ones are beside each other.
    """
    *far, plane, row, column = (*(0.0,) * (3 - len(shape)), *position)
    *sizes, planes, _, columns = (*(1,) * (3 - len(shape)), *shape)
    block = 0.0
    for index, size in zip(far, sizes, strict=True):
        block = block * size + index
    across = columns + (planes - 1) * _SHEAR[0] + 1.2
    x, y = block * across + column + plane * _SHEAR[0], -row + plane * _SHEAR[1]
    return round(x, 4), round(y, 4)


def strokes_of(link: Link, array: Array, points: Points) -> list[tuple[Point, Point]]:
    """Return the line between two nodes, or the two stubs of a grid's wrap-around link."""
    straight = [(points[link.source], points[link.target])]
    kind = array.topology
    if not isinstance(kind, GridTopology) or len(kind.shape) < 2:
        return straight
    start, end = (_position(node, kind.shape) for node in (link.source, link.target))
    step = [b - a for a, b in zip(start, end, strict=True)]
    if max(map(abs, step)) == 1:
        return straight
    # A wrap-around link leaves the grid away from its other end.
    stub = [-math.copysign(_STUB, size) if size else 0.0 for size in step]
    outer = [a + b for a, b in zip(start, stub, strict=True)]
    opposite = [a - b for a, b in zip(end, stub, strict=True)]
    return [
        (points[link.source], _projected(outer, kind.shape)),
        (points[link.target], _projected(opposite, kind.shape)),
    ]


def _position(node: Hashable, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the position of an accelerator, whose numbers are row-major."""
    assert isinstance(node, int)
    position = []
    for size in reversed(shape):
        node, index = divmod(node, size)
        position.append(index)
    return tuple(reversed(position))
