"""The table of ONNX operators, one row per operator.

A row names the rule that reads the operator, and holds what the rule needs to know. Elementwise
operators keep every layout; their word is the activation's name in a network file, empty for those
that are not activations.

Source: the ONNX operator specifications, opsets 1 to 25, and those of the domain com.microsoft
that exporters write.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """How an operator is read.

    Parameters
    ----------
    rule
        The name of the rule.
    word
        An elementwise operator's activation or kind of layer, a norm's kind, or a pool's ``max`` or
        ``average``.
    """

    rule: str
    word: str = ""


def _rows(rule: str, operators: str) -> dict[str, Row]:
    """Return the rows of a rule, of operators each with its word after a colon, if it has one."""
    entries = (entry.partition(":") for entry in operators.split())
    return {operator: Row(rule, word) for operator, _, word in entries}


EXACT = frozenset({"Add", "BiasGelu", "Mul", "Sum"})
"""Operators on several maps which a layer does too; others are taken as it, with a note."""

ELEMENTWISE = _rows(
    "elementwise",
    "Abs:abs Celu:celu Clip:clip Elu:elu Erf:erf Exp:exp FastGelu:gelu Gelu:gelu_erf"
    " HardSigmoid:hardsigmoid HardSwish:hardswish LeakyRelu:leaky_relu Log:log Mish:mish"
    " QuickGelu:gelu Relu:relu Selu:selu Shrink:shrink Sigmoid:sigmoid Softplus:softplus"
    " Softsign:softsign Swish:silu Tanh:tanh ThresholdedRelu:thresholded_relu",
)
"""Activations."""

OPERATORS: dict[str, Row] = {
    **_rows("convolution", "Conv FusedConv"),
    **_rows("product", "MatMul FusedMatMul MatMulInteger TransposeMatMul"),
    **_rows("general_product", "Gemm"),
    **_rows("gather", "Gather"),
    **_rows("quantised_product", "MatMulNBits"),
    **_rows("einsum", "Einsum"),
    **_rows("attention", "Attention MultiHeadAttention GroupQueryAttention"),
    **_rows("fused_projection", "com.microsoft.Attention"),
    **_rows("batch_norm", "BatchNormalization:batch"),
    # An instance norm's statistics are of one channel of one image. Under every choice they are
    # local, so that only its scale and shift count.
    **_rows("channel_norm", "InstanceNormalization:affine GroupNormalization:layer"),
    **_rows("last_norm", "LayerNormalization:layer RMSNormalization:rms"),
    **_rows("last_norm", "SimplifiedLayerNormalization:rms"),
    **_rows("sum_and_norm", "SkipLayerNormalization:layer SkipSimplifiedLayerNormalization:rms"),
    **_rows("pool", "MaxPool:max AveragePool:average LpPool:average"),
    **_rows("upsample", "Resize Upsample"),
    **_rows("global_pool", "GlobalAveragePool:average GlobalMaxPool:max GlobalLpPool:average"),
    **_rows(
        "reduction",
        "ReduceMean:average ReduceMax:max ReduceSum:average ReduceL1:average ReduceL2:average"
        " ReduceMin:max ReduceSumSquare:average ReduceLogSumExp:average",
    ),
    **_rows("reshape", "Reshape Flatten Squeeze Unsqueeze"),
    **_rows("transpose", "Transpose"),
    **_rows("split", "Split"),
    **_rows("slice_", "Slice"),
    **_rows("expand", "Expand Tile"),
    **_rows("pad", "Pad"),
    **_rows("concat", "Concat"),
    **_rows("shape", "Shape Size"),
    **_rows("softmax", "Softmax LogSoftmax"),
    **_rows("rotary", "RotaryEmbedding"),
    # On several feature maps, with the kind of the layer that joins these.
    **_rows(
        "elementwise",
        "Add:add Sub:add Sum:add Mean:add Max:add Min:add Mul:mul Div:mul Pow:mul Mod:mul Where:add"
        " BiasGelu:add And:add Or:add Xor:add Equal:add BitShift:mul Greater:add GreaterOrEqual:add"
        " Less:add LessOrEqual:add PRelu:mul BiasAdd:add",
    ),
    **ELEMENTWISE,
    # Not activations: parts of norms, casts, operators of inference. That a local response norm
    # reads neighbouring channels is ignored, as in the paper.
    **_rows(
        "elementwise",
        "Cast CastLike Identity Dropout LRN Neg Not Reciprocal Sqrt Ceil Floor Round Sign IsNaN"
        " IsInf Cos Sin CumSum Trilu QuantizeLinear DequantizeLinear DynamicQuantizeLinear"
        " LpNormalization MeanVarianceNormalization SimplifiedDropout BitwiseNot"
        " Acos Asin Atan Cosh Sinh Tan Hardmax",
    ),
}

# Refused by name.
CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
UNSUPPORTED = "control flow and recurrences are not supported"
# Refused before missing sizes of dimensions are asked for.
HOPELESS = {
    **dict.fromkeys(("GRU", "LSTM", "RNN"), UNSUPPORTED),
    "TopK": "chooses by values; of experts a network file says it, with the kind 'router'",
}
