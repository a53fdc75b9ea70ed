"""Attention written out: two products of feature maps.

The first product, of queries and keys, makes scores; the second, of scores and values, is the
layer. Heads are those digits of the channels that lie in a product's batch dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from hypar_opt.onnx.axes import (
    POSITIONS,
    Digit,
    Dim,
    axes_of,
    digits_of,
    extent,
    is_whole,
    whole_dim,
)
from hypar_opt.onnx.exact import MAP, MIXED, REORDERED, SELF, left_out
from hypar_opt.onnx.features import Features, Layer
from hypar_opt.onnx.import_state import ImportState, shape_error
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.rotary import rotary_of
from hypar_opt.onnx.samples import IDENTITY

_ROTATES = frozenset({"Neg", "Sub"})


def product_of_maps(state: ImportState, node: OnnxNode, a: Features, b: Features) -> Features:
    """Return the product of two feature maps, over the last dimension of the first.

    Raises
    ------
    InputError
        Where it is not part of attention.
    """
    a, b = (state.settle(features, node) for features in (a, b))
    if len(a.dims) < 3 or len(b.dims) < 3 or a.shape[-1] != b.shape[-2]:
        raise shape_error(node, a.shape, b.shape)
    if state.layer(b.source).is_scores:
        # Transposed values times transposed scores are the transposed product.
        return _transposed(product_of_maps(state, node, _transposed(b), _transposed(a)))
    if state.layer(a.source).is_scores:
        return _weighted_values(state, node, a, b)
    return _scores(state, node, a, _transposed(b))


def _transposed(features: Features) -> Features:
    *rest, rows, columns = features.dims
    return features._replace(dims=(*rest, columns, rows))


def _sequence(state: ImportState, node: OnnxNode, features: Features) -> tuple[Features, int]:
    """Return tokens by head, and the number of tokens.

    Raises
    ------
    InputError
        Where the product is over a part of the tokens, or over none.
    """
    features = state.as_tokens(features, node)
    layer = state.layer(features.source)
    *leading, rows, columns = features.dims
    tokens = layer.sizes.get("t", 1)
    if axes_of(leading) & POSITIONS or not is_whole("t", tokens, [rows]):
        raise node.refuse(
            "is attention over a part of the tokens, which a network has no layer for"
        )
    if (axes_of([rows]) - {"t"}) or axes_of([columns]) - {"c"}:
        raise node.refuse("multiplies two feature maps, but is not attention")
    return features, tokens


def _scores(state: ImportState, node: OnnxNode, queries: Features, keys: Features) -> Features:
    queries, count = _sequence(state, node, queries)
    keys, length = _sequence(state, node, keys)
    sizes = {"c": state.layer(queries.source).channels, "t": count, "s": length}
    inputs = [queries.source, keys.source]
    dims = (*_leading(node, queries, keys), whole_dim("t", count), whole_dim("s", length))
    scores = Layer("scores", {}, inputs, sizes, node, dims=dims, operands=(queries, keys))
    return state.emit(scores)


def _leading(node: OnnxNode, a: Features, b: Features) -> list[Dim]:
    """Return the batch dimensions of a product: batch and heads."""
    rank = max(len(a.dims), len(b.dims)) - 2
    rows = ([()] * (rank + 2 - len(x.dims)) + list(x.dims[:-2]) for x in (a, b))
    out = []
    for first, second in zip(*rows, strict=True):
        if extent(first) > 1 and extent(second) > 1 and extent(first) != extent(second):
            raise shape_error(node, a.shape, b.shape)
        out.append(first if extent(first) >= extent(second) and first else second)
    return out


def _weighted_values(
    state: ImportState, node: OnnxNode, scores: Features, values: Features
) -> Features:
    layer = state.layer(scores.source)
    layer.keys["read"] = True
    if digits_of("s", [scores.dims[-1]]) != whole_dim("s", layer.sizes["s"]):
        raise node.refuse("should sum over the keys of attention")
    values, length = _sequence(state, node, values)
    if length != layer.sizes["s"]:
        raise shape_error(node, scores.shape, values.shape)
    queries, keys = layer.operands
    learned = _check_scores(state, node, layer.operands, scores)
    if "zeroed" in layer.keys and not layer.keys.get("causal"):
        state.note(node, "a multiplication of attention's scores")
    leading = _leading(node, scores, values)
    heads, kv_heads = _heads(scores.dims[:-2]), max(_heads(values.dims[:-2]), 1)
    width, size = extent(values.dims[-1]), extent(queries.dims[-1])
    # Operators on queries and keys have been checked, so both are read as they are.
    plain = (one._replace(operators=frozenset(), function=IDENTITY) for one in (queries, keys))
    inputs = _inputs(state, node, (*plain, values))
    heads_apart = [_scaled(dim, size, width) for dim in leading]
    dims = (*heads_apart, scores.dims[-2], whole_dim("c", width))
    sizes = {"t": state.layer(queries.source).sizes.get("t", 1), "c": heads * width}
    words = attention_keys(heads, kv_heads, causal="causal" in layer.keys) | learned
    return state.emit(Layer("attention", words, inputs, sizes, node, dims=dims))


def _heads(dims: tuple[Dim, ...]) -> int:
    return extent(tuple(digit for dim in dims for digit in dim if _is_channel(digit)))


def _is_channel(digit: Digit) -> bool:
    return axes_of([(digit,)]) == {"c"}


def _scaled(dim: Dim, before: int, after: int) -> Dim:
    """Return a dimension of heads with the strides of the output, whose heads may be wider."""
    return tuple(
        Digit("c", digit.size, digit.stride // before * after) if _is_channel(digit) else digit
        for digit in dim
    )


def attention_keys(heads: int, kv_heads: int, *, causal: bool) -> dict[str, Any]:
    """Return the keys of a layer of attention."""
    keys: dict[str, Any] = {"heads": heads}
    if kv_heads != heads:
        keys["kv_heads"] = kv_heads
    if causal:
        keys["causal"] = True
    return keys


def _inputs(state: ImportState, node: OnnxNode, operands: Sequence[Features]) -> list[int]:
    """Return the layers that hold queries, keys and values: three, or one that holds all."""
    sources = {operand.source for operand in operands}
    taken = {operand.taken for operand in operands}
    if len(sources) == 1 and len(taken) == 3 and all(taken):
        (source,) = sources
        # Together they are the whole map, each element once.
        if sum(_heads(operand.dims) for operand in operands) == state.layer(source).channels:
            state.layer(source).read_as.add(None)
            return [source]
    # A group's query heads read copies of keys and values.
    return [state.read(state.sliced(f.without_copies(), node), node) for f in operands]


def _check_scores(
    state: ImportState, node: OnnxNode, operands: Iterable[Features], scores: Features
) -> dict[str, Any]:
    """Return the keys of rotary positions and of the scale; note all other operators."""
    queries, keys = operands
    size = queries.shape[-1]
    scale: float | None = 1.0
    is_rotated = False
    for features in (queries, keys, scores):
        operators = features.operators
        if "RotaryEmbedding" in operators or (MAP in operators and operators & _ROTATES):
            is_rotated = True
            operators -= {MAP, MIXED, SELF, REORDERED, "RotaryEmbedding", "Neg"}
        operators -= {"Softmax", "IsNaN", "Where"} if features is scores else frozenset()
        numbers = [operator for operator in operators if operator[0] in "*/"]
        for phrase in left_out(frozenset(operators).difference(numbers)):
            state.note(node, f"{phrase} of attention's queries, keys or scores")
        for operator in numbers:
            number = None if operator[1:] == "?" else float(operator[1:])
            if scale is None or not number:
                scale = None
            else:
                scale = scale * number if operator[0] == "*" else scale / number
    learned = scale_key(state, node, scale, size)
    if is_rotated:
        product = state.layer(scores.source).node
        rotary = None if product is None else rotary_of(state, product.inputs[:2], size)
        if rotary is None:
            state.note(node, "rotary positions")
        else:
            learned["rotary"] = rotary
    return learned


def scale_key(state: ImportState, node: OnnxNode, scale: float | None, size: int) -> dict[str, Any]:
    """Return the key of a scale of attention that differs from 1/sqrt(head size)."""
    if scale is None:
        state.note(node, f"attention's scale, which is not known; 1/sqrt({size}) is taken")
    elif scale <= 0:
        state.note(node, f"attention's scale of {scale:.4g}; 1/sqrt({size}) is taken")
    elif not math.isclose(scale, size**-0.5, rel_tol=2e-6):
        return {"scale": float(f"{scale:.7g}")}
    return {}
