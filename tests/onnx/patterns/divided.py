"""Weights that a graph divides, or computes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

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
    attention,
    cut,
    head_of,
    parts_of,
    pattern,
    turned,
)

# Weights that a graph divides.


def _fused_rows(by: str) -> Callable[[GraphWriter], str]:
    def build(g: GraphWriter) -> str:
        parts = parts_of(g, g.weight("in_proj_weight", 3 * E, E), by)
        return attention(g, *(g("MatMul", "x", turned(g, part)) for part in parts))

    return build


def _fused_columns(by: str) -> Callable[[GraphWriter], str]:
    def build(g: GraphWriter) -> str:
        parts = parts_of(g, g.weight("qkv", E, 3 * E), by, axis=1)
        return attention(g, *(g("MatMul", "x", part) for part in parts))

    return build


for _by in ("Split", "equal Split", "Slice", "Gather"):
    PATTERNS[f"rows of a fused projection by {_by}"] = Pattern(_fused_rows(_by), (SEQUENCE,))
    PATTERNS[f"columns of a fused projection by {_by}"] = Pattern(_fused_columns(_by), (SEQUENCE,))


@pattern(SEQUENCE)
def a_fused_projection_of_three_dimensions(g: GraphWriter) -> str:
    apart = g("Reshape", g.weight("qkv", 3 * E, E), g.value([3, E, E]))
    parts = [g("Gather", apart, g.value(np.int64(n)), axis=0) for n in range(3)]
    return attention(g, *(g("MatMul", "x", turned(g, part)) for part in parts))


@pattern(SEQUENCE)
def heads_interleaved_in_a_fused_projection(g: GraphWriter) -> str:
    apart = g("Reshape", g.weight("qkv", E, 3 * E), g.value([E, H, 3, D]))
    parts = [g("Gather", apart, g.value(np.int64(n)), axis=2) for n in range(3)]
    flat = [g("Reshape", part, g.value([E, E])) for part in parts]
    return attention(g, *(g("MatMul", "x", part) for part in flat))


@pattern(SEQUENCE, kinds="fc attention", keys={"attention": [{"heads": H}]})
def a_projection_divided_after_the_product(g: GraphWriter) -> str:
    qkv = g.linear("x", "qkv", E, 3 * E, bias=True)
    return attention(g, *g("Split", qkv, axis=2, num_outputs=3, outputs=3))


@pattern(SEQUENCE, kinds="fc fc mul fc")
def a_gate_divided_after_the_product(g: GraphWriter) -> str:
    gate, up = g("Split", g.linear("x", "up", E, 80, bias=True), outputs=2, axis=-1, num_outputs=2)
    return g.linear(g("Mul", g("Sigmoid", gate), up), "down", 40, E)


@pattern(SEQUENCE, kinds="fc fc add slice slice mul")
def halves_of_a_sum(g: GraphWriter) -> str:
    total = g("Add", g.linear("x", "a", E, E), g.linear("x", "b", E, E))
    return str(g("Mul", *g("Split", total, outputs=2, axis=2, num_outputs=2)))


@pattern(SEQUENCE)
def a_gate_divided_before_the_product(g: GraphWriter) -> str:
    gate, up = g("Split", g.weight("up", E, 80), outputs=2, axis=1, num_outputs=2)
    y = g("Mul", g("Sigmoid", g("MatMul", "x", gate)), g("MatMul", "x", up))
    return g.linear(y, "down", 40, E)


@pattern(SEQUENCE)
def rows_for_two_inputs_that_are_added(g: GraphWriter) -> str:
    """A linear layer of two maps side by side, written as a sum of two products."""
    weight, y = g.weight("w", 2 * E, E), g("Relu", g.linear("x", "a", E, E))
    first, second = cut(g, weight, 0, E), cut(g, weight, E, 2 * E)
    return head_of(g, g("Add", g("MatMul", "x", first), g("MatMul", y, second)))


@pattern(SEQUENCE)
def every_second_row(g: GraphWriter) -> str:
    weight = g.weight("w", 2 * E, E)
    even, odd = (cut(g, weight, n, 2 * E, 0, 2) for n in range(2))
    return head_of(g, g("Add", g("MatMul", "x", even), g("Relu", g("MatMul", "x", odd))))


@pattern(SEQUENCE)
def a_weight_transposed_and_then_cut(g: GraphWriter) -> str:
    weight = turned(g, g.weight("w", 2 * E, E))
    a, b = cut(g, weight, 0, E, 1), cut(g, weight, E, 2 * E, 1)
    return head_of(g, g("Add", g("MatMul", "x", a), g("Relu", g("MatMul", "x", b))))


@pattern(SEQUENCE)
def a_weight_of_which_a_part_is_read(g: GraphWriter) -> str:
    return head_of(g, g("MatMul", "x", cut(g, g.weight("w", E, 3 * E), 0, E, 1)))


@pattern(SEQUENCE, keys={"attention": [{"heads": H, "kv_heads": 2}]})
def one_weight_for_queries_of_many_heads_and_keys_of_few(g: GraphWriter) -> str:
    sizes = g.value([E, 2 * D, 2 * D])
    wq, wk, wv = g("Split", g.weight("qkv", E, E + 4 * D), sizes, axis=1, outputs=3)
    q = g.heads(g("MatMul", "x", wq), B, T, H, D)
    k, v = (g.heads(g("MatMul", "x", w), B, T, 2, D) for w in (wk, wv))
    k, v = (g("Gather", one, g.value([0, 0, 1, 1]), axis=1) for one in (k, v))
    return g.together(g.core(q, k, v), B, T, E)


@pattern(SEQUENCE)
def concatenated_weights(g: GraphWriter) -> str:
    weight = g("Concat", *(g.weight(name, E, E) for name in "qkv"), axis=1)
    bias = g("Concat", *(g.weight(f"{name}.bias", E) for name in "qkv"), axis=0)
    qkv = g("Add", g("MatMul", "x", weight), bias)
    return attention(g, *g("Split", qkv, axis=2, num_outputs=3, outputs=3))


@pattern(SEQUENCE)
def a_weight_cut_and_put_together_in_another_order(g: GraphWriter) -> str:
    weight = g.weight("w", 2 * E, E)
    whole = g("Concat", cut(g, weight, E, 2 * E), cut(g, weight, 0, E), axis=0)
    return g.linear(g("MatMul", "x", turned(g, whole)), "head", 2 * E, 10)


@pattern(SEQUENCE, refused="makes a layer of 1,152 parameters, where the file has 'w' (576)")
def a_weight_beside_itself(g: GraphWriter) -> str:
    weight = g.weight("w", E, E)
    return g.linear(g("MatMul", "x", g("Concat", weight, weight, axis=1)), "head", 2 * E, 10)


@pattern(SEQUENCE, refused="reads elements of 'w' that node")
def parts_of_a_weight_that_overlap(g: GraphWriter) -> str:
    weight = g.weight("w", 2 * E, E)
    a, b = cut(g, weight, 0, E), cut(g, weight, E // 2, E + E // 2)
    return head_of(g, g("Add", g("MatMul", "x", a), g("Relu", g("MatMul", "x", b))))


@pattern(SEQUENCE, refused="as another matrix: in parts or transposed")
def a_weight_and_a_part_of_it(g: GraphWriter) -> tuple[str, str]:
    weight = g.weight("w", E, E)
    return g("MatMul", "x", weight), g("MatMul", "x", cut(g, weight, 0, 10, 1))


@pattern(IMAGE)
def filters_of_two_convolutions(g: GraphWriter) -> str:
    weights = g("Split", g.weight("w", 16, 8, 3, 3), axis=0, num_outputs=2, outputs=2)
    a, b = (g("Conv", "x", weight, pads=[1, 1, 1, 1]) for weight in weights)
    return str(g("Add", a, g("Relu", b)))


@pattern(IMAGE)
def a_convolution_divided_after_it(g: GraphWriter) -> str:
    y = g("Conv", "x", g.weight("w", 16, 8, 3, 3), g.weight("b", 16))
    a, b = g("Split", y, axis=1, num_outputs=2, outputs=2)
    return str(g("Mul", a, g("Sigmoid", b)))


@pattern(IMAGE)
def a_kernel_of_keras(g: GraphWriter) -> str:
    kernel = g("Transpose", g.weight("conv/kernel", 3, 3, 8, 4), perm=[3, 2, 0, 1])
    y = g("Add", g("Conv", "x", kernel), g("Reshape", g.weight("bias", 4), g.value([1, 4, 1, 1])))
    return str(g("Relu", y))


@pattern(IMAGE)
def a_depthwise_kernel_of_keras(g: GraphWriter) -> str:
    kernel = g("Transpose", g.weight("kernel", 3, 3, 8, 1), perm=[2, 3, 0, 1])
    y = g("Conv", "x", kernel, group=8)
    return str(g("Conv", y, g.weight("point", 16, 8, 1, 1), g.weight("bias", 16)))


@pattern(SEQUENCE)
def weights_through_operators_that_change_nothing(g: GraphWriter) -> str:
    weight = g("Unsqueeze", g("Identity", g.weight("w", E * E)), g.value([0]))
    weight = g("Cast", g("Squeeze", weight, g.value([0])), to=TensorProto.FLOAT)
    return head_of(g, g("MatMul", "x", g("Reshape", weight, g.value([E, E]))))


# Weights that are computed.


@pattern(SEQUENCE, read=E * E + 10 * E)
def a_weight_that_is_scaled(g: GraphWriter) -> str:
    """Equalised learning rates."""
    return head_of(g, g("MatMul", "x", g("Mul", g.weight("w", E, E), g.value(np.float32(0.5)))))


@pattern(
    SEQUENCE,
    read=2 * E * E + 10 * E,
    left_out=E * E,
    said=("tensors that no layer has: 'second' (576)",),
)
def a_sum_of_two_weights(g: GraphWriter) -> str:
    weight = g("Add", g.weight("first", E, E), g.weight("second", E, E))
    return head_of(g, g("MatMul", "x", weight))


@pattern(SEQUENCE, read=E * E + 10 * E)
def quantised_weights(g: GraphWriter) -> str:
    scale, zero = g.value(np.float32(0.1)), g.value(np.int8(0))
    weight = g("DequantizeLinear", g.value(np.ones((E, E), np.int8)), scale, zero)
    return head_of(g, g("MatMul", "x", weight))
