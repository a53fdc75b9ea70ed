"""How graphs of several layers are read: joins, folded shapes, ends, blocks, names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hypar_opt.onnx.table import OPERATORS, Row
from tests.onnx.graph_writer import GraphWriter, attributes, kinds
from tests.onnx.patterns.registry import SEQUENCE, E, H, T


def test_a_pool_joins_only_the_convolution_that_nothing_else_reads(tmp_path: Path) -> None:
    g = GraphWriter(("x", [1, 3, 9, 9]))
    x = g("Relu", g("Conv", "x", g.weight("a", 4, 3, 3, 3), pads=[1, 1, 1, 1]))
    y = g("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    z = g("Conv", x, g.weight("b", 4, 4, 3, 3), strides=[2, 2])
    z = g("AveragePool", z, kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1])
    network = g.network(tmp_path, g("Concat", y, z, axis=1))
    assert kinds(network) == ["conv", "pool", "conv", "concat"]
    (alone,) = attributes(network, "pool")
    assert alone["pool"]["rounding"] == "up"
    assert attributes(network, "conv")[1]["pool"]["padding"] == (0, 0, 1, 1)


def test_shapes_are_folded_through_chains_of_constants(tmp_path: Path) -> None:
    """As exporters of dynamic models write a reshape: Shape, Gather, Unsqueeze, Concat."""
    g = GraphWriter(("x", ["batch", "sequence", E]))
    sizes = [
        g("Unsqueeze", g("Gather", g("Shape", "x"), g.value(np.int64(n))), g.value([0]))
        for n in (0, 1)
    ]
    apart = g("Concat", *sizes, g.value([H]), g("Div", g.value([E]), g.value([H])), axis=0)
    q, k, v = (
        g("Transpose", g("Reshape", g.linear("x", name, E, E), apart), perm=[0, 2, 1, 3])
        for name in "qkv"
    )
    out = g("Transpose", g.core(q, k, v), perm=[0, 2, 1, 3])
    flat = g("Reshape", out, g("Concat", *sizes, g.value([E]), axis=0))
    network = g.network(tmp_path, g.linear(flat, "o", E, E), sequence=31)
    assert attributes(network, "attention") == [{"heads": H}]
    assert network.input.model_dump(exclude_none=True) == {"tokens": 31, "features": E}


def test_types_of_tokens_are_no_further_input(tmp_path: Path) -> None:
    g = GraphWriter(("ids", ["n", T]), ("types", ["n", T]), ids=True)
    words = g("Gather", g.weight("words", 100, E), "ids")
    network = g.network(tmp_path, g("Add", words, g("Gather", g.weight("kinds", 2, E), "types")))
    assert kinds(network) == ["embedding", "embedding", "add"]
    assert network.input.model_dump(exclude_none=True) == {"tokens": T, "vocabulary": 100}


def test_every_end_that_nothing_reads_is_an_output(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    x = g("Relu", g.linear("x", "body", E, E))
    first = g("Softmax", g.linear(x, "classes", E, 10))
    second = g.linear(x, "boxes", E, 4)
    network = g.network(tmp_path, first, second, x)
    assert kinds(network) == ["fc", "fc", "output", "fc", "output"]
    assert [a["loss"] for a in attributes(network, "output")] == ["softmax", "none"]


def test_nodes_need_not_be_in_order(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    out = g.linear(g.linear("x", "first", E, 30), "second", 30, 10)
    g.nodes.reverse()
    assert [layer["name"] for layer in g.content(tmp_path, out)["layer"]] == ["first", "second"]


@pytest.mark.parametrize("units", [[50] * 2, [50] * 5, [50, 51]])
def test_equal_runs_are_one_block(tmp_path: Path, units: list[int]) -> None:
    g = GraphWriter(SEQUENCE)
    x = g.linear("x", "embed", E, E)
    for n, width in enumerate(units):
        norm = g("LayerNormalization", x, g.weight(f"model.layers.{n}.norm.weight", E))
        up = g("Relu", g.linear(norm, f"model.layers.{n}.up", E, width))
        x = g("Add", x, g.linear(up, f"model.layers.{n}.down", width, E))
    content = g.content(tmp_path, g.linear(x, "head", E, 10))
    if len(set(units)) > 1:
        assert "block" not in content
        return
    (block,) = content["block"]
    assert (block["name"], block["repeat"]) == ("model.layers", len(units))
    assert [layer["name"] for layer in block["layer"]] == ["norm", "up", "down", "add"]


def test_an_operator_may_be_a_kind_of_layer_whose_keys_are_its_attributes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPERATORS, "Hardmax", Row("elementwise", "shuffle"))
    g = GraphWriter(SEQUENCE)
    x = g("Hardmax", g.linear("x", "first", E, 48), groups=4, axis=-1)
    network = g.network(tmp_path, g.linear(x, "second", 48, 10))
    assert kinds(network) == ["fc", "shuffle", "fc"]
    assert attributes(network, "shuffle") == [{"groups": 4}]
