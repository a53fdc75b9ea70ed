"""What networks are written as, node by node, and what is read of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hypar_opt.onnx import read_model, read_onnx
from hypar_opt.onnx.table import OPERATORS, Row
from tests.onnx.graph_writer import GraphWriter, attributes, kinds, parameters, sources

BATCH, TOKENS, WIDTH = 2, 16, 24
SEQUENCE = ("x", [BATCH, TOKENS, WIDTH])


# Norms and activations, written out.


def centred_norm(g: GraphWriter, x: str, *, centred: bool = True, size: int = WIDTH) -> str:
    last = g.value([-1])
    if centred:
        x = g("Sub", x, g("ReduceMean", x, last))
    variance = g("ReduceMean", g("Pow", x, g.value(np.float32(2))), last)
    root = g("Sqrt", g("Add", variance, g.value(np.float32(1e-5))))
    normed = g("Div", x, root)
    scaled = g("Mul", normed, g.weight(f"scale_{x}", size))
    return str(g("Add", scaled, g.weight(f"shift_{x}", size)) if centred else scaled)


@pytest.mark.parametrize("centred", [True, False])
def test_norms_are_recognised_in_elementwise_operators(tmp_path: Path, centred: bool) -> None:
    g = GraphWriter(SEQUENCE)
    first = g.linear("x", "first", WIDTH, WIDTH)
    network = g.network(
        tmp_path, g.linear(centred_norm(g, first, centred=centred), "second", WIDTH, 10)
    )
    assert kinds(network) == ["fc", "norm", "fc"]
    assert attributes(network, "norm") == [{"norm": "layer" if centred else "rms"}]
    assert parameters(network) == WIDTH**2 + WIDTH * (2 if centred else 1) + WIDTH * 10


@pytest.mark.parametrize("word", ["gelu", "gelu by tanh", "silu", "hardswish", "relu", "tanh"])
def test_activations_are_recognised_in_elementwise_operators(tmp_path: Path, word: str) -> None:
    g = GraphWriter(SEQUENCE)
    x = g.linear("x", "first", WIDTH, 48)

    def scalar(number: float) -> str:
        return g.value(np.float32(number))

    if word == "gelu":
        erf = g("Erf", g("Div", x, scalar(1.4142)))
        y = g("Mul", g("Mul", x, g("Add", erf, scalar(1))), scalar(0.5))
    elif word == "gelu by tanh":
        inner = g("Add", x, g("Mul", g("Pow", x, scalar(3)), scalar(0.0447)))
        tanh = g("Tanh", g("Mul", inner, scalar(0.798)))
        y = g("Mul", g("Mul", x, scalar(0.5)), g("Add", tanh, scalar(1)))
    elif word == "silu":
        y = g("Mul", x, g("Sigmoid", x))
    elif word == "hardswish":
        six = g("Clip", g("Add", x, scalar(3)), scalar(0), scalar(6))
        y = g("Div", g("Mul", x, six), scalar(6))
    else:
        y = g(word.capitalize(), x)
    network = g.network(tmp_path, g.linear(y, "second", 48, 10))
    assert kinds(network) == ["fc", "fc"]
    assert attributes(network, "fc")[0] == {"units": 48, "activation": word.partition(" ")[0]}


def test_an_activation_of_one_reader_alone_is_not_the_layers(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    x = g.linear("x", "first", WIDTH, WIDTH)
    y = g.linear(g("Relu", x), "second", WIDTH, WIDTH)
    network = g.network(tmp_path, g.linear(g("Add", x, y), "third", WIDTH, 10))
    assert kinds(network) == ["fc", "fc", "add", "fc"]
    assert attributes(network, "fc")[0] == {"units": WIDTH}


def test_a_scale_and_shift_of_each_channel_are_an_affine_norm(tmp_path: Path) -> None:
    g = GraphWriter(("x", [1, 3, 8, 8]))
    x = g("Conv", "x", g.weight("conv.weight", 5, 3, 3, 3))
    for op, name in (("Mul", "scale"), ("Add", "shift")):
        x = g(op, x, g("Unsqueeze", g.weight(name, 5), g.value([1, 2])))
    network = g.network(tmp_path, g("Conv", g("Relu", x), g.weight("last", 7, 5, 6, 6)))
    assert kinds(network) == ["conv", "norm", "conv"]
    assert attributes(network, "norm") == [{"norm": "affine", "activation": "relu"}]
    assert parameters(network) == 5 * 27 + 2 * 5 + 7 * 5 * 36


# Images.


def test_squeeze_and_excitation_multiplies_by_a_vector(tmp_path: Path) -> None:
    g = GraphWriter(("x", [1, 3, 8, 8]))
    x = g("Conv", "x", g.weight("conv.weight", 12, 3, 3, 3))
    squeezed = g("GlobalAveragePool", x)
    small = g("Relu", g("Conv", squeezed, g.weight("a.weight", 4, 12, 1, 1), g.weight("a.b", 4)))
    gate = g("Sigmoid", g("Conv", small, g.weight("b.weight", 12, 4, 1, 1), g.weight("b.b", 12)))
    network = g.network(tmp_path, g("Conv", g("Mul", x, gate), g.weight("last", 7, 12, 6, 6)))
    assert kinds(network) == ["conv", "global_pool", "fc", "fc", "mul", "conv"]
    assert sources(network, "mul") == [["conv", "fc"]]


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


@pytest.mark.parametrize("pads", ["SAME_UPPER", "SAME_LOWER", "Pad"])
def test_borders_may_be_on_one_side_alone(tmp_path: Path, pads: str) -> None:
    g = GraphWriter(("x", [1, 3, 8, 8]))
    weight = g.weight("a", 4, 3, 3, 3)
    if pads == "Pad":
        x = g("Pad", "x", g.value([0, 0, 0, 0, 0, 0, 1, 1]))
        x = g("Conv", x, weight, strides=[2, 2])
    else:
        x = g("Conv", "x", weight, strides=[2, 2], auto_pad=pads)
    network = g.network(tmp_path, x)
    expected = (1, 1, 0, 0) if pads == "SAME_LOWER" else (0, 0, 1, 1)
    assert attributes(network, "conv")[0]["padding"] == expected


def test_channels_may_come_last(tmp_path: Path) -> None:
    """As TensorFlow's images are; products with each pixel are convolutions of one pixel."""
    g = GraphWriter(("x", [1, 8, 6, 3]))
    x = g("Conv", g("Transpose", "x", perm=[0, 3, 1, 2]), g.weight("a", 4, 3, 3, 3))
    x = g("Transpose", x, perm=[0, 2, 3, 1])
    x = g("LayerNormalization", x, g.weight("scale", 4), g.weight("shift", 4))
    x = g.linear(x, "pixels", 4, 10, bias=True)
    network = g.network(tmp_path, g("Transpose", x, perm=[0, 3, 1, 2]))
    assert network.input.model_dump() == {"channels": 3, "height": 8, "width": 6}
    assert kinds(network) == ["conv", "norm", "conv"]
    assert attributes(network, "conv")[1]["kernel"] == (1, 1)


