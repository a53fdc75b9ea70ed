"""Provenance of constants: which elements of the file's initializers a node's outputs hold.

A constant is followed from its initializers through operators that only view them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from hypar_opt.onnx.axes import Digit, Dim, UnalignedError, extent, reshaped, whole_dim
from hypar_opt.onnx.computing import slice_cuts
from hypar_opt.onnx.constant import MAX_ELEMENTS, Constant
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.regions import Region, Regions, Shape, indexed, whole

_COPIES = "r"

NO_WEIGHTS = frozenset(
    (
        *("Shape", "Size", "Range", "NonZero", "ArgMax", "ArgMin", "Sin", "Cos", "Not", "EyeLike"),
        *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor"),
        *("IsNaN", "IsInf", "OneHot"),
    )
)
"""Operators whose results are never weights: shapes, conditions, and the sines of positions."""

SAME_VALUES = frozenset(
    (
        *("Cast", "CastLike", "Dropout", "Expand", "Flatten", "Gather", "GatherElements"),
        *("GatherND", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose"),
        "Unsqueeze",
    )
)
"""Operators whose results are values of the first input; the others are indices and shapes."""

# Their other inputs are bounds and scales.
_FIRST_INPUT_ONLY = SAME_VALUES | {
    "Clip",
    "CumSum",
    "DequantizeLinear",
    "Pad",
    "QuantizeLinear",
    "Trilu",
}


def regions_of(
    node: OnnxNode, inputs: Sequence[Constant | None], shapes: Sequence[Shape]
) -> list[Regions]:
    """Return the elements that the outputs of a node on constants hold.

    Where its view cannot be followed, they hold all elements that it reads, unarranged.
    """
    if node.op in ("Constant", "ConstantOfShape"):
        # A tensor that a node makes is a weight by the name of that output.
        return [(whole(node.outputs[0], shapes[0]),)]
    if node.op in NO_WEIGHTS or not inputs or inputs[0] is None:
        return [()] * len(shapes)
    if node.op not in _FIRST_INPUT_ONLY:
        tensors = [constant for constant in inputs if constant and constant.elements > 1]
        return [_merged([region for c in tensors for region in c.regions], shapes[0])]
    views = [_views_of(node, region, inputs, shapes) for region in inputs[0].regions]
    return [tuple(outputs) for outputs in zip(*views, strict=True)] or [()] * len(shapes)


def _views_of(
    node: OnnxNode, region: Region, inputs: Sequence[Constant | None], shapes: Sequence[Shape]
) -> Regions:
    data = inputs[0]
    if data is not None and region.shape == data.shape:
        try:
            return tuple(_views(node, region, inputs, shapes))
        except (UnalignedError, ValueError, IndexError):
            pass
    return (region.flat(),) * len(shapes)


def _merged(regions: Sequence[Region], shape: Shape) -> Regions:
    """Return an operator's regions without repeats, arranged if shaped like its output."""
    out: dict[Region, Region] = {}
    for region in regions:
        fits = region.shape == tuple(shape)
        out.setdefault(region.flat(), region if fits else region.flat())
    return tuple(out.values())


def _views(
    node: OnnxNode, region: Region, inputs: Sequence[Constant | None], shapes: Sequence[Shape]
) -> list[Region]:
    """Return the outputs of an operator that views an initializer in another way.

    Raises
    ------
    UnalignedError, ValueError, IndexError
        Where it is not a view, or cuts across the initializer's digits.
    """
    op, attributes, (shape, *_) = node.op, node.attributes(), shapes
    if op == "Split" and len(shapes) == len(node.outputs):
        axis = attributes.get("axis", 0)
        sizes = [of[axis] for of in shapes]
        starts = [0, *accumulate(sizes)]
        return [indexed(region, axis, start, n) for start, n in zip(starts, sizes, strict=False)]
    if op == "Slice":
        arrays = [None if constant is None else constant.value for constant in inputs[1:]]
        for axis, cut in enumerate(slice_cuts(region.shape, arrays, attributes)):
            start, stop, step = cut.indices(region.shape[axis])
            region = indexed(region, axis, start, len(range(start, stop, step)), step)
    elif op == "Gather":
        region = _gathered(region, inputs[1], attributes.get("axis", 0))
    elif op == "GatherND" and not attributes.get("batch_dims"):
        region = _gathered(region, _row_indices(inputs[1]), 0)
    elif op == "Transpose":
        order = attributes.get("perm") or reversed(range(len(shape)))
        region = region._replace(dims=tuple(region.dims[axis] for axis in order))
    elif op == "Expand":
        region = region._replace(dims=_expanded(region.dims, shape))
    elif op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
        region = region._replace(dims=reshaped(region.dims, shape))
    if region.shape != tuple(shape):
        raise UnalignedError
    return [region]


def _expanded(dims: tuple[Dim, ...], shape: Shape) -> tuple[Dim, ...]:
    padded = [()] * (len(shape) - len(dims)) + list(dims)
    return tuple(
        (Digit(_COPIES, size),) if extent(dim) < size else dim
        for dim, size in zip(padded, shape, strict=True)
    )


def _row_indices(indices: Constant | None) -> Constant | None:
    """Return indices of rows, which are written as coordinates of one dimension."""
    if indices is None or indices.shape[-1] != 1:
        return None
    shape = indices.shape[:-1]
    return replace(indices, shape=shape, load=lambda: indices.value.reshape(shape))


def _gathered(region: Region, indices: Constant | None, axis: int) -> Region:
    """Return consecutive indices of a dimension, or one of them; the same for each image."""
    if indices is None or not indices.has_values or not 0 < indices.elements <= MAX_ELEMENTS:
        raise UnalignedError
    *outer, count = indices.shape or (1,)
    rows = indices.value.reshape(-1, count)
    values = rows[0]
    if count > region.shape[axis] or (np.diff(values) != 1).any() or (rows != values).any():
        raise UnalignedError
    region = indexed(region, axis, int(values[0]) % region.shape[axis], count)
    axis %= len(region.dims)
    copies = (whole_dim(_COPIES, size) for size in outer)
    gathered = (*copies, region.dims[axis]) if indices.shape else ()
    return region._replace(dims=(*region.dims[:axis], *gathered, *region.dims[axis + 1 :]))
