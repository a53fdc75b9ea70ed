"""The interface of a layer's arithmetic on one device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array, Indices
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.maps import LayerMaps


@dataclass(frozen=True, eq=False)
class LayerShard:
    """Which part of a layer a device computes.

    Parameters
    ----------
    maps
        Of the whole layer, for one image or sequence.
    batch, images
        The images of the whole batch, and those that it has.
    read, written
        The channels that it has of its first input and of its output.
    rows
        Of an embedding, the rows of the table that it has.
    groups
        The images, counted among its own, of which a batch norm takes statistics together.
    given
        Of an embedding its images' ids of tokens, of a loss their targets.
    """

    layer: Operator
    maps: LayerMaps
    batch: int
    images: int
    read: Indices
    written: Indices
    rows: Indices
    groups: Sequence[Indices]
    given: Array | None


class Arithmetic(ABC):
    """A layer's forward and backward pass on a device, which keeps what backward needs.

    Arrays are ``(images, channels, height, width)`` of feature maps, ``(images, tokens, features)``
    of tokens.
    """

    def __init__(self, shard: LayerShard) -> None:
        self.shard = shard

    def sums(self, reads: Sequence[Array]) -> Array | None:  # noqa: ARG002
        """Return what all channels of a position share, of those here: ``(positions, numbers)``."""
        return None

    @abstractmethod
    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:
        """Return the output, or an addend of it, before activation and pool."""

    def error_sums(self, error: Array) -> Array | None:  # noqa: ARG002
        """Return the same as `sums` for the backward pass."""
        return None

    @abstractmethod
    def backward(self, error: Array, sums: Array | None) -> tuple[Sequence[Array], Array | None]:
        """Return the error of each input, or an addend of it, and the gradient of the weights."""

    @property
    def combine(self) -> Callable[[Array, Array], Array]:
        """How the sums of two devices are combined."""
        return np.add


def channel_axis(array: Array) -> int:
    """Return the axis of channels or features."""
    return 2 if array.ndim == 3 else 1


def position_axes(array: Array) -> tuple[int, ...]:
    """Return the axes of pixels or tokens."""
    return (1,) if array.ndim == 3 else (2, 3)


def by_position(array: Array) -> Array:
    """Return an array as ``(images * positions, channels)``."""
    last = np.moveaxis(array, channel_axis(array), -1)
    return last.reshape(int(np.prod(last.shape[:-1])), last.shape[-1])


def along_channels(vector: Array, like: Array) -> Array:
    """Return a number a channel so that it broadcasts over an array."""
    return vector if like.ndim == 3 else vector[:, None, None]


def along_positions(numbers: Array, like: Array) -> Array:
    """Return a number a position, ``(images * positions,)``, so that it broadcasts."""
    if like.ndim == 3:
        return numbers.reshape(like.shape[0], like.shape[1], 1)
    return numbers.reshape(like.shape[0], 1, *like.shape[2:])
