"""A network's operator graph: one box per layer, with repeated blocks drawn once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import altair as alt

from hypar_opt.display.figures.style import SAYS, Figure, Rows, at, figure, mark, short
from hypar_opt.display.layered import layered
from hypar_opt.display.operator_graph import operator_graph
from hypar_opt.display.palette import BLOCK, DATA, FAINT, GRID
from hypar_opt.display.plan_grid import layer_shapes
from hypar_opt.units import format_dimensions
from hypar_opt.workload.description import describe

if TYPE_CHECKING:
    from hypar_opt.display.layered import GraphDrawing, Point
    from hypar_opt.display.operator_graph import OperatorGraph
    from hypar_opt.workload.network import Network

_COLUMN, _RANK = 172, 44
"""Pixels between two columns, and between two ranks."""

_BOX = (158, 30)
"""Width and height of a box, in pixels."""

_MAX_HEIGHT = 14_000
"""Pixels; the ranks of a deeper network are closer."""

_CHARACTERS = 26
"""Characters of a name that fit into a box."""

_BENDS = 8
"""Straight parts of a bend."""


def network_graph(network: Network, *, unfolded: bool = False) -> Figure:
    """Draw the layers of a network and their sources, with output shapes and weights.

    A box is filled if the layer has weights; if these are shared, it names the layer that owns
    them. Repetitions of a block whose layers have the same shapes are drawn once, in a frame.

    Parameters
    ----------
    unfolded
        Draw each repetition separately.
    """
    shapes = layer_shapes(network)
    names = [layer.name for layer in network.layers]
    keys: Sequence[Any] = range(len(names)) if unfolded else shapes
    graph = operator_graph(names, network.sources, network.repeats, keys, network.input_names)
    drawing = layered(graph)
    scale = min(1.0, _MAX_HEIGHT / (_RANK * drawing.ranks))
    width, height = _COLUMN * drawing.columns + _BOX[0] + 24, _RANK * scale * drawing.ranks
    edges = [
        (_centre(path[0], scale), *(_centre(point, scale) for point in path[1:]))
        for path in drawing.edges
    ]
    data: dict[str, Rows] = {
        "frames": _frames(graph, drawing, scale),
        "edges": [
            {"edge": n, "t": t, "x": short(px), "y": short(py)}
            for n, path in enumerate(edges)
            for t, (px, py) in enumerate(_curve(path, _BOX[1] * scale / 2))
        ],
        # The point of an arrow is at the upper side of a box.
        "heads": [{"x": path[-1][0], "y": path[-1][1] - _BOX[1] * scale / 2 - 3} for path in edges],
        "boxes": _boxes(network, graph, drawing, shapes, scale),
    }
    total = describe(network, 1)["total"]
    return figure(
        alt.layer(*_layers(width, height, scale)),
        data,
        f"{network.name}: {total['parameters']:,} parameters",
        width=round(width),
        height=round(height),
    )


def _centre(point: Point, scale: float) -> tuple[float, float]:
    """Return the centre of a box in pixels."""
    column, rank = point
    return 12 + _BOX[0] / 2 + _COLUMN * column, _RANK * scale * (rank + 0.5)


def _frames(graph: OperatorGraph, drawing: GraphDrawing, scale: float) -> Rows:
    """Return a frame around the boxes of each block, with its name and number of repetitions."""
    rows = []
    for frame, (first, last) in zip(graph.frames, drawing.frames, strict=True):
        (left, top), (right, bottom) = _centre(first, scale), _centre(last, scale)
        count = f" × {frame.count}" if frame.count > 1 else ""
        rows.append(
            {
                "x": left - _BOX[0] / 2 - 7,
                "x2": right + _BOX[0] / 2 + 7,
                "y": top - _RANK * scale / 2,
                "y2": bottom + _RANK * scale / 2,
                "middle": (top + bottom) / 2,
                "label": frame.label + count,
            }
        )
    return rows


def _boxes(
    network: Network,
    graph: OperatorGraph,
    drawing: GraphDrawing,
    shapes: Sequence[Any],
    scale: float,
) -> Rows:
    rows = []
    for node, point in zip(graph.nodes, drawing.nodes, strict=True):
        x, y = _centre(point, scale)
        row: dict[str, Any] = {
            "x": short(x - _BOX[0] / 2),
            "x2": short(x + _BOX[0] / 2),
            "middle": short(x),
            "y": y - _BOX[1] * scale / 2,
            "y2": y + _BOX[1] * scale / 2,
            "label": _shortened(node.label),
            "layer": node.label,
            "kind": "input",
            "weights": "",
            "says": node.label,
        }
        if node.position >= 0:
            shape, layer = shapes[node.position], network.layers[node.position]
            owner = layer.shares_weights_with
            weights = f"{shape.weights:,}" if owner is None else f"as {owner}"
            row |= {
                "layer": layer.name,
                "kind": f"{shape.kind}  {format_dimensions(shape.output)}",
                "weights": (weights := weights if shape.weights else ""),
                "says": f"{layer.name}: {shape.kind} {format_dimensions(shape.output)} {weights}",
            }
        rows.append(row)
    return rows


def _shortened(name: str) -> str:
    if len(name) <= _CHARACTERS:
        return name
    return f"{name[: _CHARACTERS // 2]}…{name[-_CHARACTERS // 2 :]}"


def _curve(path: Sequence[tuple[float, float]], half: float) -> list[tuple[float, float]]:
    """Return the points of an edge from the lower side of a box to the upper side of another."""
    (x, y), *between, (end_x, end_y) = path
    # Edges are straight past boxes: they go sideways only between two ranks.
    passed = [(bend_x, bend_y + side * half) for bend_x, bend_y in between for side in (-1, 1)]
    stops = [(x, y + half), *passed, (end_x, end_y - half - 4)]
    points = [stops[0]]
    for (x, y), (next_x, next_y) in pairwise(stops):
        steps = 1 if x == next_x else _BENDS
        for n in range(1, steps + 1):
            t = n / steps
            # A cubic curve that is vertical at both ends, so that bends have no corners.
            sideways = t * t * (3 - 2 * t)
            down = t * (1.5 - 1.5 * t + t * t)
            points.append((x + sideways * (next_x - x), y + down * (next_y - y)))
    return points


def _layers(width: float, height: float, scale: float) -> list[alt.Chart]:
    """Return frames, edges and boxes with their texts."""
    x, y = at(alt.X, 0, width), at(alt.Y, 0, height)
    middle, right = at(alt.X, 0, width, "middle"), at(alt.X, 0, width, "x2")
    across = at(alt.Y, 0, height, "middle")
    box, label = (x, alt.X2("x2:Q"), y, alt.Y2("y2:Q")), alt.Text("label:N")
    weights = alt.condition("datum.weights != ''", alt.value(f"{DATA}40"), alt.value("#ffffff"))
    inner, outside = "datum.kind != 'input'", "datum.kind == 'input'"
    left: dict[str, Any] = {"align": "left", "baseline": "top", "dx": 5}
    small: dict[str, Any] = {"dy": 17 * scale, "fontSize": 8.5 * scale, "color": FAINT}
    bold: dict[str, Any] = {"align": "left", "baseline": "middle", "dx": 6, "fontWeight": "bold"}
    head: dict[str, Any] = {"shape": "triangle-down", "filled": True, "opacity": 1}
    boxed = mark("boxes", "rect", *box, *SAYS, stroke=FAINT, strokeWidth=0.8, cornerRadius=3)
    order = alt.Detail("edge:N"), alt.Order("t:Q")
    return [
        mark("frames", "rect", *box, fill=BLOCK, stroke=GRID, cornerRadius=6),
        mark("frames", "text", right, across, label, clip=False, **bold),
        mark("edges", "line", x, y, *order, color=FAINT, strokeWidth=1),
        mark("heads", "point", x, y, color=FAINT, size=26 * scale, **head),
        boxed.encode(fill=weights),
        mark("boxes", "text", x, y, label, where=inner, dy=4 * scale, fontSize=10 * scale, **left),
        mark("boxes", "text", x, y, alt.Text("kind:N"), where=inner, **left, **small),
        mark(
            "boxes",
            "text",
            right,
            y,
            alt.Text("weights:N"),
            where=inner,
            **{**left, "align": "right", "dx": -5},
            **small,
        ),
        mark(
            "boxes",
            "text",
            middle,
            y,
            label,
            where=outside,
            baseline="top",
            dy=9 * scale,
            fontSize=10 * scale,
            fontStyle="italic",
        ),
    ]
