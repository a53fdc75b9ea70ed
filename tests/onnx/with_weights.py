"""Small ONNX models with weights, and whether their imports compute what they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

import hypar_opt as ho
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.studies.model_weights import with_weights
from hypar_opt.workload.tensors import workload_of
from tests.onnx.graph_writer import GraphWriter

BATCH, TOKENS, WIDTH, HEADS, WORDS = 4, 6, 16, 4, 24
LATER = 5
"""Tokens of a second sequence."""
SIZE = WIDTH // HEADS
Shaped = tuple[str, list[int | str]]
IDS: Shaped = ("ids", ["batch", TOKENS])


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
    """As GPT-2: learned positions, joint queries, keys and values, gelu by tanh, a tied head."""
    g = WeightedGraph(IDS, ids=True)
    words = g.weight("wte.weight", WORDS, WIDTH)
    first = g("Slice", g.weight("wpe.weight", 10, WIDTH), g.value([0]), g.value([TOKENS]))
    x = g("Add", g("Gather", words, "ids"), first)
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
        *(mlp, lenet, resnet, gpt, llama, vision_transformer),
        *(translator, listener, conditioned),
    )
}


def one_device(network: ho.Network) -> Program:
    return Program(workload_of(network, BATCH, shared_tensors=True), (), Hierarchy(()))


def assert_computes_its_model(network: ho.Network, path: Path) -> None:
    """Whether a network's output is that of the model that it is the import of."""
    step = with_weights(path, None, network, one_device(network), seed=0)
    assert step.difference < 1e-6


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
