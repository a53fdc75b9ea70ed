"""Graphs of weights that are fused, sliced, shared, transposed and tied, as exporters write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from tests.onnx_graphs import GraphWriter

B, T, E, H, D = 2, 16, 24, 4, 6
"""Batch, tokens, features, heads, features of a head."""

SEQUENCE = ("x", [B, T, E])
IDS = ("ids", [B, T])
IMAGE = ("x", [B, 8, 8, 8])
WORDS = 100


class Pattern(NamedTuple):
    """A graph, and what is known of it.

    Parameters
    ----------
    build
        Writes the graph and returns its outputs.
    inputs
        The names and shapes of its inputs.
    read
        The elements that are read, where arithmetic hides their numbers from the test's account.
    left_out, added
        The elements that the network does not count, and those that it counts beside what is read.
    said
        What the import says, in parts.
    refused
        What the refusal says instead.
    """

    build: Callable[[GraphWriter], str | tuple[str, ...]]
    inputs: tuple[tuple[str, Sequence[int | str]], ...]
    read: int | None = None
    left_out: int = 0
    added: int = 0
    said: tuple[str, ...] = ()
    refused: str = ""

    def model(self) -> Any:
        g = GraphWriter(*self.inputs, ids=self.inputs[0][0] == "ids")
        outputs = self.build(g)
        return g.model(*((outputs,) if isinstance(outputs, str) else outputs))


PATTERNS: dict[str, Pattern] = {}


def pattern(*inputs: tuple[str, Sequence[int | str]], **known: Any) -> Any:
    """Register a graph under its function's name."""

    def register(build: Callable[[GraphWriter], Any]) -> Callable[[GraphWriter], Any]:
        PATTERNS[build.__name__] = Pattern(build, inputs, **known)
        return build

    return register


# What several graphs have in common.


def turned(g: GraphWriter, weight: str) -> str:
    return str(g("Transpose", weight, perm=[1, 0]))


def cut(g: GraphWriter, x: str, start: int, end: int, axis: int = 0, step: int = 1) -> str:
    return str(g("Slice", x, *(g.value([n]) for n in (start, end, axis, step))))


def attention(g: GraphWriter, q: str, k: str, v: str, mask: str | None = None) -> str:
    heads = (g.heads(one, B, T, H, D) for one in (q, k, v))
    return g.together(g.core(*heads, mask), B, T, E)


def head_of(g: GraphWriter, x: str) -> str:
    return g.linear(x, "head", E, 10)


def parts_of(g: GraphWriter, weight: str, by: str, axis: int = 0) -> list[str]:
    """Cut a weight into three parts of E along a dimension."""
    if by == "Split":
        return list(g("Split", weight, g.value([E, E, E]), axis=axis, outputs=3))
    if by == "equal Split":
        return list(g("Split", weight, axis=axis, num_outputs=3, outputs=3))
    if by == "Slice":
        return [cut(g, weight, n * E, (n + 1) * E, axis) for n in range(3)]
    return [
        g("Gather", weight, g.value(np.arange(n * E, (n + 1) * E)), axis=axis) for n in range(3)
    ]


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


@pattern(SEQUENCE)
def keys_and_values_fused(g: GraphWriter) -> str:
    k, v = g("Split", g.weight("kv", 2 * E, E), axis=0, num_outputs=2, outputs=2)
    q = g.linear("x", "q", E, E)
    return attention(g, q, *(g("MatMul", "x", turned(g, part)) for part in (k, v)))


@pattern(SEQUENCE)
def fused_weights_and_biases(g: GraphWriter) -> str:
    weights = parts_of(g, g.weight("in_proj_weight", 3 * E, E), "Split")
    biases = parts_of(g, g.weight("in_proj_bias", 3 * E), "Split")
    made = [
        g("Add", g("MatMul", "x", turned(g, w)), b) for w, b in zip(weights, biases, strict=True)
    ]
    return g.linear(attention(g, *made), "o", E, E, bias=True)


@pattern(SEQUENCE)
def a_projection_divided_after_the_product(g: GraphWriter) -> str:
    qkv = g.linear("x", "qkv", E, 3 * E, bias=True)
    return attention(g, *g("Split", qkv, axis=2, num_outputs=3, outputs=3))


