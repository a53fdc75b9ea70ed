"""The rows and columns at the borders of parts of images, which a layer's windows read, too.

Rows are exchanged first; then columns of the rows that a part has by then. Where rows are split
these are as many at an image's edges as between two parts, for all parts have arrays of one shape.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.sharding.layouts import COLUMN, ROW, Layout, is_split
from hypar_opt.workload.operators.axes import COLUMNS, ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.workload.layer_tensors import LayerTensors

AXES: tuple[tuple[Layout, str], ...] = ((ROW, ROWS.axis), (COLUMN, COLUMNS.axis))


class Halo(NamedTuple):
    """One exchange of a layer's input with the parts before and behind.

    Parameters
    ----------
    layout
        Whose rows, or columns, are exchanged.
    levels
        The levels that split them, H1 first: a part's number has their digits.
    before, behind
        How many a part receives from the part before it and from that behind.
    elements
        What crosses each of these levels, of all parts together, in either direction.
    """

    layout: Layout
    levels: tuple[int, ...]
    before: int
    behind: int
    elements: tuple[int, ...]


def halos(node: LayerTensors, read: Sequence[Layout], hierarchy: Hierarchy) -> Iterator[Halo]:
    """Yield the exchanges of a layer's input, which another layer wrote, in their order.

    Parameters
    ----------
    read
        The layout of its first input at each level.
    """
    sizes = hierarchy.sizes
    copies = prod(n for n, layout in zip(sizes, read, strict=True) if not is_split(layout))
    extents = list(node.input[2:])
    for number, (layout, axis) in enumerate(AXES):
        levels = tuple(level for level, own in enumerate(read) if own == layout)
        border = node.borders.get(axis)
        if not levels or border is None or not border.halo:
            continue
        across = copies * prod(node.input[:2]) * border.halo * extents[1 - number]
        crossing, parts = [], 1
        for level in levels:
            crossing.append(across * parts * (sizes[level] - 1))
            parts *= sizes[level]
        yield Halo(layout, levels, border.before, border.behind, tuple(crossing))
        extents[number] += parts * border.halo
