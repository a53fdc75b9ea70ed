"""Rows and columns of images, split into equal parts that exchange what lies at their borders.

A window over rows reads some before and behind those that its part has. Where the input has
``stride`` rows for each of the output, equal parts of both begin together, and what a part lacks is
the same for each.

Source: docs/model.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.workload.operators.axes import SPATIAL
from hypar_opt.workload.operators.maps import FeatureMap

if TYPE_CHECKING:
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.maps import LayerMaps, Map


class Border(NamedTuple):
    """How a layer's rows, or columns, may be split, and what its parts exchange.

    Parameters
    ----------
    size
        What parts divide evenly: the rows of its output, after a pool.
    max_parts
        The most parts, none of which is shorter than what another needs of it.
    before, behind
        The rows of the input that a part reads of those before and behind its own: its halo.
    """

    size: int
    max_parts: int
    before: int
    behind: int

    @property
    def halo(self) -> int:
        """The rows of both sides."""
        return self.before + self.behind


def border_of(layer: Operator, maps: LayerMaps, axis: str) -> Border | None:
    """Return how a layer's rows or columns may be split; None where they may not.

    They may not where no choice splits them, or a tensor has others than the rest: one that is
    broadcast, a last window that is partly covered, a pool that is fused and overlaps.
    """
    if axis not in {choice.axis for choice in layer.splits.values()}:
        return None
    window, number = layer.window_along(axis), SPATIAL.index(axis)
    contraction = layer.axes
    reads = zip(contraction.read(len(maps.inputs), len(maps.inputs)), maps.inputs, strict=True)
    read = {_extent(over, number) for axes, over in reads if axis in axes}
    has_output = axis in contraction.output
    written = _extent(maps.output, number) if has_output else max(read, default=0)
    size = written
    if (pool := layer.fused_pool) is not None:
        size = _extent(maps.pooled, number)
        aligned = pool.window(axis).halo == (0, 0) and pool.stride[number] * size == written
        size = size if aligned else 0
    if size <= 1 or read != {window.stride * written}:
        return None
    before, behind = window.halo
    (extent,) = read
    return Border(size, min(size, extent // max(before, behind, 1)), before, behind)


def _extent(over: Map, number: int) -> int:
    return over[1 + number] if isinstance(over, FeatureMap) else 0
