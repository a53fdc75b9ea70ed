"""The page's operator graph, with each layer's choice at each level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypar_opt.display.figures.style import short
from hypar_opt.display.glyphs import stored_legend, stored_symbol
from hypar_opt.display.layered import GraphDrawing, layered
from hypar_opt.display.operator_graph import OperatorGraph, operator_graph
from hypar_opt.display.page.figure import as_script
from hypar_opt.display.plan_grid import (
    Stored,
    drawn_choices,
    drawn_keys,
    is_short_chain,
    layer_shapes,
    stored_outputs,
)
from hypar_opt.plan.plan import Plan
from hypar_opt.units import format_dimensions


@dataclass(frozen=True)
class DrawnGraph:
    """The graph for the page's script to draw, and as a table."""

    drawing: str
    """JSON that is safe in a script element."""
    header: tuple[str, ...]
    """The table: each layer's sources, its choice at each level, and the layout of its output."""
    rows: tuple[tuple[str, ...], ...]
    legend: tuple[tuple[str, str, str], ...]
    """The layouts of tensors with several readers, as the strips below choices show them: each
    symbol's name, its glyph, and its words."""


def graph_view(plan: Plan) -> DrawnGraph | None:
    """Return the graph of a plan's network; None for a short chain, which the grid shows."""
    if is_short_chain(plan):
        return None
    network = plan.network.description
    sources, symbols = network.sources, drawn_choices(plan)
    keys = drawn_keys(plan, Stored.SHARED)
    graph = operator_graph(plan.layers, sources, network.repeats, keys, network.input_names)
    shared = stored_outputs(plan, Stored.SHARED)
    stored = [layouts or () for layouts in stored_outputs(plan, Stored.ALL)]
    names = network.source_names
    drawing = {
        **_drawing(graph, layered(graph)),
        "names": plan.layers,
        "kinds": [
            f"{shape.kind} {format_dimensions(shape.output)}" for shape in layer_shapes(network)
        ],
        "sources": [list(read) for read in sources],
        "choices": [[str(row[n]) for row in plan.parallelism] for n in range(len(plan.layers))],
        "stored": [list(map(str, layouts)) for layouts in stored],
        "shared": [[stored_symbol(layout).name for layout in layouts or ()] for layouts in shared],
        "symbols": [[symbol.name for symbol in column] for column in symbols],
        "glyphs": {symbol.name: symbol.glyph for column in symbols for symbol in column},
    }
    rows = [
        (
            name,
            ", ".join(names[source] for source in read),
            *(str(row[n]) for row in plan.parallelism),
            ", ".join(stored[n]),
        )
        for n, (name, read) in enumerate(zip(plan.layers, sources, strict=True))
    ]
    header = ("layer", "reads", *plan.level_names, "stored")
    layouts = stored_legend(layout for stored_layouts in shared for layout in stored_layouts or ())
    legend = tuple((symbol.name, symbol.glyph, words) for symbol, words in layouts)
    return DrawnGraph(as_script(drawing), header, tuple(rows), legend)


def _drawing(graph: OperatorGraph, drawing: GraphDrawing) -> dict[str, Any]:
    """Return nodes, edges and frames with their columns and ranks."""
    return {
        "columns": short(drawing.columns),
        "ranks": drawing.ranks,
        "nodes": [
            {
                "layer": None if node.position < 0 else node.position,
                "label": node.label,
                "frame": node.frame,
                "at": [short(point[0]), point[1]],
            }
            for node, point in zip(graph.nodes, drawing.nodes, strict=True)
        ],
        "edges": [
            {"ends": edge, "path": [[short(x), rank] for x, rank in path]}
            for edge, path in zip(graph.edges, drawing.edges, strict=True)
        ],
        "frames": [
            {**vars(frame), "corners": corners}
            for frame, corners in zip(graph.frames, drawing.frames, strict=True)
        ],
    }