@pytest.mark.parametrize("by", ["Flatten", "Reshape", "nothing"])
def test_a_flattened_image_needs_no_layer(tmp_path: Path, by: str) -> None:
    g = GraphWriter(("x", [1, 3, 8, 8]))
    x = g("Conv", "x", g.weight("a", 4, 3, 3, 3))
    if by == "nothing":
        x = g("GlobalMaxPool", x)
    flat = g("Flatten", x) if by != "Reshape" else g("Reshape", x, g.value([1, -1]))
    width = 4 if by == "nothing" else 4 * 36
    out = g("Gemm", flat, g.weight("b", 10, width), g.weight("c", 10), transB=1)
    network = g.network(tmp_path, out)
    # With the pool it is no chain of the paper's kinds, and its classes have a loss.
    rest = ["global_pool", "fc", "output"] if by == "nothing" else ["fc"]
    assert kinds(network) == ["conv", *rest]


def test_a_vision_transformer(tmp_path: Path) -> None:
    """Patches become tokens; class token and positions are learned tables, read whole."""
    g = GraphWriter(("x", [BATCH, 3, 8, 8]))
    patches = g("Conv", "x", g.weight("patch", WIDTH, 3, 2, 2), strides=[2, 2])
    rows = g("Reshape", patches, g.value([BATCH, WIDTH, 16]))
    tokens = g("Transpose", rows, perm=[0, 2, 1])
    first = g("Expand", g.weight("class_token", 1, 1, WIDTH), g.value([BATCH, 1, 1]))
    tokens = g("Concat", first, tokens, axis=1)
    tokens = g("Add", tokens, g.weight("positions", 1, 17, WIDTH))
    tokens = g.linear(tokens, "mlp", WIDTH, WIDTH)
    one = g("Gather", tokens, g.value(np.int64(0)), axis=1)
    network = g.network(tmp_path, g.linear(one, "head", WIDTH, 10))
    assert sorted(kinds(network)) == sorted(
        [
            *("embedding", "conv", "flatten", "concat", "embedding", "add", "fc", "global_pool"),
            *("fc", "output"),
        ]
    )
    assert parameters(network) == WIDTH * 12 + 18 * WIDTH + WIDTH**2 + WIDTH * 10
    assert attributes(network, "global_pool") == [{"over": "first"}]


