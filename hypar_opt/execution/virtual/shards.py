"""The images, tokens and channels of a tensor that each device holds, and arrays cut by them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.sharding.layouts import BATCH, CHANNEL, COLUMN, ROW, SHUFFLED, side_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.sharding.layouts import Layout

Array = NDArray[Any]
Indices = NDArray[np.intp]
Where = slice | Indices
"""Positions along one axis; a slice if contiguous, which avoids a copy."""
Split = tuple[tuple[int, ...], tuple[int, ...]]
"""The levels that split an axis by its labels, and by a shuffle's labels.

For images the first may be -1 - n in place of H1: all images are in its part n."""


SLOT = "slot"
"""Stands for the slots of an expert among layouts; no level splits them."""


class DividedAxis:
    """An axis, of which a device holds the indices whose labels match the digits of its number.

    Parameters
    ----------
    labels : (size,)
    shuffled : (size,), optional
        The labels with which a shuffle reads the axis.
    """

    def __init__(
        self, hierarchy: Hierarchy, labels: Indices, shuffled: Indices | None = None
    ) -> None:
        self.size, self._hierarchy = len(labels), hierarchy
        self.labels = labels
        self._shuffled = labels if shuffled is None else shuffled
        self._member: dict[tuple[Split, int], NDArray[np.bool_]] = {}
        self._common: dict[tuple[Split, int, Split, int], tuple[Where, Where]] = {}

    def member(self, split: Split, device: int) -> NDArray[np.bool_]:
        """Return which indices a device holds if these levels split the axis: ``(size,)`` bool."""
        key = self._key(split, device)
        if key not in self._member:
            within = self._hierarchy.within
            # Empty if everything is in the other group.
            mask = np.full(self.size, not _is_elsewhere(split, self._hierarchy, device))
            split = split[0][1:] if _split_below_h1(split) else split[0], split[1]
            for levels, labels in zip(split, (self.labels, self._shuffled), strict=True):
                if levels:
                    mask &= within(labels, levels) == within(device, levels)
            self._member[key] = mask
        return self._member[key]

    def indices(self, split: Split, device: int) -> Indices:
        """Return the indices that a device holds, ascending."""
        return self.member(split, device).nonzero()[0]

    def common(
        self, split: Split, device: int, peer_split: Split, peer: int
    ) -> tuple[Where, Where]:
        """Return the positions, in either device's part, of the indices that both hold."""
        key = *self._key(split, device), *self._key(peer_split, peer)
        if key not in self._common:
            mine, theirs = self.member(split, device), self.member(peer_split, peer)
            self._common[key] = _where(theirs[mine]), _where(mine[theirs])
        return self._common[key]

    def _key(self, split: Split, device: int) -> tuple[Split, int]:
        """Return the key of a device's part: its digits at the levels that split the axis."""
        plain, shuffled = split
        # If everything is in one group, H1's digit decides.
        return split, self._hierarchy.within(device, {max(0, n) for n in (*plain, *shuffled)})


def _split_below_h1(split: Split) -> bool:
    return bool(split[0]) and split[0][0] < 0


def _is_elsewhere(split: Split, hierarchy: Hierarchy, device: int) -> bool:
    """Return whether everything is in another group than the device's."""
    if not _split_below_h1(split):
        return False
    return hierarchy.digit(device, 0) != -1 - split[0][0]


def _where(chosen: NDArray[np.bool_]) -> Where:
    positions = chosen.nonzero()[0]
    if not len(positions):
        return slice(0, 0)
    first, last = int(positions[0]), int(positions[-1])
    return slice(first, last + 1) if last - first + 1 == len(positions) else positions


class DividedTensor:
    """The axes of a tensor that levels may split, by their layouts in the tensor's order.

    The axes are ``(images, channels, height, width)`` for feature maps, ``(images, tokens,
    features)`` for tokens, and ``(images, experts, groups, slots, features)`` for dispatched
    tokens.
    """

    def __init__(self, axes: Mapping[Layout, DividedAxis]) -> None:
        self.channels = axes[CHANNEL]
        self._names, self._axes = tuple(axes), tuple(axes.values())

    def _splits(self, layouts: Layouts) -> tuple[Split, ...]:
        return tuple(split_of(layouts, name) for name in self._names)

    def part_of(self, whole: Array, layouts: Layouts, device: int) -> Array:
        """Return a copy of a device's part of a whole array."""
        splits = zip(self._axes, self._splits(layouts), strict=True)
        return cut(whole, tuple(_where(axis.member(by, device)) for axis, by in splits)).copy()

    def common(
        self, layouts: Layouts, device: int, peer_layouts: Layouts, peer: int
    ) -> tuple[tuple[Where, ...], tuple[Where, ...]]:
        """Return the positions that two devices both hold, along each axis in either's part."""
        triples = zip(self._axes, self._splits(layouts), self._splits(peer_layouts), strict=True)
        both = [axis.common(by, device, its, peer) for axis, by, its in triples]
        return tuple(first for first, _ in both), tuple(second for _, second in both)

    @property
    def sizes(self) -> dict[Layout, int]:
        """The size of each axis, by the layout that splits it."""
        return {name: axis.size for name, axis in zip(self._names, self._axes, strict=True)}

    def indices(self, layouts: Layouts, device: int) -> list[Indices]:
        """Return the indices that a device has along each axis."""
        return indices_of_axes(self._axes, self._splits(layouts), device)

    def shape(self, like: Array, layouts: Layouts, device: int) -> tuple[int, ...]:
        """Return the shape of a device's part; the other extents are those of ``like``."""
        extents = tuple(map(len, self.indices(layouts, device)))
        return (*extents, *like.shape[len(extents) :])


@lru_cache(maxsize=4096)
def split_of(layouts: Layouts, axis: Layout) -> Split:
    """Return the levels that split an axis of a tensor in some layouts."""
    plain, shuffled = (
        tuple(level for level, layout in enumerate(layouts) if layout == kind)
        for kind in (axis, SHUFFLED)
    )
    side = side_of(layouts[0]) if layouts else None
    if side is not None and axis == BATCH:
        plain = (-1 - side, *plain)
    return plain, shuffled if axis == CHANNEL else ()


def indices_of_axes(
    axes: Sequence[DividedAxis], splits: Sequence[Split], device: int
) -> list[Indices]:
    """Return the indices that a device has of each of some axes."""
    return [axis.indices(split, device) for axis, split in zip(axes, splits, strict=True)]


def by_place_of(layouts: Layouts) -> tuple[Split, Split]:
    """Return the levels that split rows, and those that split columns."""
    return split_of(layouts, ROW), split_of(layouts, COLUMN)


def cut(array: Array, where: tuple[Where, ...]) -> Array:
    """Return positions of the first axes, as a view where all are slices."""
    for axis, index in enumerate(where):
        array = array[(slice(None),) * axis + (index,)]
    return array


def place(array: Array, where: tuple[Where, ...], values: Array) -> None:
    """Write values at positions of the first axes."""
    if sum(not isinstance(index, slice) for index in where) > 1:
        numbers = [np.arange(size)[index] for size, index in zip(array.shape, where, strict=False)]
        array[np.ix_(*numbers)] = values
    else:
        array[where] = values
