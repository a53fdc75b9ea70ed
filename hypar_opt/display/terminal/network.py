"""A network's layers on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.display.folding import Repetitions, fold
from hypar_opt.display.terminal.console import Column, new_table, texts
from hypar_opt.units import COUNT, format_dimensions
from hypar_opt.workload.description import describe
from hypar_opt.workload.network import Network

MAX_ROWS = 1000
"""Networks of up to this many layers are shown in full: more take minutes to lay out."""

_MAX_NAME = 32
"""Names up to this length are not folded."""

_COUNTS = ("weights", "feature_map", "macs")
_ALIKE = ("kind", "input", "weight", "output", "pooled", *_COUNTS)
"""The key by which repetitions are shown as one."""


def network_view(network: Network, batch: int = 1) -> RenderableType:
    """Show a network's layers: shapes, weights, feature maps and multiply-accumulates.

    Equal repetitions of a block are shown once, below a heading.
    """
    description, repeats = describe(network, batch), network.repeats
    source = description["source"]
    title = Text(f"{description['name']} ({source})" if source else description["name"])
    # Feature maps and MACs below are of the whole batch, unlike the shapes.
    title.append(f", batch {description['batch']}")
    layers = description["layers"]
    lines = _lines(layers, repeats)
    # In a chain each layer reads the one before, so the column is left out.
    graph = any(line[2] for line in lines)
    columns: list[Column | None] = [
        *texts("layer", "kind"),
        ("reads", str) if graph else None,
        *texts("input", "weight", "output", "pooled"),
        *(("weights", COUNT), ("feature map", COUNT), ("MACs", COUNT)),
    ]
    total = description["total"]
    blanks = [""] * (len(columns) - 1 - len(_COUNTS))
    table = new_table(
        columns,
        lines[:MAX_ROWS],
        totals=[("total", *blanks, *(total[count] for count in _COUNTS))],
    )
    # Names may fold on a narrow terminal; a broken shape would look like two.
    for column in table.columns[1:]:
        column.no_wrap = True
    if graph:
        table.columns[2].no_wrap = False
        table.columns[0].min_width = min(max(len(line[0]) for line in lines), _MAX_NAME)
        table.columns[2].min_width = min(max(len(line[2]) for line in lines), _MAX_NAME)
    partial = f"The first {MAX_ROWS:,} of {len(lines):,} layers; --json has all. "
    note = Text(partial if len(lines) > MAX_ROWS else "")
    note.append("Shapes of one image; feature map after pooling and MACs (one pass) of the batch.")
    if repeats:
        note.append(
            " A block's heading has the counts of all its repetitions, a layer's row those of one."
        )
    note.stylize("dim")
    counted = []
    if total["parameters"] != total["weights"]:
        count = f"{total['parameters']:,}"
        counted = [Text(f"{count} parameters, with biases, scales and shifts.")]
    return Group(title, table, *counted, note)


def _lines(layers: Sequence[dict[str, Any]], repeats: Sequence[Repetitions]) -> list[list[Any]]:
    """Return the table's rows: of layers, and above them of their blocks, which have no kind."""
    names = [layer["name"] for layer in layers]
    keys = [tuple(str(layer[key]) for key in _ALIKE) for layer in layers]
    inputs = _block_inputs(layers, repeats)
    lines: list[list[Any]] = []
    for section in fold(names, repeats, keys, runs=False):
        first = section.rows[0].positions[0]
        block_input = inputs.get(first)
        rows = [(row.first, row.positions[0]) for row in section.rows]
        if section.block:
            times = len(section.numbers)
            heading = Text(f"{section.label} x{times}" if times > 1 else section.label, "bold")
            usual = block_input in {None, _name_before(layers, first)}
            counts = (times * sum(layers[n][count] for _, n in rows) for count in _COUNTS)
            lines.append([heading, "", "" if usual else block_input, *[""] * 4, *counts])
        for name, n in rows:
            layer, indented = layers[n], "  " * bool(section.block) + name
            reads = _reads(layers, n, name, first, block_input)
            counts = (layer[count] for count in _COUNTS)
            lines.append([indented, layer["kind"], reads, *_shapes(layer), *counts])
    return lines


def _name_before(layers: Sequence[dict[str, Any]], position: int) -> str:
    return str(layers[position - 1]["name"]) if position else "input"


def _block_inputs(
    layers: Sequence[dict[str, Any]], repeats: Sequence[Repetitions]
) -> dict[int, str]:
    """Return the name of each repetition's input, by the position of its first layer.

    Blocks that are not repeated have none: their layers are treated like those outside.
    """
    inputs = {}
    for repeat in repeats:
        for number in range(1, repeat.count):
            first = repeat.first + number * repeat.length
            inputs[first] = _name_before(layers, first)
        # In the first repetition it is what the second reads in place of the first's output.
        second = repeat.first + repeat.length
        for layer in range(repeat.length if repeat.count > 1 else 0):
            read = layers[second + layer]["inputs"]
            if inputs[second] in read:
                names = layers[repeat.first + layer]["inputs"]
                inputs[repeat.first] = names[read.index(inputs[second])]
                break
    return inputs


def _reads(
    layers: Sequence[dict[str, Any]],
    position: int,
    local: str,
    first: int,
    block_input: str | None,
) -> str:
    """Return a layer's sources by name; nothing if it reads only the previous layer."""
    read = layers[position]["inputs"]
    own_input = block_input is not None and position == first
    if read == [block_input if own_input else _name_before(layers, position)]:
        return ""
    prefix = layers[position]["name"].removesuffix(local)
    names = ["input" if name == block_input else name.removeprefix(prefix) for name in read]
    return ", ".join(names) or "-"


def _shapes(layer: dict[str, Any]) -> list[str]:
    # The first dimension of a feature map is the batch.
    pooled = "" if layer["pooled"] == layer["output"] else format_dimensions(layer["pooled"][1:])
    return [
        format_dimensions(layer["input"][1:]),
        format_dimensions(layer["weight"]),
        format_dimensions(layer["output"][1:]),
        pooled,
    ]
