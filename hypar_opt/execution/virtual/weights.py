"""The elements of weights, shared ones included, that a device holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.errors import RefusedError

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array, Indices

Held = tuple["Indices", ...]
"""Ascending indices along each axis of the weights; their product is held."""


def held_weights(
    kind: str,
    shape: tuple[int, ...],
    read: Indices,
    written: Indices,
    rows: Indices,
    channels: int,
) -> Held:
    """Return the weights that a device needs for the channels that it reads and writes.

    Parameters
    ----------
    shape
        The shape of the layer's weights.
    rows
        The device's rows of an embedding's table.
    channels
        All channels that the layer reads; a fully-connected layer has weights per position.
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
    """Return the features of a flattened map that belong to some channels."""
    # A sequence's features are its channels: one position per token.
    return (channels[:, None] * positions + np.arange(positions)).reshape(-1)


def cut_weights(whole: Array, held: Held) -> Array:
    """Return a copy of the elements that a device holds."""
    part: Array = whole[np.ix_(*held)]
    return part


def within(stored: Held, used: Held, layer: str) -> Held:
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


def transposed(held: Held) -> Held:
    """Return the same elements of the transposed weights."""
    return held[::-1]
