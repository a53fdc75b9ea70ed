"""A network's layers on a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.report.terminal import new_table
from hypar_opt.units import format_dimensions

MAX_ROWS = 1000
"""Layers up to which a network is shown in full: more take minutes to lay out."""

_HEADER = (
    *("layer", "kind", "input", "weight", "output", "pooled"),
    *("weights", "feature map", "MACs"),
)
_COUNTS = ("weights", "feature_map", "macs")


def network_view(description: dict[str, Any]) -> RenderableType:
    """Show a network's layers: shapes, weights, feature maps and multiply-accumulates.

    Parameters
    ----------
    description
        As `hypar_opt.workload.tensors.describe` returns it; counts are of elements.
    """
    source = description["source"]
    title = Text(f"{description['name']} ({source})" if source else description["name"])
    # Feature maps and MACs below are of the whole batch, unlike the shapes.
    title.append(f", batch {description['batch']}")
    table = new_table(*_HEADER, right=(6, 7, 8))
    # Names may fold on a narrow terminal; a shape that is broken reads as two.
    for column in table.columns[1:]:
        column.no_wrap = True
    layers = description["layers"]
    for layer in layers[:MAX_ROWS]:
        table.add_row(*_layer_cells(layer))
    table.add_section()
    total = description["total"]
    table.add_row("total", *[""] * 5, *(f"{total[count]:,}" for count in _COUNTS))
    partial = f"The first {MAX_ROWS:,} of {len(layers):,} layers; --json has all. "
    note = Text(partial if len(layers) > MAX_ROWS else "")
    note.append("Shapes of one image; feature map after pooling and MACs (one pass) of the batch.")
    note.stylize("dim")
    return Group(title, table, note)


def _layer_cells(layer: dict[str, Any]) -> list[str | Text]:
    # The first dimension of a feature map is the batch.
    pooled = "" if layer["pooled"] == layer["output"] else format_dimensions(layer["pooled"][1:])
    return [
        Text(layer["name"]),
        layer["kind"],
        format_dimensions(layer["input"][1:]),
        format_dimensions(layer["weight"]),
        format_dimensions(layer["output"][1:]),
        pooled,
        *(f"{layer[count]:,}" for count in _COUNTS),
    ]
