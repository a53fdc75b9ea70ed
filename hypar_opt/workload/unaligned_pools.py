"""The axes of images by which no layer reads another, whose own pool overlaps the parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.workload.operators.axes import SPATIAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.workload.layer_tensors import Boundary, LayerTensors


def unaligned_pool_axes(writer: LayerTensors) -> frozenset[str]:
    """Return the axes of images by which nobody reads a layer, for its fused pool overlaps parts.

    Partial sums are reduced before that pool, into the layout of the layer's reader.
    """
    if (pool := writer.operator.fused_pool) is None:
        return frozenset()
    extents = zip(SPATIAL, writer.output[2:], writer.pooled[2:], pool.stride, strict=False)
    return frozenset(
        axis
        for axis, before, after, stride in extents
        if pool.window(axis).halo != (0, 0) or before != stride * after
    )


def drop_unaligned_splits(
    nodes: Sequence[LayerTensors], boundaries: Sequence[Boundary]
) -> list[LayerTensors]:
    """Return nodes that may not split images where they read a layer's `unaligned_pool_axes`.

    Parameters
    ----------
    boundaries
        A shared tensor's comes before those of its readers.
    """
    hidden, restricted = [unaligned_pool_axes(node) for node in nodes], [*nodes]
    for edge in boundaries:
        if not edge.weights and (axes := hidden[edge.source]):
            restricted[edge.target] = restricted[edge.target].without(axes)
            if nodes[edge.target].kind == "tensor":
                hidden[edge.target] |= axes
    return restricted
