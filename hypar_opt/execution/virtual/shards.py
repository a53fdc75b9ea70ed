"""The images and channels of a tensor that each device holds, and arrays cut by them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.sharding.layouts import BATCH, CHANNEL, SHUFFLED

if TYPE_CHECKING:
    from hypar_opt.sharding.conversions import Layouts

Array = NDArray[Any]
Indices = NDArray[np.intp]
Where = slice | Indices
"""Positions along one axis: a slice if they are contiguous, which needs no copy."""
Masks = tuple[int, int]
"""The levels, as bits, that split an axis by its labels, and by a shuffle's labels."""


class DividedAxis:
    """An axis; a device holds the indices whose labels match the bits of its number.

    Parameters
    ----------
    labels : (size,)
    shuffled : (size,), optional
        The labels with which a shuffle reads the axis.
    """

    def __init__(self, labels: Indices, shuffled: Indices | None = None) -> None:
        self.size = len(labels)
        self._labels = labels
        self._shuffled = labels if shuffled is None else shuffled
        self._member: dict[tuple[Masks, int], NDArray[np.bool_]] = {}
        self._count: dict[tuple[Masks, int], int] = {}
        self._common: dict[tuple[Masks, int, Masks, int], tuple[Where, Where]] = {}

    def member(self, masks: Masks, device: int) -> NDArray[np.bool_]:
        """Return which indices a device holds if these levels split the axis: ``(size,)`` bool."""
        plain, shuffled = masks
        device &= plain | shuffled
        key = masks, device
        if key not in self._member:
            held = (self._labels & plain) == (device & plain)
            if shuffled:
                held &= (self._shuffled & shuffled) == (device & shuffled)
            self._member[key] = held
        return self._member[key]

    def held(self, masks: Masks, device: int) -> Indices:
        """Return the indices that a device holds, ascending."""
        return self.member(masks, device).nonzero()[0]

    def count(self, masks: Masks, device: int) -> int:
        """Return how many indices a device holds."""
        key = masks, device & (masks[0] | masks[1])
        if key not in self._count:
            self._count[key] = int(self.member(masks, device).sum())
        return self._count[key]

    def common(self, masks: Masks, device: int, others: Masks, other: int) -> tuple[Where, Where]:
        """Return the positions, in either device's part, of the indices that both hold."""
        key = masks, device & (masks[0] | masks[1]), others, other & (others[0] | others[1])
        if key not in self._common:
            mine, theirs = self.member(masks, device), self.member(others, other)
            self._common[key] = _where(theirs[mine]), _where(mine[theirs])
        return self._common[key]


def _where(chosen: NDArray[np.bool_]) -> Where:
    positions = chosen.nonzero()[0]
    if not len(positions):
        return slice(0, 0)
    first, last = int(positions[0]), int(positions[-1])
    return slice(first, last + 1) if last - first + 1 == len(positions) else positions


class DividedTensor:
    """The two axes of a tensor that levels may split.

    Parameters
    ----------
    channel_axis
        1 for feature maps ``(images, channels, height, width)``, 2 for ``(images, tokens,
        features)``.
    """

    def __init__(
        self, levels: int, images: DividedAxis, channels: DividedAxis, channel_axis: int
    ) -> None:
        self.levels, self.channel_axis = levels, channel_axis
        self.images, self.channels = images, channels

    def masks(self, layouts: Layouts) -> tuple[Masks, Masks]:
        """Return the masks of images and of channels."""
        return _masks(layouts)

    def part_of(self, whole: Array, layouts: Layouts, device: int) -> Array:
        """Return a copy of a device's part of a whole array."""
        images, channels = self.masks(layouts)
        rows = _where(self.images.member(images, device))
        columns = _where(self.channels.member(channels, device))
        return cut(whole, rows, self.channel_axis, columns).copy()

    def common(
        self, layouts: Layouts, device: int, others: Layouts, other: int
    ) -> tuple[tuple[Where, Where], tuple[Where, Where]]:
        """Return the rows and columns that two devices both hold, in either device's part."""
        images, channels = self.masks(layouts)
        other_images, other_channels = self.masks(others)
        rows = self.images.common(images, device, other_images, other)
        columns = self.channels.common(channels, device, other_channels, other)
        return (rows[0], columns[0]), (rows[1], columns[1])

    def shape(self, like: Array, layouts: Layouts, device: int) -> tuple[int, ...]:
        """Return the shape of a device's part; the other extents are those of ``like``."""
        images, channels = self.masks(layouts)
        shape = list(like.shape)
        shape[0] = self.images.count(images, device)
        shape[self.channel_axis] = self.channels.count(channels, device)
        return tuple(shape)


@lru_cache(maxsize=4096)
def _masks(layouts: Layouts) -> tuple[Masks, Masks]:
    bits = {BATCH: 0, CHANNEL: 0, SHUFFLED: 0}
    for bit, layout in enumerate(reversed(layouts)):
        if layout in bits:
            bits[layout] |= 1 << bit
    return (bits[BATCH], 0), (bits[CHANNEL], bits[SHUFFLED])


def cut(array: Array, rows: Where, axis: int, columns: Where) -> Array:
    """Return rows of the first axis and columns of another, as a view where both are slices."""
    return array[rows][(slice(None),) * axis + (columns,)]


def place(array: Array, rows: Where, axis: int, columns: Where, values: Array) -> None:
    """Write values at rows of the first axis and columns of another."""
    target, values = array.swapaxes(axis, 1), values.swapaxes(axis, 1)
    if isinstance(rows, slice) or isinstance(columns, slice):
        target[rows, columns] = values
    else:
        target[np.ix_(rows, columns)] = values
