"""Operators that are norms, with their learned scale and shift."""

from __future__ import annotations

from typing import Any

from hypar_opt.onnx.axes import axes_of, is_whole, part_of_channels, whole_dim
from hypar_opt.onnx.constant import MAX_ELEMENTS
from hypar_opt.onnx.features import Features, PendingNorm
from hypar_opt.onnx.import_state import OF_HEADS, ImportState, epsilon_key
from hypar_opt.onnx.joins import join, layer_of
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.names import is_counted
from hypar_opt.onnx.pools import axes_over
from hypar_opt.onnx.regions import LayerWeights
from hypar_opt.onnx.samples import Function, dims_over, normed, stand_in
from hypar_opt.workload.operators.norm import EPSILON


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
        default = 1e-12 if node.op.startswith("Skip") else EPSILON
        keys |= epsilon_key(node.attributes().get("epsilon", default))
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
    """A norm of one image's channels, each by itself or in groups, with all positions."""
    features = state.ordered(_map(state, node), node)
    channels = state.layer(features.source).channels
    over = axes_over(state, node, features, range(2, len(features.dims)))
    if node.op == "GroupNormalization":
        count = node.attributes().get("num_groups", 1)
        size, rest = divmod(channels, count)
        if rest or not is_whole("c", channels, features.dims[1:2]):
            raise node.refuse(f"should divide the {channels} channels of a map, got {count} groups")
        if size > 1:
            over |= {"c"} if count == 1 else {part_of_channels([whole_dim("c", size)])}
    scale, shift = (node.input(place) for place in (1, 2))
    epsilon = float(node.attributes().get("epsilon", EPSILON))
    # As exporters write a group norm: what scales and shifts its groups is one and zero, and what
    # the channels have of their own comes after it.
    is_plain = _is_all(state, scale, 1.0) and _is_all(state, shift, 0.0)
    learns = all(one in state.graph.initialisers and not is_counted(one) for one in (scale, shift))
    if state.constant(scale).elements != channels or (is_plain and not learns):
        if is_plain:
            state.fixed.update((scale, shift))
        else:
            state.note(node, "a scale and shift of each group of channels that is normalised")
        scale = shift = ""
    sizes = state.layer(features.source).sizes
    values, dims = features.function.values, dims_over(over, sizes)
    function = features.function.unknown(node.op)
    if values is not None and dims is not None:
        numbers = [
            stand_in(state.constant(name)) if name and not is_plain else None
            for name in (scale, shift)
        ]
        values = normed(values, "layer", epsilon, *numbers, over=dims)
        function = Function(values, None, tolerance=features.function.tolerance)
    norm = PendingNorm(
        over,
        True,
        scale,
        shift,
        repr(epsilon),
        node,
        of=features.function,
        is_plain=is_plain and bool(scale),
    )
    return features._replace(norm=norm, function=function)


def _is_all(state: ImportState, name: str, number: float) -> bool:
    """Whether all elements of a constant are a number."""
    if not (name and state.is_constant(name)):
        return False
    constant = state.constant(name)
    if not constant.has_values or constant.elements > MAX_ELEMENTS:
        return False
    return bool((constant.value == number).all())


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