def test_a_convolution_over_time_makes_tokens(tmp_path: Path) -> None:
    g = GraphWriter(("x", [1, 8, 30]))
    x = g("Conv", "x", g.weight("a", WIDTH, 8, 3), strides=[2], pads=[1, 1])
    x = g("Transpose", g("Relu", x), perm=[0, 2, 1])
    network = g.network(tmp_path, g.linear(x, "b", WIDTH, 10))
    assert network.input.model_dump() == {"channels": 8, "height": 1, "width": 30}
    assert kinds(network) == ["conv", "flatten", "fc"]


# Weights that are cut or shared.


def test_a_layer_that_is_read_in_halves_is_two_layers(tmp_path: Path) -> None:
    """A gated linear unit in one product: the same weights, as gate and value."""
    g = GraphWriter(SEQUENCE)
    gate, value = g("Split", g.linear("x", "up", WIDTH, 40), outputs=2, axis=-1, num_outputs=2)
    y = g("Mul", g("Sigmoid", gate), value)
    network = g.network(tmp_path, g.linear(y, "down", 20, WIDTH))
    assert kinds(network) == ["fc", "fc", "mul", "fc"]
    assert attributes(network, "fc")[:2] == [{"units": 20, "activation": "sigmoid"}, {"units": 20}]


def test_a_head_with_the_embeddings_weights_is_tied(tmp_path: Path) -> None:
    g = GraphWriter(("ids", [BATCH, TOKENS]), ids=True)
    table = g.weight("wte", 100, WIDTH)
    x = g.linear(g("Gather", table, "ids"), "mlp", WIDTH, WIDTH)
    network = g.network(tmp_path, g("MatMul", x, g("Transpose", table, perm=[1, 0])))
    assert network.input.model_dump(exclude_none=True) == {"tokens": TOKENS, "vocabulary": 100}
    assert parameters(network) == 100 * WIDTH + WIDTH**2


