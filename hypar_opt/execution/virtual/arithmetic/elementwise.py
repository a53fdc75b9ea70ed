"""Layers without weights that treat all channels the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, cast

import numpy as np

from hypar_opt.execution.virtual.arithmetic.base import (
    Arithmetic,
    LayerShard,
    channel_axis,
    position_axes,
)
from hypar_opt.execution.virtual.arithmetic.windows import Pooling, padding_of
from hypar_opt.workload.operators.sinusoid import SINUSOID_BASE

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array
    from hypar_opt.workload.operators.elementwise import Concat, GlobalPool, Pool, Upsample
    from hypar_opt.workload.operators.sinusoid import Sinusoid

Errors = tuple[Sequence["Array"], "Array | None"]


class _BroadcastArithmetic(Arithmetic):
    """Inputs of the output's shape, or of one position, broadcast to all."""

    def aligned(self, reads: Sequence[Array]) -> list[Array]:
        self._shapes = [read.shape for read in reads]
        if len({read.shape for read in reads}) == 1:
            return list(reads)
        # A vector and a single token hold the same numbers.
        tokens = bool(self.shard.maps.output.tokens)
        return [_as_tokens(read) if tokens else _as_image(read) for read in reads]

    def narrowed(self, errors: Sequence[Array]) -> list[Array]:
        """Return the errors of inputs, summed over the axes along which each was broadcast."""
        narrowed = []
        for error, shape in zip(errors, self._shapes, strict=True):
            if int(np.prod(shape)) != error.size:
                axes = self.broadcast_axes(error)
                error = error.sum(axis=axes, keepdims=True)
            narrowed.append(error.reshape(shape))
        return narrowed

    def broadcast_axes(self, error: Array) -> tuple[int, ...]:
        """Return the axes along which a smaller input is broadcast."""
        is_gate = getattr(self.shard.layer, "gate", None)
        return (channel_axis(error),) if is_gate else position_axes(error)


def _as_tokens(array: Array) -> Array:
    return array if array.ndim == 3 else array[:, None, :, 0, 0]


def _as_image(array: Array) -> Array:
    return array if array.ndim == 4 else array[:, 0, :, None, None]


class AddArithmetic(_BroadcastArithmetic):
    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        return reduce(np.add, self.aligned(reads))

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        return self.narrowed([error] * len(self._shapes)), None


class MulArithmetic(_BroadcastArithmetic):
    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        self._factors = self.aligned(reads)
        return reduce(np.multiply, self._factors)

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        factors = self._factors
        errors = [
            error * reduce(np.multiply, [*factors[:i], *factors[i + 1 :]])
            for i in range(len(factors))
        ]
        return self.narrowed(errors), None


class ConcatArithmetic(Arithmetic):
    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        by_channels = cast("Concat", self.shard.layer).axis == "channels"
        self._axis = channel_axis(reads[0]) if by_channels else 1
        self._ends = np.cumsum([read.shape[self._axis] for read in reads])[:-1]
        return np.concatenate(reads, axis=self._axis)

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        return np.split(error, self._ends, axis=self._axis), None


class PoolArithmetic(Arithmetic):
    kept_inputs = 1

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        pool, extents = cast("Pool", self.shard.layer).pool, self.shard.extents
        assert extents is not None
        padding = padding_of(pool.padding, extents.begins)
        self._pool = Pooling(pool, reads[0].shape[2:], extents.written, padding)
        return self._pool.forward(reads[0])

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        return [self._pool.backward(error)], None


class UpsampleArithmetic(Arithmetic):
    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        rows, columns = cast("Upsample", self.shard.layer).factor
        return reads[0].repeat(rows, axis=2).repeat(columns, axis=3)

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        rows, columns = cast("Upsample", self.shard.layer).factor
        images, channels, height, width = error.shape
        parts = error.reshape(images, channels, height // rows, rows, width // columns, columns)
        return [parts.sum(axis=(3, 5))], None


class GlobalPoolArithmetic(Arithmetic):
    """One vector of all positions."""

    kept_inputs = 2

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        read = reads[0] if reads[0].ndim == 3 else pixels_of(reads[0])
        self._shape, positions = reads[0].shape, read.shape[1]
        over = cast("GlobalPool", self.shard.layer).over
        if over == "average":
            # The average over some rows of an image is a partial sum.
            self._shares = np.full_like(read, 1.0 / self.shard.maps.input.positions)
        else:
            chosen = {"first": 0, "last": positions - 1}.get(over)
            index = read.argmax(axis=1, keepdims=True) if chosen is None else chosen
            numbers = np.arange(positions)[:, None]
            self._shares = np.broadcast_to(numbers == index, read.shape) * 1.0
        vector: Array = (read * self._shares).sum(axis=1)
        return vector[:, :, None, None]

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        input_error = error[:, None, :, 0, 0] * self._shares
        if len(self._shape) == 4:
            input_error = input_error.swapaxes(1, 2).reshape(self._shape)
        return [input_error], None


def pixels_of(image: Array) -> Array:
    """Return an image as tokens: ``(images, pixels, channels)``."""
    images, channels, height, width = image.shape
    return image.reshape(images, channels, height * width).swapaxes(1, 2)


class SinusoidArithmetic(Arithmetic):
    """Cosines and sines of multiples of a number; a device has those features that it writes."""

    def __init__(self, shard: LayerShard) -> None:
        super().__init__(shard)
        layer = cast("Sinusoid", shard.layer)
        half, base, scale = layer.features // 2, layer.base or SINUSOID_BASE, layer.scale or 1.0
        self._rates = (scale * base ** (-(shard.written % half) / half))[:, None, None]
        # A cosine is the sine of an angle a quarter turn ahead.
        is_cosine = (shard.written < half) == (layer.first == "cos")
        self._turns = np.where(is_cosine, np.pi / 2, 0.0)[:, None, None]

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        self._angles = reads[0] * self._rates + self._turns
        return np.sin(self._angles)

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        slopes = error * np.cos(self._angles) * self._rates
        return [slopes.sum(axis=1, keepdims=True)], None


KINDS: dict[str, type[Arithmetic]] = {
    "add": AddArithmetic,
    "mul": MulArithmetic,
    "concat": ConcatArithmetic,
    "pool": PoolArithmetic,
    "upsample": UpsampleArithmetic,
    "global_pool": GlobalPoolArithmetic,
    "sinusoid": SinusoidArithmetic,
}
