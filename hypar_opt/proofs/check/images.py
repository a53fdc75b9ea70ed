"""Rows and columns of images in parts, derived a second time: which layers have them, what moves.

Parts are equal and in the order of the image, so that what a part lacks lies in the parts before
and behind it; the borders between parts are counted one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.workload.operators.maps import FeatureMap

if TYPE_CHECKING:
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.workload.operators.axes import Axes
    from hypar_opt.workload.operators.base import LayerMaps, Operator
    from hypar_opt.workload.operators.maps import Map

PARTS = {"p": "row", "q": "column"}
"""What a layer splits by each of its axes of images."""

State = tuple[int, ...]


class Strip(NamedTuple):
    """How a layer's rows, or columns, may be split.

    Parameters
    ----------
    size
        The rows that it writes: parts have equally many.
    most
        The most parts: none needs rows but of the part before it and of that behind.
    halo
        The rows that a part reads of both.
    """

    size: int
    most: int
    halo: int


class ReadImage(NamedTuple):
    """What a layer reads of images that another layer wrote.

    Parameters
    ----------
    planes
        Its images, times its channels.
    extent
        Its rows and columns.
    halos
        The rows, and columns, that a part reads of others.
    """

    planes: int
    extent: tuple[int, int]
    halos: tuple[int, int]


def strip_of(
    described: Operator, maps: LayerMaps, axis: str, operands: Sequence[tuple[Axes, Sequence[Map]]]
) -> Strip | None:
    """Return how a layer's rows or columns may be split; None if not."""
    place = 1 + [*PARTS].index(axis)
    read = [over for axes, maps_ in operands if axis in axes for over in maps_]
    written = [maps.output, maps.pooled] if axis in described.axes.output else []
    if not read or not all(isinstance(over, FeatureMap) for over in (*read, *written)):
        return None
    heights = {over[place] for over in read}
    if len(heights) > 1:
        return None
    (height,) = heights
    rows, pooled = (written[0][place], written[1][place]) if written else (height, height)
    reach, stride, padding = described.window(axis)
    behind = max(0, int(reach - stride) - padding)
    own_pool = described.fused_pool
    if own_pool is not None:
        size, step = own_pool.size[place - 1], own_pool.stride[place - 1]
        overlaps = size > step or own_pool.padding[place - 1]
        if overlaps or pooled * step != rows:
            return None
    if pooled < 2 or height != rows * stride:
        return None
    farthest = max(padding, behind)
    most = height // farthest if farthest else pooled
    return Strip(pooled, min(most, pooled), padding + behind)


def hides_rows(described: Operator, maps: LayerMaps) -> frozenset[str]:
    """Return the parts of images in which nobody reads a layer, for its own pool straddles them."""
    pool = described.fused_pool
    if pool is None:
        return frozenset()
    before, after = maps.output, maps.pooled
    return frozenset(
        part
        for place, part in enumerate(PARTS.values())
        if pool.size[place] > pool.stride[place]
        or pool.padding[place]
        or before[1 + place] != after[1 + place] * pool.stride[place]
    )


def borders_of(image: ReadImage, layouts: Sequence[str], hierarchy: Hierarchy) -> Mapping[int, int]:
    """Return the elements that cross the borders of parts in one direction, by level.

    Parameters
    ----------
    layouts
        How it is read at each level of a state.
    """
    sizes = hierarchy.sizes[: len(layouts)]
    copies = 1
    for parts, layout in zip(sizes, layouts, strict=True):
        copies *= parts if layout == "whole" else 1
    moved: Counter[int] = Counter()
    held = [*image.extent]
    for place, part in enumerate(PARTS.values()):
        levels = [level for level, layout in enumerate(layouts) if layout == part]
        count = 1
        for level in levels:
            count *= sizes[level]
        if not image.halos[place]:
            continue
        of_border = copies * image.planes * image.halos[place] * held[1 - place]
        for number in range(count - 1):
            moved[_between(number, levels, sizes)] += of_border
        if count > 1:  # all parts hold as many rows, whether or not they are at an edge
            held[place] += count * image.halos[place]
    return moved


def _between(number: int, levels: Sequence[int], sizes: Sequence[int]) -> int:
    """Return the first level at which a part and the next are in different groups."""

    def digits(of: int) -> list[int]:
        own = []
        for level in reversed(levels):
            own.append(of % sizes[level])
            of //= sizes[level]
        return own[::-1]

    both = zip(levels, digits(number), digits(number + 1), strict=True)
    return next(level for level, one, other in both if one != other)


def is_contiguous(states: Sequence[State], choice: int) -> bool:
    """Return whether all nodes that split images by a choice have contiguous parts.

    The levels at which any of them does divide an image one after the other; a node stops at one
    of them, and goes on at none below.
    """
    used = [level for level, made in enumerate(zip(*states, strict=True)) if choice in made]
    for state in states:
        own = [state[level] == choice for level in used]
        if sorted(own, reverse=True) != own:
            return False
    return True