def test_a_layer_may_share_the_weights_of_another(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    weight = g.weight("shared", WIDTH, WIDTH)
    x = g("MatMul", g.linear("x", "first", WIDTH, WIDTH), weight)
    network = g.network(tmp_path, g("MatMul", g("Relu", x), weight))
    assert parameters(network) == 2 * WIDTH**2
    assert network.layers[2].shares_weights_with == network.layers[1].name


# Constants, inputs and outputs.


def test_shapes_are_folded_through_chains_of_constants(tmp_path: Path) -> None:
    """As exporters of dynamic models write a reshape: Shape, Gather, Unsqueeze, Concat."""
    g = GraphWriter(("x", ["batch", "sequence", WIDTH]))
    sizes = [
        g("Unsqueeze", g("Gather", g("Shape", "x"), g.value(np.int64(n))), g.value([0]))
        for n in (0, 1)
    ]
    q, k, v = (g.linear("x", name, WIDTH, WIDTH) for name in "qkv")
    apart = g("Concat", *sizes, g.value([4]), g("Div", g.value([WIDTH]), g.value([4])), axis=0)
    heads = [g("Transpose", g("Reshape", one, apart), perm=[0, 2, 1, 3]) for one in (q, k, v)]
    length = g("Squeeze", sizes[1], g.value([0]))
    steps = g("Range", g.value(np.int64(0)), length, g.value(np.int64(1)))
    seen = g(
        "GreaterOrEqual", g("Unsqueeze", steps, g.value([1])), g("Unsqueeze", steps, g.value([0]))
    )
    scores = g("MatMul", heads[0], g("Transpose", heads[1], perm=[0, 1, 3, 2]))
    masked = g("Where", seen, scores, g.value(np.float32(-1e9)))
    out = g("Transpose", g("MatMul", g("Softmax", masked), heads[2]), perm=[0, 2, 1, 3])
    flat = g("Reshape", out, g("Concat", *sizes, g.value([WIDTH]), axis=0))
    network = g.network(tmp_path, g.linear(flat, "o", WIDTH, WIDTH), sequence=31)
    assert attributes(network, "attention") == [{"heads": 4, "causal": True}]
    assert network.input.model_dump(exclude_none=True) == {"tokens": 31, "features": WIDTH}


def test_masks_of_padding_and_types_of_tokens_are_no_further_inputs(tmp_path: Path) -> None:
    g = GraphWriter(
        ("ids", ["n", TOKENS]), ("mask", ["n", TOKENS]), ("types", ["n", TOKENS]), ids=True
    )
    x = g(
        "Add",
        g("Gather", g.weight("words", 100, WIDTH), "ids"),
        g("Gather", g.weight("kinds", 2, WIDTH), "types"),
    )
    hidden = g("Cast", g("Unsqueeze", "mask", g.value([1, 2])), to=1)
    hidden = g("Mul", g("Sub", g.value(np.float32(1)), hidden), g.value(np.float32(-1e4)))
    q, k, v = (
        g(
            "Transpose",
            g("Reshape", g.linear(x, name, WIDTH, WIDTH), g.value([0, 0, 4, 6])),
            perm=[0, 2, 1, 3],
        )
        for name in "qkv"
    )
    out = g("Transpose", g.core(q, k, v, hidden), perm=[0, 2, 1, 3])
    network = g.network(tmp_path, g("Reshape", out, g.value([0, 0, WIDTH])))
    assert kinds(network) == ["embedding", "embedding", "add", "fc", "fc", "fc", "attention"]
    assert attributes(network, "attention") == [{"heads": 4}]


def test_every_end_that_nothing_reads_is_an_output(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    x = g("Relu", g.linear("x", "body", WIDTH, WIDTH))
    first = g("Softmax", g.linear(x, "classes", WIDTH, 10))
    second = g.linear(x, "boxes", WIDTH, 4)
    g.linear(x, "unused", WIDTH, 5)
    network = g.network(tmp_path, first, second, x)
    assert kinds(network) == ["fc", "fc", "output", "fc", "output"]
    assert [a["loss"] for a in attributes(network, "output")] == ["softmax", "none"]


def test_nodes_need_not_be_in_order(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    out = g.linear(g.linear("x", "first", WIDTH, 30), "second", 30, 10)
    g.nodes.reverse()
    model = g.model(out)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    content, _ = read_model(tmp_path / "model.onnx")
    assert [layer["name"] for layer in content["layer"]] == ["first", "second"]


@pytest.mark.parametrize("count", [2, 5])
def test_equal_runs_are_one_block(tmp_path: Path, count: int) -> None:
    g = GraphWriter(SEQUENCE)
    x = g.linear("x", "embed", WIDTH, WIDTH)
    for n in range(count):
        up = g("Relu", g.linear(centred_norm(g, x), f"model.layers.{n}.up", WIDTH, 50))
        x = g("Add", x, g.linear(up, f"model.layers.{n}.down", 50, WIDTH))
    path = tmp_path / "model.onnx"
    path.write_bytes(g.model(g.linear(x, "head", WIDTH, 10)).SerializeToString())
    content, _ = read_model(path)
    (block,) = content["block"]
    assert (block["name"], block["repeat"]) == ("model.layers", count)
    assert [layer["name"] for layer in block["layer"]] == ["scale_t", "up", "down", "add"]


def test_runs_that_differ_in_one_layer_are_no_block(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    x = g.linear("x", "embed", WIDTH, WIDTH)
    for n, units in enumerate((50, 51)):
        up = g("Relu", g.linear(x, f"layers.{n}.up", WIDTH, units))
        x = g("Add", x, g.linear(up, f"layers.{n}.down", units, WIDTH))
    path = tmp_path / "model.onnx"
    path.write_bytes(g.model(x).SerializeToString())
    content, _ = read_model(path)
    assert "block" not in content


def test_a_norm_without_weights_may_be_the_output(tmp_path: Path) -> None:
    g = GraphWriter(("x", [2, 16, 24]))
    x = g.linear("x", "first", 24, 24)
    apart = g("Sub", x, g("ReduceMean", x, axes=[-1], keepdims=1))
    variance = g("ReduceMean", g("Mul", apart, apart), axes=[-1], keepdims=1)
    y = g("Div", apart, g("Sqrt", g("Add", variance, g.value(1e-5))))
    path = tmp_path / "model.onnx"
    path.write_bytes(g.model(y).SerializeToString())
    assert [layer.kind for layer in read_onnx(path).layers] == ["fc", "norm"]


def test_an_operator_may_be_a_kind_of_layer_whose_keys_are_its_attributes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPERATORS, "Hardmax", Row("elementwise", "shuffle"))
    g = GraphWriter(SEQUENCE)
    x = g("Hardmax", g.linear("x", "first", WIDTH, 48), groups=4, axis=-1)
    network = g.network(tmp_path, g.linear(x, "second", 48, 10))
    assert kinds(network) == ["fc", "shuffle", "fc"]
    assert attributes(network, "shuffle") == [{"groups": 4}]
