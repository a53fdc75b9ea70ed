"""The elements of weights, shared ones included, that a device holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.errors import RefusedError

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Indices
    from hypar_opt.workload.layer_tensors import LayerTensors

HeldIndices = tuple["Indices", ...]
"""Ascending indices along each axis of the weights; a device holds their Cartesian product."""


def held_weights(
    tensors: LayerTensors,
    read: Indices,
    written: Indices,
    rows: Indices,
    experts: Indices,
    channels: int,
) -> HeldIndices:
    """Return the weights that a device needs for the channels that it reads and writes.

    Parameters
    ----------
    rows
        The device's rows of an embedding's table.
    experts
        The experts whose weights it needs.
    channels
        All channels that the layer reads; a fully-connected layer has weights per position.
    """
    layer, sizes = tensors.operator, tensors.sizes
    indices = {axis: np.arange(sizes[axis]) for axis in layer.axes.weight if axis in sizes}
    if "g" in indices:  # whole groups
        indices["g"] = np.unique(written // sizes[layer.axes.weight[-1]])
        return tuple(indices.values())
    if "x" in indices:
        indices["x"] = experts
    if layer.reads_ids:
        indices[layer.axes.weight[0]] = rows
    elif "i" in indices:
        # A flattened map has all positions of a channel; a sequence has one position per token.
        positions = sizes["i"] // channels
        indices["i"] = (read[:, None] * positions + np.arange(positions)).reshape(-1)
    return tuple(written if axis in ("o", "c") else indices[axis] for axis in indices)


def within(stored: HeldIndices, used: HeldIndices, layer: str) -> HeldIndices:
    """Return the positions, among the weights that a device stores, of those that a layer uses.

    Raises
    ------
    RefusedError
        If the device does not store them all.
    """
    for have, need in zip(stored, used, strict=True):
        if not np.isin(need, have).all():
            raise RefusedError(
                f"layer {layer!r} splits the weights that it shares in another order than they are"
                " stored; such a plan cannot be run"
            )
    return tuple(np.searchsorted(have, need) for have, need in zip(stored, used, strict=True))
