"""Operators that are norms, with their learned scale and shift."""

from __future__ import annotations

from typing import Any

from hypar_opt.onnx.axes import POSITIONS, axes_of, is_whole, part_of_channels
from hypar_opt.onnx.constant import MAX_ELEMENTS
from hypar_opt.onnx.features import Features, PendingNorm
from hypar_opt.onnx.import_state import OF_HEADS, ImportState, epsilon_key
from hypar_opt.onnx.joins import join, layer_of
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.regions import LayerWeights
from hypar_opt.onnx.samples import Function, normed
from hypar_opt.workload.operators.norm import EPSILON

_GROUPS = "a norm's groups of channels: its statistics are of all of them"


def _normed(
    state: ImportState,
    node: OnnxNode,
    features: Features,
    *learned: int,
    bias: bool = True,
    heads: int = 1,
) -> Features:
    """Add a norm and return its output, in the dimensions of its input.

    Parameters
    ----------
    learned
        The places of its scale and shift among the node's inputs.
    bias
        Whether it has a shift.
    heads
        That are normalised one by one.
    """
    names = [name for place in learned if (name := node.input(place))]
    constants = [state.constant(name) for name in names if state.is_constant(name)]
    vectors = tuple(region for constant in constants for region in constant.stored)
    weights = LayerWeights(vectors[0].name if vectors else (*names, "")[0], vectors=vectors)
    keys: dict[str, Any] = {"norm": node.word}
    if node.word != "affine":
        least = 1e-12 if node.op.startswith("Skip") else EPSILON
        keys |= epsilon_key(node.attributes().get("epsilon", least))
    if bias != (node.word != "rms"):
        keys["bias"] = bias
    if heads > 1:
        keys["heads"] = heads
    return layer_of(state, node, "norm", keys, features, weights)


def batch_norm(state: ImportState, node: OnnxNode) -> Features:
    """A norm of each channel over the batch; running statistics are not parameters."""
    return _normed(state, node, _map(state, node), 1, 2)


def _map(state: ImportState, node: OnnxNode) -> Features:
    """Return a map whose dimension 1 holds the channels; the input becomes an image."""
    state.name_image(state.seen(node.inputs[0]))
    return state.settled(node.inputs[0], node)


def channel_norm(state: ImportState, node: OnnxNode) -> Features:
    """A norm of one image's channels, each by itself or in groups."""
    features = _map(state, node)
    (channels,) = features.dims[1:2]
    if not is_whole("c", state.layer(features.source).channels, [channels]):
        # A group norm, as exporters write it: what scales and shifts its groups is one and zero,
        # and what the channels have of their own comes after it.
        state.fixed.update(name for name in node.inputs[1:] if _is_constant(state, name))
        state.note(node, _GROUPS)
        epsilon = float(node.attributes().get("epsilon", EPSILON))
        norm = PendingNorm(frozenset("c"), True, epsilon=repr(epsilon), of=features.function)
        function = features.function.unknown(node.op)
        if features.function.values is not None:
            function = Function(normed(features.function.values, "layer", epsilon), None)
        return features._replace(norm=norm, function=function)
    if node.op == "InstanceNormalization":
        state.note(node, "a norm's statistics of each channel of an image")
    elif node.attributes().get("num_groups", 1) != 1:
        state.note(node, _GROUPS)
    elif _has_positions(state, features):
        state.note(node, "a norm's statistics of all positions: they are of each alone")
    return _normed(state, node, features, 1, 2)


def _has_positions(state: ImportState, features: Features) -> bool:
    sizes = state.layer(features.source).sizes
    return any(sizes.get(axis, 1) > 1 for axis in POSITIONS)


def _is_constant(state: ImportState, name: str) -> bool:
    """Whether all elements of a constant are the same known number."""
    constant = state.constant(name)
    if not constant.known or constant.elements > MAX_ELEMENTS:
        return False
    return bool((constant.value == constant.value.flat[0]).all())


def last_norm(state: ImportState, node: OnnxNode) -> Features:
    """A norm over the last dimensions, which are the channels."""
    features = state.as_tokens(state.settled(node.inputs[0], node), node)
    over = features.dims[node.attributes().get("axis", -1) :]
    channels = state.layer(features.source).channels
    if axes_of(over) != {"c"} and channels > 1:
        raise node.refuse("should be over the channels alone")
    heads = 1
    if not is_whole("c", channels, over) or features.taken:
        size, channels = state.heads_of(features, {part_of_channels(over)})
        if size is None:
            state.note(node, OF_HEADS)
            return features
        heads = channels // size
    return _normed(state, node, features, 1, 2, bias=bool(node.input(2)), heads=heads)


def sum_and_norm(state: ImportState, node: OnnxNode) -> Features:
    """com.microsoft.SkipLayerNormalization: a sum of two maps, and its norm."""
    total = join(state, node, "add", [state.settled(name, node) for name in node.inputs[:2]])
    state.put(node, total, 3)
    # After the scale come the shift, which rms norms lack, and a bias of the sum.
    bias = node.word == "layer" and bool(node.input(3))
    return _normed(state, node, total, *((2, 3) if bias else (2,)), bias=bias)
