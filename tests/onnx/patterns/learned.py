"""Norms, biases, and what is learned in other places."""

from __future__ import annotations

import numpy as np

from tests.onnx.graph_writer import GraphWriter
from tests.onnx.patterns.registry import (
    IMAGE,
    SEQUENCE,
    B,
    D,
    E,
    H,
    T,
    attention,
    cut,
    head_of,
    pattern,
)

# Norms, biases, and what is learned in other places.


@pattern(
    SEQUENCE,
    added=2 * E,
    said=("for each: 'ones', 'zeros' (48 parameters more than the file has)",),
)
def two_norms_with_one_scale(g: GraphWriter) -> str:
    scale, shift, x = g.weight("ones", E), g.weight("zeros", E), "x"
    for name in ("a", "b"):
        x = g.linear(g("LayerNormalization", x, scale, shift), name, E, E)
    return x


@pattern(SEQUENCE, added=E, said=("'zeros' (24 parameters more",))
def a_bias_that_is_the_shift_of_a_norm(g: GraphWriter) -> str:
    zeros = g.weight("zeros", E)
    x = g("LayerNormalization", "x", g.weight("scale", E), zeros)
    return str(g("Add", g("MatMul", x, g.weight("w", E, E)), zeros))


@pattern(SEQUENCE, added=E, said=("'zeros' (24 parameters more",))
def a_bias_that_is_a_part_of_another(g: GraphWriter) -> str:
    zeros = g.weight("zeros", 3 * E)
    qkv = g("Add", g("MatMul", "x", g.weight("qkv", E, 3 * E)), zeros)
    x = attention(g, *g("Split", qkv, axis=2, num_outputs=3, outputs=3))
    return str(g("Add", g("MatMul", x, g.weight("w", E, E)), cut(g, zeros, E, 2 * E)))


@pattern(IMAGE, keys={"norm": [{"norm": "layer", "groups": 8, "activation": "relu"}]})
def an_instance_norm(g: GraphWriter) -> str:
    x = g("Conv", "x", g.weight("w", 8, 8, 3, 3))
    x = g("InstanceNormalization", x, g.weight("scale", 8), g.weight("shift", 8))
    return str(g("Conv", g("Relu", x), g.weight("v", 8, 8, 1, 1)))


def _grouped(g: GraphWriter, scale: str, shift: str) -> str:
    x = g("Conv", "x", g.weight("w", 8, 8, 3, 3))
    rows = g("Reshape", x, g.value([B, 4, -1]))
    rows = g("InstanceNormalization", rows, scale, shift)
    x = g("Reshape", rows, g.value([B, 8, 6, 6]))
    own = (g("Reshape", g.weight(name, 8), g.value([8, 1, 1])) for name in ("weight", "bias"))
    x = g("Add", g("Mul", x, next(own)), next(own))
    return str(g("Conv", g("Relu", x), g.weight("v", 8, 8, 1, 1)))


_OF_GROUPS = "a scale and shift of each group of channels"


@pattern(IMAGE, left_out=8, said=(_OF_GROUPS, "'scale' (4), 'shift' (4), 8 elements"))
def a_group_norm_that_scales_its_groups(g: GraphWriter) -> str:
    return _grouped(g, g.weight("scale", 4), g.weight("shift", 4))


@pattern(IMAGE, keys={"norm": [{"norm": "layer", "groups": 4}]})
def a_group_norm(g: GraphWriter) -> str:
    x = g("Conv", "x", g.weight("w", 8, 8, 3, 3))
    learned = g.weight("scale", 8), g.weight("shift", 8)
    x = g("GroupNormalization", x, *learned, num_groups=4)
    return str(g("Conv", x, g.weight("v", 8, 8, 1, 1)))


@pattern(IMAGE, keys={"norm": [{"norm": "layer", "groups": 4, "activation": "relu"}]})
def a_group_norm_whose_groups_are_not_scaled(g: GraphWriter) -> str:
    """Ones and zeros of the groups are no parameters: the channels have a scale of their own."""
    return _grouped(g, g.value(np.ones(4)), g.value(np.zeros(4)))


@pattern(IMAGE, keys={"norm": [{"norm": "layer", "groups": 8}]})
def a_group_norm_of_each_channel(g: GraphWriter) -> str:
    """Of as many groups as channels, as exporters write it: a scale follows ones and zeros."""
    x = g("Conv", "x", g.weight("w", 8, 8, 3, 3))
    x = g("InstanceNormalization", x, g.value(np.ones(8)), g.value(np.zeros(8)))
    x = g("Mul", x, g.weight("scale", 8, 1, 1))
    return str(g("Conv", g("Add", x, g.weight("shift", 8, 1, 1)), g.weight("v", 8, 8, 1, 1)))


@pattern(SEQUENCE, keys={"norm": [{"norm": "layer", "groups": 4}]}, kinds="fc norm fc")
def a_group_norm_of_tokens(g: GraphWriter) -> str:
    x = g("Transpose", g.linear("x", "a", E, E, bias=True), perm=[0, 2, 1])
    learned = g.weight("scale", E), g.weight("shift", E)
    x = g("GroupNormalization", x, *learned, num_groups=4)
    return str(g.linear(g("Transpose", x, perm=[0, 2, 1]), "b", E, E))


