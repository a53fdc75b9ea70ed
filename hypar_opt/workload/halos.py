"""Rows and columns of images, split into equal parts that exchange halos.

A sliding window reads rows before and after those of its own part. Where the input has ``stride``
rows per row of the output, equal parts of both line up, and every part lacks the same number of
rows.

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
        The rows of its output after pooling, which the number of parts has to divide.
    max_parts
        The maximum number of parts: none may be shorter than the halo that a neighbour needs.
    before, behind
        Its halo: the rows of the input that a part reads before and after its own.
    """

    size: int
    max_parts: int
    before: int
    behind: int

    @property
    def halo(self) -> int:
        """The rows of both sides together."""
        return self.before + self.behind


def border_of(layer: Operator, maps: LayerMaps, axis: str) -> Border | None:
    """Return how a layer's rows or columns may be split; None if they may not.

    They may not where no choice splits them, or where tensors do not line up: a broadcast input, a
    last window that is only partly covered, or a fused pool with overlapping windows.
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