@pattern(SEQUENCE)
def a_gate_divided_after_the_product(g: GraphWriter) -> str:
    gate, up = g("Split", g.linear("x", "up", E, 80, bias=True), outputs=2, axis=-1, num_outputs=2)
    return g.linear(g("Mul", g("Sigmoid", gate), up), "down", 40, E)


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


@pattern(SEQUENCE)
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


@pattern(SEQUENCE, refused="makes a layer of 1,152 parameters, of 'w' (576) in the file")
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
    SEQUENCE, read=E * E + E + 10 * E, left_out=E, said=("no layer of a network has 'g' (24)",)
)
def weight_normalisation(g: GraphWriter) -> str:
    v = g.weight("v", E, E)
    unit = g("Div", v, g("ReduceL2", v, g.value([1]), keepdims=1))
    return head_of(g, g("MatMul", "x", turned(g, g("Mul", unit, g.weight("g", E, 1)))))


@pattern(SEQUENCE, read=E * E + 8 * E + 10 * E, left_out=8 * E, said=("'a' (96), 'b' (96)",))
def an_adapter_added_to_the_weight(g: GraphWriter) -> str:
    low = g("MatMul", g.weight("a", E, 4), g.weight("b", 4, E))
    return head_of(g, g("MatMul", "x", g("Add", g.weight("w", E, E), low)))


@pattern(SEQUENCE)
def an_adapter_beside_the_layer(g: GraphWriter) -> str:
    low = g.linear(g.linear("x", "a", E, 4), "b", 4, E)
    return head_of(g, g("Add", g.linear("x", "w", E, E), low))


@pattern(SEQUENCE, refused="makes a layer of 576 parameters, of 'a' (96), 'b' (96), 192 elements")
def low_rank_factors_multiplied_first(g: GraphWriter) -> str:
    low = g("MatMul", g.weight("a", E, 4), g.weight("b", 4, E))
    return head_of(g, g("MatMul", "x", low))


@pattern(SEQUENCE)
def low_rank_factors_one_after_the_other(g: GraphWriter) -> str:
    return head_of(g, g.linear(g.linear("x", "a", E, 4), "b", 4, E))


@pattern(
    SEQUENCE,
    read=2 * E * E + 10 * E,
    left_out=E * E,
    said=("no layer of a network has 'second' (576)",),
)
def a_sum_of_two_weights(g: GraphWriter) -> str:
    weight = g("Add", g.weight("first", E, E), g.weight("second", E, E))
    return head_of(g, g("MatMul", "x", weight))


@pattern(SEQUENCE, read=E * E + 10 * E)
def quantised_weights(g: GraphWriter) -> str:
    scale, zero = g.value(np.float32(0.1)), g.value(np.int8(0))
    weight = g("DequantizeLinear", g.value(np.ones((E, E), np.int8)), scale, zero)
    return head_of(g, g("MatMul", "x", weight))


# Weights that several layers read.


@pattern(SEQUENCE, said=("(576 parameters)",))
def a_layer_used_twice(g: GraphWriter) -> str:
    weight = g.weight("shared", E, E)
    x = g("MatMul", g.linear("x", "first", E, E), weight)
    return head_of(g, g("MatMul", g("Relu", x), weight))


@pattern(SEQUENCE, said=("(1,152 parameters)",))
def a_layer_used_three_times_of_which_one_reads_the_input(g: GraphWriter) -> str:
    weight, bias, x = g.weight("shared", E, E), g.weight("bias", E), "x"
    for _ in range(3):
        x = g("Relu", g("Add", g("MatMul", x, weight), bias))
    return head_of(g, x)


@pattern(SEQUENCE, said=("'fc_2' has those of 'fc_1'",))
def a_layer_used_twice_with_biases_of_its_own(g: GraphWriter) -> str:
    weight, x = g.weight("shared", E, E), "x"
    for n in range(2):
        x = g("Relu", g("Add", g("MatMul", x, weight), g.weight(f"bias{n}", E)))
    return head_of(g, x)


@pattern(SEQUENCE, said=("'fc_2' has those of 'fc_1'",))
def one_weight_through_two_names(g: GraphWriter) -> str:
    weight = g.weight("shared", E, E)
    x = g("Relu", g("MatMul", "x", g("Identity", weight)))
    return head_of(g, g("MatMul", x, turned(g, turned(g, weight))))


