"""Norms, activations, images and attention, as they are written node by node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.onnx.graph_writer import GraphWriter
from tests.onnx.patterns.registry import (
    IMAGE,
    PATTERNS,
    SEQUENCE,
    B,
    D,
    E,
    H,
    Pattern,
    T,
    cut,
    head_of,
    pattern,
)

HEADS = {"attention": [{"heads": H}]}
ENLARGED = {"upsample": [{"factor": (2, 2)}, {"factor": (2, 3)}]}


def _conv(filters: int, kernel: int) -> dict[str, Any]:
    return {"filters": filters, "kernel": (kernel, kernel), "stride": (1, 1), "padding": (0, 0)}


def _norm(g: GraphWriter, x: str, *, centred: bool) -> str:
    last = g.value([-1])
    if centred:
        x = g("Sub", x, g("ReduceMean", x, last))
    variance = g("ReduceMean", g("Pow", x, g.value(np.float32(2))), last)
    root = g("Sqrt", g("Add", variance, g.value(np.float32(1e-5))))
    scaled = g("Mul", g("Div", x, root), g.weight("scale", E))
    return str(g("Add", scaled, g.weight("shift", E)) if centred else scaled)


@pattern(SEQUENCE, kinds="fc norm fc", keys={"norm": [{"norm": "layer"}]})
def a_layer_norm_written_out(g: GraphWriter) -> str:
    return head_of(g, _norm(g, g.linear("x", "first", E, E), centred=True))


@pattern(SEQUENCE, kinds="fc norm fc", keys={"norm": [{"norm": "rms"}]})
def a_norm_of_squares_written_out(g: GraphWriter) -> str:
    return head_of(g, _norm(g, g.linear("x", "first", E, E), centred=False))


@pattern(IMAGE, kinds="conv upsample conv upsample conv", keys=ENLARGED)
def an_image_enlarged(g: GraphWriter) -> str:
    """By scales, as of old, and to sizes."""
    x = g("Conv", "x", g.weight("a", 4, 8, 1, 1))
    x = g("Resize", x, "", g.value(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    x = g("Conv", x, g.weight("b", 4, 4, 1, 1))
    x = g("Resize", x, "", "", g.value([B, 4, 32, 48]), mode="nearest")
    return str(g("Conv", x, g.weight("c", 4, 4, 1, 1)))


@pattern(IMAGE, kinds="conv upsample conv", said=("interpolation between pixels",))
def an_image_interpolated(g: GraphWriter) -> str:
    x = g("Conv", "x", g.weight("a", 4, 8, 1, 1))
    x = g("Resize", x, "", g.value(np.array([1, 1, 2, 2], np.float32)), mode="linear")
    return str(g("Conv", x, g.weight("b", 4, 4, 1, 1)))


@pattern(SEQUENCE, kinds="fc norm", added=E, said=("a norm without a scale",))
def a_norm_without_weights_as_the_output(g: GraphWriter) -> str:
    x = g.linear("x", "first", E, E)
    apart = g("Sub", x, g("ReduceMean", x, g.value([-1])))
    variance = g("ReduceMean", g("Mul", apart, apart), g.value([-1]))
    return str(g("Div", apart, g("Sqrt", g("Add", variance, g.value(1e-5)))))


@pattern(
    ("x", [1, 3, 8, 8]),
    kinds="conv norm conv",
    keys={"norm": [{"norm": "affine", "activation": "relu"}]},
)
def a_scale_and_a_shift_of_each_channel(g: GraphWriter) -> str:
    x = g("Conv", "x", g.weight("conv.weight", 5, 3, 3, 3))
    for op, name in (("Mul", "scale"), ("Add", "shift")):
        x = g(op, x, g("Unsqueeze", g.weight(name, 5), g.value([1, 2])))
    return str(g("Conv", g("Relu", x), g.weight("last", 7, 5, 6, 6)))


# Images.


@pattern(("x", [1, 3, 8, 8]), kinds="conv global_pool fc fc mul conv")
def squeeze_and_excitation(g: GraphWriter) -> str:
    x = g("Conv", "x", g.weight("conv.weight", 12, 3, 3, 3))
    squeezed = g("GlobalAveragePool", x)
    small = g("Relu", g("Conv", squeezed, g.weight("a.weight", 4, 12, 1, 1), g.weight("a.b", 4)))
    gate = g("Sigmoid", g("Conv", small, g.weight("b.weight", 12, 4, 1, 1), g.weight("b.b", 12)))
    return str(g("Conv", g("Mul", x, gate), g.weight("last", 7, 12, 6, 6)))


@pattern(
    ("x", [1, 8, 6, 3]),
    kinds="conv norm conv",
    keys={"conv": [_conv(4, 3), _conv(10, 1) | {"bias": True}]},
)
def channels_that_come_last(g: GraphWriter) -> str:
    """As TensorFlow's images are; products with each pixel are convolutions of one pixel."""
    x = g("Conv", g("Transpose", "x", perm=[0, 3, 1, 2]), g.weight("a", 4, 3, 3, 3))
    x = g("Transpose", x, perm=[0, 2, 3, 1])
    x = g("LayerNormalization", x, g.weight("scale", 4), g.weight("shift", 4))
    return str(g("Transpose", g.linear(x, "pixels", 4, 10, bias=True), perm=[0, 3, 1, 2]))


