"""Small ONNX models with weights, and whether their imports compute what they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

import hypar_opt as ho
from hypar_opt.execution.virtual.data import StepData
from hypar_opt.execution.virtual.division import Division
from hypar_opt.execution.virtual.step import TrainingStep
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.onnx import ImportedModel, imported_model
from hypar_opt.onnx.reference import in_order, outputs_of
from hypar_opt.onnx.weights import ModelWeights, weights_of
from hypar_opt.sharding.program import Program
from hypar_opt.studies.model_weights import with_weights
from hypar_opt.workload.tensors import workload_of
from tests.onnx.graph_writer import GraphWriter

BATCH, TOKENS, WIDTH, HEADS, WORDS = 4, 6, 16, 4, 24
LATER = 5
"""Tokens of a second sequence."""
SIZE = WIDTH // HEADS
STEPS = (1e-6, 1e-4)
"""How far weights are moved to see how a loss changes: not across a corner of relu, and beyond what
the evaluator, whose erf is of single precision, rounds."""
Shaped = tuple[str, list[int | str]]
Array = NDArray[Any]
IDS: Shaped = ("ids", ["batch", TOKENS])


COMPUTED = ""
"""What is said of a model that a network computes."""


class Refused(str):
    """A part of what a refusal says; other words are of what is named as left out."""

    __slots__ = ()


class WeightedGraph(GraphWriter):
    """A graph whose weights have random values."""

    @cached_property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(0)

    def weight(self, name: str, *shape: int) -> str:
        values = self.rng.normal(0.0, 0.5, shape).astype(np.float32)
        self.initialisers.append(numpy_helper.from_array(values, name))
        return name

    def layer_norm(self, x: str, name: str, epsilon: float) -> str:
        names = self.weight(f"{name}.weight", WIDTH), self.weight(f"{name}.bias", WIDTH)
        return str(self("LayerNormalization", x, *names, axis=-1, epsilon=epsilon))

    def apart(self, x: str, heads: int, tokens: int = TOKENS) -> str:
        """Heads of a tensor of features: ``[batch, heads, tokens, size]``."""
        return self.heads(x, 0, tokens, heads, SIZE)

    def part(self, x: str, start: int, end: int, step: int = 1) -> str:
        """Some features of each head."""
        return str(self("Slice", x, *map(self.value, ([start], [end], [3], [step]))))

    def rotations(self, features: int, base: float, *, twice: bool = False) -> tuple[str, str]:
        """Cosines and sines of the angles by which each token's features are turned."""
        angles = np.arange(TOKENS)[:, None] * base ** (-np.arange(0, features, 2) / features)
        if twice:
            angles = np.concatenate([angles, angles], -1)
        return self.value(np.cos(angles)), self.value(np.sin(angles))

    def turned(self, x: str, features: int = SIZE, base: float = 1e4) -> str:
        """Turn the two halves of a head's features, as most exporters write it."""
        (cos, sin), half = self.rotations(features, base, twice=True), features // 2
        other = self(
            "Concat", self("Neg", self.part(x, half, features)), self.part(x, 0, half), axis=-1
        )
        return str(self("Add", self("Mul", x, cos), self("Mul", other, sin)))

    def attended(self, q: str, k: str, v: str, *, causal: bool) -> str:
        past = np.triu(np.full((TOKENS, TOKENS), -np.inf, np.float32), 1)
        mixed = self.core(q, k, v, self.value(past) if causal else None, size=SIZE)
        return self.together(mixed, 0, TOKENS, WIDTH)

    def cross(
        self, x: str, states: str, name: str, tokens: tuple[int, int], width: int = WIDTH
    ) -> str:
        """Attention of tokens to others: their numbers, and the features of the others."""
        q = self.apart(self.linear(x, f"{name}.q", WIDTH, WIDTH), HEADS, tokens[0])
        k, v = (
            self.apart(self.linear(states, f"{name}.{one}", width, WIDTH), HEADS, tokens[1])
            for one in "kv"
        )
        mixed = self.together(self.core(q, k, v, None, size=SIZE), 0, tokens[0], WIDTH)
        return str(self.linear(mixed, f"{name}.o", WIDTH, WIDTH))


def mlp() -> Any:
    g = WeightedGraph(("x", ["batch", 12]))
    x = "x"
    for name, sizes in {"fc1": (12, 20), "fc2": (20, 8)}.items():
        x = g("Sigmoid", g.linear(x, name, *sizes, bias=True))
    return g.model(g.linear(x, "fc3", 8, 5, bias=True))


