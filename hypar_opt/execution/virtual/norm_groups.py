"""The groups of images that batch norms normalise together: a device's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.execution.virtual.shards import by_place_of, indices_of_axes, split_of
from hypar_opt.sharding.layouts import BATCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.execution.virtual.arithmetic.base import Group
    from hypar_opt.execution.virtual.division import Division
    from hypar_opt.execution.virtual.shards import DividedAxis, Indices, Split


def norm_groups(division: Division) -> dict[int, list[Group]]:
    """Return the groups of images, or parts of images, of devices at each layer.

    A group is normalised together. Groups cover all micro-batches in order.
    """
    count = division.program.workload.repeats.micro_batches
    begins = range(0, count * division.images.size, division.images.size)
    groups = {}
    for position in range(len(division.network.layers)):
        read = division.program.read[position + division.shared]
        split, by_place = split_of(read, BATCH), by_place_of(read)
        devices = range(division.hierarchy.accelerators)
        used = (device for device in devices if not division.is_idle(position, device))
        levels = [
            level for axis_levels, _ in (split, *by_place) for level in axis_levels if level >= 0
        ]
        representatives = {division.hierarchy.within(device, levels): device for device in used}
        places: tuple[DividedAxis, ...] = ()
        if any(axis_levels for axis_levels, _ in by_place):
            places = division.places(division.maps[position].input)
        groups[position] = [
            _group(begin + division.images.indices(split, device), places, by_place, device)
            for begin in begins
            for device in representatives.values()
        ]
    return groups


def _group(
    images: Indices,
    places: Sequence[DividedAxis],
    by_place: Sequence[Split],
    device: int,
) -> Group:
    if not places:
        return (images,)
    extents = indices_of_axes(places, by_place, device)
    return (images, slice(None), *(slice(extent[0], extent[-1] + 1) for extent in extents))
