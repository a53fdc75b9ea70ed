"""Which elements of its weights a device holds, and of weights that several layers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.errors import RefusedError

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array, Indices

Held = tuple["Indices", ...]
"""The indices of each axis of the weights, ascending: what is held is their product."""


def held_weights(
    kind: str,
    shape: tuple[int, ...],
    read: Indices,
    written: Indices,
    rows: Indices,
    channels: int,
) -> Held:
    """Return which weights a device needs for the channels that it reads and writes.

    Parameters
    ----------
    shape
        Of the layer's weights.
    rows
        Of an embedding's table.
    channels
        Of all that the layer reads; a fully-connected layer has weights for each position.
    """
    if kind == "norm":
        return np.arange(shape[0]), written
    if kind == "embedding":
        return rows, written
    if kind == "fc":
        return features(read, shape[0] // channels), written
    kernel = np.arange(shape[0]), np.arange(shape[1])
    if len(shape) == 5:  # of groups: kernel, group, input and output channels of it
        of_group = np.unique(written // shape[4])
        return *kernel, of_group, np.arange(shape[3]), np.arange(shape[4])
    return *kernel, read, written


def features(channels: Indices, positions: int) -> Indices:
    """Return the features of a flattened map that some channels make, channel by channel."""
    # A sequence's features are its channels: it has one position a token.
    return (channels[:, None] * positions + np.arange(positions)).reshape(-1)


def cut_weights(whole: Array, held: Held) -> Array:
    """Return a copy of the elements that a device holds."""
    part: Array = whole[np.ix_(*held)]
    return part


def within(stored: Held, used: Held, layer: str) -> Held:
    """Return where the weights that a layer uses stand among those that a device stores.

    Raises
    ------
    RefusedError
        If the device does not store them all.
    """
    for have, need in zip(stored, used, strict=True):
        if not np.isin(need, have).all():
            raise RefusedError(
                f"layer {layer!r} splits the weights that it shares in another order than they are"
                " stored; a run of such a plan is not known"
            )
    return tuple(np.searchsorted(have, need) for have, need in zip(stored, used, strict=True))


def transposed(held: Held) -> Held:
    """Return the same elements of the transposed weights."""
    return held[::-1]