@pattern(IMAGE, keys={"norm": [{"norm": "layer", "groups": 1}]})
def a_norm_of_a_whole_image(g: GraphWriter) -> str:
    """As of ConvTasNet and PoolFormer, here by its mean and its mean square."""
    x = g("Conv", "x", g.weight("w", 8, 8, 3, 3))
    mean = g("ReduceMean", x, g.value([1, 2, 3]))
    square = g("ReduceMean", g("Mul", x, x), g.value([1, 2, 3]))
    spread = g("Sub", square, g("Mul", mean, mean))
    x = g("Div", g("Sub", x, mean), g("Sqrt", g("Add", spread, g.value(1e-5))))
    x = g("Mul", x, g.weight("scale", 8, 1, 1))
    return str(g("Conv", g("Add", x, g.weight("shift", 8, 1, 1)), g.weight("v", 8, 8, 1, 1)))


@pattern(SEQUENCE)
def a_scale_of_each_channel(g: GraphWriter) -> str:
    """Layer scale, of vision transformers."""
    return head_of(
        g, g("Add", "x", g("Mul", g.linear("x", "a", E, E, bias=True), g.weight("s", E)))
    )


@pattern(IMAGE, said=("PRelu of what it reads",))
def a_slope_of_each_channel(g: GraphWriter) -> str:
    x = g("Conv", "x", g.weight("w", 8, 8, 3, 3), g.weight("b", 8))
    return str(g("Conv", g("PRelu", x, g.weight("slope", 8, 1, 1)), g.weight("v", 8, 8, 1, 1)))


def _biased(g: GraphWriter, bias: str) -> str:
    q, k, v = (g.linear("x", name, E, E) for name in "qkv")
    return attention(g, q, k, v, bias)


@pattern(SEQUENCE)
def a_mask_of_known_values(g: GraphWriter) -> str:
    return _biased(g, g.value(np.triu(np.full((1, 1, T, T), -1e9), 1)))


@pattern(IMAGE, left_out=8 * 36, said=("tensors that no layer has: 'map' (288)",))
def a_learned_map_added_to_an_image(g: GraphWriter) -> str:
    x = g("Add", g("Conv", "x", g.weight("w", 8, 8, 3, 3)), g.weight("map", 1, 8, 6, 6))
    return str(g("Conv", g("Relu", x), g.weight("v", 8, 8, 1, 1)))


@pattern(
    SEQUENCE,
    kinds="fc fc fc norm attention",
    keys={"norm": [{"norm": "layer", "bias": False, "heads": H}]},
)
def a_norm_of_each_head(g: GraphWriter) -> str:
    q, k, v = (g.heads(g.linear("x", name, E, E), B, T, H, D) for name in "qkv")
    q = g("LayerNormalization", q, g.weight("q_norm", D))
    return g.together(g.core(q, k, v), B, T, E)


@pattern(
    IMAGE,
    left_out=8,
    said=(
        "constant of each place",
        "tensors that no layer has: 'mean' (8)",
    ),
)
def a_mean_subtracted_from_the_input(g: GraphWriter) -> str:
    x = g("Sub", "x", g.weight("mean", 8, 1, 1))
    return str(g("Conv", x, g.weight("w", 8, 8, 3, 3)))


@pattern(("x", [B, E]), left_out=1, said=("a bias that is not one number of the file for each",))
def a_bias_of_one_number(g: GraphWriter) -> str:
    return str(g("Gemm", "x", g.weight("w", E, 8), g.weight("c", 1)))


@pattern(SEQUENCE, left_out=3 * E, said=("tensors that no layer has: 'bias' (72)",))
def biases_within_the_operator_of_attention(g: GraphWriter) -> str:
    q, k, v = (g.linear("x", name, E, E) for name in "qkv")
    bias = g.weight("bias", 3 * E)
    domain = "com.microsoft"
    return str(g("MultiHeadAttention", q, k, v, bias, num_heads=H, domain=domain))


@pattern(SEQUENCE)
def a_projection_within_the_operator_of_attention(g: GraphWriter) -> str:
    weights = g.weight("qkv", E, 3 * E), g.weight("bias", 3 * E)
    return str(g("Attention", "x", *weights, num_heads=H, domain="com.microsoft"))


@pattern(SEQUENCE, left_out=E, said=("tensors that no layer has: 'bias' (24)", "input 5 = 'bias'"))
def a_sum_and_its_norm_with_a_bias(g: GraphWriter) -> str:
    y = g.linear("x", "a", E, E)
    learned = (g.weight(name, E) for name in ("scale", "shift", "bias"))
    y = g("SkipLayerNormalization", "x", y, *learned, domain="com.microsoft")
    return head_of(g, y)


@pattern(SEQUENCE)
def projections_of_keras_with_heads(g: GraphWriter) -> str:
    made = []
    for name in "qkv":
        one = g("Einsum", "x", g.weight(name, E, H, D), equation="abc,cde->abde")
        one = g("Add", one, g.weight(f"{name}.bias", H, D))
        made.append(g("Transpose", one, perm=[0, 2, 1, 3]))
    out = g("Transpose", g.core(*made), perm=[0, 2, 1, 3])
    return str(g("Einsum", out, g.weight("o", H, D, E), equation="abcd,cde->abe"))


@pattern(SEQUENCE, read=E * E)
def a_branch_that_no_output_needs(g: GraphWriter) -> str:
    g.linear("x", "unused", E, 7)
    return g.linear("x", "used", E, E)


@pattern(IMAGE)
def a_bias_of_one_number_for_all_channels(g: GraphWriter) -> str:
    """As exporters write that there is none."""
    bias = g("Expand", g.value([0.0]), g.value([4]))
    return str(g("Conv", "x", g.weight("w", 4, 8, 3, 3), bias))