@pattern(("x", [B, E]), said=("'fc_2' has those of 'fc_1'",))
def one_weight_by_two_operators(g: GraphWriter) -> str:
    weight = g.weight("shared", E, E)
    x = g("Relu", g("Gemm", "x", weight, g.weight("bias", E), transB=1))
    return head_of(g, g("MatMul", x, turned(g, weight)))


@pattern(SEQUENCE, said=("'fc_2' has those of 'fc_1'",))
def one_part_of_a_fused_weight_read_twice(g: GraphWriter) -> str:
    a, b, _ = parts_of(g, g.weight("w", 3 * E, E), "Split")
    x = g("Relu", g("MatMul", "x", a))
    x = g("Relu", g("MatMul", x, cut(g, "w", 0, E)))
    return head_of(g, g("MatMul", x, b))


@pattern(SEQUENCE, said=("'fc_2' has those of 'fc_1'",))
def one_weight_for_a_product_and_in_einsteins_notation(g: GraphWriter) -> str:
    weight = g.weight("w", E, E // 2, 2)
    x = g("Reshape", g("Einsum", "x", weight, equation="bte,ehd->bthd"), g.value([B, T, E]))
    return head_of(g, g("MatMul", g("Relu", x), g("Reshape", weight, g.value([E, E]))))


@pattern(SEQUENCE, refused="as another matrix: in parts or transposed")
def an_autoencoder_with_tied_weights(g: GraphWriter) -> str:
    weight = g.weight("w", E, 8)
    return str(g("MatMul", g("Relu", g("MatMul", "x", weight)), turned(g, weight)))


@pattern(SEQUENCE, refused="as another matrix: in parts or transposed")
def a_square_weight_and_its_transpose(g: GraphWriter) -> str:
    weight = g.weight("w", E, E)
    return str(g("MatMul", g("Relu", g("MatMul", "x", weight)), turned(g, weight)))


@pattern(("x", [B, 6, 8, 8]), refused="convolutions of a network share none")
def a_siamese_network(g: GraphWriter) -> str:
    weight = g.weight("w", 6, 6, 3, 3)
    left = g("Relu", g("Conv", "x", weight, pads=[1, 1, 1, 1]))
    right = g("Relu", g("Conv", g("MaxPool", left, kernel_shape=[1, 1]), weight, pads=[1, 1, 1, 1]))
    return str(g("Add", left, right))


@pattern(IMAGE, refused="convolutions of a network share none")
def a_detectors_head_at_two_scales(g: GraphWriter) -> tuple[str, str]:
    large = g("Relu", g("Conv", "x", g.weight("a", 8, 8, 3, 3), pads=[1, 1, 1, 1]))
    small = g("Relu", g("Conv", large, g.weight("b", 8, 8, 3, 3), strides=[2, 2]))
    head, bias = g.weight("head", 5, 8, 1, 1), g.weight("bias", 5)
    return g("Conv", large, head, bias), g("Conv", small, head, bias)


@pattern(IMAGE, refused="convolutions of a network share none")
def a_depthwise_convolution_used_twice(g: GraphWriter) -> str:
    weight = g.weight("w", 8, 1, 3, 3)
    return str(g("Conv", g("Relu", g("Conv", "x", weight, group=8)), weight, group=8))


@pattern(IMAGE, refused="reads elements of 'w' that node")
def filters_that_overlap(g: GraphWriter) -> str:
    weight = g.weight("w", 12, 8, 3, 3)
    a, b = g("Conv", "x", cut(g, weight, 0, 8)), g("Conv", "x", cut(g, weight, 4, 12))
    return str(g("Add", a, g("Relu", b)))


@pattern(IMAGE, refused="which a network cannot say of these operators")
def a_convolution_of_a_pixel_and_a_product(g: GraphWriter) -> str:
    weight = g.weight("w", 8, 8, 1, 1)
    x = g("GlobalAveragePool", g("Relu", g("Conv", "x", weight)))
    flat = g("Reshape", weight, g.value([8, 8]))
    return str(g("MatMul", g("Flatten", x), turned(g, flat)))


# Tables.


def _looked_up(g: GraphWriter) -> tuple[str, str]:
    table = g.weight("wte", WORDS, E)
    return table, g.linear(g("Gather", table, "ids"), "body", E, E)


@pattern(IDS)
def a_head_with_the_table_transposed(g: GraphWriter) -> str:
    table, x = _looked_up(g)
    return str(g("MatMul", x, turned(g, table)))


@pattern(IDS)
def a_head_with_the_table_and_a_bias(g: GraphWriter) -> str:
    table, x = _looked_up(g)
    return str(g("Add", g("MatMul", x, turned(g, table)), g.weight("bias", WORDS)))


@pattern(IDS)
def a_head_with_the_table_by_gemm(g: GraphWriter) -> str:
    table, x = _looked_up(g)
    pooled = g("ReduceMean", x, g.value([1]), keepdims=0)
    return str(g("Gemm", pooled, table, transB=1))


@pattern(IDS)
def a_head_with_the_table_in_einsteins_notation(g: GraphWriter) -> str:
    table, x = _looked_up(g)
    return str(g("Einsum", x, table, equation="bte,ve->btv"))


@pattern(IDS)
def a_head_with_weights_of_its_own(g: GraphWriter) -> str:
    _, x = _looked_up(g)
    return g.linear(x, "lm_head", E, WORDS)


@pattern(IDS, refused="as another matrix: in parts or transposed")
def a_head_that_is_a_slice_of_the_table(g: GraphWriter) -> str:
    table, x = _looked_up(g)
    return str(g("MatMul", x, turned(g, cut(g, table, 0, 60))))


@pattern(IDS, refused="as another matrix: in parts or transposed")
def a_table_without_its_padding(g: GraphWriter) -> str:
    table = g.weight("wte", WORDS, E)
    x = g.linear(g("Gather", cut(g, table, 0, 90), "ids"), "body", E, E)
    return str(g("MatMul", x, turned(g, table)))


@pattern(IDS)
def the_same_ids_looked_up_twice(g: GraphWriter) -> str:
    table = g.weight("wte", WORDS, E)
    a, b = g("Gather", table, "ids"), g("Gather", table, "ids")
    return head_of(g, g("Add", g.linear(a, "a", E, E), g.linear(b, "b", E, E)))


@pattern(IDS, ("targets", [B, T]), refused="by other ids, and a network has one input of ids")
def other_ids_looked_up_in_the_same_table(g: GraphWriter) -> str:
    """As an encoder and a decoder do."""
    table = g.weight("wte", WORDS, E)
    a, b = g("Gather", table, "ids"), g("Gather", table, "targets")
    return head_of(g, g("Add", g.linear(a, "a", E, E), g.linear(b, "b", E, E)))


@pattern(IDS, ("types", [B, T]))
def two_tables_cut_from_one(g: GraphWriter) -> str:
    words, kinds = g("Split", g.weight("all", WORDS + 2, E), g.value([WORDS, 2]), outputs=2)
    return head_of(g, g("Add", g("Gather", words, "ids"), g("Gather", kinds, "types")))


@pattern(IDS)
def positions_that_are_read_whole(g: GraphWriter) -> str:
    words = g("Gather", g.weight("wte", WORDS, E), "ids")
    return head_of(g, g("Add", words, g.weight("wpe", T, E)))


@pattern(IDS, added=(64 - T) * E)
def positions_of_a_longer_table_by_gather(g: GraphWriter) -> str:
    """All rows of the table are learned, as long as another sequence may be."""
    words = g("Gather", g.weight("wte", WORDS, E), "ids")
    places = g("Gather", g.weight("wpe", 64, E), g.value([list(range(T))]))
    return head_of(g, g("Add", words, places))


@pattern(IDS, added=(64 - T) * E)
def positions_of_a_longer_table_by_slice(g: GraphWriter) -> str:
    words = g("Gather", g.weight("wte", WORDS, E), "ids")
    return head_of(g, g("Add", words, cut(g, g.weight("wpe", 64, E), 0, T)))


@pattern(IDS)
def positions_that_are_added_twice(g: GraphWriter) -> str:
    words, places = g("Gather", g.weight("wte", WORDS, E), "ids"), g.weight("wpe", T, E)
    x = g.linear(g("Add", words, places), "body", E, E)
    return head_of(g, g("Add", x, places))


@pattern(IDS, read=(WORDS + T + 2) * E + 10 * E, added=0)
def positions_and_types_added_to_each_other_first(g: GraphWriter) -> str:
    words = g("Gather", g.weight("wte", WORDS, E), "ids")
    kinds = g("Gather", g.weight("types", 2, E), g.value([[0, 1] * (T // 2)]))
    return head_of(g, g("Add", words, g("Add", kinds, g.weight("wpe", T, E))))


@pattern(IDS, read=WORDS * E + 10 * E, said=("adds positions that are computed",))
def positions_that_are_computed(g: GraphWriter) -> str:
    words = g("Gather", g.weight("wte", WORDS, E), "ids")
    angles = g("MatMul", g.value(np.arange(T)[:, None] * 1.0), g.value(np.ones((1, E))))
    return head_of(g, g("Add", words, g("Sin", angles)))


@pattern(("x", [B, 3, 8, 8]))
def a_vision_transformer(g: GraphWriter) -> str:
    patches = g("Conv", "x", g.weight("patch", E, 3, 2, 2), g.weight("bias", E), strides=[2, 2])
    tokens = g("Transpose", g("Reshape", patches, g.value([B, E, 16])), perm=[0, 2, 1])
    first = g("Expand", g.weight("class_token", 1, 1, E), g.value([B, 1, 1]))
    tokens = g("Add", g("Concat", first, tokens, axis=1), g.weight("positions", 1, 17, E))
    return g.linear(g("Gather", tokens, g.value(np.int64(0)), axis=1), "head", E, 10)


@pattern(("x", [B, 3, 8, 8]))
def a_class_token_and_positions_in_one_table(g: GraphWriter) -> str:
    table = g.weight("table", 1, 17, E)
    patches = g("Conv", "x", g.weight("patch", E, 3, 2, 2), strides=[2, 2])
    tokens = g("Transpose", g("Reshape", patches, g.value([B, E, 16])), perm=[0, 2, 1])
    tokens = g("Add", tokens, cut(g, table, 1, 17, 1))
    first = g("Expand", cut(g, table, 0, 1, 1), g.value([B, 1, 1]))
    return head_of(g, g("Concat", first, tokens, axis=1))


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


@pattern(IMAGE, left_out=16)
def a_batch_norm_with_running_statistics(g: GraphWriter) -> str:
    x = g("Conv", "x", g.weight("w", 8, 8, 3, 3))
    learned = (g.weight(f"bn.{name}", 8) for name in ("weight", "bias", "mean", "var"))
    return str(g("Conv", g("BatchNormalization", x, *learned), g.weight("v", 8, 8, 1, 1)))


@pattern(IMAGE)
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


_GROUPS = "a norm of each group of channels is taken as one of all channels"


@pattern(IMAGE, said=(_GROUPS,))
def a_group_norm_by_an_instance_norm(g: GraphWriter) -> str:
    return _grouped(g, g.value(np.ones(4)), g.value(np.zeros(4)))


@pattern(IMAGE, left_out=8, said=(_GROUPS, "no layer of a network has 'scale' (4), 'shift' (4)"))
def a_group_norm_that_scales_its_groups(g: GraphWriter) -> str:
    return _grouped(g, g.weight("scale", 4), g.weight("shift", 4))


@pattern(IMAGE, said=(_GROUPS,))
def a_group_norm(g: GraphWriter) -> str:
    x = g("Conv", "x", g.weight("w", 8, 8, 3, 3))
    learned = g.weight("scale", 8), g.weight("shift", 8)
    x = g("GroupNormalization", x, *learned, num_groups=4)
    return str(g("Conv", x, g.weight("v", 8, 8, 1, 1)))


@pattern(SEQUENCE)
def a_scale_of_each_channel(g: GraphWriter) -> str:
    """Layer scale, of vision transformers."""
    return head_of(
        g, g("Add", "x", g("Mul", g.linear("x", "a", E, E, bias=True), g.weight("s", E)))
    )


@pattern(IMAGE)
def a_slope_of_each_channel(g: GraphWriter) -> str:
    x = g("Conv", "x", g.weight("w", 8, 8, 3, 3), g.weight("b", 8))
    return str(g("Conv", g("PRelu", x, g.weight("slope", 8, 1, 1)), g.weight("v", 8, 8, 1, 1)))


def _biased(g: GraphWriter, bias: str) -> str:
    return attention(g, *(g.linear("x", name, E, E) for name in "qkv"), bias)


@pattern(SEQUENCE, left_out=H * T * T, said=("no layer of a network has 'bias' (1,024)",))
def a_learned_bias_of_attention(g: GraphWriter) -> str:
    return _biased(g, g.weight("bias", 1, H, T, T))


@pattern(
    SEQUENCE,
    read=3 * E * E + 8 * H,
    left_out=8 * H,
    said=("no layer of a network has 'table' (32)",),
)
def relative_positions_of_a_table(g: GraphWriter) -> str:
    distance = np.clip(np.arange(T)[:, None] - np.arange(T), 0, 7)
    rows = g("Gather", g.weight("table", 8, H), g.value(distance))
    return _biased(g, g("Unsqueeze", g("Transpose", rows, perm=[2, 0, 1]), g.value([0])))


@pattern(SEQUENCE)
def a_mask_of_known_values(g: GraphWriter) -> str:
    return _biased(g, g.value(np.triu(np.full((1, 1, T, T), -1e9), 1)))


@pattern(IMAGE, left_out=8 * 36, said=("no layer of a network has 'map' (288)",))
def a_learned_map_added_to_an_image(g: GraphWriter) -> str:
    x = g("Add", g("Conv", "x", g.weight("w", 8, 8, 3, 3)), g.weight("map", 1, 8, 6, 6))
    return str(g("Conv", g("Relu", x), g.weight("v", 8, 8, 1, 1)))


@pattern(
    SEQUENCE, left_out=D, said=("a norm of each head", "no layer of a network has 'q_norm' (6)")
)
def a_norm_of_each_head(g: GraphWriter) -> str:
    q, k, v = (g.heads(g.linear("x", name, E, E), B, T, H, D) for name in "qkv")
    q = g("LayerNormalization", q, g.weight("q_norm", D))
    return g.together(g.core(q, k, v), B, T, E)


@pattern(IMAGE, left_out=8, said=("no layer of a network has 'mean' (8)",))
def a_mean_subtracted_from_the_input(g: GraphWriter) -> str:
    x = g("Sub", "x", g.weight("mean", 8, 1, 1))
    return str(g("Conv", x, g.weight("w", 8, 8, 3, 3)))


@pattern(("x", [B, E]), left_out=1)
def a_bias_of_one_number(g: GraphWriter) -> str:
    return str(g("Gemm", "x", g.weight("w", E, 8), g.weight("c", 1)))


@pattern(SEQUENCE, left_out=3 * E, said=("no layer of a network has 'bias' (72)",))
def biases_within_the_operator_of_attention(g: GraphWriter) -> str:
    q, k, v = (g.linear("x", name, E, E) for name in "qkv")
    bias = g.weight("bias", 3 * E)
    domain = "com.microsoft"
    return str(g("MultiHeadAttention", q, k, v, bias, num_heads=H, domain=domain))


@pattern(SEQUENCE)
def a_projection_within_the_operator_of_attention(g: GraphWriter) -> str:
    weights = g.weight("qkv", E, 3 * E), g.weight("bias", 3 * E)
    return str(g("Attention", "x", *weights, num_heads=H, domain="com.microsoft"))


@pattern(SEQUENCE, left_out=E, said=("no layer of a network has 'bias' (24)",))
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


# What no size of a dimension would help is refused before any is asked for.


def _hopeless(op: str, **attributes: Any) -> Callable[[GraphWriter], str]:
    def build(g: GraphWriter) -> str:
        x = g.linear("x", "a", E, E)
        if op == "TopK":
            return str(g("TopK", x, g.value([2]), outputs=2)[0])
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
        return str(g(op, x, g.weight("w", 1, gates * D, E), g.weight("r", 1, gates * D, D)))

    return build


for _op in ("LSTM", "GRU", "RNN", "TopK"):
    _why = "chooses by values" if _op == "TopK" else "control flow and recurrences"
    PATTERNS[f"{_op} of a dynamic sequence"] = Pattern(
        _hopeless(_op), (("x", ["batch", "sequence", E]),), refused=f"({_op}): {_why}"
    )
