"""Layers are named as the modules of the framework that they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.onnx.graph_writer import GraphWriter
from tests.onnx.patterns.registry import SEQUENCE, E, H, T

SCOPES = "pkg.torch.onnx.name_scopes"


class ModuleWriter(GraphWriter):
    """A graph as torch.onnx writes it: nodes say in which modules they are; matrices have no names.

    Parameters
    ----------
    others
        Bytes of what else a node says of its origin, before and after its modules.
    """

    def __init__(self, *, others: int = 0) -> None:
        super().__init__(SEQUENCE)
        self.module, self.others = "", others

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        out = super().__call__(op, *inputs, outputs=outputs, **attributes)
        parts = self.module.split(".") if self.module else []
        scopes = ["", *(".".join(parts[: n + 1]) for n in range(len(parts)))]
        node = self.nodes[-1]
        node.name = f"node_{op.lower()}_{len(self.nodes)}"
        said = {SCOPES: str([*scopes, f"{op.lower()}_{len(self.nodes)}"])}
        if self.others:
            long = "z" * self.others
            said = {"pkg.torch.onnx.class_hierarchy": long, **said, "stack_trace": long}
        for key, value in said.items():
            entry = node.metadata_props.add()
            entry.key, entry.value = key, value
        return out

    def matrix(self, x: str, module: str, features: int, units: int, name: str = "") -> str:
        """A product with a matrix whose name is lost, as it is where it was transposed."""
        within, self.module = self.module, f"{self.module}.{module}"
        name = name or f"val_{len(self.nodes)}"
        out: str = self("MatMul", x, self.weight(name, features, units))
        self.module = within
        return out

    def rms(self, x: str, module: str, scale: str) -> str:
        """A norm that is written out, with a scale that all norms share."""
        within, self.module = self.module, module
        mean = self("ReduceMean", self("Mul", x, x), self.value([-1]), keepdims=1)
        spread = self("Sqrt", self("Add", mean, self.value(1e-6)))
        out: str = self("Mul", scale, self("Div", x, spread))
        self.module = within
        return out


def two_blocks(g: ModuleWriter) -> str:
    one = g.weight("net.layers.0.first.weight", E)
    g.module = "net"
    # As an exporter writes what two modules share, of which it then transposes one.
    x = g.matrix("x", "embed", E, E, "net.head.weight")
    for n in range(2):
        g.module = block = f"net.layers.{n}"
        y = g.rms(x, f"{block}.first", one)
        g.module = f"{block}.attn"
        heads = (g.heads(g.matrix(y, own, E, E), 0, T, H, E // H) for own in "qkv")
        y = g.together(g.core(*heads, size=E // H), 0, T, E)
        y = g.matrix(y, "out", E, E)
        g.module = block
        x = g("Add", x, y)
        y = g("Sigmoid", g.matrix(g.rms(x, f"{block}.second", one), "up", E, 2 * E))
        x = g("Add", x, g.matrix(y, "down", 2 * E, E))
    g.module = "net"
    return g.matrix(g.rms(x, "net.norm", one), "head", E, 10)


@pytest.mark.parametrize("others", [0, 2000])
def test_layers_have_the_names_of_modules(tmp_path: Path, others: int) -> None:
    """Long texts beside those names are not read."""
    g = ModuleWriter(others=others)
    content = g.content(tmp_path, two_blocks(g))
    assert [layer["name"] for layer in content["layer"]] == ["net.embed", "net.norm", "net.head"]
    (block,) = content["block"]
    assert (block["name"], block["repeat"]) == ("net.layers", 2)
    named = [layer["name"] for layer in block["layer"] if layer["kind"] in ("fc", "norm")]
    assert named == [
        "first",
        *(f"attn.{n}" for n in ("q", "k", "v", "out")),
        "second",
        "up",
        "down",
    ]
    others_named = [x["name"] for x in block["layer"] if x["kind"] in ("attention", "add")]
    assert others_named[0].startswith("attn.")
    assert others_named[1:] == ["add_1", "add_2"]


def test_what_modules_have_in_common_stays_in_their_names(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    out = g.linear(g("Relu", g.linear("x", "net.0", E, 30)), "net.2", 30, 10)
    assert [layer["name"] for layer in g.content(tmp_path, out)["layer"]] == ["net.0", "net.2"]


def test_parts_of_a_weight_are_numbered_in_their_order_in_it(tmp_path: Path) -> None:
    """The second is read first, as the one that is multiplied with the other's activation."""
    g = GraphWriter(SEQUENCE)
    both = g.linear("x", "mlp.gate_up", E, 48)
    gate, up = g("Split", both, g.value([24, 24]), outputs=2, axis=-1)
    out = g.linear(g("Mul", up, g("Relu", gate)), "mlp.down", 24, E)
    up, gate, *_ = g.content(tmp_path, out)["layer"]
    assert [up["name"], gate["name"]] == ["mlp.gate_up.2", "mlp.gate_up.1"]
    assert [up["part"], gate["part"]] == [True, True]
    assert gate["activation"] == "relu"


def test_parts_of_a_weight_have_names_that_no_module_has(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    up, gate = g("Split", g.linear("x", "mlp", E, 48), g.value([24, 24]), outputs=2, axis=-1)
    out = g.linear(g.linear(g("Mul", up, g("Relu", gate)), "mlp.1", 24, E), "mlp_1.2", E, E)
    layers = g.content(tmp_path, out)["layer"]
    fc = [layer["name"] for layer in layers if layer["kind"] == "fc"]
    assert fc == ["mlp_2.1", "mlp_2.2", "mlp.1", "mlp_1.2"]


@pytest.mark.parametrize("value", ["", "[]", "['']", "['', 'relu']", "no list", "['a', 'b"])
def test_other_texts_name_nothing(tmp_path: Path, value: str) -> None:
    g = GraphWriter(SEQUENCE)
    out = g("MatMul", "x", g.weight("val_3", E, 10), name="node_own")
    entry = g.nodes[-1].metadata_props.add()
    entry.key, entry.value = SCOPES, value
    (layer,) = g.content(tmp_path, out)["layer"][:1]
    assert layer["name"] == "own"
