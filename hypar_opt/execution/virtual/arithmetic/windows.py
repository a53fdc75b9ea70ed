"""Windows that slide over feature maps: unfolding for convolutions, and pools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array
    from hypar_opt.workload.operators.windows import PoolWindow

_Pair = tuple[int, int]


class Windows(NamedTuple):
    """Windows of a kernel or pool over maps of one size.

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
        """The padding before and after, as far as windows reach; negative if they end earlier."""
        borders = []
        for axis in (0, 1):
            reach = (self.size[axis] - 1) * self.dilation[axis] + 1
            covered = (self.counts[axis] - 1) * self.stride[axis] + reach
            before = self.padding[axis]
            borders.append((before, covered - before - self.extent[axis]))
        return borders[0], borders[1]

    def of(self, image: Array, fill: float = 0.0) -> Array:
        """Return all windows as a view: ``(images, channels, p, q, rows, columns)``."""
        (top, bottom), (left, right) = self._borders
        held = image[:, :, : image.shape[2] + min(bottom, 0), : image.shape[3] + min(right, 0)]
        borders = ((0, 0), (0, 0), (top, max(bottom, 0)), (left, max(right, 0)))
        padded = np.pad(held, borders, constant_values=fill)
        reach = [(s - 1) * d + 1 for s, d in zip(self.size, self.dilation, strict=True)]
        windows = sliding_window_view(padded, tuple(reach), (2, 3))
        (down, right), (rows, columns) = self.stride, self.dilation
        view: Array = windows[:, :, ::down, ::right, ::rows, ::columns]
        return view

    def cells(self) -> Iterator[_Pair]:
        """Yield the cells of a window, row by row."""
        return product(range(self.size[0]), range(self.size[1]))

    def added(self, shape: _Pair, cell: Callable[[int, int], Array]) -> Array:
        """Return the map's error, given its windows' errors: overlaps are added up.

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
        held = padded[:, :, top : top + height, left : left + width]
        behind = ((0, 0), (0, 0), (0, height - held.shape[2]), (0, width - held.shape[3]))
        return np.pad(held, behind) if any(map(any, behind)) else held


def padding_of(padding: tuple[int, ...], begins: tuple[bool, ...]) -> tuple[int, ...]:
    """Return the padding before a part of an image: none where another part lies there."""
    return tuple(own * first for own, first in zip(padding, begins, strict=False))


class Pooling:
    """A pool of feature maps, forward and backward; cells outside the map do not count.

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
        self._windows = Windows(extent, count, pool.size, pool.stride, padding)
        self._largest = pool.kind == "max"
        self._kept: Array = np.empty(0)

    def forward(self, image: Array) -> Array:
        # Cell by cell: all windows at once would take as many times the memory of the map.
        windows = self._windows.of(image, -np.inf if self._largest else 0.0)
        if self._largest:
            maxima = np.full(windows.shape[:4], -np.inf)
            self._kept = np.zeros(maxima.shape, np.int32)
            for number, (k, m) in enumerate(self._windows.cells()):
                larger = windows[..., k, m] > maxima
                np.copyto(maxima, windows[..., k, m], where=larger)
                np.copyto(self._kept, number, where=larger)
            return maxima
        ones = np.ones((1, 1, *self._windows.extent))
        self._kept = self._windows.of(ones).sum(axis=(-2, -1))
        mean: Array = windows.sum(axis=(-2, -1)) / self._kept
        return mean

    def backward(self, error: Array) -> Array:
        columns = self._windows.size[1]
        if self._largest:
            return self._windows.added(
                error.shape[:2], lambda k, m: np.where(self._kept == k * columns + m, error, 0.0)
            )
        share = error / self._kept
        return self._windows.added(error.shape[:2], lambda k, m: share)
