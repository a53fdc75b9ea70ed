"""Operators that are attention as a whole, with their masks, biases and rotary positions."""

from __future__ import annotations

from typing import Any

from hypar_opt.onnx.attention import check_scale
from hypar_opt.onnx.axes import Dim, whole_dim
from hypar_opt.onnx.features import Features, Layer
from hypar_opt.onnx.import_state import ImportState, shape_error
from hypar_opt.onnx.masks import read_attention_mask
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.products import linear
from hypar_opt.onnx.regions import LayerWeights

# The input that masks or shifts the scores; key padding is a different input.
_MASK = {"Attention": 3, "MultiHeadAttention": 5, "com.microsoft.Attention": 5}
_MASK |= {"GroupQueryAttention": 10}


def attention(state: ImportState, node: OnnxNode) -> None:
    """Attention without projections: queries, keys and values are its inputs."""
    attributes = node.attributes()
    names = [name for name in node.inputs[:3] if name]
    if any(state.is_constant(name) for name in names) or not names:
        raise node.refuse("should read queries, keys and values of the network")
    # Inputs of 4 dimensions have heads apart; from here on their channels are together.
    maps = [_flat(state, node, state.settled(name, node)) for name in names]
    heads = attributes.get("num_heads") or attributes.get("q_num_heads") or _fourth(state, node)
    kv_heads = attributes.get("kv_num_heads") or heads
    if not isinstance(heads, int) or heads < 1:
        raise node.refuse("should state its number of heads")
    causal = bool(attributes.get("is_causal") or attributes.get("unidirectional"))
    if node.op == "GroupQueryAttention":
        causal = True
    if len(names) == 3 and len(state.features(names[1]).dims) == 4:
        kv_heads = state.features(names[1]).shape[1]
    keys: dict[str, Any] = {"heads": heads}
    if kv_heads != heads:
        keys["kv_heads"] = kv_heads
    if causal:
        keys["causal"] = True
    inputs = [state.read(features, node) for features in maps]
    count = state.layer(maps[0].source).sizes.get("t", 1)
    if len(maps) == 3:
        channels = state.layer(inputs[2]).channels // kv_heads * heads
    else:
        channels = state.layer(inputs[0]).channels // (heads + 2 * kv_heads) * heads
    source = state.emit(node, "attention", keys, inputs, {"t": count, "c": channels})
    query = state.layer(inputs[0]).channels if len(maps) == 3 else channels
    _check_fused(state, node, state.layer(source), query // heads)
    first = state.features(names[0])
    if len(first.dims) == 4:
        width = channels // heads
        rest: tuple[Dim, ...] = (
            whole_dim("c", heads, width),
            whole_dim("t", count),
            whole_dim("c", width),
        )
    else:
        rest = (whole_dim("t", count), whole_dim("c", channels))
    state.put(node, state.whole_output(source, (first.dims[0], *rest)))


def _fourth(state: ImportState, node: OnnxNode) -> int:
    features = state.features(node.inputs[0])
    return features.shape[1] if len(features.dims) == 4 else 0


def _flat(state: ImportState, node: OnnxNode, features: Features) -> Features:
    return state.sliced(state.as_tokens(features, node), node)


def fused_projection(state: ImportState, node: OnnxNode) -> None:
    """com.microsoft.Attention: a projection to queries, keys and values, and attention."""
    attributes = node.attributes()
    if state.is_constant(node.inputs[0]) or not state.is_constant(node.inputs[1]):
        raise node.refuse("should read a feature map and weights")
    weight = state.constant(node.inputs[1])
    features = state.settled(node.inputs[0], node)
    if len(features.dims) != 3 or len(weight.shape) != 2:
        raise shape_error(node, features.shape, weight.shape)
    held = LayerWeights((weight.weights or node.inputs[1:])[0], weight.matrix((0,), (1,)))
    projected = linear(state, node, features, (2,), weight.shape[1:], held, place=2)
    layer = state.layer(projected.source)
    if len(node.inputs) > 2 and node.inputs[2]:
        layer.add_bias(state.constant(node.inputs[2]).stored)
    keys: dict[str, Any] = {"heads": attributes["num_heads"]}
    if attributes.get("unidirectional"):
        keys["causal"] = True
    width = layer.channels // 3
    sizes = {"t": layer.sizes.get("t", 1), "c": width}
    source = state.emit(node, "attention", keys, [state.read(projected, node)], sizes)
    _check_fused(state, node, state.layer(source), width // attributes["num_heads"])
    state.put(node, state.whole_output(source, (*features.dims[:2], whole_dim("c", width))))


def _check_fused(state: ImportState, node: OnnxNode, layer: Layer, size: int) -> None:
    """Read the operator's mask, and note what else it does that the layer does not.

    Parameters
    ----------
    size
        Features of a query head.
    """
    attributes = node.attributes()
    index = _MASK.get(node.op, len(node.inputs))
    mask = node.inputs[index] if index < len(node.inputs) else ""
    if mask:
        read_attention_mask(state, node, layer, mask)
    if node.op == "MultiHeadAttention" and len(node.inputs) > 3 and node.inputs[3]:
        state.note(node, "the biases of queries, keys and values")
    if attributes.get("do_rotary"):
        state.note(node, "rotary positions")
    if attributes.get("softcap"):
        state.note(node, "a bound of the scores (softcap)")
    if attributes.get("local_window_size", -1) >= 0:
        state.note(node, "a window of the tokens that each sees (local_window_size)")
    scale = attributes.get("scale") or size**-0.5
    check_scale(state, node, scale, size)
