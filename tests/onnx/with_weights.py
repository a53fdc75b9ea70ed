"""Small ONNX models with weights, and what they compute by JAX, node by node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.onnx.graph_writer import GraphWriter

BATCH, TOKENS, WIDTH, HEADS, WORDS = 4, 6, 16, 4, 24
SIZE = WIDTH // HEADS
Shaped = tuple[str, list[int | str]]
IDS: Shaped = ("ids", ["batch", TOKENS])


class WeightedGraph(GraphWriter):
    """A graph whose weights have random values."""

    rng = np.random.default_rng(0)

    def weight(self, name: str, *shape: int) -> str:
        values = self.rng.normal(0.0, 0.5, shape).astype(np.float32)
        self.initialisers.append(numpy_helper.from_array(values, name))
        return name

    def layer_norm(self, x: str, name: str, epsilon: float) -> str:
        names = self.weight(f"{name}.weight", WIDTH), self.weight(f"{name}.bias", WIDTH)
        return str(self("LayerNormalization", x, *names, axis=-1, epsilon=epsilon))

    def apart(self, x: str, heads: int) -> str:
        """Heads of a tensor of features: ``[batch, heads, tokens, size]``."""
        divided = self("Reshape", x, self.value([0, TOKENS, heads, SIZE]))
        return str(self("Transpose", divided, perm=[0, 2, 1, 3]))

    def attended(self, q: str, k: str, v: str, *, causal: bool) -> str:
        past = np.triu(np.full((TOKENS, TOKENS), -np.inf, np.float32), 1)
        mixed = self.core(q, k, v, self.value(past) if causal else None, size=SIZE)
        rows = self("Transpose", mixed, perm=[0, 2, 1, 3])
        return str(self("Reshape", rows, self.value([0, TOKENS, WIDTH])))


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
    angles = np.arange(TOKENS)[:, None] * 500.0 ** (-np.arange(0, SIZE, 2) / SIZE)
    angles = np.concatenate([angles, angles], -1)
    cos, sin = g.value(np.cos(angles)), g.value(np.sin(angles))

    def norm(x: str, name: str) -> str:
        square = g("ReduceMean", g("Pow", x, g.value(2.0)), g.value([-1]), keepdims=1)
        root = g("Sqrt", g("Add", square, g.value(1e-3)))
        return str(g("Mul", g.weight(f"{name}.weight", WIDTH), g("Div", x, root)))

    def turned(x: str) -> str:
        first = g("Slice", x, g.value([0]), g.value([SIZE // 2]), g.value([3]))
        second = g("Slice", x, g.value([SIZE // 2]), g.value([SIZE]), g.value([3]))
        half = g("Concat", g("Neg", second), first, axis=-1)
        return str(g("Add", g("Mul", x, cos), g("Mul", half, sin)))

    def repeated(x: str) -> str:
        each = g("Unsqueeze", x, g.value([2]))
        shape = g("Concat", g("Shape", x, end=2), g.value([2, TOKENS, SIZE]), axis=0)
        copies = g("Expand", each, shape)
        return str(g("Reshape", copies, g.value([0, HEADS, TOKENS, SIZE])))

    x = g("Gather", g.weight("embed.weight", WORDS, WIDTH), "ids")
    for n in range(1):
        y = norm(x, f"layers.{n}.norm1")
        q = turned(g.apart(g.linear(y, f"layers.{n}.q", WIDTH, WIDTH), HEADS))
        k = turned(g.apart(g.linear(y, f"layers.{n}.k", WIDTH, 8), 2))
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

    def heads(name: str) -> str:
        made = g.linear(y, name, WIDTH, WIDTH, bias=True)
        divided = g("Reshape", made, g.value([0, 4, HEADS, SIZE]))
        return str(g("Transpose", divided, perm=[0, 2, 1, 3]))

    q, k, v = map(heads, ("q", "k", "v"))
    scores = g("Mul", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), g.value(0.3))
    mixed = g("Transpose", g("MatMul", g("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    y = g("Reshape", mixed, g.value([0, 4, WIDTH]))
    x = g("Add", x, g.linear(y, "proj", WIDTH, WIDTH, bias=True))
    y = g.linear(g.layer_norm(x, "ln_2", 1e-6), "up", WIDTH, 32, bias=True)
    half = g("Mul", y, g.value(0.5))
    y = g("Mul", half, g("Add", g("Erf", g("Div", y, g.value(2**0.5))), g.value(1.0)))
    x = g("Add", x, g.linear(y, "down", 32, WIDTH, bias=True))
    x = g("ReduceMean", x, g.value([1]), keepdims=0)
    return g.model(g.linear(x, "head", WIDTH, 10, bias=True))


MODELS: Mapping[str, Callable[[], Any]] = {
    one.__name__: one for one in (mlp, lenet, resnet, gpt, llama, vision_transformer)
}


def computed(model: Any, values: Mapping[str, Any], given: Any) -> Any:
    """Return a model's output as JAX computes it, node by node, to be differentiated.

    Parameters
    ----------
    values
        The initializers.
    """
    import jax
    import jax.numpy as jnp

    made = dict(values) | {model.graph.input[0].name: given}

    def norm(x: Any, scale: Any, shift: Any, over: tuple[int, ...], epsilon: float) -> Any:
        centred = x - x.mean(over, keepdims=True)
        spread = (centred**2).mean(over, keepdims=True)
        return centred / jnp.sqrt(spread + epsilon) * scale + shift

    def slice_(x: Any, starts: Any, ends: Any, axes: Any = (0,)) -> Any:
        index = [slice(None)] * x.ndim
        index[int(axes[0])] = slice(int(starts[0]), int(ends[0]))
        return x[tuple(index)]

    def conv(x: Any, w: Any, b: Any, a: dict[str, Any]) -> Any:
        pads = a.get("pads", [0] * 4)
        borders = [(pads[0], pads[2]), (pads[1], pads[3])]
        y = jax.lax.conv_general_dilated(x, w, a.get("strides", [1, 1]), borders)
        return y if b is None else y + b[:, None, None]

    def max_pool(x: Any, a: dict[str, Any]) -> Any:
        window, step = (1, 1, *a["kernel_shape"]), (1, 1, *a["strides"])
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, step, "VALID")

    def reshape(x: Any, shape: Any) -> Any:
        return x.reshape([x.shape[n] if size == 0 else int(size) for n, size in enumerate(shape)])

    plain: dict[str, Callable[..., Any]] = {
        "Add": jnp.add,
        "Mul": jnp.multiply,
        "Div": jnp.divide,
        "Pow": jnp.power,
        "MatMul": jnp.matmul,
        "Tanh": jnp.tanh,
        "Sqrt": jnp.sqrt,
        "Neg": jnp.negative,
        "Erf": jax.scipy.special.erf,
        "Sigmoid": jax.nn.sigmoid,
        "Relu": jax.nn.relu,
        "Gather": lambda table, ids: table[ids],
        "Reshape": reshape,
        "Slice": slice_,
        "Unsqueeze": lambda x, axes: jnp.expand_dims(x, tuple(axes)),
        "Expand": lambda x, shape: jnp.broadcast_to(
            x, np.broadcast_shapes(x.shape, tuple(map(int, shape)))
        ),
        "Flatten": lambda x: x.reshape(len(x), -1),
        "GlobalAveragePool": lambda x: x.mean((2, 3), keepdims=True),
    }
    stated: dict[str, Callable[..., Any]] = {
        "Gemm": lambda a, x, w, b: x @ w.T + b,
        "Softmax": lambda a, x: jax.nn.softmax(x, a["axis"]),
        "Transpose": lambda a, x: x.transpose(a["perm"]),
        "Concat": lambda a, *xs: (
            np.concatenate(xs)
            if all(isinstance(x, np.ndarray) for x in xs)
            else jnp.concatenate(xs, a["axis"])
        ),
        "Shape": lambda a, x: np.asarray(x.shape[: a.get("end")]),
        "ReduceMean": lambda a, x, axes: x.mean(tuple(axes), keepdims=bool(a["keepdims"])),
        "LayerNormalization": lambda a, x, s, b: norm(x, s, b, (-1,), a["epsilon"]),
        "BatchNormalization": lambda a, x, s, b, *_: norm(
            x, s[:, None, None], b[:, None, None], (0, 2, 3), a["epsilon"]
        ),
        "Conv": lambda a, x, w, b=None: conv(x, w, b, a),
        "MaxPool": lambda a, x: max_pool(x, a),
        "Split": lambda a, x, sizes: jnp.split(x, np.cumsum(sizes)[:-1], a["axis"]),
    }
    for node in model.graph.node:
        inputs = [made[name] for name in node.input]
        if node.op_type in plain:
            result = plain[node.op_type](*inputs)
        else:
            given_keys = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            result = stated[node.op_type](given_keys, *inputs)
        results = result if len(node.output) > 1 else [result]
        made |= dict(zip(node.output, results, strict=True))
    return made[model.graph.output[0].name]


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
