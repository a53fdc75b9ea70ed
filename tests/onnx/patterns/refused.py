"""What no network has a layer for, or no file may hold: refused by node and operator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import numpy_helper

from tests.onnx.graph_writer import GraphWriter
from tests.onnx.patterns.registry import (
    IDS,
    IMAGE,
    PATTERNS,
    SEQUENCE,
    WORDS,
    B,
    E,
    Pattern,
    T,
    pattern,
)


def _alone(op: str) -> Callable[[GraphWriter], str]:
    return lambda g: str(g(op, g.linear("x", "first", E, E), name="odd"))


for _op, _said in {
    "If": "chooses between graphs by a value of the run",
    "Loop": "repeats a graph as often as a value of the run says",
    "Scan": "is a recurrence: a token reads the state that the one before leaves",
    "Transpos": "is not an operator that can be imported; the nearest known is 'Transpose'",
}.items():
    PATTERNS[f"an {_op}"] = Pattern(
        _alone(_op), (SEQUENCE,), refused=f"node 'odd' ({_op}): {_said}"
    )


# What no size of a dimension would help is refused before any is asked for.
_recurrent = "is a recurrent layer: a token reads the state that the one before leaves"
for _op, _why in (
    *((_op, _recurrent) for _op in ("LSTM", "GRU", "RNN")),
    ("TopK", "chooses by values"),
):
    PATTERNS[f"{_op} of a dynamic sequence"] = Pattern(
        _alone(_op), (("x", ["batch", "sequence", E]),), refused=f"({_op}): {_why}"
    )


@pattern(SEQUENCE, refused="'odd' (TopK): chooses by values; of experts a network file says it")
def a_mixture_of_experts(g: GraphWriter) -> str:
    """As Mixtral is exported: what TopK chooses decides which tokens an expert's products read."""
    x = g.linear("x", "first", E, E)
    shares = g("Softmax", g.linear(x, "router", E, 4), axis=-1)
    weights, chosen = g("TopK", shares, g.value([2]), name="odd", outputs=2)
    tokens = g("NonZero", g("Equal", chosen, g.value(0)))
    read = g.linear(g("GatherND", x, tokens), "expert", E, E)
    return str(g("ScatterND", x, tokens, g("Mul", read, weights)))


@pattern(
    IMAGE, refused="'odd' (Resize): should enlarge rows and columns by whole factors, got 1, 1, 1.5"
)
def an_image_enlarged_by_half(g: GraphWriter) -> str:
    x = g("Conv", "x", g.weight("a", 4, 8, 1, 1))
    return str(g("Resize", x, "", g.value([1, 1, 1.5, 1.5]), name="odd", mode="nearest"))


@pattern(SEQUENCE, refused="'odd' (MatMul): multiplies the tokens of a sequence")
def a_product_with_the_tokens(g: GraphWriter) -> str:
    across = g("Transpose", g.linear("x", "first", E, E), perm=[0, 2, 1])
    return str(g("MatMul", across, g.weight("mix", T, T), name="odd"))


@pattern(SEQUENCE, refused="'odd' (MatMul): multiplies two feature maps, but is not attention")
def two_maps_multiplied_that_are_no_attention(g: GraphWriter) -> tuple[str, str]:
    a, b = g.linear("x", "a", E, E), g.linear("x", "b", E, E)
    return g("MatMul", a, g("Transpose", b, perm=[0, 2, 1]), name="odd"), a


@pattern(IMAGE, refused="should have weights for 8 channels in 1 groups, got [8, 5, 3, 3]")
def a_convolution_of_other_channels(g: GraphWriter) -> str:
    return str(g("Conv", "x", g.weight("a", 8, 5, 3, 3)))


@pattern(SEQUENCE, refused="its inputs do not fit one another: 2x16x24 and 25x24")
def a_product_of_other_features(g: GraphWriter) -> str:
    return g.linear("x", "first", E + 1, E)


@pattern(IMAGE, refused="'odd' (MaxPool): its window of 9 does not fit 8 and a padding of 0")
def a_window_that_does_not_fit(g: GraphWriter) -> str:
    x = g("Conv", "x", g.weight("a", 4, 8, 1, 1))
    return str(g("MaxPool", x, name="odd", kernel_shape=[9, 2]))


@pattern(IMAGE, refused="(Reshape): is not as its operator requires: the elements do not fit")
def a_reshape_across_the_axes(g: GraphWriter) -> str:
    return str(g("Reshape", "x", g.value([1, 3, -1])))


@pattern(IMAGE, refused="(Reshape): its shape 'target' is not in the file")
def a_shape_in_another_file(g: GraphWriter) -> str:
    return str(g("Reshape", "x", g.weight("target", 2)))


@pattern(SEQUENCE, refused="(SplitToSequence): is not an operator that can be imported")
def a_sequence_of_rows(g: GraphWriter) -> str:
    """Two of them are no halves."""
    rows = g("SplitToSequence", g.linear("x", "a", E, E), axis=2)
    one, two = (g("SequenceAt", rows, g.value(n)) for n in range(2))
    return str(g("Mul", one, two))


