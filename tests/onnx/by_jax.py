"""What an ONNX model computes by JAX, node by node, to be differentiated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from onnx import helper


def computed(model: Any, values: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """Return a model's output.

    Parameters
    ----------
    values
        The initializers.
    given
        The inputs.
    """
    made = {"": None, **values, **given}
    for node in model.graph.node:
        stated = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        result = NODES[node.op_type](stated, *(made[name] for name in node.input))
        results = result if len(node.output) > 1 else [result]
        made |= dict(zip(node.output, results, strict=True))
    return made[model.graph.output[0].name]


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a node computes that has no attributes, or none that matters."""
    return lambda _, *inputs: function(*inputs)


def _reshape(x: Any, shape: Any) -> Any:
    return x.reshape([x.shape[n] if size == 0 else int(size) for n, size in enumerate(shape)])


def _slice(x: Any, starts: Any, ends: Any, axes: Any = (0,), steps: Any = (1,)) -> Any:
    index = [slice(None)] * x.ndim
    index[int(axes[0])] = slice(int(starts[0]), int(ends[0]), int(steps[0]))
    return x[tuple(index)]


def _expand(x: Any, shape: Any) -> Any:
    return jnp.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(map(int, shape))))


def _concat(a: Mapping[str, Any], *xs: Any) -> Any:
    """Shapes, which are numbers in numpy, stay so."""
    shapes = all(isinstance(x, np.ndarray) for x in xs)
    return np.concatenate(xs) if shapes else jnp.concatenate(xs, a["axis"])


def _conv(a: Mapping[str, Any], x: Any, w: Any, b: Any = None) -> Any:
    rank = w.ndim - 2
    pads = a.get("pads", [0] * 2 * rank)
    borders = list(zip(pads[:rank], pads[rank:], strict=True))
    y = jax.lax.conv_general_dilated(x, w, a.get("strides", [1] * rank), borders)
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def _max_pool(a: Mapping[str, Any], x: Any) -> Any:
    window, step = (1, 1, *a["kernel_shape"]), (1, 1, *a["strides"])
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, step, "VALID")


def _norm(x: Any, scale: Any, shift: Any, over: tuple[int, ...], epsilon: float) -> Any:
    centred = x - x.mean(over, keepdims=True)
    spread = (centred**2).mean(over, keepdims=True)
    return centred / jnp.sqrt(spread + epsilon) * scale + shift


def _group_norm(a: Mapping[str, Any], x: Any, scale: Any, shift: Any) -> Any:
    """Instance norms are of as many groups as channels."""
    count = a.get("num_groups", x.shape[1])
    rows = x.reshape(len(x), count, -1)
    own = (one.reshape(-1, *[1] * (x.ndim - 2)) for one in (scale, shift))
    return _norm(rows, 1.0, 0.0, (-1,), a["epsilon"]).reshape(x.shape) * next(own) + next(own)


def _pad(x: Any, pads: Any) -> Any:
    half = len(pads) // 2
    return jnp.pad(x, [(int(a), int(b)) for a, b in zip(pads[:half], pads[half:], strict=True)])


NODES: Mapping[str, Callable[..., Any]] = {
    "Add": _plain(jnp.add),
    "Mul": _plain(jnp.multiply),
    "Div": _plain(jnp.divide),
    "Pow": _plain(jnp.power),
    "MatMul": _plain(jnp.matmul),
    "Tanh": _plain(jnp.tanh),
    "Sin": _plain(jnp.sin),
    "Cos": _plain(jnp.cos),
    "Sqrt": _plain(jnp.sqrt),
    "Neg": _plain(jnp.negative),
    "Erf": _plain(jax.scipy.special.erf),
    "Sigmoid": _plain(jax.nn.sigmoid),
    "Relu": _plain(jax.nn.relu),
    "Gather": _plain(lambda table, ids: table[ids]),
    "Reshape": _plain(_reshape),
    "Slice": _plain(_slice),
    "Unsqueeze": _plain(lambda x, axes: jnp.expand_dims(x, tuple(axes))),
    "Expand": _plain(_expand),
    "Flatten": _plain(lambda x: x.reshape(len(x), -1)),
    "GlobalAveragePool": _plain(lambda x: x.mean((2, 3), keepdims=True)),
    "Gemm": _plain(lambda x, w, b: x @ w.T + b),
    "Softmax": lambda a, x: jax.nn.softmax(x, a["axis"]),
    "Transpose": lambda a, x: x.transpose(a["perm"]),
    "Concat": _concat,
    "Shape": lambda a, x: np.asarray(x.shape[: a.get("end")]),
    "ReduceMean": lambda a, x, axes: x.mean(tuple(axes), keepdims=bool(a["keepdims"])),
    "LayerNormalization": lambda a, x, s, b: _norm(x, s, b, (-1,), a["epsilon"]),
    "BatchNormalization": lambda a, x, s, b, *_: _norm(
        x, s[:, None, None], b[:, None, None], (0, 2, 3), a["epsilon"]
    ),
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _group_norm,
    "Sub": _plain(jnp.subtract),
    "Pad": _plain(_pad),
    "Resize": lambda _, x, *sizes: jnp.kron(x, jnp.ones(sizes[-1][2:] // x.shape[2:])),
    "Conv": _conv,
    "MaxPool": _max_pool,
    "Split": lambda a, x, sizes: jnp.split(x, np.cumsum(sizes)[:-1], a["axis"]),
}
"""What a node of each operator computes of its attributes and its inputs."""
