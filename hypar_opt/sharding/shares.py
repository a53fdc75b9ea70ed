"""Unequal parts of a level between two groups: how much each has, and what it exchanges."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hypar_opt.sharding.conversions import StepKind, moved_but
from hypar_opt.workload.parallelism import SIDES

if TYPE_CHECKING:
    from hypar_opt.sharding.conversions import Step
    from hypar_opt.workload.layer_tensors import Extent


def first_part(size: int, share: float) -> int:
    """Return how many of an axis's indices are the first group's."""
    return round(size * share)


def side_of(layout: str) -> int | None:
    """Return the group that has all of a tensor in a layout; None if both have a part."""
    return SIDES.index(layout) if layout in SIDES else None


def moved(step: Step, tensor: Extent, share: float) -> int:
    """Return the elements that a step at one level moves, where H1's two parts are unequal.

    An all-to-all between them keeps in place what a group has in both layouts; all else is moved
    as between equal parts.
    """
    if step.levels != (0,) or step.kind is not StepKind.ALL_TO_ALL:
        return sum(step.moved(tensor))
    _, *sizes = tensor

    def parts(layout: str, side: int) -> list[int]:
        """Return the indices of each axis that a group has in a layout."""
        whole = side_of(layout)
        if whole is not None:
            return sizes if side == whole else [0] * len(sizes)
        size = tensor.along(layout)
        first = first_part(size, share)
        own = size - first if side else first
        return [own if tensor.axis(layout) == axis else n for axis, n in enumerate(sizes, 1)]

    kept = 0
    for side in range(2):
        both = zip(parts(step.sources[0], side), parts(step.targets[0], side), strict=True)
        kept += prod(map(min, both))
    return step.copies * moved_but(tensor, prod(sizes), kept)
