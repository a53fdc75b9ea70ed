"""Attention: the two products of feature maps, and the operators that are all of it.

The first product, of queries and keys, makes scores; the second, of scores and values, is the
layer. Heads are the digits of the channels that lie in the dimensions which a product goes
through alike.
"""

from __future__ import annotations

from typing import Any

from hypar_opt.onnx.axes import POSITIONS, Digit, Dim, axes_of, digits_of, extent, is_whole
from hypar_opt.onnx.exact import check_scores
from hypar_opt.onnx.features import Features
from hypar_opt.onnx.fused_attention import check_fused
from hypar_opt.onnx.model import Node
from hypar_opt.onnx.regions import Weights, arranged, stored
from hypar_opt.onnx.trace import Trace, shape_error


def product_of_maps(state: Trace, node: Node, a: Features, b: Features) -> Features:
    """Return the product of two feature maps, over the last dimension of the first.

    Raises
    ------
    InputError
        Where it is no part of attention.
    """
    a, b = state.settle(a, node), state.settle(b, node)
    if len(a.dims) < 3 or len(b.dims) < 3 or a.shape[-1] != b.shape[-2]:
        raise shape_error(node, a.shape, b.shape)
    if state.layer(b.source).kind == "scores":
        # Values transposed times scores transposed: the same product, seen from the other side.
        made = product_of_maps(state, node, _transposed(b), _transposed(a))
        return _transposed(made)
    if state.layer(a.source).kind == "scores":
        return _weighted_values(state, node, a, b)
    return _scores(state, node, a, _transposed(b))


def _transposed(features: Features) -> Features:
    *rest, rows, columns = features.dims
    return features._replace(dims=(*rest, columns, rows))


