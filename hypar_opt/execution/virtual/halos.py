"""Halo exchange of images on virtual devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.execution.virtual.fabric import Purpose
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.layouts import ROW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.execution.virtual.fabric import Blocks, Fabric, Source
    from hypar_opt.execution.virtual.shards import Array
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.sharding.program import Halo


class Piece(NamedTuple):
    """A device's range of rows, or columns, among equal parts.

    Parameters
    ----------
    number, parts
        Of the device's part, from 0.
    before, behind
        The rows that it reads of the parts before and after its own.
    """

    number: int = 0
    parts: int = 1
    before: int = 0
    behind: int = 0

    @property
    def edges(self) -> tuple[int, int]:
        """The rows of its halo outside the image: before the first part, and after the last."""
        first, last = self.number == 0, self.number == self.parts - 1
        return self.before * first, self.behind * last

    def within(self, size: int) -> slice:
        """Return the rows of an image that a part reads."""
        extent = size // self.parts
        begin, end = self.number * extent, (self.number + 1) * extent
        return slice(max(0, begin - self.before), min(size, end + self.behind))


def piece(halo: Halo, hierarchy: Hierarchy, device: int) -> Piece:
    """Return a device's range of rows, or columns, of a halo's axis."""
    group = hierarchy.group(device, halo.levels)
    return Piece(group.index(device), len(group), halo.before, halo.behind)


def with_halos(fabric: Fabric, blocks: Blocks, halos: Sequence[Halo], whose: Source) -> Blocks:
    """Return each device's part of an image with its halos."""
    for halo in halos:
        blocks = _extended(fabric, blocks, halo, whose)
    return [_cut(fabric, block, halos, device) for device, block in enumerate(blocks)]


def without_halos(fabric: Fabric, errors: Blocks, halos: Sequence[Halo], whose: Source) -> Blocks:
    """Return the errors of each device's own part, others' halo errors added."""
    errors = [_padded(fabric, error, halos, device) for device, error in enumerate(errors)]
    for halo in reversed(halos):
        errors = _returned(fabric, errors, halo, whose)
    return errors


def _axis(halo: Halo) -> int:
    return 2 if halo.layout == ROW else 3


def _along(array: Array, axis: int, begin: int, end: int) -> Array:
    return array[(slice(None),) * axis + (slice(begin, end),)]


def _neighbours(fabric: Fabric, halo: Halo, device: int) -> tuple[int | None, int | None]:
    """Return the devices of the parts before and behind a device's."""
    group = fabric.hierarchy.group(device, halo.levels)
    index = group.index(device)
    return (
        group[index - 1] if index else None,
        group[index + 1] if index + 1 < len(group) else None,
    )


def _extended(fabric: Fabric, blocks: Blocks, halo: Halo, whose: Source) -> Blocks:
    axis = _axis(halo)
    extent = blocks[0].shape[axis]

    def message(source: int, receiver: int) -> Array:
        before, behind = _neighbours(fabric, halo, receiver)
        if source == before:
            return _along(blocks[source], axis, extent - halo.before, extent)
        return _along(blocks[source], axis, 0, halo.behind if source == behind else 0)

    purpose = Purpose(whose, StepKind.HALO, halo.levels[0])
    arrived = fabric.exchange(message, purpose, *halo.levels[1:])
    extended = []
    for device, block in enumerate(blocks):
        sides = zip(_neighbours(fabric, halo, device), (halo.before, halo.behind), strict=True)
        before, behind = (
            _along(np.zeros_like(block), axis, 0, count) if peer is None else arrived[device][peer]
            for peer, count in sides
        )
        extended.append(np.concatenate([before, block, behind], axis))
    return extended


def _returned(fabric: Fabric, errors: Blocks, halo: Halo, whose: Source) -> Blocks:
    axis = _axis(halo)
    end = errors[0].shape[axis] - halo.behind

    def message(source: int, receiver: int) -> Array:
        before, behind = _neighbours(fabric, halo, source)
        if receiver == before:
            return _along(errors[source], axis, 0, halo.before)
        return _along(errors[source], axis, end, end + (halo.behind if receiver == behind else 0))

    purpose = Purpose(whose, StepKind.HALO, halo.levels[0])
    arrived = fabric.exchange(message, purpose, *halo.levels[1:])
    returned = []
    for device, error in enumerate(errors):
        inner = _along(error, axis, halo.before, end).copy()
        before, behind = _neighbours(fabric, halo, device)
        # The previous part has read these first rows as its halo.
        if before is not None and halo.behind:
            _along(inner, axis, 0, halo.behind)[...] += arrived[device][before]
        if behind is not None and halo.before:
            size = inner.shape[axis]
            _along(inner, axis, size - halo.before, size)[...] += arrived[device][behind]
        returned.append(inner)
    return returned


def _cut(fabric: Fabric, block: Array, halos: Sequence[Halo], device: int) -> Array:
    """Return a block without rows outside the image."""
    for halo in halos:
        before, behind = piece(halo, fabric.hierarchy, device).edges
        block = _along(block, _axis(halo), before, block.shape[_axis(halo)] - behind)
    return block


def _padded(fabric: Fabric, error: Array, halos: Sequence[Halo], device: int) -> Array:
    borders = [(0, 0)] * error.ndim
    for halo in halos:
        borders[_axis(halo)] = piece(halo, fabric.hierarchy, device).edges
    return np.pad(error, borders)