def _complex(through: str) -> Callable[[GraphWriter], str]:
    def build(g: GraphWriter) -> str:
        numbers = np.array([B, T, E], np.complex64)
        shape = g.value(numbers)
        if through != "initializer":
            shape = g("Constant", value=numpy_helper.from_array(numbers))
        if through == "computed":
            shape = g("Cast", shape, to=7)
        return str(g("Reshape", "x", shape))

    return build


for _by in ("initializer", "constant", "computed"):
    PATTERNS[f"complex numbers as a shape, {_by}"] = Pattern(
        _complex(_by), (SEQUENCE,), refused=" (Reshape): its shape "
    )


@pattern(
    SEQUENCE,
    ("past", [B, 4, E]),
    refused="joins a further input of the model, through 'past'",
)
def a_further_input_that_joins(g: GraphWriter) -> str:
    return str(g("Concat", "past", g.linear("x", "a", E, E), axis=1))


@pattern(
    IDS,
    ("types", [B, T]),
    refused="reads the ids 'types', which index another table too; only those of the first input",
)
def further_ids_that_index_two_tables(g: GraphWriter) -> str:
    tables = (g.weight("words", WORDS, E), g.weight("a", 3, E), g.weight("b", 3, E))
    names = ("ids", "types", "types")
    one, two, three = (g("Gather", *pair) for pair in zip(tables, names, strict=True))
    return str(g("Add", g("Add", one, two), three))


@pattern(
    IDS,
    ("types", [B + 1, T]),
    refused="input 'types': its leading dimension is 3, that of 'ids' 2; it should be the batch",
)
def further_ids_of_another_batch(g: GraphWriter) -> str:
    one, two = (
        g("Gather", g.weight(f"table of {name}", WORDS, E), name) for name in ("ids", "types")
    )
    return str(g("Add", one, two))


def _in_windows(reduced: Callable[[GraphWriter, str], str]) -> Callable[[GraphWriter], str]:
    def build(g: GraphWriter) -> str:
        x = g("Reshape", g.linear("x", "a", E, E), g.value([-1, T // 2, E]))
        return g.linear(g("Reshape", reduced(g, x), g.value([B, -1, E])), "b", E, E)

    return build


def _group_norm(g: GraphWriter, x: str) -> str:
    learned = g.weight("scale", E), g.weight("shift", E)
    x = g("GroupNormalization", g("Transpose", x, perm=[0, 2, 1]), *learned, num_groups=4)
    return str(g("Transpose", x, perm=[0, 2, 1]))


for _name, _reduced in {
    "mean": lambda g, x: g("ReduceMean", x, g.value([1])),
    "group norm": _group_norm,
    "norm written out": lambda g, x: g("Sub", x, g("ReduceMean", x, g.value([1, 2]))),
}.items():
    PATTERNS[f"a {_name} of a window"] = Pattern(
        _in_windows(_reduced), (SEQUENCE,), refused="reduces a part of the positions, as those of a"
    )


@pattern(SEQUENCE, refused="node 'odd' (Relu): reads 'nowhere', which nothing writes")
def what_nothing_writes(g: GraphWriter) -> str:
    return str(g("Relu", "nowhere", name="odd"))


@pattern(
    ("x", ["batch", 1, 16]),
    refused="node 'odd' (Pad): its border is read by node 'Reshape_1' (Reshape); only convolutions",
)
def a_border_that_is_reshaped(g: GraphWriter) -> str:
    x = g("Pad", "x", g.value([0, 0, 2, 0, 0, 2]), mode="reflect", name="odd")
    return str(g("Conv", g("Reshape", x, g.value([0, 1, 20])), g.weight("a", 3, 1, 4)))


@pattern(("x", ["batch", "sequence", E]), refused="node 'odd' (If): chooses between graphs")
def a_branch_that_is_all_of_a_model(g: GraphWriter) -> str:
    """Named before the size of a dimension is asked for."""
    return str(g("If", g("Constant", value_int=1), name="odd"))


@pattern(
    IMAGE,
    refused="'odd' (Add): its inputs are of one size, but not of the same axes:"
    " [images, channels, rows, columns] and [images, channels, columns, rows]",
)
def an_image_and_itself_turned(g: GraphWriter) -> str:
    x = g("Conv", "x", g.weight("a", 4, 8, 1, 1))
    y = g("Conv", "x", g.weight("b", 4, 8, 1, 1))
    return str(g("Add", x, g("Transpose", y, perm=[0, 1, 3, 2]), name="odd"))


@pattern(
    IMAGE,
    refused="'odd' (MaxPool): should have windows larger than their border, got a border of 2",
)
def a_border_as_wide_as_its_window(g: GraphWriter) -> str:
    x = g("Conv", "x", g.weight("a", 4, 8, 1, 1))
    return str(g("MaxPool", x, name="odd", kernel_shape=[2, 2], pads=[2] * 4))
