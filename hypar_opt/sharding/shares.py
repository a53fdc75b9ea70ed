"""Unequal parts of H1 between groups: how much each has, and what it exchanges."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hypar_opt.hierarchy import parts_by_share
from hypar_opt.sharding.conversions import StepKind, moved_but
from hypar_opt.workload.parallelism import SIDES

if TYPE_CHECKING:
    from hypar_opt.sharding.conversions import Step
    from hypar_opt.workload.layer_tensors import Extent

Shares = tuple[int, ...]
"""The share of each part of H1, of their sum."""


def side_of(layout: str) -> int | None:
    """Return the part that has all of a tensor in a layout; None if all have some."""
    return SIDES.index(layout) if layout in SIDES else None


def moved(step: Step, tensor: Extent, shares: Shares) -> int:
    """Return the elements that a step at one level moves, where H1's parts have unequal shares.

    An all-to-all between them keeps in place what a part has in both layouts; all else is moved as
    between equal parts.
    """
    if step.levels != (0,) or step.kind is not StepKind.ALL_TO_ALL:
        return step.moved(tensor)
    _, *sizes = tensor

    def held(layout: str, side: int) -> list[int]:
        """Return the indices of each axis that a part has in a layout."""
        whole = side_of(layout)
        if whole is not None:
            return sizes if side == whole else [0] * len(sizes)
        own = parts_by_share(tensor.along(layout), shares)[side]
        return [own if tensor.axis(layout) == axis else n for axis, n in enumerate(sizes, 1)]

    kept = 0
    for side in range(len(shares)):
        both = zip(held(step.sources[0], side), held(step.targets[0], side), strict=True)
        kept += prod(map(min, both))
    return step.copies * moved_but(tensor, prod(sizes), kept)
