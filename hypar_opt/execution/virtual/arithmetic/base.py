"""The interface of a layer's arithmetic on one device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array, Indices
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.maps import LayerMaps


class Footprint(NamedTuple):
    """The memory of a layer's arithmetic besides its input and output.

    Parameters
    ----------
    saved
        Elements kept on every device that has the input.
    inputs
        Arrays kept, each of the input's size.
    working
        Temporary elements, on one device at a time.
    """

    saved: int = 0
    inputs: int = 0
    working: int = 0


Group = tuple[Any, ...]
"""Images, as an index of arrays; or parts of images: with slices of channels, rows and columns."""


class Extents(NamedTuple):
    """Rows and columns of images on a device.

    Parameters
    ----------
    written
        The extent of the device's part of a layer's output.
    begins
        Whether its part of the input is the first, so that padding lies before it.
    """

    written: tuple[int, int]
    begins: tuple[bool, bool]


@dataclass(frozen=True, eq=False)
class LayerShard:
    """The part of a layer that a device computes.

    Parameters
    ----------
    maps
        The whole layer's maps, for one image or sequence.
    batch, images
        The images of the whole batch, and those of the device.
    read, written
        The device's channels of the first input and of the output.
    rows
        The device's rows of an embedding's table.
    groups
        What a batch norm normalises together, counted among the device's.
    data
        The images' token ids for an embedding, their targets for a loss.
    tokens
        The device's tokens of the output, or groups of them; a vector has one.
    extents
        The device's rows and columns; None of what are no images.
    experts
        Those of dispatched tokens that the device has.
    """

    layer: Operator
    maps: LayerMaps
    batch: int
    images: int
    read: Indices
    written: Indices
    rows: Indices
    groups: Sequence[Group]
    data: Array | None
    tokens: Indices
    extents: Extents | None
    experts: Indices


class Arithmetic(ABC):
    """A layer's forward and backward pass on a device; it keeps what the backward pass needs.

    Arrays are ``(images, channels, height, width)`` for feature maps, ``(images, tokens,
    features)`` for tokens.
    """

    def __init__(self, shard: LayerShard) -> None:
        self.shard = shard

    kept_inputs: ClassVar[int] = 0
    """Arrays of the input's size that it keeps besides the input."""

    @classmethod
    def footprint(cls, tensors: LayerTensors) -> Footprint:  # noqa: ARG003
        """Return an upper bound on the memory that it takes, of the whole layer."""
        return Footprint(inputs=cls.kept_inputs)

    def sums(self, reads: Sequence[Array]) -> Array | None:  # noqa: ARG002
        """Return the device's sums over the channels of a position: ``(positions, numbers)``."""
        return None

    @abstractmethod
    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:
        """Return the output, or a partial sum of it, before activation and pool."""

    def error_sums(self, error: Array) -> Array | None:  # noqa: ARG002
        """Return the counterpart of `sums` in the backward pass."""
        return None

    @abstractmethod
    def backward(self, error: Array, sums: Array | None) -> tuple[Sequence[Array], Array | None]:
        """Return the error of each input, or a partial sum of it, and the weights' gradient."""

    @property
    def combine(self) -> Callable[[Array, Array], Array]:
        """The function that combines the sums of two devices."""
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
    """Return one number per channel, by expert if any, shaped to broadcast over an array."""
    return vector if like.ndim == 3 else vector[:, None, None]


def along_positions(numbers: Array, like: Array) -> Array:
    """Return one number per position, ``(images * positions,)``, shaped to broadcast."""
    if like.ndim == 3:
        return numbers.reshape(like.shape[0], like.shape[1], 1)
    return numbers.reshape(like.shape[0], 1, *like.shape[2:])