def _sequence(state: Trace, node: Node, features: Features) -> tuple[Features, int]:
    """Return tokens by head, and how many tokens there are.

    Raises
    ------
    InputError
        Where the product goes over a part of the tokens, or over none.
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
        raise node.refuse("multiplies two feature maps, and is no attention")
    return features, tokens


def _scores(state: Trace, node: Node, queries: Features, keys: Features) -> Features:
    queries, count = _sequence(state, node, queries)
    keys, length = _sequence(state, node, keys)
    sizes = {"c": state.layer(queries.source).channels, "t": count, "s": length}
    inputs = [queries.source, keys.source]
    source = state.emit(node, "scores", {}, inputs, sizes)
    state.layer(source).operands = (queries, keys)
    leading = _leading(node, queries, keys)
    rows = (Digit("t", count),) if count > 1 else ()
    columns = (Digit("s", length),) if length > 1 else ()
    return state.made(source, (*leading, rows, columns))


def _leading(node: Node, a: Features, b: Features) -> list[Dim]:
    """Return the dimensions through which a product goes alike: batch and heads."""
    rank = max(len(a.dims), len(b.dims)) - 2
    out = []
    for place in range(rank):
        dims = []
        for features in (a, b):
            index = place - rank + len(features.dims) - 2
            dims.append(features.dims[index] if index >= 0 else ())
        first, second = dims
        if extent(first) > 1 and extent(second) > 1 and extent(first) != extent(second):
            raise shape_error(node, a.shape, b.shape)
        out.append(first if extent(first) >= extent(second) and first else second)
    return out


def _weighted_values(state: Trace, node: Node, scores: Features, values: Features) -> Features:
    layer = state.layer(scores.source)
    layer.keys["read"] = True
    if digits_of("s", [scores.dims[-1]]) != _whole("s", layer.sizes["s"]):
        raise node.refuse("should sum over the keys of attention")
    values, length = _sequence(state, node, values)
    if length != layer.sizes["s"]:
        raise shape_error(node, scores.shape, values.shape)
    queries, keys = layer.operands
    check_scores(state, node, layer.operands, scores)
    if "zeroed" in layer.keys and not layer.keys.get("causal"):
        state.note(node, "a multiplication of attention's scores")
    leading = _leading(node, scores, values)
    heads = _heads(scores.dims[:-2])
    kv_heads = max(_heads(values.dims[:-2]), 1)
    width = extent(values.dims[-1])
    size = extent(queries.dims[-1])
    source = _attention(
        state,
        node,
        (queries, keys, values),
        heads=heads,
        kv_heads=kv_heads,
        causal=bool(layer.keys.get("causal")),
        width=width,
    )
    dims = [_scaled(dim, size, width) for dim in leading]
    last = (Digit("c", width),) if width > 1 else ()
    return state.made(source, (*dims, scores.dims[-2], last))


def _heads(dims: tuple[Dim, ...]) -> int:
    return extent(tuple(digit for dim in dims for digit in dim if _is_channel(digit)))


def _is_channel(digit: Digit) -> bool:
    return axes_of([(digit,)]) == {"c"}


def _whole(axis: str, size: int) -> Dim:
    return (Digit(axis, size),) if size > 1 else ()


def _scaled(dim: Dim, before: int, after: int) -> Dim:
    """Return a dimension of heads with the strides of the output, whose heads may be wider."""
    return tuple(
        Digit("c", digit.size, digit.stride // before * after) if _is_channel(digit) else digit
        for digit in dim
    )


def _attention(
    state: Trace,
    node: Node,
    operands: tuple[Features, Features, Features],
    *,
    heads: int,
    kv_heads: int,
    causal: bool,
    width: int,
) -> int:
    """Add the layer: of three feature maps, or of one that holds all three."""
    keys: dict[str, Any] = {"heads": heads}
    if kv_heads != heads:
        keys["kv_heads"] = kv_heads
    if causal:
        keys["causal"] = True
    # What is done to queries and keys has been checked: they are read as they are.
    queries, key_maps, values = operands
    plain: frozenset[str] = frozenset()
    operands = queries._replace(operators=plain), key_maps._replace(operators=plain), values
    sources = {one.source for one in operands}
    count = state.layer(operands[0].source).sizes.get("t", 1)
    sizes = {"t": count, "c": heads * width}
    if len(sources) == 1 and _are_parts(state, operands):
        (source,) = sources
        state.layer(source).read_as.add(None)
        return state.emit(node, "attention", keys, [source], sizes)
    inputs = [state.read(_of_heads(state, one, node), node) for one in operands]
    return state.emit(node, "attention", keys, inputs, sizes)


def _are_parts(state: Trace, operands: tuple[Features, Features, Features]) -> bool:
    """Whether queries, keys and values are all of one map, each element once."""
    taken = [one.taken for one in operands]
    if len(set(taken)) < 3 or not all(taken):
        return False
    held = sum(
        extent(tuple(digit for dim in one.dims for digit in dim if _is_channel(digit)))
        for one in operands
    )
    return held == state.layer(operands[0].source).channels


def _of_heads(state: Trace, features: Features, node: Node) -> Features:
    """Return queries, keys or values without the copies of key heads that groups share."""
    dims = tuple(tuple(digit for digit in dim if digit.axis != "r") for dim in features.dims)
    return state.sliced(features._replace(dims=dims), node)


def attention(state: Trace, node: Node) -> None:
    """The operators that are attention's core: queries, keys and values are their inputs."""
    attributes = node.attributes()
    given = [name for name in node.inputs[:3] if name]
    if any(state.is_constant(name) for name in given) or not given:
        raise node.refuse("should read queries, keys and values of the network")
    # Inputs of 4 dimensions have the heads apart; what follows takes their channels together.
    maps = [_flat(state, node, state.settled(name, node)) for name in given]
    heads = attributes.get("num_heads") or attributes.get("q_num_heads") or _fourth(state, node)
    kv_heads = attributes.get("kv_num_heads") or heads
    if not isinstance(heads, int) or heads < 1:
        raise node.refuse("should have its number of heads")
    causal = bool(attributes.get("is_causal") or attributes.get("unidirectional"))
    if node.op == "GroupQueryAttention":
        causal = True
    if len(given) == 3 and len(state.features(given[1]).dims) == 4:
        kv_heads = state.features(given[1]).shape[1]
    keys: dict[str, Any] = {"heads": heads}
    if kv_heads != heads:
        keys["kv_heads"] = kv_heads
    if causal:
        keys["causal"] = True
    inputs = [state.read(one, node) for one in maps]
    count = state.layer(maps[0].source).sizes.get("t", 1)
    if len(maps) == 3:
        channels = state.layer(inputs[2]).channels // kv_heads * heads
    else:
        channels = state.layer(inputs[0]).channels // (heads + 2 * kv_heads) * heads
    source = state.emit(node, "attention", keys, inputs, {"t": count, "c": channels})
    query = state.layer(inputs[0]).channels if len(maps) == 3 else channels
    check_fused(state, node, state.layer(source), query // heads)
    first = state.features(given[0])
    if len(first.dims) == 4:
        width = channels // heads
        rest: tuple[Dim, ...] = (
            _whole_digit("c", heads, width),
            _whole("t", count),
            _whole("c", width),
        )
    else:
        rest = (_whole("t", count), _whole("c", channels))
    state.put(node, state.made(source, (first.dims[0], *rest)))


def _whole_digit(axis: str, size: int, stride: int) -> Dim:
    return (Digit(axis, size, stride),) if size > 1 else ()


def _fourth(state: Trace, node: Node) -> int:
    features = state.features(node.inputs[0])
    return features.shape[1] if len(features.dims) == 4 else 0


def _flat(state: Trace, node: Node, features: Features) -> Features:
    return state.sliced(state.as_tokens(features, node), node)


def fused_projection(state: Trace, node: Node) -> None:
    """com.microsoft.Attention: the projection to queries, keys and values, and the core."""
    from hypar_opt.onnx.products import linear

    attributes = node.attributes()
    if state.is_constant(node.inputs[0]) or not state.is_constant(node.inputs[1]):
        raise node.refuse("should read a feature map and weights")
    weight = state.constant(node.inputs[1])
    features = state.settled(node.inputs[0], node)
    if len(features.dims) != 3 or len(weight.shape) != 2:
        raise shape_error(node, features.shape, weight.shape)
    held = Weights((weight.weights or node.inputs[1:])[0], arranged(weight, (0,), (1,)))
    projected = linear(state, node, features, (2,), weight.shape[1:], held, place=2)
    layer = state.layer(projected.source)
    if len(node.inputs) > 2 and node.inputs[2]:
        layer.add_bias(stored(state.constant(node.inputs[2])))
    keys: dict[str, Any] = {"heads": attributes["num_heads"]}
    if attributes.get("unidirectional"):
        keys["causal"] = True
    width = layer.channels // 3
    sizes = {"t": layer.sizes.get("t", 1), "c": width}
    source = state.emit(node, "attention", keys, [state.read(projected, node)], sizes)
    check_fused(state, node, state.layer(source), width // attributes["num_heads"])
    state.put(node, state.made(source, (*features.dims[:2], _whole("c", width))))
