"""Regions: elements of an initializer that a constant holds.

Weights are compared by their elements, not by their names: a graph may cut one
initializer into the weights of several layers, or pass the same rows to two. A constant's
dimensions are digits of the initializer's flat index, as those of a feature map are digits of its
axes (`axes`); `provenance` follows them through the operators of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from hypar_opt.errors import InputError
from hypar_opt.onnx.axes import Dim, UnalignedError, extent, merged, whole_dim

_ELEMENTS = "e"

MAX_RUNS = 2**20
"""The regions of one initializer have at most this many contiguous runs of elements."""

Shape = Sequence[int]


class Region(NamedTuple):
    """Some elements of an initializer, arranged in dimensions.

    Parameters
    ----------
    name
        The initializer.
    dims
        Where the digits of its flat index lie; copies have a separate axis.
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
        return merged(sorted(self._digits, key=lambda digit: -digit.stride))

    @property
    def elements(self) -> int:
        return math.prod(digit.size for digit in self._digits)

    @property
    def _digits(self) -> Dim:
        return tuple(digit for dim in self.dims for digit in dim if digit.axis == _ELEMENTS)

    @property
    def span(self) -> range:
        """The flat indices from its first element to its last."""
        return range(self.first, self.first + 1 + sum((n - 1) * by for _, n, by in self.digits))

    def flat(self) -> Region:
        """Return its elements unarranged, so that regions of equal elements are equal."""
        digits = self.digits
        return self if self.dims == (digits,) else self._replace(dims=(digits,))


Regions = tuple[Region, ...]


@dataclass(frozen=True)
class LayerWeights:
    """The elements of the file that a layer learns.

    Parameters
    ----------
    name
        The initializer that the layer is named after.
    matrix
        Its matrix or table, arranged as rows and columns, outputs last.
    vectors
        A bias; a norm's scale and shift.
    shared
        Vectors that are counted with an earlier layer.
    added
        Parameters that the network counts but the file does not have.
    rows
        The digits of the matrix' rows among the axes of the map that it is multiplied with.
    stated
        All vectors in their order, wherever they are counted.
    """

    name: str = ""
    matrix: Regions = ()
    vectors: Regions = ()
    shared: Regions = ()
    added: int = 0
    rows: Dim = ()
    stated: Regions = ()

    @property
    def regions(self) -> Regions:
        return (*self.matrix, *self.vectors, *self.shared)

    @property
    def elements(self) -> int:
        """The number of its layer's parameters, with those that the network adds."""
        return distinct((*self.matrix, *self.vectors)) + self.added

    def part(self, outputs: Region) -> LayerWeights:
        """Return the weights of some of the outputs, ascending."""
        matrix, vectors = (_part(regions, outputs) for regions in (self.matrix, self.vectors))
        return replace(self, name=f"{self.name}.{outputs.first}", matrix=matrix, vectors=vectors)


def whole(name: str, shape: Shape) -> Region:
    """Return all elements of an initializer."""
    strides = [*accumulate(reversed(shape[1:]), initial=1, func=lambda a, b: a * b)][::-1]
    dims = (
        whole_dim(_ELEMENTS, size, stride) for size, stride in zip(shape, strides, strict=False)
    )
    return Region(name, tuple(dims))


def distinct(regions: Iterable[Region]) -> int:
    """Return the number of elements in the union of regions.

    Raises
    ------
    InputError
        Where an initializer has too many runs of elements.
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
    if sum(count for _, count in runs) > MAX_RUNS:
        raise InputError("is cut into too many parts", where=f"initializer {name!r}")
    starts = np.concatenate([_starts(region) for region in regions])
    lengths = np.repeat([length for length, _ in runs], [count for _, count in runs])
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], (starts + lengths)[order]
    reached = np.maximum.accumulate(ends)
    # Each run counts what lies beyond all runs before it.
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


def _part(regions: Regions, outputs: Region) -> Regions:
    """Return some of the last dimension, or everything if that cannot be separated."""
    if len(regions) != 1:
        return regions
    (digits,), first = outputs.flat().dims, outputs.first
    if len(digits) < 2:
        try:
            return (indexed(regions[0], -1, first, outputs.elements),)
        except UnalignedError:
            return regions
    *rest, last = regions[0].dims
    if len(last) != 1 or last[0].axis != _ELEMENTS:
        return regions
    step = last[0].stride
    some = tuple(digit._replace(stride=digit.stride * step) for digit in digits)
    return (Region(regions[0].name, (*rest, some), regions[0].first + first * step),)


def indexed(region: Region, axis: int, start: int, size: int, step: int = 1) -> Region:
    """Return some indices of a dimension.

    Raises
    ------
    UnalignedError
        Where they cut a digit elsewhere than at a divisor of its size, or go backwards.
    """
    axis %= len(region.dims)
    dim, first = _range(region.dims[axis], start, size, step)
    dims = (*region.dims[:axis], dim, *region.dims[axis + 1 :])
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
        return (*whole_dim(axis, count, stride * step), *rest), top * step_of
    if top != (start + (size - 1) * step) // inner:
        raise UnalignedError
    dims, first = _range(tuple(rest), under, size, step)
    return dims, first + top * step_of
