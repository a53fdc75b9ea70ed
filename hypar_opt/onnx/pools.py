"""Pools, means over dimensions, and borders of zeros."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from hypar_opt.onnx.axes import POSITIONS, axes_of, extent, is_part, is_whole, part_of_channels
from hypar_opt.onnx.features import AddedBorder, Features, Layer
from hypar_opt.onnx.import_state import ImportState
from hypar_opt.onnx.model import OnnxNode, stated
from hypar_opt.onnx.samples import IDENTITY, Function, dims_over, reduced
from hypar_opt.onnx.views import integers
from hypar_opt.onnx.windows import filling, image_of, numbers, window_counts, window_padding

MAX_FLOAT = 1e30
"""A border of this, below zero, is under all numbers of a map."""


def pool(state: ImportState, node: OnnxNode) -> Features:
    """A pool: part of the convolution that it alone reads, or a separate layer."""
    attributes = node.attributes()
    kernel = attributes["kernel_shape"]
    image = image_of(state, node, len(kernel))
    window = image.pair(kernel, 1)
    stride = image.pair(attributes.get("strides"), 1)
    dilation = image.pair(attributes.get("dilations"), 1)
    if dilation != (1, 1):
        raise node.refuse("is a pool with dilation, which a network has no layer for")
    for indices in node.outputs[1:2]:
        if indices and state.uses[indices]:
            raise node.refuse(
                f"its indices {indices!r} are read, which pools of a network do not have"
            )
    padding = window_padding(node, image, attributes, window, stride, dilation)
    if any(width >= size for width, size in zip(padding, (*window, *window), strict=True)):
        shown = f"{numbers(padding)}, with its window of {numbers(window)}"
        raise node.refuse(f"should have windows larger than their border, got a border of {shown}")
    up = bool(attributes.get("ceil_mode"))
    _note_borders(state, node, image.features, padding, up=up)
    features = image.features._replace(border=None)
    layer = state.layer(features.source)
    joins = features.only and "pool" in layer.operator.model_fields and "pool" not in layer.keys
    is_global = all(size >= extent for size, extent in zip(window, image.extents, strict=True))
    if not joins and not any(padding[:2]) and is_global:
        return _reduced(state, node, features, range(2, len(features.dims)))
    height, width = window_counts(node, image, window, stride, dilation, padding, up=up)
    keys: dict[str, Any] = {"kind": node.word, "size": numbers(window)}
    if stride != window:
        keys["stride"] = numbers(stride)
    if any(padding):
        keys["padding"] = numbers(padding)
    if up:
        keys["rounding"] = "up"
    dims = image.dims(image.channels, height, width)
    new = {"c": image.channels, "h": height, "w": width}
    if joins:
        # What has been done to the map comes before the pool, and what follows behind it.
        layer.keys["pool"] = keys
        layer.sizes = new
        layer.pooled_as = state.activation_of(features, node)
        return features._replace(dims=dims, operators=frozenset(), function=IDENTITY)
    if not layer.is_image:
        raise node.refuse("is a pool, but its input is not an image")
    source = state.read(features, node)
    return state.emit(Layer("pool", {"pool": keys}, [source], new, node, dims=dims))


def _note_borders(
    state: ImportState, node: OnnxNode, features: Features, padding: Sequence[int], *, up: bool
) -> None:
    """Note differences from a network's pools, whose windows end at the map's border."""
    border, values = features.border, features.function.values
    if node.op == "LpPool":
        state.note(node, node.stated)
    if node.word == "max" and border:
        # Numbers that no window takes: those below all of the map's, or zeros below none.
        floor = 0.0 if values is not None and (values >= 0).all() else -MAX_FLOAT
        value = features.border_value
        if value is None or value > floor:
            state.note(node, f"a border of {filling(features)}, which is left out of its windows")
    if node.word == "average" and border:
        state.note(node, f"a border of {filling(features)}, which is left out of its windows")
    counts = node.attributes().get("count_include_pad")
    if counts and (any(padding) or up):
        state.note(node, stated("count_include_pad", counts))


def upsample(state: ImportState, node: OnnxNode) -> Features:
    """An image enlarged by whole factors; interpolation is read as repeated pixels."""
    shape = state.seen(node.inputs[0]).shape
    factors = _factors(state, node, shape)
    if any(factor != 1 for factor in factors[:2]) or any(f % 1 or f < 1 for f in factors):
        shown = ", ".join(f"{float(factor):g}" for factor in factors)
        raise node.refuse(f"should enlarge rows and columns by whole factors, got {shown}")
    image = image_of(state, node, len(shape) - 2)
    rows, columns = image.pair([int(factor) for factor in factors[2:]], 1)
    attributes = node.attributes()
    if attributes.get("mode", "nearest") != "nearest":
        state.note(node, "interpolation between pixels")
    elif not all(
        _repeats(node, size, by) for size, by in zip(image.extents, (rows, columns), strict=True)
    ):
        state.note(node, f"which pixels are repeated: {node.stated}")
    height, width = (size * by for size, by in zip(image.extents, (rows, columns), strict=True))
    dims = image.dims(image.channels, height, width)
    new = {"c": image.channels, "h": height, "w": width}
    source = state.read(image.features, node)
    keys = {"factor": numbers((rows, columns))}
    return state.emit(Layer("upsample", keys, [source], new, node, dims=dims))


def _repeats(node: OnnxNode, size: int, factor: int) -> bool:
    """Return whether an image is enlarged by repeating every pixel in order."""
    attributes = node.attributes()
    if node.op == "Upsample":
        return True
    new = size * factor
    places = np.arange(new, dtype=np.float64)
    half = (places + 0.5) / factor - 0.5
    positions = {
        "half_pixel": half,
        "half_pixel_symmetric": half,
        "pytorch_half_pixel": half if new > 1 else np.zeros(1),
        "asymmetric": places / factor,
        "align_corners": places * (size - 1) / max(1, new - 1),
        "tf_half_pixel_for_nn": (places + 0.5) / factor,
    }.get(attributes.get("coordinate_transformation_mode", "half_pixel"))
    if positions is None:
        return False
    nearest = {
        "round_prefer_floor": np.ceil(positions - 0.5),
        "round_prefer_ceil": np.floor(positions + 0.5),
        "floor": np.floor(positions),
        "ceil": np.ceil(positions),
    }[attributes.get("nearest_mode", "round_prefer_floor")]
    return bool((nearest.clip(0, size - 1) == places // factor).all())


def _factors(state: ImportState, node: OnnxNode, shape: Sequence[int]) -> list[Fraction]:
    """Return what each dimension is multiplied by: of new sizes, or as scales."""
    axes = node.attributes().get("axes") or range(len(shape))
    factors = [Fraction(1)] * len(shape)
    sizes = integers(state, node, 3, "sizes")
    if sizes is not None:
        for axis, new in zip(axes, sizes, strict=True):
            factors[axis] = Fraction(new, shape[axis])
        return factors
    scales = node.attributes().get("scales")
    if scales is None:
        # After a region of interest, but in the oldest versions.
        name = node.inputs[min(2, len(node.inputs) - 1)]
        if not state.is_constant(name) or not state.constant(name).has_values:
            raise node.refuse(f"its scales {name!r} should be in the file")
        state.fixed.add(name)
        scales = state.constant(name).value
    for axis, scale in zip(axes, scales, strict=True):
        factors[axis] = Fraction(float(scale))
    return factors


def global_pool(state: ImportState, node: OnnxNode) -> Features:
    """One number per channel, over all rows and columns."""
    features = state.seen(node.inputs[0])
    state.name_image(features)
    features = state.settled(node.inputs[0], node)
    return _reduced(state, node, features, range(2, len(features.dims)))


def reduction(state: ImportState, node: OnnxNode) -> Features:
    """A mean or a maximum over some dimensions: a global pool, or a norm's statistics."""
    axes = integers(state, node, 1, "axes")
    features = state.features(node.inputs[0])
    attributes = node.attributes()
    if not axes:
        if attributes.get("noop_with_empty_axes"):
            return features
        axes = list(range(len(features.dims)))
    if any(not -len(features.dims) <= axis < len(features.dims) for axis in axes):
        raise node.refuse(f"has no dimensions {axes} of {len(features.dims)}")
    axes = [axis % len(features.dims) for axis in axes]
    over = axes_over(state, node, features, axes)
    norm, pooled = features.norm, features.pooled
    # What is reduced is no statistic of a norm that has been scaled, or is of other axes, nor of
    # a map whose positions are pooled: of these, it may begin another norm.
    ended = norm and (norm.scale or norm.shift or (norm.over and norm.over != over))
    if ended or (pooled and "c" in over and pooled <= POSITIONS):
        features = state.settled(node.inputs[0], node)
    return _reduced(state, node, features, axes, keep=bool(attributes.get("keepdims", 1)))


