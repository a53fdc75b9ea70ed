"""Windows that slide over feature maps: unfolding for convolutions, and pools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.execution.virtual.shards import Array
    from hypar_opt.workload.operators.windows import PoolWindow

_Pair = tuple[int, int]


class Windows(NamedTuple):
    """Windows of a kernel over maps of one size.

    Parameters
    ----------
    extent
        Height and width of the map.
    counts
        Windows down and across: the extents of the output.
    """

    extent: _Pair
    counts: _Pair
    size: _Pair
    stride: _Pair
    padding: tuple[int, ...]
    dilation: _Pair = (1, 1)

    @property
    def _borders(self) -> tuple[_Pair, _Pair]:
        """The padding before and after that windows cover; negative if they end earlier."""
        borders = []
        for axis in (0, 1):
            reach = (self.size[axis] - 1) * self.dilation[axis] + 1
            covered = (self.counts[axis] - 1) * self.stride[axis] + reach
            before = self.padding[axis]
            borders.append((before, covered - before - self.extent[axis]))
        return borders[0], borders[1]

    def of(self, image: Array) -> Array:
        """Return all windows as a view: ``(images, channels, p, q, rows, columns)``."""
        (top, bottom), (left, right) = self._borders
        cropped = image[:, :, : image.shape[2] + min(bottom, 0), : image.shape[3] + min(right, 0)]
        borders = ((0, 0), (0, 0), (top, max(bottom, 0)), (left, max(right, 0)))
        padded = np.pad(cropped, borders)
        reach = [(s - 1) * d + 1 for s, d in zip(self.size, self.dilation, strict=True)]
        windows = sliding_window_view(padded, tuple(reach), (2, 3))
        (down, right), (rows, columns) = self.stride, self.dilation
        view: Array = windows[:, :, ::down, ::right, ::rows, ::columns]
        return view

    def cells(self) -> Iterator[_Pair]:
        """Yield the cells of a window, row by row."""
        return product(range(self.size[0]), range(self.size[1]))

    def added(self, shape: _Pair, cell: Callable[[int, int], Array]) -> Array:
        """Return the map's error from its windows' errors; overlaps are summed.

        Parameters
        ----------
        shape
            The map's images and channels.
        cell
            Returns the errors of one cell of all windows.
        """
        (top, bottom), (left, right) = self._borders
        height, width = self.extent
        padded = np.zeros((*shape, top + height + bottom, left + width + right))
        (p, q), (down, across) = self.counts, self.stride
        for k, m in self.cells():
            y, x = k * self.dilation[0], m * self.dilation[1]
            ends = y + (p - 1) * down + 1, x + (q - 1) * across + 1
            padded[:, :, y : ends[0] : down, x : ends[1] : across] += cell(k, m)
        inner = padded[:, :, top : top + height, left : left + width]
        behind = ((0, 0), (0, 0), (0, height - inner.shape[2]), (0, width - inner.shape[3]))
        return np.pad(inner, behind) if any(map(any, behind)) else inner


def padding_of(padding: tuple[int, ...], begins: tuple[bool, ...]) -> tuple[int, ...]:
    """Return the padding before a part of an image: none where another part lies there."""
    return tuple(pad * first for pad, first in zip(padding, begins, strict=False))


class _Place(NamedTuple):
    """An offset within windows along an axis: the windows where it is on the map, and its cells."""

    windows: slice
    cells: slice


def _places(extent: int, count: int, size: int, stride: int, padding: int) -> list[_Place]:
    """Return the offsets within windows along an axis that lie on the map in any window."""
    places = []
    last = (count - 1) * stride - padding
    for place in range(max(0, -last), min(size, extent + padding)):
        first = max(0, -((place - padding) // stride))
        end = min(count, (extent - 1 + padding - place) // stride + 1)
        if first < end:
            cell = first * stride + place - padding
            cells = slice(cell, cell + (end - first - 1) * stride + 1, stride)
            places.append(_Place(slice(first, end), cells))
    return places


class Pooling:
    """A pool of feature maps, forward and backward; cells outside the map do not count.

    Along columns and along rows one after the other: a window of k x k cells takes 2 k steps.

    Parameters
    ----------
    padding
        That of the pool by default; a part of an image may have none.
    """

    def __init__(
        self,
        pool: PoolWindow,
        extent: _Pair,
        count: _Pair,
        padding: tuple[int, ...] | None = None,
    ) -> None:
        padding = pool.padding if padding is None else padding
        axes = zip(extent, count, pool.size, pool.stride, padding[:2], strict=True)
        self._extent, self._count = extent, count
        self._rows, self._columns = (_places(*axis) for axis in axes)
        self._largest = pool.kind == "max"
        self._kept: Array = np.empty(0)

    def forward(self, image: Array) -> Array:
        return self._maxima(image) if self._largest else self._means(image)

    def _maxima(self, image: Array) -> Array:
        """Return the maxima, and keep their cells; ties go to the first in row order."""
        (height, width), (p, q) = self._extent, self._count
        index: type[np.signedinteger[Any]] = np.int32 if height * width < 2**31 else np.int64
        wide = np.full((*image.shape[:2], height, q), -np.inf)
        column: NDArray[Any] = np.zeros(wide.shape, index)
        numbers = np.arange(width, dtype=index)
        for windows, cells in self._columns:
            larger = image[..., cells] > wide[..., windows]
            np.copyto(wide[..., windows], image[..., cells], where=larger)
            np.copyto(column[..., windows], numbers[cells], where=larger)
        maxima = np.full((*image.shape[:2], p, q), -np.inf)
        self._kept = np.zeros(maxima.shape, index)
        column += width * np.arange(height, dtype=index)[:, None]
        for windows, cells in self._rows:
            larger = wide[:, :, cells] > maxima[:, :, windows]
            np.copyto(maxima[:, :, windows], wide[:, :, cells], where=larger)
            np.copyto(self._kept[:, :, windows], column[:, :, cells], where=larger)
        return maxima

    def _means(self, image: Array) -> Array:
        (height, _), (p, q) = self._extent, self._count
        wide = np.zeros((*image.shape[:2], height, q))
        sums = np.zeros((*image.shape[:2], p, q))
        down, across = np.zeros((p, 1)), np.zeros(q)
        for windows, cells in self._columns:
            wide[..., windows] += image[..., cells]
            across[windows] += 1
        for windows, cells in self._rows:
            sums[:, :, windows] += wide[:, :, cells]
            down[windows] += 1
        self._kept = down * across
        sums /= self._kept
        return sums

    def backward(self, error: Array) -> Array:
        (height, width), q = self._extent, self._count[1]
        shape = (*error.shape[:2], height, width)
        if self._largest:
            maps = error.shape[0] * error.shape[1]
            first = height * width * np.arange(maps).reshape(*error.shape[:2], 1, 1)
            cells = self._kept + first  # of no maps, too
            spread = np.bincount(cells.ravel(), error.ravel(), maps * height * width)
            return spread.reshape(shape)
        share = error / self._kept
        wide, spread = np.zeros((*error.shape[:2], height, q)), np.zeros(shape)
        for windows, cells in self._rows:
            wide[:, :, cells] += share[:, :, windows]
        for windows, cells in self._columns:
            spread[..., cells] += wide[..., windows]
        return spread
