"""Weights and tables that several layers read."""

from __future__ import annotations

import numpy as np

from tests.onnx.graph_writer import GraphWriter
from tests.onnx.patterns.registry import (
    IDS,
    IMAGE,
    SEQUENCE,
    WORDS,
    B,
    E,
    T,
    cut,
    head_of,
    parts_of,
    pattern,
    turned,
)

# Weights that several layers read.


@pattern(SEQUENCE, said=("(576 parameters)",))
def a_layer_used_twice(g: GraphWriter) -> str:
    weight = g.weight("shared", E, E)
    x = g("MatMul", g.linear("x", "first", E, E), weight)
    return head_of(g, g("MatMul", g("Relu", x), weight))


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
def a_square_weight_and_its_transpose(g: GraphWriter) -> str:
    weight = g.weight("w", E, E)
    return str(g("MatMul", g("Relu", g("MatMul", "x", weight)), turned(g, weight)))


@pattern(("x", [B, 6, 8, 8]), refused="convolutions of a network cannot share weights")
def a_siamese_network(g: GraphWriter) -> str:
    weight = g.weight("w", 6, 6, 3, 3)
    left = g("Relu", g("Conv", "x", weight, pads=[1, 1, 1, 1]))
    right = g("Relu", g("Conv", g("MaxPool", left, kernel_shape=[1, 1]), weight, pads=[1, 1, 1, 1]))
    return str(g("Add", left, right))


@pattern(IMAGE, refused="which a network cannot express for these operators")
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
def a_head_with_the_table_in_einsteins_notation(g: GraphWriter) -> str:
    table, x = _looked_up(g)
    return str(g("Einsum", x, table, equation="bte,ve->btv"))


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


@pattern(IDS, read=(WORDS + T + 2) * E + 10 * E, added=0, said=("by which a table is read",))
def positions_and_types_added_to_each_other_first(g: GraphWriter) -> str:
    words = g("Gather", g.weight("wte", WORDS, E), "ids")
    kinds = g("Gather", g.weight("types", 2, E), g.value([[0, 1] * (T // 2)]))
    return head_of(g, g("Add", words, g("Add", kinds, g.weight("wpe", T, E))))


@pattern(IDS, read=WORDS * E + 10 * E, said=("positions that are computed",))
def positions_that_are_computed(g: GraphWriter) -> str:
    words = g("Gather", g.weight("wte", WORDS, E), "ids")
    angles = g("MatMul", g.value(np.arange(T)[:, None] * 1.0), g.value(np.ones((1, E))))
    return head_of(g, g("Add", words, g("Sin", angles)))


@pattern(
    ("x", [B, 3, 8, 8]),
    kinds="conv flatten embedding concat embedding add global_pool fc output",
    keys={"global_pool": [{"over": "first"}]},
)
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
