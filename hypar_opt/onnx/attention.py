"""Attention written out: two products of feature maps.

The first product, of queries and keys, makes scores; the second, of scores and values, is the
layer. Heads are those digits of the channels that lie in a product's batch dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hypar_opt.onnx.axes import axes_of, extent, whole_dim
from hypar_opt.onnx.features import Features, Layer
from hypar_opt.onnx.heads import Heads, heads_of, in_order, score_dims
from hypar_opt.onnx.image_windows import CutWindows, in_windows, original_dims
from hypar_opt.onnx.import_state import ImportState, shape_error
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.regions import Regions, distinct
from hypar_opt.onnx.scores import between, operand
from hypar_opt.onnx.views import learned_tokens


def product_of_maps(state: ImportState, node: OnnxNode, a: Features, b: Features) -> Features:
    """Return the product of two feature maps, over the last dimension of the first.

    Raises
    ------
    InputError
        Where it is not part of attention.
    """
    if len(a.dims) < 3 or len(b.dims) < 3 or a.shape[-1] != b.shape[-2]:
        raise shape_error(node, a.shape, b.shape)
    if state.layer(b.source).is_scores:
        # Transposed values times transposed scores are the transposed product.
        values, scores = _transposed(a), _transposed(b)
        return _transposed(_weighted_values(state, node, scores, values, node.inputs[1]))
    if state.layer(a.source).is_scores:
        return _weighted_values(state, node, a, b, node.inputs[0])
    return _scores(state, node, a, _transposed(b))


def _transposed(features: Features) -> Features:
    *rest, rows, columns = features.dims
    return features._replace(dims=(*rest, columns, rows))


def _sequence(
    state: ImportState, node: OnnxNode, features: Features
) -> tuple[Features, int, CutWindows | None]:
    """Return tokens by head, their number, and their windows of an image, if any.

    Raises
    ------
    InputError
        Where the product is over a part of the tokens, or over none.
    """
    features = state.vector_as_token(state.as_tokens(features, node), node)
    features, windows = in_windows(state, node, features)
    *_, rows, columns = features.dims
    tokens = extent(rows) if windows else state.layer(features.source).sizes.get("t", 1)
    axes = axes_of([rows]), axes_of([columns])
    if (axes[0] | axes[1]) & {"h", "w"}:
        raise node.refuse(
            "multiplies two feature maps over the rows or columns of an image; attention is read"
            " over tokens, or over all pixels as one dimension"
        )
    if axes[0] - {"t"} or axes[1] - {"c"}:
        raise node.refuse(
            f"multiplies two feature maps over {_named(axes[1])} for each of {_named(axes[0])};"
            " attention sums queries times keys over the channels of a head, for each token"
        )
    if rows != whole_dim("t", tokens):
        raise node.refuse(
            "is attention over a part of the tokens, which a network has no layer for"
        )
    return features, tokens, windows


def _named(axes: frozenset[str]) -> str:
    """Return the words for the axes of a dimension, for messages."""
    words = {"b": "images", "c": "channels", "h": "rows", "w": "columns", "t": "tokens"}
    words |= {"r": "copies", "s": "keys"}
    return " and ".join(words.get(axis, "the input's dimensions") for axis in sorted(axes)) or "one"


def _scores(state: ImportState, node: OnnxNode, queries: Features, keys: Features) -> Features:
    queries, count, windows = _sequence(state, node, queries)
    keys, length, same = _sequence(state, node, keys)
    if windows != same:
        raise node.refuse("is attention between other windows of an image, which no layer is")
    sizes = {"c": state.layer(queries.source).channels, "t": count, "s": length}
    inputs = [queries.source, keys.source]
    dims = (*score_dims(queries, keys), whole_dim("t", count), whole_dim("s", length))
    of = {"windows": windows} if windows else {}
    scores = Layer("scores", of, inputs, sizes, node, dims=dims, operands=(queries, keys))
    return state.emit(scores)


def _weighted_values(
    state: ImportState, node: OnnxNode, scores: Features, values: Features, name: str
) -> Features:
    """Return the output of attention.

    Parameters
    ----------
    name
        The tensor of the scores, as the product reads it.
    """
    layer = state.layer(scores.source)
    layer.keys["read"] = True
    *leading, rows, columns = scores.dims
    count, length = (layer.sizes[axis] for axis in "ts")
    if columns != whole_dim("s", length):
        raise node.refuse("should sum over the keys of attention")
    if rows != whole_dim("t", count) or scores.taken or axes_of(leading) - {"b", "g"}:
        raise node.refuse("reads a part of the scores of attention, or in another order")
    windows = layer.keys.get("windows")
    values, tokens, same = _sequence(state, node, values)
    if windows != same:
        raise node.refuse("is attention between other windows of an image, which no layer is")
    if tokens != length:
        raise shape_error(node, scores.shape, values.shape)
    product = layer.node
    assert product is not None
    queries, keys = (
        operand(state, product, of, features)
        for of, features in zip(product.inputs[:2], layer.operands, strict=True)
    )
    inner = between(state, product, node, name, scores.source)
    words: dict[str, Any] = {}
    size, width = queries.features.shape[-1], extent(values.dims[-1])
    factors = (queries.factor, keys.factor, inner.factor, _alpha(product), _alpha(node))
    scale = None if None in factors else math.prod(filter(None, factors))
    words |= scale_key(state, product, 0.0 if 0.0 in factors else scale, size)
    if queries.rotary != keys.rotary:
        state.note(product, "rotary positions")
    elif queries.rotary:
        words["rotary"] = queries.rotary
    operands = (queries.features, keys.features, values)
    if "windows" in inner.keys and "rotary" in words:
        raise node.refuse("is attention in windows of an image with rotary positions")
    if inner.biases:
        q, k, v = (state.sliced(one, node) for one in operands)
        operands = q, k, v
    elif width != size:
        # They cannot be concatenated in one layer's output: each becomes a layer of its own.
        q, k, v = (state.contiguous(one, node) for one in operands)
        operands = q, k, v
    heads = heads_of(node, operands, scores, width)
    inputs, orders = _inputs(state, node, operands, heads, in_parts=windows is not None)
    if inner.biases:
        inputs.append(state.read(learned_tokens(state, node, inner.biases), node))
        orders = (*orders, ())
    dims = (*heads.leading, rows, whole_dim("c", width))
    sizes = {"t": count, "c": heads.queries * width}
    if windows:
        sizes["t"] *= extent(windows.places)
        leading = original_dims(state, heads.leading, windows)
        dims = (*leading, windows.pixels, whole_dim("c", width))
    words = attention_keys(heads.queries, heads.keys, causal=False) | inner.keys | words
    layer = Layer("attention", words, inputs, sizes, node, dims=dims, orders=orders)
    return state.emit(layer)


def _alpha(node: OnnxNode) -> float:
    """Return the factor of a product that is fused with it."""
    return float(node.attributes().get("alpha", 1.0))


def attention_keys(heads: int, kv_heads: int, *, causal: bool) -> dict[str, Any]:
    """Return the keys of a layer of attention."""
    keys: dict[str, Any] = {"heads": heads}
    if kv_heads != heads:
        keys["kv_heads"] = kv_heads
    if causal:
        keys["causal"] = True
    return keys


def _inputs(
    state: ImportState,
    node: OnnxNode,
    operands: Sequence[Features],
    heads: Heads,
    *,
    in_parts: bool,
) -> tuple[list[int], tuple[Regions, ...]]:
    """Return the layers of queries, keys and values: three, or one that has all.

    And, for each, the channels of it in the order of a network where that is another one.

    Parameters
    ----------
    in_parts
        Whether the operands are of windows, which have all tokens together.
    """
    sources = {one.source for one in operands}
    if len(sources) == 1 and all(one.taken for one in operands):
        (source,) = sources
        layer = state.layer(source)
        # Together they are the whole map, each element once.
        if (
            sum(order.elements for order in heads.orders)
            == distinct(heads.orders)
            == layer.channels
        ):
            layer.read_as.update(state.activation_of(one, node) for one in operands)
            is_ordered = in_order(heads.orders, 0, layer.channels)
            return [source], (() if is_ordered else heads.orders,)
    inputs, orders = [], []
    for features, order in zip(operands, heads.orders, strict=True):
        # The query heads of a group read copies of keys and values.
        whole = state.sliced(features.without_copies(), node)
        if in_parts:
            whole = whole._replace(dims=state.layer(whole.source).dims)
        read = state.read(whole, node)
        first = state.layer(read).keys["start"] if features.taken else 0
        channels = state.layer(read).channels
        if order.elements != channels:
            raise node.refuse(f"reads {order.elements} of {channels} channels")
        inputs.append(read)
        ordered = in_order([order], first, channels)
        orders.append(() if ordered else (order._replace(first=order.first - first),))
    for place, read in enumerate(inputs):
        if read in inputs[:place]:
            # A network's layer reads different ones: all channels of a map are a view of it.
            layer = state.layer(read)
            keys = {"start": 0, "size": layer.channels}
            inputs[place] = state.emit(Layer("slice", keys, [read], layer.sizes, node)).source
            state.read(Features(inputs[place], ()), node)
    return inputs, tuple(orders)


def scale_key(state: ImportState, node: OnnxNode, scale: float | None, size: int) -> dict[str, Any]:
    """Return the key of a scale of attention that differs from 1/sqrt(head size)."""
    if scale is None or not math.isfinite(scale):
        state.note(node, f"attention's scale, which is not known; 1/sqrt({size}) is taken")
    elif scale <= 0:
        state.note(node, f"attention's scale of {scale:.4g}; 1/sqrt({size}) is taken")
    elif not math.isclose(scale, size**-0.5, rel_tol=2e-6):
        return {"scale": float(f"{scale:.7g}")}
    return {}
