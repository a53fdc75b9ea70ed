"""A network's operator graph: one box per layer, with repeated blocks drawn once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypar_opt.display.layered import layered
from hypar_opt.display.operator_graph import operator_graph
from hypar_opt.display.pictures.canvas import DATA, FAINT, INK, new_figure, paler, style
from hypar_opt.display.plan_grid import layer_shapes
from hypar_opt.units import format_dimensions
from hypar_opt.workload.description import describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hypar_opt.display.layered import GraphDrawing, Point
    from hypar_opt.display.operator_graph import Box, OperatorGraph
    from hypar_opt.workload.network import Network

_COLUMN, _RANK = 1.95, 0.52
"""Inches between two columns, and between two ranks."""

_BOX = (1.75, 0.33)
"""Width and height of a box, in inches."""

_MAX_HEIGHT = 200.0
"""Inches; the ranks of a deeper network are closer."""

_MARGIN, _TITLE = 0.35, 0.45
"""Inches beside the boxes, and above them."""

_CHARACTERS = 27
"""Characters of a name that fit into a box."""


@style()
def network_graph(network: Network, *, unfolded: bool = False) -> Figure:
    """Draw the layers of a network and their sources, with output shapes and weights.

    A box is filled if the layer has weights; if these are shared, it names the layer that owns
    them. Repetitions of a block whose layers have the same shapes are drawn once, in a frame.

    Parameters
    ----------
    unfolded
        Draw each repetition separately.

    Raises
    ------
    HyparError
        If matplotlib is not installed.
    """
    shapes = layer_shapes(network)
    names = [layer.name for layer in network.layers]
    keys: Sequence[Any] = range(len(names)) if unfolded else shapes
    graph = operator_graph(names, network.sources, network.repeats, keys, network.input_names)
    drawing = layered(graph)
    scale = min(1.0, _MAX_HEIGHT / (_RANK * drawing.ranks))
    # A frame's label is to its right.
    beside = max((0.075 * len(frame.label) for frame in graph.frames), default=0.0)
    total = describe(network, 1)["total"]
    title = f"{network.name}: {total['parameters']:,} parameters"
    width = max(
        _COLUMN * drawing.columns + _BOX[0] + 2 * _MARGIN + beside, 0.3 + 0.085 * len(title)
    )
    height = _RANK * scale * drawing.ranks + _TITLE + _MARGIN
    figure = new_figure(width, height)
    axes = figure.add_axes((0, 0, 1, 1))
    # Data units are inches, with y downwards: tensors flow downwards.
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    axes.text(0.12, 0.12, title, fontsize=9, va="top")
    _draw_frames(axes, graph, drawing, scale)
    for edge, path in zip(graph.edges, drawing.edges, strict=True):
        _draw_edge(axes, graph, edge, [_centre(point, scale) for point in path], scale)
    for node, point in zip(graph.nodes, drawing.nodes, strict=True):
        _draw_box(axes, node, network, shapes, _centre(point, scale), scale)
    return figure


def _centre(point: Point, scale: float) -> tuple[float, float]:
    """Return the centre of a box in inches."""
    column, rank = point
    return _MARGIN + _BOX[0] / 2 + _COLUMN * column, _TITLE + _RANK * scale * (rank + 0.5)


def _draw_box(
    axes: Axes,
    node: Box,
    network: Network,
    shapes: Sequence[Any],
    centre: tuple[float, float],
    scale: float,
) -> None:
    x, y = centre
    width, height = _BOX[0], _BOX[1] * scale
    outside = node.position < 0
    weights = 0 if outside else shapes[node.position].weights
    _draw_round(
        axes,
        (x - width / 2, y - height / 2),
        (x + width / 2, y + height / 2),
        rounding=0.05 * scale,
        facecolor=paler(DATA, 0.75) if weights else "white",
        edgecolor=FAINT,
        gid=f"layer {node.label}" if outside else network.layers[node.position].name,
    )
    if outside:
        axes.text(x, y, node.label, ha="center", va="center", fontsize=6.5 * scale, style="italic")
        return

    def write(at: float, below: float, text: str, size: float, color: str, **options: Any) -> None:
        style = {"va": "center", "fontsize": size * scale, "color": color, **options}
        axes.text(x + at, y + below * height / 2, text, **style)

    shape = shapes[node.position]
    label = node.label
    if len(label) > _CHARACTERS:
        label = f"{label[: _CHARACTERS // 2]}…{label[-_CHARACTERS // 2 :]}"
    left, output = 0.06 - width / 2, format_dimensions(shape.output)
    write(left, -0.45, label, 6.5, INK)
    write(left, 0.5, f"{shape.kind}  {output}", 5.5, FAINT)
    owner = network.layers[node.position].shares_weights_with
    if weights:
        count = f"{weights:,}" if owner is None else f"as {owner}"
        write(-left, 0.5, count, 5.5, FAINT, ha="right")


def _draw_round(
    axes: Axes,
    low: tuple[float, float],
    high: tuple[float, float],
    *,
    rounding: float,
    **options: Any,
) -> None:
    """Draw a rectangle with round corners, between two of them."""
    from matplotlib.patches import FancyBboxPatch

    width, height = high[0] - low[0], high[1] - low[1]
    box = f"round,pad=0,rounding_size={rounding}"
    axes.add_patch(FancyBboxPatch(low, width, height, boxstyle=box, linewidth=0.6, **options))


def _draw_edge(
    axes: Axes,
    graph: OperatorGraph,
    edge: tuple[int, int],
    points: Sequence[tuple[float, float]],
    scale: float,
) -> None:
    """Draw an edge from the lower side of a box to the upper side of another."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    half = _BOX[1] * scale / 2
    (x, y), *between, (end_x, end_y) = points
    # Edges are straight past boxes: they go sideways only between two ranks.
    passed = [(bend_x, bend_y + side * half) for bend_x, bend_y in between for side in (-1, 1)]
    stops = [(x, y + half), *passed, (end_x, end_y - half)]
    vertices, codes = [stops[0]], [Path.MOVETO]
    for (x, y), (next_x, next_y) in pairwise(stops):
        middle = (y + next_y) / 2
        # Vertical at both ends, so that bends have no corners.
        vertices += [(x, middle), (next_x, middle), (next_x, next_y)]
        codes += [Path.CURVE4] * 3
    source, target = (graph.nodes[end] for end in edge)
    axes.add_patch(
        FancyArrowPatch(
            path=Path(vertices, codes),
            arrowstyle="-|>,head_length=2.2,head_width=1.2",
            color=FAINT,
            linewidth=0.7,
            shrinkA=0,
            shrinkB=0,
            gid=f"{source.position} {target.position}",
        )
    )


def _draw_frames(axes: Axes, graph: OperatorGraph, drawing: GraphDrawing, scale: float) -> None:
    """Draw a frame around the boxes of each block, with its name and number of repetitions."""
    half_width = _BOX[0] / 2 + 0.1
    half_height = _RANK * scale / 2
    for frame, (first, last) in zip(graph.frames, drawing.frames, strict=True):
        (left, top), (right, bottom) = _centre(first, scale), _centre(last, scale)
        low, high = (
            (left - half_width, top - half_height),
            (right + half_width, bottom + half_height),
        )
        colours = {"facecolor": "#f4f4f4", "edgecolor": "#cccccc"}
        _draw_round(axes, low, high, rounding=0.08, zorder=0, gid=frame.label, **colours)
        label = frame.label + (f"\n× {frame.count}" if frame.count > 1 else "")
        bold: dict[str, Any] = {"va": "center", "fontsize": 7, "fontweight": "bold"}
        axes.text(high[0] + 0.06, (top + bottom) / 2, label, **bold)
