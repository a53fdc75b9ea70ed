"""The network file that describes a model, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hypar_opt.onnx.blocks import RepeatedRun, block_names, runs_of
from hypar_opt.onnx.features import INPUT, Layer
from hypar_opt.onnx.losses import is_chain
from hypar_opt.onnx.names import proposals, unique

SCHEMA = "hypar-opt/network/2"

Table = dict[str, Any]


def document(
    name: str, source: str, input_sizes: Mapping[str, int], layers: Sequence[Layer]
) -> Table:
    """Return a network file's content, with repeated runs as blocks."""
    names = proposals(layers)
    runs = [] if is_chain(layers) else runs_of(layers, names)
    full, tables = _named(layers, names, runs)
    for layer, name_ in zip(layers, full, strict=True):
        layer.name = name_
    shown_input = _input(input_sizes, layers)
    _drop_vocabularies(layers, shown_input)
    out: Table = {"schema": SCHEMA, "name": name, "source": source, "input": shown_input}
    outside = _names_outside(full)
    lone: list[Table] = []
    blocks: list[Table] = []
    position = 0
    previous = "input"
    for run, block in zip((*runs, None), (*tables, None), strict=True):
        end = len(layers) if run is None else run.first
        for place in range(position, end):
            table = _table(layers, place, full, full[place], outside)
            if table["inputs"] == [previous]:
                del table["inputs"]
            previous = full[place]
            lone.append(table)
        if run is not None and block is not None:
            blocks.append(_block(layers, run, block, full))
            position = run.end
    out["layer"] = lone
    if blocks:
        out["block"] = blocks
    return out


def _named(
    layers: Sequence[Layer], names: Sequence[str], runs: Sequence[RepeatedRun]
) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return each layer's full name, and for each run the names of its block and of its layers."""
    blocks = [block_names(names, run) for run in runs]
    inside = {place for run in runs for place in range(run.first, run.end)}
    alone = [place for place in range(len(layers)) if place not in inside]
    chosen = unique([names[p] for p in alone], [layers[p] for p in alone])
    # Names are unique among blocks and layers.
    heads_used = Counter(head for head, _, _ in blocks)
    wanted = [
        f"{head}{number}" if heads_used[head] > 1 and number else head or "block"
        for head, number, _ in blocks
    ]
    heads = _apart(wanted, set(chosen) | {"input"})
    full = [""] * len(layers)
    for place, name in zip(alone, chosen, strict=True):
        full[place] = name
    tables = []
    for run, head, (_, _, inner) in zip(runs, heads, blocks, strict=True):
        local = unique(inner, layers[run.first : run.first + run.length])
        tables.append((head, local))
        for n in range(run.count):
            for place, name in enumerate(local):
                full[run.first + n * run.length + place] = f"{head}.{n}.{name}"
    return _unlike(full, alone), tables


def _apart(names: Sequence[str], taken: set[str]) -> list[str]:
    out = []
    for name in names:
        candidate, number = name, 1
        while candidate in taken:
            number += 1
            candidate = f"{name}_{number}"
        taken.add(candidate)
        out.append(candidate)
    return out


def _unlike(full: list[str], alone: Sequence[int]) -> list[str]:
    """Return full names, with those of lone layers changed where a block's layer has the same."""
    lone = set(alone)
    taken = {name for place, name in enumerate(full) if place not in lone}
    return [
        f"{name}_" if place in lone and name in taken else name for place, name in enumerate(full)
    ]


def _names_outside(full: Sequence[str]) -> dict[int, str]:
    return {**dict(enumerate(full)), INPUT: "input"}


def _table(
    layers: Sequence[Layer], place: int, full: Sequence[str], name: str, names: Mapping[int, str]
) -> Table:
    layer = layers[place]
    keys = dict(layer.keys)
    if "tied" in keys:
        keys["tied"] = full[keys["tied"]]
    return {
        "name": name,
        "kind": layer.kind,
        "inputs": [names[source] for source in layer.inputs],
        **keys,
    }


def _block(
    layers: Sequence[Layer], run: RepeatedRun, block: tuple[str, list[str]], full: Sequence[str]
) -> Table:
    head, local = block
    # Within a block ``input`` is the block's; no layer of a run reads the network's.
    names = {
        run.first - 1: "input",
        **{run.first + place: name for place, name in enumerate(local)},
    }
    tables = []
    previous = "input"
    for place, name in enumerate(local):
        table = _table(layers, run.first + place, full, name, names)
        if table["inputs"] == [previous]:
            del table["inputs"]
        previous = name
        tables.append(table)
    return {
        "name": head,
        "repeat": run.count,
        "inputs": [full[run.first - 1]],
        "layer": tables,
    }


def _input(sizes: Mapping[str, int], layers: Sequence[Layer]) -> Table:
    if "h" in sizes:
        return {"channels": sizes["c"], "height": sizes["h"], "width": sizes["w"]}
    if "t" in sizes and "c" not in sizes:
        # The ids index the largest of the tables that are read by index.
        rows = (x.keys["vocabulary"] for x in layers if x.looks_up)
        return {"tokens": sizes["t"], "vocabulary": max(rows, default=1)}
    if "t" in sizes:
        return {"tokens": sizes["t"], "features": sizes["c"]}
    return {"features": sizes.get("c", 1)}


def _drop_vocabularies(layers: Sequence[Layer], shown: Table) -> None:
    """Leave out vocabularies that equal the input's."""
    for layer in layers:
        if layer.looks_up and layer.keys["vocabulary"] == shown.get("vocabulary"):
            del layer.keys["vocabulary"]