def lenet() -> Any:
    """Images in rows of pixels, channels last, are flattened in that order."""
    g = WeightedGraph(("image", ["batch", 1, 12, 12]))
    x = g("Conv", "image", g.weight("conv1.weight", 4, 1, 5, 5), g.weight("conv1.bias", 4))
    x = g("MaxPool", g("Relu", x), kernel_shape=[2, 2], strides=[2, 2])
    x = g("Conv", x, g.weight("conv2.weight", 6, 4, 3, 3), pads=[1, 1, 1, 1])
    x = g("Transpose", g("Relu", x), perm=[0, 2, 3, 1])
    x = g("Gemm", g("Flatten", x), g.weight("fc.weight", 10, 96), g.weight("fc.bias", 10), transB=1)
    return g.model(x)


def resnet() -> Any:
    g = WeightedGraph(("image", ["batch", 3, 8, 8]))

    def conv(x: str, name: str, *shape: int, stride: int = 1) -> str:
        pads = [shape[-1] // 2] * 4
        x = g("Conv", x, g.weight(f"{name}.weight", *shape), pads=pads, strides=[stride] * 2)
        learned = [g.weight(f"{name}.bn.{what}", shape[0]) for what in ("weight", "bias", "mean")]
        spread = g.value(np.ones(shape[0], np.float32))
        return str(g("BatchNormalization", x, *learned, spread, epsilon=1e-3))

    x = g("Relu", conv("image", "stem", 8, 3, 3, 3))
    y = conv(g("Relu", conv(x, "a", 16, 8, 3, 3, stride=2)), "b", 16, 16, 3, 3)
    x = g("Relu", g("Add", y, conv(x, "down", 16, 8, 1, 1, stride=2)))
    x = g("Flatten", g("GlobalAveragePool", x))
    return g.model(g.linear(x, "head", 16, 10, bias=True))


def gpt() -> Any:
    """As GPT-2: learned positions, joint queries, keys and values, gelu by tanh, a tied head.

    And words times a number, as Gemma's.
    """
    g = WeightedGraph(IDS, ids=True)
    words = g.weight("wte.weight", WORDS, WIDTH)
    first = g("Slice", g.weight("wpe.weight", 10, WIDTH), g.value([0]), g.value([TOKENS]))
    x = g("Add", g("Mul", g("Gather", words, "ids"), g.value(1.5)), first)
    for n in range(2):
        y = g.linear(g.layer_norm(x, f"h.{n}.ln_1", 1e-5), f"h.{n}.qkv", WIDTH, 48, bias=True)
        parts = g("Split", y, g.value([WIDTH] * 3), outputs=3, axis=-1)
        y = g.attended(*(g.apart(part, HEADS) for part in parts), causal=True)
        x = g("Add", x, g.linear(y, f"h.{n}.proj", WIDTH, WIDTH, bias=True))
        y = g.linear(g.layer_norm(x, f"h.{n}.ln_2", 1e-5), f"h.{n}.up", WIDTH, 32, bias=True)
        cubed = g("Mul", g("Pow", y, g.value(3.0)), g.value(0.044715))
        inner = g("Mul", g("Add", y, cubed), g.value((2 / np.pi) ** 0.5))
        half = g("Mul", y, g.value(0.5))
        y = g("Mul", half, g("Add", g("Tanh", inner), g.value(1.0)))
        x = g("Add", x, g.linear(y, f"h.{n}.down", 32, WIDTH, bias=True))
    x = g.layer_norm(x, "ln_f", 1e-5)
    return g.model(g("MatMul", x, g("Transpose", words, perm=[1, 0])))


def llama() -> Any:
    """RMS norms written out, rotary positions, grouped queries, a gated MLP."""
    g = WeightedGraph(IDS, ids=True)

    def norm(x: str, name: str) -> str:
        square = g("ReduceMean", g("Pow", x, g.value(2.0)), g.value([-1]), keepdims=1)
        root = g("Sqrt", g("Add", square, g.value(1e-3)))
        return str(g("Mul", g.weight(f"{name}.weight", WIDTH), g("Div", x, root)))

    def repeated(x: str) -> str:
        each = g("Unsqueeze", x, g.value([2]))
        shape = g("Concat", g("Shape", x, end=2), g.value([2, TOKENS, SIZE]), axis=0)
        copies = g("Expand", each, shape)
        return str(g("Reshape", copies, g.value([0, HEADS, TOKENS, SIZE])))

    x = g("Gather", g.weight("embed.weight", WORDS, WIDTH), "ids")
    for n in range(1):
        y = norm(x, f"layers.{n}.norm1")
        q = g.turned(g.apart(g.linear(y, f"layers.{n}.q", WIDTH, WIDTH), HEADS), base=500.0)
        k = g.turned(g.apart(g.linear(y, f"layers.{n}.k", WIDTH, 8), 2), base=500.0)
        v = g.apart(g.linear(y, f"layers.{n}.v", WIDTH, 8), 2)
        y = g.attended(q, repeated(k), repeated(v), causal=True)
        x = g("Add", x, g.linear(y, f"layers.{n}.o", WIDTH, WIDTH))
        y = norm(x, f"layers.{n}.norm2")
        gate = g.linear(y, f"layers.{n}.gate", WIDTH, 20)
        y = g("Mul", g("Mul", gate, g("Sigmoid", gate)), g.linear(y, f"layers.{n}.up", WIDTH, 20))
        x = g("Add", x, g.linear(y, f"layers.{n}.down", 20, WIDTH))
    return g.model(g.linear(norm(x, "norm"), "lm_head", WIDTH, WORDS))


def vision_transformer() -> Any:
    """Patches by a convolution, a class token, gelu by erf, a scale of scores of its own."""
    g = WeightedGraph(("image", ["batch", 3, 8, 8]))
    x = g("Conv", "image", g.weight("patch.weight", WIDTH, 3, 4, 4), strides=[4, 4])
    x = g("Transpose", g("Reshape", x, g.value([0, WIDTH, 4])), perm=[0, 2, 1])
    x = g("Add", x, g.weight("positions", 1, 4, WIDTH))
    y = g.layer_norm(x, "ln_1", 1e-6)
    q, k, v = (g.apart(g.linear(y, one, WIDTH, WIDTH, bias=True), HEADS, 4) for one in "qkv")
    scores = g("Mul", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), g.value(0.3))
    y = g.together(g("MatMul", g("Softmax", scores, axis=-1), v), 0, 4, WIDTH)
    x = g("Add", x, g.linear(y, "proj", WIDTH, WIDTH, bias=True))
    y = g.linear(g.layer_norm(x, "ln_2", 1e-6), "up", WIDTH, 32, bias=True)
    half = g("Mul", y, g.value(0.5))
    y = g("Mul", half, g("Add", g("Erf", g("Div", y, g.value(2**0.5))), g.value(1.0)))
    x = g("Add", x, g.linear(y, "down", 32, WIDTH, bias=True))
    x = g("ReduceMean", x, g.value([1]), keepdims=0)
    return g.model(g.linear(x, "head", WIDTH, 10, bias=True))


