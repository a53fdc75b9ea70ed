"""Unequal parts of a level between two groups: how much each has, and what it exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.sharding.conversions import StepKind, moved_but
from hypar_opt.sharding.layouts import BATCH
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
    """Return the elements that a step moves, where H1's two parts have unequal shares.

    An all-to-all between them keeps in place what a group has in both layouts; all else is moved
    as between equal parts.
    """
    if step.level or step.kind is not StepKind.ALL_TO_ALL:
        return step.moved(tensor)
    _, *sizes = tensor

    def parts(layout: str, side: int) -> tuple[int, int]:
        """Return the images and channels that a group has in a layout."""
        whole = side_of(layout)
        if whole is not None:
            return (sizes[0], sizes[1]) if side == whole else (0, 0)
        axis = 0 if layout == BATCH else 1
        own = [*sizes]
        first = first_part(sizes[axis], share)
        own[axis] = sizes[axis] - first if side else first
        return own[0], own[1]

    kept = 0
    for side in range(2):
        (images, channels), (others, own) = (parts(x, side) for x in (step.source, step.target))
        kept += min(images, others) * min(channels, own)
    return step.copies * moved_but(tensor, kept)
