"""What operators that are all of attention do besides: masks, biases, rotary positions."""

from __future__ import annotations

from hypar_opt.onnx.exact import check_scale
from hypar_opt.onnx.features import Layer
from hypar_opt.onnx.masks import read_attention_mask
from hypar_opt.onnx.model import Node
from hypar_opt.onnx.trace import Trace

# The input that masks or shifts the scores; keys that are padding are none of it.
_MASK = {"Attention": 3, "MultiHeadAttention": 5, "com.microsoft.Attention": 5}
_MASK |= {"GroupQueryAttention": 10}


def check_fused(state: Trace, node: Node, layer: Layer, size: int) -> None:
    """Say what such an operator does that the layer does not, and read its mask.

    Parameters
    ----------
    size
        Features of a query's head.
    """
    attributes = node.attributes()
    place = _MASK.get(node.op, len(node.inputs))
    mask = node.inputs[place] if place < len(node.inputs) else ""
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