def axes_over(
    state: ImportState, node: OnnxNode, features: Features, axes: Sequence[int]
) -> frozenset[str]:
    """Return the axes that a reduction over some dimensions is over.

    Raises
    ------
    InputError
        Where it is over some positions apart from others, as those of a window.
    """
    dims = [features.dims[axis] for axis in axes]
    over = axes_of(dims) - {"r"}
    remaining = axes_of(dim for axis, dim in enumerate(features.dims) if axis not in axes)
    if over & remaining & POSITIONS:
        raise node.refuse(
            "reduces a part of the positions, as those of a window, which a network has no layer"
            " for"
        )
    channels = state.layer(features.source).channels
    if "c" in over and (features.taken or not is_whole("c", channels, dims)):
        rest = (tuple(d for d in dim if not axes_of([(d,)]) & POSITIONS) for dim in dims)
        return (over - {"c"}) | {part_of_channels(rest)}
    return over


def _reduced(
    state: ImportState,
    node: OnnxNode,
    features: Features,
    axes: Sequence[int],
    *,
    keep: bool = True,
) -> Features:
    """Return features without some dimensions, which are of size 1 if ``keep``."""
    features = state.named(features)
    over, layer = axes_over(state, node, features, axes), state.layer(features.source)
    reduced_dims = [features.dims[axis] for axis in axes]
    dims = tuple(
        () if axis in axes else dim
        for axis, dim in enumerate(features.dims)
        if keep or axis not in axes
    )
    if layer.is_scores:
        raise node.refuse("reduces the scores of attention")
    exact = node.op.removeprefix("Global") in ("ReduceMean", "ReduceMax", "AveragePool", "MaxPool")
    done = frozenset() if exact else frozenset({node.op})
    dims_of = dims_over(over, layer.sizes)
    count = math.prod(extent(dim) for dim in reduced_dims)
    values = reduced(node.op, node.attributes(), features.function.values, dims_of, count)
    function = Function(values, None, frozenset({node.op}), features.function.tolerance)
    result = features._replace(dims=dims, pool=node.word, operators=features.operators | done)
    if not over & (POSITIONS | {"c", "b"}) and not any(map(is_part, over)):
        return result if features.function.is_like(function) else result._replace(function=function)
    unpooled = features.unpooled if features.pooled else features.function
    result = result._replace(function=function, unpooled=unpooled)
    return result._replace(pooled=features.pooled | over)


