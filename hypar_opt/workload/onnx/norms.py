"""Operators that are norms, with the scale and shift that they learn."""

from __future__ import annotations

from typing import Any

from hypar_opt.workload.onnx.axes import axes_of, is_whole
from hypar_opt.workload.onnx.features import Features
from hypar_opt.workload.onnx.joins import join
from hypar_opt.workload.onnx.model import Node
from hypar_opt.workload.onnx.trace import Trace


def _norm(state: Trace, node: Node, features: Features, kind: str, *, bias: bool) -> Features:
    """Add a norm and return its output, in the dimensions of its input."""
    features = state.sliced(state.ordered(features, node), node)
    keys: dict[str, Any] = {"norm": kind}
    if bias != (kind != "rms"):
        keys["bias"] = bias
    source = state.read(features, node)
    weight = next((name for name in node.inputs[1:] if name and state.is_constant(name)), "")
    made = state.emit(node, "norm", keys, [source], state.layer(source).sizes, weight)
    return state.made(made, features.dims)


def batch_norm(state: Trace, node: Node, word: str) -> None:
    """A norm of each channel over the batch; running statistics are no parameters."""
    state.put(node, _norm(state, node, _map(state, node), word, bias=True))


def _map(state: Trace, node: Node) -> Features:
    """Return a map whose channels are dimension 1, of an image that the input may be."""
    features = state.seen(node.inputs[0])
    state.input.name_image(features.dims)
    return state.settled(node.inputs[0], node)


def channel_norm(state: Trace, node: Node, word: str) -> None:
    """A norm of the channels of one image, each by itself or by groups."""
    if node.op == "InstanceNormalization":
        state.note(node, "a norm's statistics of each channel of an image")
    elif node.attributes().get("num_groups", 1) != 1:
        state.note(node, "a norm's groups of channels: its statistics are of all of them")
    state.put(node, _norm(state, node, _map(state, node), word, bias=True))


def last_norm(state: Trace, node: Node, word: str) -> None:
    """A norm over the last dimensions, which hold the channels."""
    features = state.as_tokens(state.settled(node.inputs[0], node), node)
    axis = node.attributes().get("axis", -1)
    over = features.dims[axis:]
    channels = state.layer(features.source).channels
    if axes_of(over) != {"c"} and channels > 1:
        raise node.refuse("should be over the channels alone")
    if not is_whole("c", channels, over) or features.taken:
        _of_a_part(state, node, features)
        return
    bias = len(node.inputs) > 2 and bool(node.inputs[2])
    state.put(node, _norm(state, node, features, word, bias=bias))


def _of_a_part(state: Trace, node: Node, features: Features) -> None:
    """Leave out a norm of each head: heads are never divided, so that it exchanges nothing."""
    state.note(node, "a norm of each head is taken as elementwise, without weights")
    state.put(node, features)


def sum_and_norm(state: Trace, node: Node, word: str) -> None:
    """com.microsoft.SkipLayerNormalization: a sum of two maps, and its norm."""
    maps = [state.settled(name, node) for name in node.inputs[:2]]
    total = join(state, node, "add", maps)
    # After the scale come the shift, which rms norms have none of, and a bias of the sum.
    bias = word == "layer" and len(node.inputs) > 3 and bool(node.inputs[3])
    state.put(node, total, 3)
    state.put(node, _norm(state, node, total, word, bias=bias))
