"""Layers without weights that reshape or permute a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from hypar_opt.execution.ties import dealt
from hypar_opt.execution.virtual.arithmetic.base import Arithmetic, LayerShard, channel_axis
from hypar_opt.execution.virtual.arithmetic.elementwise import Errors, pixels_of

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array
    from hypar_opt.workload.operators.views import Flatten, PixelShuffle, Slice, Unflatten


class FlattenArithmetic(Arithmetic):
    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        (read,) = reads
        self._shape = read.shape
        self._tokens = cast("Flatten", self.shard.layer).to == "tokens"
        if self._tokens:
            return read if read.ndim == 3 else pixels_of(read)
        return read.reshape(read.shape[0], int(np.prod(read.shape[1:])), 1, 1)

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        if self._tokens and len(self._shape) == 4:
            error = error.swapaxes(1, 2)
        return [error.reshape(self._shape)], None


class ShuffleArithmetic(Arithmetic):
    """The channels of groups, interleaved; a device has read the channels that it writes."""

    def __init__(self, shard: LayerShard) -> None:
        super().__init__(shard)
        source = dealt(shard.layer, shard.maps.input.channels)
        self._order = np.searchsorted(shard.read, source[shard.written])

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        return np.take(reads[0], self._order, axis=channel_axis(reads[0]))

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        input_error = np.empty_like(error)
        axis = channel_axis(error)
        input_error.swapaxes(axis, 0)[self._order] = error.swapaxes(axis, 0)
        return [input_error], None


class UnflattenArithmetic(Arithmetic):
    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        (read,), layer = reads, cast("Unflatten", self.shard.layer)
        self._shape, pixels = read.shape, layer.height * layer.width
        if read.ndim == 3:
            read = read.swapaxes(1, 2)
        channels = read.shape[1] if len(self._shape) == 3 else read.shape[1] // pixels
        return read.reshape(len(read), channels, layer.height, layer.width)

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        if len(self._shape) == 3:
            return [pixels_of(error)], None
        return [error.reshape(self._shape)], None


class PixelShuffleArithmetic(Arithmetic):
    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        return self._moved(reads[0], back=False)

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        return [self._moved(error, back=True)], None

    def _moved(self, image: Array, *, back: bool) -> Array:
        """Return an image with channels as pixels of blocks, or pixels of blocks as channels."""
        layer = cast("PixelShuffle", self.shard.layer)
        (rows, columns), (images, channels, height, width) = layer.factor, image.shape
        if (layer.to == "space") == back:
            blocks = image.reshape(
                images, channels, height // rows, rows, width // columns, columns
            )
            inner = [{"c": 1, "h": 3, "w": 5}[axis] for axis in layer.order]
            deep = channels * rows * columns
            return blocks.transpose(0, *inner, 2, 4).reshape(
                images, deep, height // rows, width // columns
            )
        flat = channels // (rows * columns)
        sizes = {"c": flat, "h": rows, "w": columns}
        blocks = image.reshape(images, *(sizes[axis] for axis in layer.order), height, width)
        at = {axis: 1 + layer.order.index(axis) for axis in sizes}
        return blocks.transpose(0, at["c"], 4, at["h"], 5, at["w"]).reshape(
            images, flat, height * rows, width * columns
        )


class SliceArithmetic(Arithmetic):
    """A range of channels; a device has read those that it writes."""

    def __init__(self, shard: LayerShard) -> None:
        super().__init__(shard)
        start = cast("Slice", shard.layer).start
        self._places = np.searchsorted(shard.read, start + shard.written)

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        self._shape = reads[0].shape
        return np.take(reads[0], self._places, axis=channel_axis(reads[0]))

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        input_error, axis = np.zeros(self._shape), channel_axis(error)
        input_error.swapaxes(axis, 0)[self._places] = error.swapaxes(axis, 0)
        return [input_error], None


KINDS: dict[str, type[Arithmetic]] = {
    "flatten": FlattenArithmetic,
    "unflatten": UnflattenArithmetic,
    "shuffle": ShuffleArithmetic,
    "pixel_shuffle": PixelShuffleArithmetic,
    "slice": SliceArithmetic,
}
