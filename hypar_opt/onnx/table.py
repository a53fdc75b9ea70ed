"""The table of ONNX operators, one row per operator.

A row names the rule that reads the operator, and holds what the rule needs to know. It states the
attributes and the inputs that are read: what a node has besides, a network names as not kept.

Source: the ONNX operator specifications, opsets 1 to 25, and those of the domain com.microsoft
that exporters write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple


class Row(NamedTuple):
    """How an operator is read.

    Parameters
    ----------
    rule
        The name of the rule.
    word
        Of an elementwise operator on several maps the kind of layer that joins them, ``activation``
        for one that no scale or shift behind it can join; a norm's kind, or a pool's ``max`` or
        ``average``.
    attributes
        Those that are read; None for an operator that is not computed, so that a network names it
        whole wherever it lies between two layers.
    inputs
        How many inputs are read, the first ones; None for all.
    unread
        Inputs among these that are not.
    """

    rule: str
    word: str = ""
    attributes: frozenset[str] | None = frozenset()
    inputs: int | None = None
    unread: frozenset[int] = frozenset()


def _rows(
    rule: str,
    operators: str,
    attributes: str | None = "",
    inputs: int | None = None,
    unread: Iterable[int] = (),
) -> dict[str, Row]:
    """Return the rows of a rule, of operators each with its word after a colon, if it has one."""
    read = None if attributes is None else frozenset(attributes.split())
    rest = read, inputs, frozenset(unread)
    entries = (entry.partition(":") for entry in operators.split())
    return {operator: Row(rule, word, *rest) for operator, _, word in entries}


EXACT = frozenset({"Add", "BiasGelu", "Mul", "Sum"})
"""Operators on several maps which a layer does too; others are taken as it, with a note."""

WITHOUT_EFFECT = frozenset(
    (
        # Of opset 1, and of layouts and precisions.
        *("broadcast", "consumed_inputs", "saturate", "round_mode", "stash_type", "storage_order"),
        *("softmax_precision", "accuracy_level", "mask_filter_value", "bits", "block_size"),
        # For inference only, or handled by a step in its own way.
        *("is_test", "momentum", "training_mode", "ratio", "seed", "past_present_share_buffer"),
    )
)
"""Attributes of any operator that do not change what a network computes."""

_WINDOW = "auto_pad dilations kernel_shape pads strides"
_HEADS = "do_rotary is_causal kv_num_heads local_window_size num_heads q_num_heads scale softcap"
_HEADS += " unidirectional left_window_size right_window_size"
_REDUCTION = "axes keepdims noop_with_empty_axes"

OPERATORS: dict[str, Row] = {
    **_rows("convolution", "Conv", f"{_WINDOW} group", 3),
    **_rows("convolution", "FusedConv", f"{_WINDOW} group activation activation_params", 3),
    **_rows("convolution", "ConvTranspose", f"{_WINDOW} group output_padding output_shape", 3),
    **_rows("product", "MatMul", "", 2),
    **_rows("product", "MatMulInteger", "", 4),  # zero points are of how weights are stored
    **_rows("product", "FusedMatMul", "alpha transA transB transBatchA transBatchB", 2),
    **_rows("product", "TransposeMatMul", "alpha transA transB", 2),
    **_rows("general_product", "Gemm", "alpha beta transA transB", 3),
    **_rows("gather", "Gather", "axis", 2),
    **_rows("gather", "GatherND", "batch_dims", 2),
    **_rows("quantised_product", "MatMulNBits", "K N", 5),
    **_rows("einsum", "Einsum", "equation"),
    **_rows("attention", "Attention", _HEADS, 4),
    **_rows("attention", "MultiHeadAttention", _HEADS, 6),
    # Lengths of a cache of the past, which a step does not have.
    **_rows("attention", "GroupQueryAttention", _HEADS, 12, (3, 4)),
    **_rows("fused_projection", "com.microsoft.Attention", _HEADS, 6, (4,)),
    **_rows("batch_norm", "BatchNormalization:batch", "epsilon", 5),
    **_rows("channel_norm", "InstanceNormalization:layer", "epsilon", 3),
    **_rows("channel_norm", "GroupNormalization:layer", "epsilon num_groups", 3),
    **_rows("last_norm", "LayerNormalization:layer", "axis epsilon", 3),
    **_rows(
        "last_norm", "RMSNormalization:rms SimplifiedLayerNormalization:rms", "axis epsilon", 2
    ),
    **_rows("sum_and_norm", "SkipLayerNormalization:layer", "epsilon", 4),
    **_rows("sum_and_norm", "SkipSimplifiedLayerNormalization:rms", "epsilon", 3),
    **_rows("pool", "MaxPool:max", f"{_WINDOW} ceil_mode", 1),
    **_rows("pool", "AveragePool:average", f"{_WINDOW} ceil_mode count_include_pad", 1),
    **_rows("pool", "LpPool:average", f"{_WINDOW} ceil_mode p", 1),
    **_rows("upsample", "Resize", "axes coordinate_transformation_mode mode nearest_mode", 4),
    **_rows("upsample", "Upsample", "mode scales", 2),
    **_rows("global_pool", "GlobalAveragePool:average GlobalMaxPool:max", "", 1),
    **_rows("global_pool", "GlobalLpPool:average", "p", 1),
    **_rows(
        "reduction",
        "ReduceMean:average ReduceMax:max ReduceSum:average ReduceL1:average ReduceL2:average"
        " ReduceMin:max ReduceSumSquare:average ReduceLogSumExp:average",
        _REDUCTION,
        2,
    ),
    **_rows("reshape", "Reshape", "allowzero shape", 2),
    **_rows("reshape", "Flatten", "axis", 1),
    **_rows("reshape", "Squeeze Unsqueeze", "axes", 2),
    **_rows("transpose", "Transpose", "perm", 1),
    **_rows("pixel_shuffle", "DepthToSpace", "blocksize mode", 1),
    **_rows("pixel_shuffle", "SpaceToDepth", "blocksize", 1),
    **_rows("split", "Split", "axis num_outputs split", 2),
    **_rows("slice_", "Slice", "axes ends starts", 5),
    **_rows("expand", "Expand Tile", "", 2),
    **_rows("pad", "Pad", "axes mode pads value", 4),
    **_rows("concat", "Concat", "axis"),
    **_rows("shape", "Shape", "end start", 1),
    **_rows("shape", "Size", "", 1),
    **_rows("softmax", "Softmax LogSoftmax", "axis", 1),
    **_rows("rotary", "RotaryEmbedding", "interleaved num_heads rotary_embedding_dim scale", 4),
    # On several feature maps, with the kind of the layer that joins these.
    **_rows(
        "elementwise",
        "Add:add Sub:add Sum:add Mean:add Max:add Min:add Mul:mul Div:mul Pow:mul Where:add"
        " And:add Or:add Xor:add Equal:add Greater:add GreaterOrEqual:add Less:add"
        " LessOrEqual:add PRelu:mul",
    ),
    **_rows("elementwise", "BiasGelu:add BiasAdd:add", "", 2),
    **_rows("elementwise", "Mod:mul", "fmod"),
    **_rows("elementwise", "BitShift:mul", None),
    # Activations, on one map.
    **_rows(
        "elementwise",
        "Abs:activation Erf:activation Exp:activation FastGelu:activation HardSwish:activation"
        " Log:activation Mish:activation Relu:activation Sigmoid:activation Softplus:activation"
        " Softsign:activation Tanh:activation",
    ),
    **_rows("elementwise", "Clip:activation", "max min", 3),
    **_rows("elementwise", "Gelu:activation", "approximate", 1),
    **_rows("elementwise", "HardSigmoid:activation", "alpha beta", 1),
    **_rows("elementwise", "Selu:activation", "alpha gamma", 1),
    **_rows("elementwise", "Shrink:activation", "bias lambd", 1),
    **_rows(
        "elementwise",
        "Celu:activation Elu:activation LeakyRelu:activation QuickGelu:activation Swish:activation"
        " ThresholdedRelu:activation",
        "alpha",
        1,
    ),
    # Not activations: parts of norms, casts, operators of inference. That a local response norm
    # reads neighbouring channels is ignored, as in the paper.
    **_rows(
        "elementwise",
        "Identity Neg Not Reciprocal Sqrt Ceil Floor Round Sign IsNaN Cos Sin Acos Asin Atan Cosh"
        " Sinh Tan",
        "",
        1,
    ),
    **_rows("elementwise", "Cast CastLike", "to", 2),
    **_rows("elementwise", "Dropout SimplifiedDropout", "", 3),
    **_rows(
        "elementwise",
        "LRN IsInf CumSum Trilu QuantizeLinear DequantizeLinear DynamicQuantizeLinear"
        " LpNormalization MeanVarianceNormalization BitwiseNot Hardmax",
        None,
    ),
}


def unread(
    op: str, attributes: Mapping[str, object], inputs: Sequence[str]
) -> Iterator[tuple[str, object]]:
    """Yield the attributes and inputs that an operator's rule does not read, with values.

    An attribute at its default is not yielded: a file may state it as well as leave it out.
    """
    row = OPERATORS[op]
    if row.attributes is not None:
        for name, value in attributes.items():
            if name not in row.attributes | WITHOUT_EFFECT and value not in defaults(op, name):
                yield name, value
    for place, operand in enumerate(inputs):
        if operand and (place in row.unread or (row.inputs is not None and place >= row.inputs)):
            yield f"input {place + 1}", repr(operand)


@cache
def defaults(op: str, name: str) -> tuple[object, ...]:
    """Return an attribute's default in the newest version of an operator.

    Of other domains, whose operators ``onnx`` does not describe, what switches mostly are at.
    """
    from onnx import defs, helper

    try:
        value = defs.get_schema(op).attributes[name].default_value
    except (defs.SchemaError, KeyError):
        return (0, -1, "")
    attribute = helper.get_attribute_value(value) if value.type else None
    return (attribute.decode() if isinstance(attribute, bytes) else attribute,)


# Refused by name, each with its reason.
_SEQUENTIAL = (
    "a token reads the state that the one before leaves, so that tokens cannot be computed side by"
    " side; a network has no layer for it"
)
CONTROL_FLOW = {
    "If": "chooses between graphs by a value of the run, which a network does not have",
    "Loop": "repeats a graph as often as a value of the run says, which a network does not have",
    "Scan": f"is a recurrence: {_SEQUENTIAL}",
    "SequenceMap": "repeats a graph for each tensor of a list, which a network does not have",
}
# Refused before missing sizes of dimensions are asked for.
HOPELESS = {
    **dict.fromkeys(("GRU", "LSTM", "RNN"), f"is a recurrent layer: {_SEQUENTIAL}"),
    "TopK": "chooses by values; of experts a network file says it, with the kind 'router'",
}
