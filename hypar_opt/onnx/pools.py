"""Pools, means over dimensions, and borders of zeros."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from hypar_opt.onnx.axes import POSITIONS, axes_of, extent, is_whole
from hypar_opt.onnx.features import INPUT, Features, Layer
from hypar_opt.onnx.import_state import ImportState
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.samples import Function, dims_over, reduced
from hypar_opt.onnx.views import integers
from hypar_opt.onnx.windows import image_of, numbers, window_counts, window_padding


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
    features = image.features._replace(border=None)
    layer = state.layer(features.source)
    joins = features.only and "pool" in layer.operator.model_fields and "pool" not in layer.keys
    is_global = all(size >= extent for size, extent in zip(window, image.extents, strict=True))
    if not joins and not any(padding[:2]) and is_global:
        return _reduced(state, node, features, range(2, len(features.dims)))
    up = bool(attributes.get("ceil_mode"))
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
        layer.keys["pool"] = keys
        layer.sizes = new
        return features._replace(dims=dims)
    if not layer.is_image:
        raise node.refuse("is a pool, but its input is not an image")
    source = state.read(features, node)
    return state.emit(Layer("pool", {"pool": keys}, [source], new, node, dims=dims))


def upsample(state: ImportState, node: OnnxNode) -> Features:
    """An image enlarged by whole factors: pixels repeated, and as such what is interpolated."""
    shape = state.seen(node.inputs[0]).shape
    factors = _factors(state, node, shape)
    if any(factor != 1 for factor in factors[:2]) or any(f % 1 or f < 1 for f in factors):
        shown = ", ".join(f"{float(factor):g}" for factor in factors)
        raise node.refuse(f"should enlarge rows and columns by whole factors, got {shown}")
    image = image_of(state, node, len(shape) - 2)
    rows, columns = image.pair([int(factor) for factor in factors[2:]], 1)
    if node.attributes().get("mode", b"nearest") not in (b"nearest", "nearest"):
        state.note(node, "interpolation between pixels")
    height, width = (size * by for size, by in zip(image.extents, (rows, columns), strict=True))
    dims = image.dims(image.channels, height, width)
    new = {"c": image.channels, "h": height, "w": width}
    source = state.read(image.features, node)
    keys = {"factor": numbers((rows, columns))}
    return state.emit(Layer("upsample", keys, [source], new, node, dims=dims))


def _factors(state: ImportState, node: OnnxNode, shape: Sequence[int]) -> list[Fraction]:
    """Return what each dimension is multiplied by: of new sizes, or as scales."""
    sizes = integers(state, node, 3, "sizes")
    if sizes is not None:
        return [Fraction(new, old) for new, old in zip(sizes, shape, strict=True)]
    # After a region of interest, but in the oldest versions.
    name = node.inputs[min(2, len(node.inputs) - 1)]
    if not state.is_constant(name) or not state.constant(name).known:
        raise node.refuse(f"its scales {name!r} should be in the file")
    state.fixed.add(name)
    return [Fraction(float(scale)) for scale in state.constant(name).value]


def global_pool(state: ImportState, node: OnnxNode) -> Features:
    """One number per channel, over all rows and columns."""
    features = state.seen(node.inputs[0])
    if features.source == INPUT:
        state.input.name_image(features.dims)
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
    return _reduced(state, node, features, axes, keep=bool(attributes.get("keepdims", 1)))


def _reduced(
    state: ImportState,
    node: OnnxNode,
    features: Features,
    axes: Sequence[int],
    *,
    keep: bool = True,
) -> Features:
    """Return features without some dimensions, which are of size 1 if ``keep``."""
    if features.source == INPUT:
        features = state.input.settled(features)
    over = set(axes_of([features.dims[axis] for axis in axes])) - {"r"}
    norm = features.norm
    if norm and (norm.scale or norm.shift or norm.over - {"part of c"} not in (set(), over)):
        features = state.settle(features, node)
    layer = state.layer(features.source)
    held = [features.dims[axis] for axis in axes]
    if "c" in over and (features.taken or not is_whole("c", layer.channels, held)):
        over = (over - {"c"}) | {"part of c"}
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
    count = math.prod(extent(dim) for dim in held)
    values = reduced(node.op, node.attributes(), features.function.values, dims_of, count)
    function = Function(values, None, frozenset({node.op}), features.function.tolerance)
    made = features._replace(dims=dims, pool=node.word, operators=features.operators | done)
    if not over & (POSITIONS | {"c", "b", "part of c"}):
        return made if exact else made._replace(function=function)
    unpooled = features.unpooled if features.pooled else features.function
    made = made._replace(function=function, unpooled=unpooled)
    return made._replace(pooled=features.pooled | over)


def pad(state: ImportState, node: OnnxNode) -> Features:
    """Zeros round an image, which become padding of the next window."""
    features = state.features(node.inputs[0])
    pads = integers(state, node, 1, "pads") or []
    rank = len(features.dims)
    axes = integers(state, node, 3, "axes") or list(range(rank))
    before, after = [0] * rank, [0] * rank
    for index, axis in enumerate(axes):
        before[axis], after[axis] = pads[index], pads[index + len(axes)]
    if not any(before + after):
        return features
    if min(before + after) < 0 or any(before[:2] + after[:2]) or rank not in (3, 4):
        raise node.refuse(f"should add zeros round rows and columns, got {pads}")
    if features.norm or features.pooled:
        features = state.settle(features, node)
    rows = (before[2], after[2]) if rank == 4 else (0, 0)
    border = (rows[0], before[-1], rows[1], after[-1])
    if features.border:
        border = tuple(a + b for a, b in zip(border, features.border, strict=True))  # type: ignore[assignment]
    return features._replace(border=border)