def pad(state: ImportState, node: OnnxNode) -> Features:
    """A border round an image, which becomes padding of the next window."""
    features = state.features(node.inputs[0])
    pads = integers(state, node, 1, "pads") or []
    rank = len(features.dims)
    axes = integers(state, node, 3, "axes") or list(range(rank))
    before, after = [0] * rank, [0] * rank
    for index, axis in enumerate(axes):
        before[axis], after[axis] = pads[index], pads[index + len(axes)]
    if not any(before + after):
        return features
    padded = [features.dims[axis] for axis in range(rank) if before[axis] or after[axis]]
    if rank == 4 and "c" in axes_of(features.dims[-1:]) and axes_of(padded) <= POSITIONS:
        raise node.refuse(
            "adds a border to an image whose channels come last, as Swin does to an image that its"
            " windows do not tile; a network has no layer for that"
        )
    if min(before + after) < 0 or any(before[:2] + after[:2]) or rank not in (3, 4):
        raise node.refuse(f"should add a border round rows and columns, got {pads}")
    if features.norm or features.pooled:
        features = state.settle(features, node)
    mode, value = node.attributes().get("mode", "constant"), _border_value(state, node)
    if mode != "constant":
        state.note(node, f"a border of the map's numbers (mode = {mode}), which is taken as zeros")
        value = 0.0
    elif value is None:
        state.note(node, "a border of unknown numbers, which are taken as zeros")
        value = 0.0
    rows = (before[2], after[2]) if rank == 4 else (0, 0)
    widths = (rows[0], before[-1], rows[1], after[-1])
    if old := features.border:
        top, left, bottom, right = (a + b for a, b in zip(widths, old.widths, strict=True))
        widths, value = (
            (top, left, bottom, right),
            value if value == features.border_value else None,
        )
    return features._replace(border=AddedBorder(widths, value, features.function, node))


def _border_value(state: ImportState, node: OnnxNode) -> float | None:
    """Return the number that Pad adds; None if it is unknown."""
    name = node.input(2)
    if not name:
        return float(node.attributes().get("value", 0.0))
    if not state.is_constant(name):
        return None
    constant = state.constant(name)
    is_scalar = constant.has_values and not constant.is_input and constant.elements == 1
    return float(constant.value.ravel()[0]) if is_scalar else None
