"""Operators that are norms, with their learned scale and shift."""

from __future__ import annotations

from typing import Any

from hypar_opt.onnx.axes import axes_of, is_whole
from hypar_opt.onnx.budget import MAX_ELEMENTS
from hypar_opt.onnx.features import Features, PendingNorm
from hypar_opt.onnx.import_state import ImportState
from hypar_opt.onnx.joins import join, layer_of
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.regions import LayerWeights

_GROUPS = "a norm's groups of channels: its statistics are of all of them"


def _norm(
    state: ImportState,
    node: OnnxNode,
    features: Features,
    kind: str,
    weights: LayerWeights,
    *,
    bias: bool,
) -> Features:
    """Add a norm and return its output, in the dimensions of its input."""
    keys: dict[str, Any] = {"norm": kind}
    if bias != (kind != "rms"):
        keys["bias"] = bias
    return layer_of(state, node, "norm", keys, features, weights)


def _learned(state: ImportState, node: OnnxNode, *places: int) -> LayerWeights:
    """Return the scale and shift among a node's inputs."""
    names = [node.inputs[n] for n in places if len(node.inputs) > n and node.inputs[n]]
    constants = [state.constant(name) for name in names if state.is_constant(name)]
    vectors = tuple(region for constant in constants for region in constant.stored)
    return LayerWeights(vectors[0].name if vectors else (*names, "")[0], vectors=vectors)


def batch_norm(state: ImportState, node: OnnxNode, word: str) -> None:
    """A norm of each channel over the batch; running statistics are not parameters."""
    weights = _learned(state, node, 1, 2)
    state.put(node, _norm(state, node, _map(state, node), word, weights, bias=True))


def _map(state: ImportState, node: OnnxNode) -> Features:
    """Return a map whose dimension 1 holds the channels; the input becomes an image."""
    features = state.seen(node.inputs[0])
    state.input.name_image(features.dims)
    return state.settled(node.inputs[0], node)


def channel_norm(state: ImportState, node: OnnxNode, word: str) -> None:
    """A norm of one image's channels, each by itself or in groups."""
    features = _map(state, node)
    (channels,) = features.dims[1:2]
    if not is_whole("c", state.layer(features.source).channels, [channels]):
        # A group norm, as exporters write it: what scales and shifts its groups is one and zero,
        # and what the channels have of their own comes after it.
        state.put(node, features._replace(norm=PendingNorm(frozenset("c"), centred=True)))
        state.fixed.update(name for name in node.inputs[1:] if _is_constant(state, name))
        state.note(node, _GROUPS)
        return
    if node.op == "InstanceNormalization":
        state.note(node, "a norm's statistics of each channel of an image")
    elif node.attributes().get("num_groups", 1) != 1:
        state.note(node, _GROUPS)
    weights = _learned(state, node, 1, 2)
    state.put(node, _norm(state, node, features, word, weights, bias=True))


def _is_constant(state: ImportState, name: str) -> bool:
    """Whether all elements of a constant are the same known number."""
    constant = state.constant(name)
    if not constant.known or constant.elements > MAX_ELEMENTS:
        return False
    return bool((constant.value == constant.value.flat[0]).all())


def last_norm(state: ImportState, node: OnnxNode, word: str) -> None:
    """A norm over the last dimensions, which are the channels."""
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
    weights = _learned(state, node, 1, 2)
    state.put(node, _norm(state, node, features, word, weights, bias=bias))


def _of_a_part(state: ImportState, node: OnnxNode, features: Features) -> None:
    """Leave out a norm of each head: heads are never divided, so it exchanges nothing."""
    state.note(node, "a norm of each head is taken as elementwise")
    state.put(node, features)


def sum_and_norm(state: ImportState, node: OnnxNode, word: str) -> None:
    """com.microsoft.SkipLayerNormalization: a sum of two maps, and its norm."""
    maps = [state.settled(name, node) for name in node.inputs[:2]]
    total = join(state, node, "add", maps)
    # After the scale come the shift, which rms norms lack, and a bias of the sum.
    bias = word == "layer" and len(node.inputs) > 3 and bool(node.inputs[3])
    state.put(node, total, 3)
    weights = _learned(state, node, 2, *([3] if bias else []))
    state.put(node, _norm(state, node, total, word, weights, bias=bias))
