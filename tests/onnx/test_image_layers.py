"""Layers of vision models that enlarge or rearrange images: numbers and sizes are the model's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from hypar_opt.errors import InputError
from hypar_opt.models.imported import import_
from hypar_opt.onnx import imported_model
from hypar_opt.onnx.weights import complete_model, weights_of
from hypar_opt.studies.model_weights import read_weights
from tests.onnx.graph_writer import attributes, kinds, parameters
from tests.onnx.test_refused import refusal
from tests.onnx.with_weights import (
    IDS,
    WORDS,
    WeightedGraph,
    assert_computes_its_model,
    initialisers,
)


def imported(folder: Path, model: Any) -> Any:
    """Return the network of a model, whose numbers are the model's."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    network = import_(path)
    assert not network.not_kept
    assert_computes_its_model(network, path)
    return network


def transposed(*weight: int, **stated: Any) -> Any:
    g = WeightedGraph(("image", ["batch", 4, 5, 6]))
    x = g("ConvTranspose", "image", g.weight("a", *weight), **stated)
    return g.model(
        g("Conv", g("Relu", x), g.weight("b", 2, stated.get("group", 1) * weight[1], 1, 1))
    )


@pytest.mark.parametrize(
    ("weight", "stated", "keys"),
    [
        ((4, 3, 2, 2), {"strides": [2, 2]}, {"stride": (2, 2)}),
        ((4, 3, 3, 4), {"strides": [2, 3], "dilations": [2, 1]}, {"dilation": (2, 1)}),
        (
            (4, 3, 3, 3),
            {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
            {"padding": (1, 1, 0, 0)},
        ),
        ((4, 3, 4, 4), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, {"padding": (1, 1)}),
        ((4, 1, 2, 2), {"strides": [2, 2], "group": 4}, {"groups": 4, "filters": 4}),
    ],
    ids=["twice", "dilated", "output padding", "same", "depthwise"],
)
def test_a_transposed_convolution(
    weight: tuple[int, ...], stated: Any, keys: Any, tmp_path: Path
) -> None:
    own, _ = attributes(imported(tmp_path, transposed(*weight, **stated)), "conv")
    assert own["transposed"]
    assert own | keys == own


def test_the_weights_of_a_transposed_convolution_in_groups(tmp_path: Path) -> None:
    """They are ``(inputs, outputs of a group, rows, columns)``, one group after the other.

    The reference evaluator refuses it.
    """
    model, path = transposed(4, 3, 3, 2, group=2), tmp_path / "model.onnx"
    onnx.save(model, path)
    file = initialisers(model)["a"].reshape(2, 2, 3, 3, 2)
    network = import_(path)
    assert attributes(network, "conv")[0]["filters"] == 6
    own = weights_of(imported_model(path), complete_model(path)).weights[network.layers[0].name]
    assert np.array_equal(own, np.einsum("giokl->klgio", file))


def test_what_no_transposed_convolution_writes_is_refused(tmp_path: Path) -> None:
    for stated, said in {
        "beyond its windows": {"strides": [2, 2], "output_padding": [1, 1]},
        "an odd number of rows": {"strides": [2, 2], "output_shape": [9, 11]},
    }.items():
        assert stated in refusal(tmp_path, transposed(4, 3, 2, 2, **said))


def test_a_vector_becomes_an_image(tmp_path: Path) -> None:
    """As in the generator of a DCGAN, and where pixels are given in a row."""
    g = WeightedGraph(("z", ["batch", 6]))
    x = g("Reshape", g.linear("z", "fc", 6, 24, bias=True), g.value([-1, 4, 2, 3]))
    x = g("ConvTranspose", g("Relu", x), g.weight("up", 4, 3, 2, 2), strides=[2, 2])
    network = imported(tmp_path, g.model(x))
    assert attributes(network, "unflatten") == [{"height": 2, "width": 3}]
    g = WeightedGraph(("pixels", ["batch", 36]))
    x = g("Reshape", "pixels", g.value([-1, 1, 6, 6]))
    assert kinds(imported(tmp_path, g.model(g("Conv", x, g.weight("a", 2, 1, 3, 3))))) == [
        "unflatten",
        "conv",
    ]


def attention_of_pixels(width: int, *, tokens_last: bool, embeds: bool) -> Any:
    """Attention over pixels with a residual: as a diffusion model's, or YOLO11's."""
    g = WeightedGraph(("image", ["batch", 8, 3, 4]))
    heads, size, value, pixels = 2, 4, width, 12
    joint = g("Conv", "image", g.weight("qkv", heads * (2 * size + value), 8, 1, 1))
    by_head = g("Reshape", joint, g.value([0, heads, 2 * size + value, pixels]))
    q, k, v = g("Split", by_head, g.value([size, size, value]), outputs=3, axis=2)
    scores = g("MatMul", g("Transpose", q, perm=[0, 1, 3, 2]), k)
    shares = g("Softmax", g("Mul", scores, g.value(0.5)), axis=-1)
    if tokens_last:
        y = g("MatMul", v, g("Transpose", shares, perm=[0, 1, 3, 2]))
    else:
        y = g("MatMul", shares, g("Transpose", v, perm=[0, 1, 3, 2]))
        y = g("Transpose", y, perm=[0, 1, 3, 2])
    y = g("Reshape", y, g.value([0, heads * value, 3, 4]))
    if embeds:
        image = g("Reshape", v, g.value([0, heads * value, 3, 4]))
        depthwise = g.weight("pe", heads * value, 1, 3, 3)
        y = g("Add", y, g("Conv", image, depthwise, pads=[1] * 4, group=heads * value))
    y = g("Conv", y, g.weight("proj", 8, heads * value, 1, 1), g.weight("bias", 8))
    return g.model(g("Conv", g("Add", "image", y), g.weight("last", 4, 8, 3, 3)))


@pytest.mark.parametrize("tokens_last", [True, False])
@pytest.mark.parametrize(("width", "embeds"), [(4, False), (8, False), (8, True)])
def test_attention_over_pixels(
    width: int, *, embeds: bool, tokens_last: bool, tmp_path: Path
) -> None:
    """Values as wide as keys are read beside them; others have a convolution of their own."""
    model = attention_of_pixels(width, tokens_last=tokens_last, embeds=embeds)
    network = imported(tmp_path, model)
    (attention,) = (layer for layer in network.layers if layer.kind == "attention")
    assert len(attention.inputs or (0,)) == (1 if width == 4 else 3)
    assert attributes(network, "unflatten") == [{"height": 3, "width": 4}]
    assert parameters(network) == sum(own.size for own in initialisers(model).values()) - offsets(
        model
    )


def offsets(model: Any) -> int:
    """Return the number of constants that are no weights."""
    return sum(own.size for name, own in initialisers(model).items() if name.startswith("value_"))


@pytest.mark.parametrize("mode", ["DCR", "CRD", "SpaceToDepth", "pixel shuffle", "unshuffle"])
def test_channels_and_blocks_of_pixels(mode: str, tmp_path: Path) -> None:
    """As operators, and as PyTorch's modules are exported."""
    g = WeightedGraph(("image", ["batch", 3, 4, 6]))
    x = g("Relu", g("Conv", "image", g.weight("a", 8, 3, 3, 3), pads=[1] * 4))
    expected: dict[str, Any] = {"order": "chw", "to": "space", "factor": (2, 2)}
    if mode in ("DCR", "CRD"):
        x = g("DepthToSpace", x, blocksize=2, mode=mode)
        expected["order"] = "hwc" if mode == "DCR" else "chw"
    elif mode == "SpaceToDepth":
        x = g("SpaceToDepth", x, blocksize=2)
        expected |= {"order": "hwc", "to": "depth"}
    else:
        deeper = mode == "unshuffle"
        apart = [0, 8, 2, 2, 3, 2] if deeper else [0, 2, 2, 2, 4, 6]
        x = g("Reshape", x, g.value(apart))
        x = g("Transpose", x, perm=[0, 1, 3, 5, 2, 4] if deeper else [0, 1, 4, 2, 5, 3])
        x = g("Reshape", x, g.value([0, 32, 2, 3] if deeper else [0, 2, 8, 12]))
        expected["to"] = "depth" if deeper else "space"
    channels = 32 if expected["to"] == "depth" else 2
    network = imported(tmp_path, g.model(g("Conv", x, g.weight("b", 3, channels, 1, 1))))
    assert attributes(network, "pixel_shuffle") == [expected]


def test_a_pixel_has_its_channels_last(tmp_path: Path) -> None:
    """As of ConvNeXt's last stage in small: channels are no pixels of a row."""
    g = WeightedGraph(("image", ["batch", 3, 2, 2]))
    x = g("Conv", "image", g.weight("a", 8, 3, 2, 2), g.weight("bias", 8))
    x = g("LayerNormalization", g("Transpose", x, perm=[0, 2, 3, 1]), g.weight("scale", 8))
    x = g("Conv", g("Transpose", x, perm=[0, 3, 1, 2]), g.weight("b", 5, 8, 1, 1))
    assert kinds(imported(tmp_path, g.model(x))) == ["conv", "norm", "conv"]


def test_a_mean_in_other_strides(tmp_path: Path) -> None:
    """As PyTorch pools channels that are last: all numbers in order, as a view."""
    g = WeightedGraph(("image", [4, 3, 4, 4]))
    x = g("ReduceMean", g("Conv", "image", g.weight("a", 8, 3, 1, 1)), g.value([2, 3]))
    x = g("Gather", g("Reshape", x, g.value([32])), g.value(np.arange(32).reshape(4, 8, 1, 1)))
    x = g("LayerNormalization", g("Transpose", x, perm=[0, 2, 3, 1]), g.weight("scale", 8))
    x = g("Flatten", g("Transpose", x, perm=[0, 3, 1, 2]))
    network = imported(tmp_path, g.model(g.linear(x, "head", 8, 5)))
    assert kinds(network) == ["conv", "global_pool", "norm", "fc", "output"]


def test_a_vector_is_an_image_of_one_pixel(tmp_path: Path) -> None:
    """Whose windows reach over a border: as where a model is given smaller images than its own."""
    g = WeightedGraph(("image", ["batch", 3, 4, 4]))
    x = g("GlobalAveragePool", g("Conv", "image", g.weight("a", 8, 3, 1, 1)))
    x = g("Conv", x, g.weight("b", 8, 1, 3, 3), g.weight("bias", 8), pads=[1] * 4, group=8)
    x = g("Conv", g("Relu", x), g.weight("c", 5, 8, 1, 1))
    assert "unflatten" in kinds(imported(tmp_path, g.model(g("Flatten", x))))


def test_blocks_of_other_heights_than_widths(tmp_path: Path) -> None:
    g = WeightedGraph(("image", ["batch", 3, 4, 6]))
    x = g("Conv", "image", g.weight("a", 12, 3, 1, 1))
    x = g("Transpose", g("Reshape", x, g.value([0, 2, 2, 3, 4, 6])), perm=[0, 1, 4, 2, 5, 3])
    x = g("Conv", g("Reshape", x, g.value([0, 2, 8, 18])), g.weight("b", 5, 2, 1, 1))
    network = imported(tmp_path, g.model(x))
    assert attributes(network, "pixel_shuffle")[0]["factor"] == (2, 3)


def test_patches_are_put_together_by_letters(tmp_path: Path) -> None:
    """As DiT ends: an equation of one tensor is an order of its dimensions."""
    g = WeightedGraph(("image", ["batch", 3, 2, 3]))
    x = g("Conv", "image", g.weight("a", 12, 3, 1, 1))
    x = g("Einsum", g("Reshape", x, g.value([0, 2, 2, 3, 2, 3])), equation="npqchw->nchpwq")
    x = g("Reshape", x, g.value([0, 3, 4, 6]))
    network = imported(tmp_path, g.model(g("Conv", x, g.weight("b", 5, 3, 1, 1))))
    assert "pixel_shuffle" in kinds(network)


@pytest.mark.parametrize("by_column", [True, False])
def test_the_slices_of_a_focus(by_column: bool, tmp_path: Path) -> None:
    """Every second row and column, of the input as YOLOv5 takes them or behind a layer."""
    g = WeightedGraph(("image", ["batch", 3, 4, 6]))
    x = "image" if by_column else g("Conv", "image", g.weight("a", 3, 3, 1, 1))
    every = [(row, column) for column in (0, 1) for row in (0, 1)]
    parts = []
    for row, column in every if by_column else sorted(every):
        part = x
        for axis, start in ((2, row), (3, column)):
            part = g("Slice", part, *map(g.value, ([start], [99], [axis], [2])))
        parts.append(part)
    x = g("Conv", g("Concat", *parts, axis=1), g.weight("b", 4, 12, 1, 1))
    network = imported(tmp_path, g.model(x))
    order = "whc" if by_column else "hwc"
    assert attributes(network, "pixel_shuffle") == [
        {"to": "depth", "factor": (2, 2), "order": order}
    ]


def test_halves_of_channels_are_shuffled(tmp_path: Path) -> None:
    """As in ShuffleNet v2: one half of the channels is left alone, and both are dealt out."""
    g = WeightedGraph(("image", ["batch", 3, 4, 4]))
    x = g("Relu", g("Conv", "image", g.weight("stem", 8, 3, 1, 1)))
    for block in range(2):
        kept, read = g("Split", x, g.value([4, 4]), outputs=2, axis=1)
        made = g("Relu", g("Conv", read, g.weight(f"block.{block}", 4, 4, 1, 1)))
        x = g("Reshape", g("Concat", kept, made, axis=1), g.value([0, 2, 4, 4, 4]))
        x = g("Reshape", g("Transpose", x, perm=[0, 2, 1, 3, 4]), g.value([0, 8, 4, 4]))
    x = g("Flatten", g("GlobalAveragePool", x))
    network = imported(tmp_path, g.model(g.linear(x, "head", 8, 5)))
    # The last shuffle is that of the rows of the product that follows.
    assert attributes(network, "shuffle") == [{"groups": 2}]
    # The stem is divided, and the shuffle between blocks read in part.
    slices = attributes(network, "slice")
    assert sorted((own["start"], own["size"]) for own in slices) == [(0, 4), (4, 4)]


def test_parts_of_a_norm_and_of_a_concatenation(tmp_path: Path) -> None:
    """As in Res2Net, whose activation is before its parts, and in GhostNet."""
    g = WeightedGraph(("image", ["batch", 3, 4, 4]))
    learned = [g.weight(f"bn.{name}", 9) for name in ("weight", "bias", "mean")]
    x = g("Conv", "image", g.weight("a", 9, 3, 1, 1))
    x = g("BatchNormalization", x, *learned, g.value(np.ones(9, np.float32)))
    parts = g("Split", g("Relu", x), g.value([3] * 3), outputs=3, axis=1)
    made = [parts[0]]
    for number, part in enumerate(parts[1:]):
        read = part if number == 0 else g("Add", part, made[-1])
        made.append(g("Relu", g("Conv", read, g.weight(f"c.{number}", 3, 3, 3, 3), pads=[1] * 4)))
    both = g("Slice", g("Concat", *made, axis=1), *map(g.value, ([0], [8], [1])))
    network = imported(tmp_path, g.model(g("Conv", both, g.weight("last", 2, 8, 1, 1))))
    assert [own["size"] for own in attributes(network, "slice")] == [3, 3, 3, 8]
    assert attributes(network, "norm")[0]["activation"] == "relu"


def test_patches_are_merged(tmp_path: Path) -> None:
    """As in Swin: channels last, a norm of the deeper ones, and a product."""
    g = WeightedGraph(("image", ["batch", 3, 8, 8]))
    x = g("Conv", "image", g.weight("patch", 8, 3, 2, 2), strides=[2, 2])
    x = g("Transpose", x, perm=[0, 2, 3, 1])
    parts = []
    for column, row in np.ndindex(2, 2):
        part = x
        for axis, start in ((1, row), (2, column)):
            part = g("Slice", part, *map(g.value, ([start], [99], [axis], [2])))
        parts.append(part)
    names = g.weight("norm.weight", 32), g.weight("norm.bias", 32)
    x = g("LayerNormalization", g("Concat", *parts, axis=-1), *names, axis=-1)
    network = imported(tmp_path, g.model(g.linear(x, "reduction", 32, 16)))
    assert kinds(network) == ["conv", "pixel_shuffle", "norm", "conv"]


def test_an_image_is_enlarged_at_the_end(tmp_path: Path) -> None:
    g = WeightedGraph(("image", ["batch", 3, 4, 4]))
    x = g("DepthToSpace", g("Conv", "image", g.weight("a", 8, 3, 1, 1)), blocksize=2)
    assert kinds(imported(tmp_path, g.model(x))) == ["conv", "pixel_shuffle"]


def sequence(g: WeightedGraph, x: str, *, causal: bool) -> str:
    """Two convolutions of one dimension of a map [batch, 8, 12], of which one is cut to length."""
    x = g("Relu", g("Conv", x, g.weight("a", 8, 8, 3), pads=[2, 2] if causal else [1, 1]))
    if causal:
        x = g("Slice", x, *map(g.value, ([0], [-2], [2])))
    x = g("Conv", x, g.weight("b", 8, 2, 4), pads=[2, 2], group=4)
    return str(g("Slice", x, *map(g.value, ([0], [12], [2]))))


@pytest.mark.parametrize("causal", [True, False])
def test_convolutions_and_pools_of_one_dimension(causal: bool, tmp_path: Path) -> None:
    """An image of one row; what is cut off both sides of the padding is less padding."""
    g = WeightedGraph(("signal", ["batch", 8, 12]))
    x = g("MaxPool", sequence(g, "signal", causal=causal), kernel_shape=[2], strides=[2])
    x = g("ConvTranspose", x, g.weight("up", 8, 6, 2), strides=[2])
    x = g("AveragePool", x, kernel_shape=[3], strides=[3])
    x = g("Gemm", g("Flatten", x), g.weight("fc", 5, 24), g.weight("bias", 5), transB=1)
    network = imported(tmp_path, g.model(g("Sigmoid", x)))
    first, second, up = attributes(network, "conv")
    assert first["padding"] == ((0, 2, 0, 0) if causal else (0, 1))
    assert (second["kernel"], second["padding"]) == ((1, 4), (0, 2, 0, 1))
    assert (up["kernel"], up["stride"]) == ((1, 2), (1, 2))


def test_convolutions_of_sequences_of_tokens(tmp_path: Path) -> None:
    """As Whisper's stem makes tokens, and wav2vec's positions are a convolution of tokens."""
    g = WeightedGraph(("signal", ["batch", 8, 12]))
    x = g("Conv", "signal", g.weight("stem", 8, 8, 3), pads=[1, 1])
    x = g("Transpose", x, perm=[0, 2, 1])
    x = g.linear(g("Add", x, g.weight("positions", 1, 12, 8)), "project", 8, 8, bias=True)
    place = sequence(g, g("Transpose", x, perm=[0, 2, 1]), causal=False)
    x = g("Add", x, g("Transpose", g("Tanh", place), perm=[0, 2, 1]))
    network = imported(tmp_path, g.model(g.linear(x, "head", 8, 5)))
    assert attributes(network, "unflatten") == [{"height": 1, "width": 12}]
    assert [*network.maps()][-1].output == (12, 5)


def test_what_is_cut_off_a_convolution_that_others_read_is_refused(tmp_path: Path) -> None:
    g = WeightedGraph(("signal", ["batch", 8, 12]))
    x = g("Conv", "signal", g.weight("a", 8, 8, 3), pads=[2, 2])
    cut = g("Slice", x, *map(g.value, ([0], [12], [2])), name="cut")
    y = g("Conv", cut, g.weight("b", 4, 8, 3))
    assert "reads a part of a feature map" in refusal(tmp_path, g.model(y, x))


def test_views_behind_the_last_softmax_leave_it_the_loss(tmp_path: Path) -> None:
    """As where a head is a convolution of one pixel, whose two dimensions are dropped."""
    g = WeightedGraph(("image", ["batch", 3, 4, 4]))
    x = g("GlobalAveragePool", g("Conv", "image", g.weight("a", 8, 3, 1, 1)))
    x = g("Softmax", g("Conv", x, g.weight("head", 5, 8, 1, 1)), axis=1)
    onnx.save(g.model(g("Flatten", g("Identity", x))), path := tmp_path / "model.onnx")
    network = import_(path)
    assert attributes(network, "output") == [{"loss": "softmax"}]
    assert not network.not_kept


def test_weights_that_the_graph_computes_of_a_number_are_read_as_computed(tmp_path: Path) -> None:
    """As Gemma adds one to scales of norms; equalised learning rates multiply weights."""
    g = WeightedGraph(("x", ["batch", 6, 8]))
    scale = g("Add", g.value(np.float32(1)), g.weight("scale", 8))
    x = g("LayerNormalization", "x", scale, g.weight("shift", 8), axis=-1)
    turned = g("Transpose", g.weight("w", 5, 8), perm=[1, 0])
    half = g("Mul", g("Sub", g("Neg", turned), g.value([np.float32(2)])), g.value(np.float32(0.5)))
    path = tmp_path / "model.onnx"
    onnx.save(g.model(g("MatMul", x, half)), path)
    assert_computes_its_model(imported_model(path).network, path)


def test_weights_that_layers_read_in_two_ways_are_of_none(tmp_path: Path) -> None:
    """A head that is half of its embedding shares no values with it."""
    g = WeightedGraph(IDS, ids=True)
    table = g.weight("words", WORDS, 8)
    half = g("Transpose", g("Mul", table, g.value(np.float32(0.5))), perm=[1, 0])
    path = tmp_path / "model.onnx"
    onnx.save(g.model(g("MatMul", g("Relu", g("Gather", table, "ids")), half)), path)
    with pytest.raises(InputError, match="'embedding': its weights are not elements of the file"):
        read_weights(path)


@pytest.mark.parametrize("sizes", [4, [3, 5]], ids=["chunks", "parts"])
def test_a_sequence_of_parts_is_a_split(sizes: Any, tmp_path: Path) -> None:
    """As torch.onnx writes chunks where its optimiser does not run; of weights, too."""
    g = WeightedGraph(("image", ["batch", 3, 4, 4]))
    x = g("Conv", "image", g.weight("a", 8, 3, 1, 1))
    second = 4 if sizes == 4 else 5
    parts = g("SplitToSequence", x, g.value(sizes), axis=1)
    first, rest = (g("SequenceAt", parts, g.value(n)) for n in range(2))
    both = g("SplitToSequence", g.weight("b", 8, second, 1, 1), g.value([2, 6]), axis=0)
    rest = g("Conv", g("Relu", rest), g("SequenceAt", both, g.value(1)))
    network = imported(tmp_path, g.model(g("Concat", first, rest, axis=1)))
    assert parameters(network) == 3 * 8 + 6 * second
