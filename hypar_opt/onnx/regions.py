"""Which elements of which initializers a constant holds.

Weights are shared, or apart, by their elements and not by their names: a graph may cut one
initializer into the weights of several layers, or hand the same rows to two. So a constant is
followed from its initializers through the operators that only look at them another way; its
dimensions are digits of the initializer's flat index, as those of a feature map are digits of its
axes (`axes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.errors import InputError
from hypar_opt.onnx.axes import Digit, Dim, UnalignedError, extent, merged, reshaped

if TYPE_CHECKING:
    from hypar_opt.onnx.constants import Constant
    from hypar_opt.onnx.model import Node

_ELEMENTS, _COPIES = "e", "r"

MOST_RUNS = 2**20
"""The most contiguous runs of elements into which the regions of one initializer may fall."""

Shape = Sequence[int]


class Region(NamedTuple):
    """Some elements of an initializer, arranged in dimensions.

    Parameters
    ----------
    name
        The initializer.
    dims
        Where the digits of its flat index lie; copies have an axis of their own.
    first
        The flat index of the first element.
    """

    name: str
    dims: tuple[Dim, ...]
    first: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent(dim) for dim in self.dims)

    @property
    def digits(self) -> Dim:
        """The digits of its elements, in the order of the initializer."""
        own = (digit for dim in self.dims for digit in dim if digit.axis == _ELEMENTS)
        return merged(sorted(own, key=lambda digit: -digit.stride))

    @property
    def elements(self) -> int:
        own = (digit.size for dim in self.dims for digit in dim if digit.axis == _ELEMENTS)
        return math.prod(own)

    @property
    def span(self) -> range:
        """The flat indices from its first element to its last."""
        return range(self.first, self.first + 1 + sum((n - 1) * by for _, n, by in self.digits))

    def flat(self) -> Region:
        """Return its elements without their arrangement; equal where the elements are."""
        digits = self.digits
        return self if self.dims == (digits,) else self._replace(dims=(digits,))


Regions = tuple[Region, ...]


@dataclass(frozen=True)
class Weights:
    """What a layer learns, by the elements of the file that hold it.

    Parameters
    ----------
    name
        The initializer that the layer is called after.
    matrix
        What it multiplies by, or looks up, arranged as rows and columns, its outputs last.
    vectors
        A bias; a norm's scale and shift.
    shared
        Vectors that an earlier layer has too, which are counted there.
    added
        The parameters that the network counts and the file does not have.
    """

    name: str = ""
    matrix: Regions = ()
    vectors: Regions = ()
    shared: Regions = ()
    added: int = 0

    @property
    def regions(self) -> Regions:
        return (*self.matrix, *self.vectors, *self.shared)

    @property
    def elements(self) -> int:
        """The parameters of its layer: its own, and what the network adds."""
        return distinct((*self.matrix, *self.vectors)) + self.added

    def part(self, start: int, size: int) -> Weights:
        """Return those of a range of the outputs."""
        matrix, vectors = (_part(of, start, size) for of in (self.matrix, self.vectors))
        return replace(self, name=f"{self.name}.{start}", matrix=matrix, vectors=vectors)


def whole(name: str, shape: Shape) -> Region:
    """Return all elements of an initializer."""
    strides = [*accumulate(reversed(shape[1:]), initial=1, func=lambda a, b: a * b)][::-1]
    dims = (
        (Digit(_ELEMENTS, size, stride),) if size > 1 else ()
        for size, stride in zip(shape, strides, strict=False)
    )
    return Region(name, tuple(dims))


def stored(constant: Constant) -> Regions:
    """Return the elements that a constant has the values of.

    A scale or a sum of weights has those of one operand, the first of its size; a concatenation
    those of all.
    """
    for region in constant.regions:
        if region.elements == constant.elements:
            return (region,)
    return constant.regions


def is_stored(constant: Constant) -> bool:
    """Whether a constant has as many elements of the file as it has places, and no copies."""
    return sum(region.elements for region in stored(constant)) == constant.elements


def arranged(constant: Constant, rows: Sequence[int], columns: Sequence[int]) -> Regions:
    """Return the elements that a constant has, as a matrix of some of its dimensions."""
    regions = stored(constant)
    if len(regions) != 1 or regions[0].shape != constant.shape:
        return regions
    dims = tuple(
        merged(digit for place in places for digit in regions[0].dims[place])
        for places in (rows, columns)
    )
    return (regions[0]._replace(dims=dims),)


def first(constant: Constant) -> Regions:
    """Return the elements that a constant has for the first index of its first dimension."""
    regions = stored(constant)
    if len(regions) != 1 or regions[0].shape != constant.shape:
        return regions
    return (_taken(regions[0], 0, 0, 1),)


def distinct(regions: Iterable[Region]) -> int:
    """Return how many elements are in any of some regions.

    Raises
    ------
    InputError
        Where an initializer falls into too many runs of elements.
    """
    by_name: dict[str, set[Region]] = {}
    for region in regions:
        by_name.setdefault(region.name, set()).add(region.flat())
    return sum(_union(name, list(several)) for name, several in by_name.items())


def overlap(a: Region, b: Region) -> bool:
    """Whether two regions have an element in common."""
    if a.name != b.name:
        return False
    return distinct((a, b)) < a.elements + b.elements


def _union(name: str, regions: list[Region]) -> int:
    if len(regions) == 1:
        return regions[0].elements
    runs = [_runs(region) for region in regions]
    if sum(count for _, count in runs) > MOST_RUNS:
        raise InputError("is cut into too many parts", where=f"initializer {name!r}")
    starts = np.concatenate([_starts(region) for region in regions])
    lengths = np.repeat([length for length, _ in runs], [count for _, count in runs])
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], (starts + lengths)[order]
    reached = np.maximum.accumulate(ends)
    # Of each run what lies beyond all before it.
    before = np.concatenate([[0], reached[:-1]])
    return int(np.maximum(0, ends - np.maximum(starts, before)).sum())


def _runs(region: Region) -> tuple[int, int]:
    """Return the length of a region's contiguous runs, and their number."""
    digits = region.digits
    length = digits[-1].size if digits and digits[-1].stride == 1 else 1
    return length, region.elements // length


