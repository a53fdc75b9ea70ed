"""Operators that are attention as a whole, with their masks, biases and rotary positions."""

from __future__ import annotations

from hypar_opt.onnx.attention import attention_keys, scale_key
from hypar_opt.onnx.axes import whole_dim
from hypar_opt.onnx.features import Features, Layer
from hypar_opt.onnx.heads import channels_of, in_order
from hypar_opt.onnx.import_state import ImportState, shape_error
from hypar_opt.onnx.masks import narrower, read_attention_mask
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.products import linear
from hypar_opt.onnx.regions import Regions
from hypar_opt.onnx.views import learned_tokens

# The input that masks or shifts the scores; key padding is a different input.
_MASK = {"Attention": 3, "MultiHeadAttention": 5, "com.microsoft.Attention": 5}
_MASK |= {"GroupQueryAttention": 10}

_SINKS = 11
"""The input of `GroupQueryAttention` that has a score of each head beside those of keys."""


def attention(state: ImportState, node: OnnxNode) -> Features:
    """Attention without projections: queries, keys and values are its inputs."""
    attributes = node.attributes()
    names = [name for name in node.inputs[:3] if name]
    if any(state.is_constant(name) for name in names) or not names:
        raise node.refuse("should read queries, keys and values of the network")
    # Inputs of 4 dimensions have heads apart; from here on their channels are together.
    tokens = [state.as_tokens(state.settled(name, node), node) for name in names]
    maps = [state.sliced(features, node) for features in tokens]
    first = state.features(node.inputs[0])
    heads = attributes.get("num_heads") or attributes.get("q_num_heads")
    if not heads and len(first.dims) == 4:
        heads = first.shape[1]
    if not isinstance(heads, int) or heads < 1:
        raise node.refuse("should state its number of heads")
    kv_heads: int = attributes.get("kv_num_heads") or heads
    if len(names) == 3 and len(state.features(names[1]).dims) == 4:
        kv_heads = state.features(names[1]).shape[1]
    inputs = [state.read(features, node) for features in maps]
    orders = tuple(_order(state, node, features) for features in maps)
    count = state.layer(maps[0].source).sizes.get("t", 1)
    if len(maps) == 3:
        channels = state.layer(inputs[2]).channels // kv_heads * heads
        query = state.layer(inputs[0]).channels
    else:
        query = channels = state.layer(inputs[0]).channels // (heads + 2 * kv_heads) * heads
    rest = [whole_dim("t", count), whole_dim("c", channels)]
    if len(first.dims) == 4:
        width = channels // heads
        rest = [whole_dim("c", heads, width), whole_dim("t", count), whole_dim("c", width)]
    keys = attention_keys(heads, kv_heads, causal=_is_causal(node))
    if node.op == "GroupQueryAttention" and (name := node.input(_SINKS)):
        if len(maps) < 3:
            raise node.refuse("should read queries, keys and values apart, as it has sinks")
        if not state.is_constant(name) or state.constant(name).shape != (heads,):
            raise node.refuse(f"should have {heads} sinks that are learned, one for each head")
        inputs.append(state.read(learned_tokens(state, node, name), node))
        orders, keys["sinks"] = (*orders, ()), True
    sizes, dims = {"t": count, "c": channels}, (first.dims[0], *rest)
    layer = Layer("attention", keys, inputs, sizes, node, dims=dims, orders=orders)
    _check_fused(state, node, layer, query // heads)
    return state.emit(layer)


def _order(state: ImportState, node: OnnxNode, features: Features) -> Regions:
    """Return the channels of queries, keys or values where they are not in a network's order.

    Raises
    ------
    InputError
        Where they do not have a dimension of all tokens, before or behind that of heads.
    """
    rank = len(features.dims)
    tokens = state.layer(features.source).sizes.get("t", 1)
    if rank not in (3, 4) or features.dims[rank - 2] != whole_dim("t", tokens):
        raise node.refuse(
            "should read queries, keys and values of 3 dimensions, or of 4 with heads before tokens"
        )
    channels = channels_of(features, (2,) if rank == 3 else (1, 3))
    return () if in_order([channels], 0, channels.elements) else (channels,)


def _is_causal(node: OnnxNode) -> bool:
    attributes = node.attributes()
    causal = attributes.get("is_causal") or attributes.get("unidirectional")
    is_last = attributes.get("right_window_size", -1) == 0
    return bool(causal or is_last or node.op == "GroupQueryAttention")


def _window(node: OnnxNode) -> int:
    """Return how many tokens one sees, itself the last; 0 for all.

    ONNX counts those to its left, ONNX Runtime itself, too.
    """
    attributes = node.attributes()
    if (past := int(attributes.get("left_window_size", -1))) >= 0:
        return past + 1
    return max(0, int(attributes.get("local_window_size", -1)))


def fused_projection(state: ImportState, node: OnnxNode) -> Features:
    """com.microsoft.Attention: a projection to queries, keys and values, and attention."""
    if state.is_constant(node.inputs[0]) or not state.is_constant(node.inputs[1]):
        raise node.refuse("should read a feature map and weights")
    weight = state.constant(node.inputs[1])
    features = state.settled(node.inputs[0], node)
    if len(features.dims) != 3 or len(weight.shape) != 2:
        raise shape_error(node, features.shape, weight.shape)
    matrix = weight.matrix(node.inputs[1], (0,), (1,))
    projected = linear(state, node, features, (2,), weight.shape[1:], matrix, place=2)
    projection = state.layer(projected.source)
    if bias := node.input(2):
        projection.add_bias(state.constant(bias).stored)
    heads, width = node.attributes()["num_heads"], projection.channels // 3
    keys = attention_keys(heads, heads, causal=_is_causal(node))
    sizes = {"t": projection.sizes.get("t", 1), "c": width}
    dims = (*features.dims[:2], whole_dim("c", width))
    layer = Layer("attention", keys, [state.read(projected, node)], sizes, node, dims=dims)
    _check_fused(state, node, layer, width // heads)
    return state.emit(layer)


def _check_fused(state: ImportState, node: OnnxNode, layer: Layer, size: int) -> None:
    """Read the operator's mask, and note what else it does that the layer does not.

    Parameters
    ----------
    size
        Features of a query head.
    """
    attributes = node.attributes()
    if mask := node.input(_MASK.get(node.op, len(node.inputs))):
        read_attention_mask(state, node, layer, mask)
    if node.op == "MultiHeadAttention" and node.input(3):
        state.note(node, "the biases of queries, keys and values")
    if attributes.get("do_rotary"):
        state.note(node, "rotary positions")
    if attributes.get("softcap", 0.0) > 0:
        layer.keys["softcap"] = float(f"{attributes['softcap']:.7g}")
    is_causal = layer.keys.get("causal")
    if attributes.get("right_window_size", -1) > 0 and not is_causal:
        state.note(node, "a window of later tokens (right_window_size)")
    if window := _window(node):
        if not is_causal:
            state.note(node, "a window of tokens where later ones are seen (left_window_size)")
        elif window < layer.sizes["t"]:
            layer.keys["window"] = narrower(window, layer.keys.get("window", 0))
    scale = attributes.get("scale") or size**-0.5
    layer.keys |= scale_key(state, node, scale, size)