@pattern(("x", [1, 8, 30]), kinds="conv flatten fc")
def a_convolution_over_time(g: GraphWriter) -> str:
    x = g("Conv", "x", g.weight("a", E, 8, 3), strides=[2], pads=[1, 1])
    return head_of(g, g("Transpose", g("Relu", x), perm=[0, 2, 1]))


def _flattened(by: str) -> Callable[[GraphWriter], str]:
    def build(g: GraphWriter) -> str:
        x = g("Conv", "x", g.weight("a", 4, 3, 3, 3))
        if by == "pool":
            x = g("GlobalMaxPool", x)
        flat = g("Reshape", x, g.value([1, -1])) if by == "Reshape" else g("Flatten", x)
        width = 4 if by == "pool" else 4 * 36
        return str(g("Gemm", flat, g.weight("b", 10, width), g.weight("c", 10), transB=1))

    return build


# With the pool it is no chain of the paper's kinds, and its classes have a loss.
for _by, _kinds in (("Flatten", "fc"), ("Reshape", "fc"), ("pool", "global_pool fc output")):
    PATTERNS[f"an image flattened by {_by}"] = Pattern(
        _flattened(_by), (("x", [1, 3, 8, 8]),), kinds=f"conv {_kinds}"
    )


def _padded(by: str) -> Callable[[GraphWriter], str]:
    def build(g: GraphWriter) -> str:
        weight = g.weight("a", 4, 3, 3, 3)
        if by != "Pad":
            return str(g("Conv", "x", weight, strides=[2, 2], auto_pad=by))
        x = g("Pad", "x", g.value([0, 0, 0, 0, 0, 0, 1, 1]))
        return str(g("Conv", x, weight, strides=[2, 2]))

    return build


for _by, _padding in (
    ("SAME_UPPER", (0, 0, 1, 1)),
    ("SAME_LOWER", (1, 1, 0, 0)),
    ("Pad", (0, 0, 1, 1)),
):
    _bordered = _conv(4, 3) | {"stride": (2, 2), "padding": _padding}
    PATTERNS[f"a border on one side by {_by}"] = Pattern(
        _padded(_by), (("x", [1, 3, 8, 8]),), keys={"conv": [_bordered]}
    )


# Attention.


@pattern(SEQUENCE, kinds="fc attention", keys=HEADS)
def a_fused_projection_cut_by_a_dimension_of_its_own(g: GraphWriter) -> str:
    """As vision transformers do: [batch, tokens, 3, heads, size] to [3, batch, heads, ...]."""
    qkv = g.linear("x", "qkv", E, 3 * E, bias=True)
    apart = g("Reshape", qkv, g.value([B, T, 3, H, D]))
    first = g("Transpose", apart, perm=[2, 0, 3, 1, 4])
    q, k, v = (g("Gather", first, g.value(np.int64(n)), axis=0) for n in range(3))
    return g.together(g.core(q, k, v), B, T, E)