def _starts(region: Region) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    starts = np.array([region.first], np.int64)
    for _, size, stride in (digit for digit in region.digits if digit.stride > 1):
        starts = (starts[:, None] + np.arange(size, dtype=np.int64) * stride).ravel()
    return starts


# Operators whose results are no weights, whatever they are made of: shapes, conditions, and the
# sines of positions.
_NO_WEIGHTS = frozenset(
    (
        *("Shape", "Size", "Range", "NonZero", "ArgMax", "ArgMin", "Sin", "Cos", "Not", "EyeLike"),
        *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor"),
        *("IsNaN", "IsInf", "OneHot"),
    )
)
# Operators whose first input has the values: the others are indices, shapes, bounds and scales.
_OF_FIRST = frozenset(
    (
        *("Cast", "CastLike", "Clip", "CumSum", "DequantizeLinear", "Dropout", "Expand", "Flatten"),
        *("Gather", "GatherElements", "GatherND", "Identity", "Pad", "QuantizeLinear", "Reshape"),
        *("Slice", "Split", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze"),
    )
)


def regions_of(
    node: Node, inputs: Sequence[Constant | None], shapes: Sequence[Shape]
) -> list[Regions]:
    """Return which elements the outputs of a node hold, that reads constants alone.

    Where its view cannot be followed they hold all elements that it reads, in no arrangement.
    """
    if node.op in ("Constant", "ConstantOfShape"):
        # A tensor that is made here is a weight by its own name.
        return [(whole(node.outputs[0], shapes[0]),)]
    if node.op in _NO_WEIGHTS or not inputs or inputs[0] is None:
        return [()] * len(shapes)
    if node.op not in _OF_FIRST:
        made = [constant for constant in inputs if constant is not None and constant.elements > 1]
        return [_merged([region for one in made for region in one.regions], shapes[0])]
    views = [_views_of(node, region, inputs, shapes) for region in inputs[0].regions]
    return [tuple(outputs) for outputs in zip(*views, strict=True)] or [()] * len(shapes)


def _views_of(
    node: Node, region: Region, inputs: Sequence[Constant | None], shapes: Sequence[Shape]
) -> Regions:
    data = inputs[0]
    if data is not None and region.shape == data.shape:
        try:
            return tuple(_views(node, region, inputs, shapes))
        except (UnalignedError, ValueError, IndexError):
            pass
    return (region.flat(),) * len(shapes)


def _merged(regions: Sequence[Region], shape: Shape) -> Regions:
    """Return what an operator makes of several: arranged where a region is as its output."""
    out: dict[Region, Region] = {}
    for region in regions:
        fits = region.shape == tuple(shape)
        out.setdefault(region.flat(), region if fits else region.flat())
    return tuple(out.values())


def _views(
    node: Node, region: Region, inputs: Sequence[Constant | None], shapes: Sequence[Shape]
) -> list[Region]:
    """Return the outputs of an operator that looks at an initializer another way.

    Raises
    ------
    UnalignedError, ValueError, IndexError
        Where it is none, or its view does not go along the initializer's digits.
    """
    op, attributes, (shape, *_) = node.op, node.attributes(), shapes
    if op == "Split" and len(shapes) == len(node.outputs):
        axis = attributes.get("axis", 0)
        sizes = [of[axis] for of in shapes]
        starts = [0, *accumulate(sizes)]
        return [_taken(region, axis, start, n) for start, n in zip(starts, sizes, strict=False)]
    if op == "Slice":
        from hypar_opt.onnx.computing import slice_cuts

        arrays = [None if constant is None else constant.value for constant in inputs]
        for axis, cut in enumerate(slice_cuts(region.shape, arrays, attributes)):
            start, stop, step = cut.indices(region.shape[axis])
            region = _taken(region, axis, start, len(range(start, stop, step)), step)
    elif op == "Gather":
        region = _gathered(region, inputs[1], attributes.get("axis", 0))
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


def _gathered(region: Region, indices: Constant | None, axis: int) -> Region:
    """Return neighbouring indices of a dimension, or one of them."""
    if indices is None or not indices.known or len(indices.shape) > 1 or not indices.elements:
        raise UnalignedError
    values = indices.value.ravel()
    if (np.diff(values) != 1).any():
        raise UnalignedError
    taken = _taken(region, axis, int(values[0]) % region.shape[axis], len(values))
    if indices.shape:
        return taken
    place = axis % len(taken.dims)
    return taken._replace(dims=(*taken.dims[:place], *taken.dims[place + 1 :]))


def _part(regions: Regions, start: int, size: int) -> Regions:
    """Return a range of the last dimension, or all where it cannot be told from the others."""
    if len(regions) != 1:
        return regions
    try:
        return (_taken(regions[0], -1, start, size),)
    except UnalignedError:
        return regions


def _taken(region: Region, axis: int, start: int, size: int, step: int = 1) -> Region:
    """Return some indices of a dimension.

    Raises
    ------
    UnalignedError
        Where they cut a digit at no divisor of its size, or go backwards.
    """
    place = axis % len(region.dims)
    dim, first = _range(region.dims[place], start, size, step)
    dims = (*region.dims[:place], dim, *region.dims[place + 1 :])
    return Region(region.name, dims, region.first + first)


def _range(dim: Dim, start: int, size: int, step: int) -> tuple[Dim, int]:
    """Return some indices of a dimension, and the flat index of the first."""
    if start == 0 and size == extent(dim):
        return dim, 0
    if step < 1 or size < 1 or start + (size - 1) * step >= extent(dim):
        raise UnalignedError
    (axis, _, stride), *rest = dim
    step_of = stride if axis == _ELEMENTS else 0
    inner = math.prod(digit.size for digit in rest)
    top, under = divmod(start, inner)
    if not rest or (step == 1 and size % inner == 0 and under == 0):
        count = size // inner
        left = (Digit(axis, count, stride * step), *rest) if count > 1 else tuple(rest)
        return left, top * step_of
    if top != (start + (size - 1) * step) // inner:
        raise UnalignedError
    left, first = _range(tuple(rest), under, size, step)
    return left, first + top * step_of
