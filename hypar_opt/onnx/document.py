"""The network file that describes a model, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, count
from typing import Any

from hypar_opt.onnx.blocks import RepeatedRun, block_names, runs_of
from hypar_opt.onnx.features import Layer
from hypar_opt.onnx.inputs import InputAxes
from hypar_opt.onnx.losses import is_chain
from hypar_opt.onnx.names import input_name, proposals, unique

SCHEMA = "hypar-opt/network/2"

Table = dict[str, Any]


def document(
    name: str, source: str, inputs: Mapping[int, InputAxes], layers: Sequence[Layer]
) -> Table:
    """Return a network file's content, with repeated runs as blocks.

    Raises
    ------
    InputError
        Where several tables are indexed by ids of a further input.
    """
    proposed = proposals(layers)
    runs = [] if is_chain(layers) else runs_of(layers, proposed)
    inside = {place for run in runs for place in range(run.first, run.end)}
    alone = [place for place in range(len(layers)) if place not in inside]
    blocks = _name(layers, proposed, runs, alone)
    shown_input = _input(inputs[-1].layer.sizes, layers)
    ids = {source: axes for source, axes in inputs.items() if axes.is_tokens and source < -1}
    _state_ids(ids, layers)
    for layer in layers:
        # Those that equal the input's are left out.
        if layer.looks_up and layer.keys["vocabulary"] == shown_input.get("vocabulary"):
            del layer.keys["vocabulary"]
    further = _named(inputs, layers, blocks)
    sources = {-1: "input", **further}
    for place, label in sources.items():
        inputs[place].stated = label
    names = sources | {place: layer.name for place, layer in enumerate(layers)}
    tables = _tables(layers, {place: names[place] for place in alone}, names)
    out = {"schema": SCHEMA, "name": name, "source": source, "input": shown_input, "layer": tables}
    if further:
        shown = {label: _input(inputs[n].layer.sizes, ()) for n, label in further.items()}
        out = {**out, "inputs": shown, "layer": out.pop("layer")}
    if runs:
        out["block"] = [_block(layers, sources, *block) for block in zip(runs, blocks, strict=True)]
    return out


def _state_ids(ids: Mapping[int, InputAxes], layers: Sequence[Layer]) -> None:
    """State further ids as their embeddings' own."""
    for layer in layers:
        for source in ids.keys() & {*layer.inputs}:
            assert layer.node is not None
            if ids[source].stated:
                raise layer.node.refuse(
                    f"reads the ids {ids[source].name!r}, which index another table too; only those"
                    " of the first input may"
                )
            ids[source].stated = layer.name
            layer.inputs.remove(source)
            layer.keys["ids"] = layer.sizes["t"]


def _named(
    inputs: Mapping[int, InputAxes],
    layers: Sequence[Layer],
    blocks: Sequence[tuple[str, list[str]]],
) -> dict[int, str]:
    """Return names for the further inputs that layers read, which nothing else has."""
    read = sorted({source for layer in layers for source in layer.inputs if source < -1})[::-1]
    taken = {"input", *(layer.name for layer in layers)}
    taken = taken.union(*({head, *local} for head, local in blocks))
    names = {}
    for source in read:
        wanted = input_name(inputs[source].name)
        numbered = (f"{wanted}_{n}" for n in count(2))
        names[source] = next(name for name in chain([wanted], numbered) if name not in taken)
        taken.add(names[source])
    return names


def _name(
    layers: Sequence[Layer],
    proposed: Sequence[str],
    runs: Sequence[RepeatedRun],
    alone: Sequence[int],
) -> list[tuple[str, list[str]]]:
    """Name all layers in full; return for each run the names of its block and of its layers."""
    blocks = [block_names(proposed, run) for run in runs]
    heads = Counter(head for head, _, _ in blocks)
    chosen = unique([proposed[place] for place in alone], [layers[place] for place in alone])
    # Names are unique among blocks and layers.
    taken = {"input", *chosen}
    tables = []
    for run, (head, number, inner) in zip(runs, blocks, strict=True):
        wanted = f"{head}{number}" if heads[head] > 1 and number else head or "block"
        numbered = (f"{wanted}_{n}" for n in count(2))
        block = next(name for name in chain([wanted], numbered) if name not in taken)
        taken.add(block)
        local = unique(inner, layers[run.first : run.first + run.length])
        tables.append((block, local))
        for place in range(run.first, run.end):
            repetition, index = divmod(place - run.first, run.length)
            layers[place].name = f"{block}.{repetition}.{local[index]}"
    full = {layer.name for layer in layers}
    for place, name in zip(alone, chosen, strict=True):
        layers[place].name = f"{name}_" if name in full else name
    return tables


def _tables(
    layers: Sequence[Layer], layer_names: Mapping[int, str], names: Mapping[int, str]
) -> list[Table]:
    """Return the tables of some layers, without inputs that are the layer before in the file.

    Parameters
    ----------
    layer_names, names
        The names of these layers, and of those that they read, by position.
    """
    tables = []
    previous = "input"
    for place, name in layer_names.items():
        layer = layers[place]
        inputs = [names[source] for source in layer.inputs]
        read = {} if inputs == [previous] else {"inputs": inputs}
        tied = {"tied": layers[layer.keys["tied"]].name} if "tied" in layer.keys else {}
        tables.append({"name": name, "kind": layer.kind, **read, **layer.keys, **tied})
        previous = name
    return tables


def _block(
    layers: Sequence[Layer],
    outer_names: Mapping[int, str],
    run: RepeatedRun,
    names: tuple[str, list[str]],
) -> Table:
    head, local = names
    before = run.first - 1
    local_names = dict(enumerate(local, run.first))
    # Within a block ``input`` is the block's; no layer of a run reads the network's first.
    return {
        "name": head,
        "repeat": run.count,
        "inputs": [layers[before].name],
        "layer": _tables(layers, local_names, {**outer_names, before: "input", **local_names}),
    }


def _input(sizes: Mapping[str, int], layers: Sequence[Layer]) -> Table:
    if "h" in sizes:
        return {"channels": sizes["c"], "height": sizes["h"], "width": sizes["w"]}
    if "t" in sizes and "c" not in sizes:
        # The ids index the largest of the tables that are read by index.
        rows = (x.keys["vocabulary"] for x in layers if -1 in x.inputs and x.looks_up)
        return {"tokens": sizes["t"], "vocabulary": max(rows, default=1)}
    if "t" in sizes:
        return {"tokens": sizes["t"], "features": sizes["c"]}
    return {"features": sizes.get("c", 1)}
