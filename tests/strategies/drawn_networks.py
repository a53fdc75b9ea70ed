"""Random networks of every kind of layer, computed by numpy while they are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.strategies.drawn_layers import INPUT, LayerDrawing
from tests.workload.forward import Array, Layer, UndefinedError, forward

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Computed:
    """What a layer read and wrote when numpy computed it."""

    reads: tuple[str, ...]
    """Full names, in order."""
    output: Shape
    pooled: Shape


@dataclass
class DrawnNetwork:
    """A description, and what its layers computed, by their full names."""

    description: dict[str, Any]
    computed: dict[str, Computed] = field(default_factory=dict)


@st.composite
def drawn_networks(draw: st.DrawFn, most_steps: int = 6) -> DrawnNetwork:
    """Graphs of layers and blocks that are valid by construction: numpy could compute them."""
    # Values are of no interest, and may overflow.
    with np.errstate(all="ignore"):
        return _Drawing(draw).network(most_steps)


class _Drawing(LayerDrawing):
    def __init__(self, draw: st.DrawFn) -> None:
        super().__init__(draw)
        self.layers: list[Layer] = []
        self.blocks: list[dict[str, Any]] = []
        self.computed: dict[str, Computed] = {}

    # A network

    def network(self, most_steps: int) -> DrawnNetwork:
        stated = self.input()
        self.pooled[INPUT] = array_of(stated)
        main, further = INPUT, self.further()
        for _ in range(self.number(1, most_steps)):
            if "vocabulary" not in stated or main != INPUT:
                made = self.block(main) if self.number(0, 2) == 0 else self.step(main, self.scope)
            else:
                made = self.embedding(INPUT)
            for layer in made:
                self.place(layer)
            # Mostly the latest, so that networks are deep, and at times an earlier one.
            made_names = [name for name in self.scope if name != INPUT]
            main = self.of([*made_names, *made_names[-1:] * 2 * len(made_names)] or [INPUT])
        if not self.layers:  # a file has at least one
            layer = self.embedding(INPUT)[0] if "vocabulary" in stated else self.output(main)
            self.place(layer)
        for name in self.unread(self.computed):
            self.place(self.output(name))
        description = {"name": "drawn", "schema": "hypar-opt/network/2", "input": stated}
        read = {name for one in self.computed.values() for name in one.reads}
        if inputs := {name: own for name, own in further.items() if name in read}:
            description["inputs"] = inputs
        return DrawnNetwork(description | self.tables(), self.computed)

    def further(self) -> dict[str, dict[str, int]]:
        """Return further inputs, of features, which layers may read."""
        inputs = {}
        for name in ("states", "time")[: self.of([0, 0, 0, 1, 2])]:
            stated = self.input() if name == "states" else {"features": 1}
            if "vocabulary" in stated:
                stated["features"] = stated.pop("vocabulary")
            inputs[name] = stated
            self.pooled[name], self.scope[name] = array_of(stated), name
        return inputs

    def input(self) -> dict[str, int]:
        match self.number(0, 6):
            case 0:
                return {"features": self.number(1, 8)}
            case 1:
                return {"tokens": self.number(1, 6), "features": self.number(1, 8)}
            case 2 | 3:
                return {"tokens": self.number(1, 6), "vocabulary": self.number(1, 9)}
        keys = (("channels", 6), ("height", 9), ("width", 9))
        return {key: self.number(1, high) for key, high in keys}

    def tables(self) -> dict[str, Any]:
        """Return the file's tables: with as few ``inputs`` as possible, or in any order."""
        layers, blocks = self.layers, self.blocks
        if self.yes():
            _omit_default_inputs(layers, INPUT)
            _omit_default_inputs(blocks, "")
            for block in blocks:
                _omit_default_inputs(block["layer"], INPUT)
        else:
            layers, blocks = (list(self.draw(st.permutations(list_))) for list_ in (layers, blocks))
        return {"layer": layers} | ({"block": blocks} if blocks else {})

    def output(self, read: str) -> Layer:
        cap = {"softcap": self.of([0.5, 2.0])} if self.yes() else {}
        return {"name": self.name("output"), "kind": "output", "inputs": [read], **cap}

    def unread(self, computed: Mapping[str, Computed]) -> list[str]:
        read = {name for one in self.computed.values() for name in one.reads}
        ends = {"output"}
        return [
            name
            for name in computed
            if name not in read and name.split(".")[-1].rstrip("0123456789") not in ends
        ]

    def place(self, layer: Layer) -> None:
        """Compute a layer outside blocks, and state it, or drop what numpy cannot compute."""
        try:
            self.compute(layer, layer["name"], self.scope)
        except (UndefinedError, KeyError):  # KeyError: a layer that it reads was dropped
            return
        self.layers.append(layer)
        if layer["kind"] != "output":
            self.scope[layer["name"]] = layer["name"]

    def compute(self, layer: Layer, full: str, scope: Mapping[str, str]) -> None:
        reads = tuple(scope[name] for name in layer["inputs"])
        output, pooled = forward(layer, *(self.pooled[name] for name in reads))
        self.pooled[full] = pooled
        self.computed[full] = Computed(reads, output.shape, pooled.shape)

    # Blocks

    def block(self, main: str) -> list[Layer]:
        """State a block that reads ``main``, as often as its layers fit what they read."""
        if main == INPUT and self.pooled[INPUT].dtype.kind == "i":
            return []
        name, repeat = self.name("block"), self.of([None, 1, 2, 3])
        body: list[Layer] = []
        prefix = name if repeat is None else f"{name}.0"
        scope = self.scope | {INPUT: self.scope[main]}
        made: dict[str, Computed] = {}
        for _ in range(self.number(1, 4)):
            local = [INPUT, *(layer["name"] for layer in body)]
            # The first reads the block's input, which no layer might read else.
            for layer in self.step(self.of(local[-2:]) if body else INPUT, scope):
                full = f"{prefix}.{layer['name']}"
                try:
                    self.compute(layer, full, scope)
                except (UndefinedError, KeyError):
                    continue
                scope[layer["name"]] = full
                made[full] = self.computed[full]
                body.append(layer)
        if not body or INPUT not in body[0]["inputs"]:
            for full in made:
                del self.computed[full]
            return []
        for full in self.unread(dict(list(made.items())[:-1])):
            read = full.rpartition(".")[2]
            end = self.output(read)
            body.insert(-1, end)
            self.compute(end, f"{prefix}.{end['name']}", scope)
        table: dict[str, Any] = {"name": name, "inputs": [main], "layer": body}
        last = f"{prefix}.{body[-1]['name']}"
        if repeat is not None:
            table["repeat"], last = self.repetitions(table, repeat, last)
        self.blocks.append(table)
        self.scope[name] = last
        inside = [f for f in self.computed if f.startswith(f"{name}.") and "output" not in f]
        self.scope |= {full: full for full in inside}
        return []

    def repetitions(self, block: dict[str, Any], most: int, last: str) -> tuple[int, str]:
        """Compute further repetitions while they fit; return their number and the last layer."""
        for n in range(1, most):
            scope = self.scope | {INPUT: last}
            names = {
                layer["name"]: f"{block['name']}.{n}.{layer['name']}" for layer in block["layer"]
            }
            scope |= names
            try:
                for layer in block["layer"]:
                    self.compute(layer, names[layer["name"]], scope)
            except UndefinedError:
                for full in names.values():
                    self.computed.pop(full, None)
                return n, last
            last = names[block["layer"][-1]["name"]]
        return most, last


def array_of(stated: Mapping[str, int]) -> Array:
    """Return an input as its table states it."""
    if "vocabulary" in stated:
        tokens, rows = stated["tokens"], stated["vocabulary"]
        return (rows - 1 - np.arange(tokens)) % rows
    order = ("tokens", "channels", "height", "width", "features")
    return np.ones([stated[key] for key in order if key in stated])


def _omit_default_inputs(tables: Sequence[dict[str, Any]], before: str) -> None:
    for table in tables:
        if table["inputs"] == [before]:
            del table["inputs"]
        before = table["name"]
