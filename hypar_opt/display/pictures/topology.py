"""An array's topology: accelerators, switches, and the links between them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from itertools import product
from typing import TYPE_CHECKING

from hypar_opt.display.pictures.canvas import (
    CYCLE,
    DATA,
    FAINT,
    INK,
    add_legend,
    new_figure,
    paler,
    style,
)
from hypar_opt.display.trees import tree_places
from hypar_opt.errors import RefusedError
from hypar_opt.hardware.topologies.grid import GridTopology
from hypar_opt.units import format_rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.hardware.links import Link

Point = tuple[float, float]
Points = Mapping[Hashable, Point]

MAX_DRAWN = 4096
"""Accelerators of an array to draw: with more, they cannot be told apart."""

_MAX_NUMBERED = 256
"""Accelerators are numbered in arrays of up to this many."""

_MIN_WIDTH, _MAX_WIDTH, _MAX_HEIGHT = 4.5, 24.0, 9.0
_STEP = 0.24
"""Inches; the last is the distance of neighbouring accelerators in large arrays."""

_SHEAR = (0.34, 0.24)
"""Offset of a third dimension's next layer, in steps of the first two."""


@style()
def topology(array: Array) -> Figure:
    """Draw an array's accelerators and switches, and its links by bandwidth.

    A grid is drawn row by row, with wrap-around links as arcs; a tree has its switches above the
    nodes they join; any other graph is a circle of accelerators with the switches inside.

    Raises
    ------
    HyparError
        If matplotlib is not installed.
    RefusedError
        If the array has more than `MAX_DRAWN` accelerators.
    """
    count = array.interconnect.accelerators
    if count > MAX_DRAWN:
        raise RefusedError(f"at most {MAX_DRAWN:,} accelerators are drawn, got {count:,}")
    points = _points(array)
    columns, rows = (max(own) - min(own) or 1.0 for own in zip(*points.values(), strict=True))
    width = min(max(_STEP * columns, _MIN_WIDTH), _MAX_WIDTH)
    height = min(max(width * rows / columns, 1.8), _MAX_HEIGHT)
    figure = new_figure(width, height + 0.6, layout="constrained")
    axes = figure.add_subplot()
    axes.axis("off")
    axes.margins(0.06)
    _draw_links(axes, figure, array, points)
    # In square points; nodes side by side must not touch.
    size = min(130.0, (0.75 * 72 * width / (columns + 1)) ** 2)
    _draw_nodes(axes, array.interconnect, points, size)
    return figure


def _points(array: Array) -> Points:
    """Return the position of each node, in any unit, x to the right and y upwards."""
    interconnect, kind = array.interconnect, array.topology
    if isinstance(kind, GridTopology):
        return _grid_points(kind.shape)
    tree = tree_places(interconnect) if interconnect.accelerators > 1 else None
    if tree is None:
        return _circle_points(interconnect)
    # Wide trees would be flat, so their levels are farther apart.
    height = max(own.height for own in tree.values())
    tall = max(interconnect.accelerators / (2.5 * height), 1.0)
    return {node: (own.column, own.height * tall) for node, own in tree.items()}


def _grid_points(shape: tuple[int, ...]) -> dict[Hashable, Point]:
    """Return the points of a grid: the last two dimensions flat, a third one slanted behind.

    Of more than three, the first ones are beside each other.
    """
    *far, depth, rows, columns = (1, 1, 1, *shape)
    step = columns + (depth - 1) * _SHEAR[0] + 1
    points: dict[Hashable, Point] = {}
    for number, position in enumerate(product(*map(range, (*far, depth, rows, columns)))):
        *outer, layer, row, column = position
        block = 0
        for index, size in zip(outer, far, strict=True):
            block = block * size + index
        points[number] = (
            block * step + column + layer * _SHEAR[0],
            -row + layer * _SHEAR[1],
        )
    return points


def _circle_points(interconnect: Interconnect) -> dict[Hashable, Point]:
    """Return the points of any graph: accelerators on a circle, switches on a smaller one."""
    switches = [node for node in interconnect.graph if not isinstance(node, int)]
    points: dict[Hashable, Point] = {}
    # Neighbours on the circle are about one step apart, as in a grid.
    outer = max(interconnect.accelerators / math.tau, 1.0)
    for nodes, radius in ((range(interconnect.accelerators), outer), (switches, outer / 2)):
        for index, node in enumerate(nodes):
            angle = math.tau * index / len(nodes)
            points[node] = (radius * math.sin(angle), radius * math.cos(angle))
    return points


def _draw_links(axes: Axes, figure: Figure, array: Array, points: Points) -> None:
    """Draw the links, one colour per bandwidth; wrap-around links of grids as arcs."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import FancyArrowPatch

    rates = sorted({link.bytes_per_second for link in array.interconnect.links})
    colours = {rate: CYCLE[n % len(CYCLE)] for n, rate in enumerate(rates)}
    shape = array.topology.shape if isinstance(array.topology, GridTopology) else ()
    for link in array.interconnect.links:
        ends = points[link.source], points[link.target]
        arc = _goes_around(link, shape)
        axes.add_patch(
            FancyArrowPatch(
                *ends,
                arrowstyle="-",
                connectionstyle=f"arc3,rad={0.18 if arc else 0}",
                shrinkA=0,
                shrinkB=0,
                linewidth=0.9,
                color=colours[link.bytes_per_second],
                alpha=0.55 if arc else 1.0,
                zorder=1,
                gid=link.name,
            )
        )
    handles = [
        Line2D([], [], color=colours[rate], linewidth=1.4, label=format_rate(rate))
        for rate in rates
    ]
    count = array.interconnect.accelerators
    title = f"{array.name}: {count:,} accelerator{'s' * (count > 1)}, {array.topology.kind}"
    add_legend(figure, title, handles)


def _goes_around(link: Link, shape: tuple[int, ...]) -> bool:
    """Return whether a link joins the two ends of a grid's dimension, not neighbours."""
    if not isinstance(link.source, int) or not isinstance(link.target, int):
        return False
    apart = abs(link.source - link.target)
    # Row-major: neighbours along a dimension differ by the product of the sizes after it.
    steps = {math.prod(shape[dimension + 1 :]) for dimension in range(len(shape))}
    return bool(shape) and apart not in steps


def _draw_nodes(axes: Axes, interconnect: Interconnect, points: Points, size: float) -> None:
    """Draw accelerators as filled circles with their numbers, switches as squares."""
    numbered = interconnect.accelerators <= _MAX_NUMBERED
    for is_accelerator, marker, colour in ((True, "o", paler(DATA, 0.6)), (False, "s", "white")):
        own = [
            points[node] for node in interconnect.graph if isinstance(node, int) is is_accelerator
        ]
        if own:
            xs, ys = zip(*own, strict=True)
            axes.scatter(
                xs,
                ys,
                s=size,
                marker=marker,
                color=[colour],
                edgecolors=FAINT,
                linewidths=0.6,
                zorder=2,
            )
    for number in range(interconnect.accelerators) if numbered else ():
        axes.text(
            *points[number],
            str(number),
            ha="center",
            va="center",
            fontsize=0.5 * math.sqrt(size),
            color=INK,
            zorder=3,
        )