def unet() -> Any:
    """As of diffusion: norms of groups of channels, an encoder's maps beside a decoder's.

    Norms are written as an operator, as exporters write it, and out; one is of pixels as tokens.
    """
    g = WeightedGraph(("image", [BATCH, 3, 8, 8]))

    def conv(x: str, name: str, *shape: int, **more: Any) -> str:
        own = g.weight(f"{name}.weight", *shape), g.weight(f"{name}.bias", shape[0])
        more = {"pads": [shape[-1] // 2] * 4, **more}
        return str(g("Conv", x, *own, **more))

    def own(name: str, channels: int) -> list[str]:
        learned = [g.weight(f"{name}.{what}", channels) for what in ("weight", "bias")]
        return [g("Unsqueeze", one, g.value([1, 2])) for one in learned]

    def exported(x: str, name: str, channels: int, *places: int) -> str:
        rows = g("Reshape", x, g.value([0, 4, -1]))
        plain = g.value(np.ones(4, np.float32)), g.value(np.zeros(4, np.float32))
        rows = g("InstanceNormalization", rows, *plain, epsilon=1e-3)
        scale, shift = own(name, channels)
        x = g("Reshape", rows, g.value([0, channels, *places]))
        return str(g("Add", g("Mul", x, scale), shift))

    def written(x: str, name: str, channels: int, *places: int) -> str:
        rows = g("Reshape", x, g.value([0, 4, channels // 4, *places]))
        apart = g("Sub", rows, g("ReduceMean", rows, g.value([2, 3, 4]), keepdims=1))
        spread = g("ReduceMean", g("Mul", apart, apart), g.value([2, 3, 4]), keepdims=1)
        rows = g("Div", apart, g("Sqrt", g("Add", spread, g.value(1e-3))))
        scale, shift = own(name, channels)
        x = g("Reshape", rows, g.value([0, channels, *places]))
        return str(g("Add", g("Mul", x, scale), shift))

    def block(x: str, name: str, inputs: int, channels: int, side: int, norm: Any) -> str:
        y = norm(x, f"{name}.norm", inputs, side, side)
        y = conv(g("Mul", y, g("Sigmoid", y)), f"{name}.conv", channels, inputs, 3, 3)
        x = x if inputs == channels else conv(x, f"{name}.short", channels, inputs, 1, 1)
        return str(g("Add", x, y))

    def seen(x: str) -> str:
        """Attention of an image's pixels, after a norm of groups of them."""
        scale, shift = (g.weight(f"attention.norm.{what}", 16) for what in ("weight", "bias"))
        flat = g("Reshape", x, g.value([0, 16, 16]))
        rows = g(
            "GroupNormalization", flat, scale, shift, num_groups=4, epsilon=1e-3, stash_type=11
        )
        rows = g("Transpose", rows, perm=[0, 2, 1])
        q, k, v = (g.apart(g.linear(rows, one, 16, 16, bias=True), HEADS, 16) for one in "qkv")
        y = g.together(g.core(q, k, v, size=SIZE), 0, 16, 16)
        y = g("Transpose", g.linear(y, "proj", 16, 16, bias=True), perm=[0, 2, 1])
        return str(g("Add", x, g("Reshape", y, g.value([0, 16, 4, 4]))))

    first = block(conv("image", "stem", 8, 3, 3, 3), "down1", 8, 8, 8, exported)
    # A border behind alone.
    x = g("Pad", first, g.value([0, 0, 0, 0, 0, 0, 1, 1]))
    x = conv(x, "down", 8, 8, 3, 3, strides=[2, 2], pads=[0] * 4)
    x = seen(block(x, "down2", 8, 16, 4, written))
    x = g("Resize", x, "", "", g.value([BATCH, 16, 8, 8]), mode="nearest")
    # Of 24 channels a group has some of both.
    x = block(g("Concat", x, first, axis=1), "up", 24, 8, 8, exported)
    scale, shift = (g.weight(f"norm.{what}", 8) for what in ("weight", "bias"))
    x = g("Relu", g("InstanceNormalization", x, scale, shift, epsilon=1e-3))
    model = g.model(conv(x, "out", 3, 8, 3, 3))
    model.opset_import[0].version = 21  # before, GroupNormalization scales groups
    return model


def translator() -> Any:
    """As T5: an encoder and a decoder of ids of their own, one table, attention to the encoder."""
    g = WeightedGraph(IDS, ("decoder_ids", ["batch", LATER]), ids=True)
    table = g.weight("shared.weight", WORDS, WIDTH)
    x = g("Gather", table, "ids")
    y = g.cross(x, x, "encoder", (TOKENS, TOKENS))
    encoded = g.layer_norm(g("Add", x, y), "encoder.norm", 1e-6)
    x = g("Gather", table, "decoder_ids")
    x = g("Add", x, g.cross(g.layer_norm(x, "norm", 1e-6), encoded, "decoder", (LATER, TOKENS)))
    return g.model(g("MatMul", x, g("Transpose", table, perm=[1, 0])))


def listener() -> Any:
    """As Whisper: frames in convolutions of one dimension, and ids of a decoder."""
    frames, bins = 2 * TOKENS, 3
    g = WeightedGraph(("frames", ["batch", bins, frames]), ("ids", ["batch", LATER]), ids=("ids",))
    x = g("Conv", "frames", g.weight("conv.weight", WIDTH, bins, 3), g.weight("conv.bias", WIDTH))
    x = g("Conv", x, g.weight("conv2.weight", WIDTH, WIDTH, 1), strides=[2], pads=[1, 1])
    x = g("Transpose", g("Sigmoid", x), perm=[0, 2, 1])
    encoded = g.layer_norm(g("Add", x, g.weight("frames.positions", TOKENS, WIDTH)), "n", 1e-5)
    x = g("Gather", g.weight("embed.weight", WORDS, WIDTH), "ids")
    x = g("Add", x, g.cross(x, encoded, "decoder", (LATER, TOKENS)))
    return g.model(g.linear(x, "head", WIDTH, WORDS))


def conditioned() -> Any:
    """Tokens that attend to features of others, under a time step and a vector of each sample.

    Written as in DiT: the sines of the step, and shifts and scales that both make.
    """
    states: Shaped = ("states", ["batch", LATER, 10])
    g = WeightedGraph(IDS, states, ("vector", ["batch", 5]), ("step", ["batch"]), ids=("ids",))
    rates = 1e4 ** (-np.arange(WIDTH // 2) / (WIDTH // 2))
    angles = g("Mul", g("Unsqueeze", "step", g.value([1])), g.value(rates[None]))
    turns = g("Concat", g("Cos", angles), g("Sin", angles), axis=-1)
    made = g.linear(turns, "time", WIDTH, WIDTH, bias=True)
    made = g("Sigmoid", g("Add", made, g.linear("vector", "mlp", 5, WIDTH)))
    made = g("Unsqueeze", g.linear(made, "both", WIDTH, 2 * WIDTH, bias=True), g.value([1]))
    scale, shift = g("Split", made, g.value([WIDTH] * 2), outputs=2, axis=-1)
    x = g("Gather", g.weight("embed.weight", WORDS, WIDTH), "ids")
    scaled = g("Mul", g.layer_norm(x, "norm", 1e-6), g("Add", scale, g.value(1.0)))
    y = g("Add", scaled, shift)
    x = g("Add", x, g.cross(y, "states", "cross", (TOKENS, LATER), 10))
    return g.model(g.linear(x, "head", WIDTH, 7))


MODELS: Mapping[str, Callable[[], Any]] = {
    one.__name__: one
    for one in (
        *(mlp, lenet, resnet, gpt, llama, vision_transformer, unet),
        *(translator, listener, conditioned),
    )
}


def one_device(network: ho.Network) -> Program:
    return Program(workload_of(network, BATCH, shared_tensors=True), (), Hierarchy(()))


def assert_computes_its_model(network: ho.Network, path: Path, *, untie: bool = False) -> None:
    """Whether a network has the output of the model that it is the import of, and its gradients.

    Of the gradients, what they say of the loss along a random direction of all weights.
    """
    step = with_weights(path, None, network, one_device(network), seed=0)
    assert step.difference < 1e-6
    model, imported = onnx.load(path), imported_model(path, untie=untie)
    values = {
        name: own.astype(np.float64)
        for name, own in initialisers(model).items()
        if own.dtype == np.float32 and own.size
    }
    rng = np.random.default_rng(1)
    along = {
        name: np.zeros(own.shape) if name.startswith("value_") else rng.normal(size=own.shape)
        for name, own in values.items()
    }

    given = {source: step.data.inputs[place] for source, place in imported.places.items()}

    def moved(by: float) -> Any:
        return with_values(model, {name: own + by * along[name] for name, own in values.items()})

    def output(by: float) -> Array:
        (output,) = outputs_of(imported.state, moved(by), given)
        return output

    # Weights that the model makes of its values, as 1 + w, move as these do.
    there, here = (weights_of(imported, moved(by)) for by in (1, 0))
    direction = ModelWeights(
        *(
            {name: own - before[name] for name, own in after.items()}
            for after, before in zip(there, here, strict=True)
        )
    )
    pull = loss_gradient(imported, step.data, output(0))
    slopes = [float((pull * (output(by) - output(-by))).sum()) / (2 * by) for by in STEPS]
    assert_slope(network, step.data, direction, slopes)


def loss_gradient(imported: ImportedModel, data: StepData, output: Array) -> Array:
    """Return the gradient of a step's loss by the output of its model."""
    features = imported.state.tensors[imported.state.graph.outputs[0]]
    places = in_order(features, np.arange(output.size).reshape(output.shape))
    assert places is not None
    order, gradient = places.ravel(), np.zeros(output.size)
    if not data.targets:
        (errors,) = data.errors.values()
        gradient[order] = errors.ravel()
        return gradient.reshape(output.shape)
    (targets,) = data.targets.values()
    logits, end = output.ravel()[order].reshape(*targets.shape, -1), imported.layers[-1].node
    chosen = np.eye(logits.shape[-1])[targets] / targets.size
    if end is not None and end.op == "Softmax":
        found = -chosen / logits
    else:
        shares = np.exp(logits - logits.max(-1, keepdims=True))
        found = shares / shares.sum(-1, keepdims=True) / targets.size - chosen
    gradient[order] = found.ravel()
    return gradient.reshape(output.shape)


def assert_slope(
    network: ho.Network, data: StepData, direction: ModelWeights, slopes: Sequence[float]
) -> None:
    """Whether the gradients of a network's weights say one of some slopes along a direction."""
    record = TrainingStep(Division(network, one_device(network)), data).run()
    found = sum(
        float((own[0].reshape(array.shape) * array).sum())
        for gradients, arrays in (
            (record.gradients, direction.weights),
            (record.bias_gradients, direction.biases),
        )
        for place, own in gradients.items()
        for array in [arrays[network.layers[place].name]]
    )
    assert any(found == pytest.approx(one, rel=1e-5, abs=1e-4) for one in slopes), (found, slopes)


def initialisers(model: Any) -> dict[str, Any]:
    return {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}


def with_values(model: Any, values: Mapping[str, Any]) -> Any:
    """Return a copy of a model whose floating-point initializers have other values."""
    copy = type(model)()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE):
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(values[tensor.name]), tensor.name))
    return copy