def _few_key_heads(by: str) -> Callable[[GraphWriter], str]:
    def build(g: GraphWriter) -> str:
        q = g.heads(g.linear("x", "q", E, E), B, T, H, D)
        few = 1 if by == "broadcasting" else 2
        shared = [g.heads(g.linear("x", name, E, few * D), B, T, few, D) for name in "kv"]
        if by in ("Expand", "Tile"):
            sizes = g.value([B, 2, 2, T, D] if by == "Expand" else [1, 1, 2, 1, 1])
            many = [g(by, g("Unsqueeze", one, g.value([2])), sizes) for one in shared]
            shared = [g("Reshape", one, g.value([B, H, T, D])) for one in many]
        return g.together(g.core(q, *shared), B, T, E)

    return build


for _by in ("Expand", "Tile", "broadcasting"):
    _heads = {"heads": H, "kv_heads": 1 if _by == "broadcasting" else 2}
    PATTERNS[f"few heads of keys by {_by}"] = Pattern(
        _few_key_heads(_by), (SEQUENCE,), keys={"attention": [_heads]}
    )


def _rotary(pairs: str) -> Callable[[GraphWriter], str]:
    def rotated(g: GraphWriter, x: str) -> str:
        cos, sin = (g.value(np.ones((1, 1, T, D))) for _ in range(2))
        if pairs == "part":
            turned = g("Mul", cut(g, x, 0, 4, 3), g.value(np.ones((1, 1, T, 4))))
            return str(g("Concat", turned, cut(g, x, 4, 6, 3), axis=-1))
        if pairs == "halves":
            turned = g("Concat", g("Neg", cut(g, x, 3, 6, 3)), cut(g, x, 0, 3, 3), axis=-1)
        else:
            even, odd = (cut(g, x, n, 6, 3, 2) for n in range(2))
            apart = (g("Unsqueeze", one, g.value([4])) for one in (g("Neg", odd), even))
            turned = g("Reshape", g("Concat", *apart, axis=-1), g.value([B, H, T, D]))
        return str(g("Add", g("Mul", x, cos), g("Mul", turned, sin)))

    def build(g: GraphWriter) -> str:
        q, k, v = (g.heads(g.linear("x", name, E, E), B, T, H, D) for name in "qkv")
        return g.together(g.core(rotated(g, q), rotated(g, k), v), B, T, E)

    return build


for _by in ("halves", "neighbours", "part"):
    _said: tuple[str, ...] = ("rotary positions",)
    if _by == "part":
        _said = ("operation with a constant of each place", "parts of it, each in another way")
    PATTERNS[f"rotary positions of {_by}"] = Pattern(
        _rotary(_by),
        (SEQUENCE,),
        kinds="fc fc fc attention",
        keys=HEADS,
        said=(*_said, "no layer has"),
    )


@pattern(SEQUENCE, kinds="fc fc fc attention fc", keys=HEADS)
def attention_in_einsteins_notation(g: GraphWriter) -> str:
    apart = g.value([B, T, H, D])
    q, k, v = (g("Reshape", g.linear("x", name, E, E), apart) for name in "qkv")
    scores = g("Mul", g("Einsum", q, k, equation="bqhd,bkhd->bhqk"), g.value(D**-0.5))
    out = g("Einsum", g("Softmax", scores), v, equation="bhqk,bkhd->bqhd")
    return str(g("Einsum", out, g.weight("o", H, D, E), equation="bqhd,hde->bqe"))


@pattern(
    SEQUENCE,
    kinds="fc fc fc attention fc",
    keys={"attention": [{"heads": H, "kv_heads": 2, "causal": True}]},
)
def the_operator_of_attention(g: GraphWriter) -> str:
    q = g.linear("x", "q", E, E)
    k, v = (g.linear("x", name, E, 2 * D) for name in "kv")
    return head_of(g, g("Attention", q, k, v, q_num_heads=H, kv_num_heads=2, is_causal=1))
