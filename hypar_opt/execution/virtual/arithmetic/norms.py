"""Normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from hypar_opt.execution.virtual.arithmetic.base import (
    Arithmetic,
    Footprint,
    LayerShard,
    along_channels,
    along_positions,
    by_position,
    position_axes,
)
from hypar_opt.workload.operators.norm import EPSILON

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.operators.norm import Norm


class NormArithmetic(Arithmetic):
    """A norm with its scale and shift; layer and RMS norm use sums over all channels.

    Of heads that are normalised one by one, each is here a token with a head's channels.
    """

    kept_inputs = 3

    @classmethod
    def footprint(cls, tensors: LayerTensors) -> Footprint:
        # Sums of heads are no statistics of the layer, which parts would exchange.
        heads = tensors.sizes["b"] * tensors.sizes.get("t", 1) * tensors.sizes.get("g", 0)
        return super().footprint(tensors)._replace(kept=12 * heads)

    def __init__(self, shard: LayerShard) -> None:
        super().__init__(shard)
        layer = cast("Norm", shard.layer)
        self._norm = layer.norm
        self._epsilon = EPSILON if layer.epsilon is None else layer.epsilon
        self._heads = layer.heads
        self._channels = shard.maps.input.channels // (layer.heads or 1)

    def _by_head(self, array: Array) -> Array:
        """Return tokens, ``(images, tokens, features)``, with each head as one of them."""
        if not self._heads:
            return array
        images, tokens, features = array.shape
        return array.reshape(images, tokens * (features // self._channels), self._channels)

    def sums(self, reads: Sequence[Array]) -> Array | None:
        return None if self._heads else self._sums(reads[0])

    def _sums(self, read: Array) -> Array | None:
        """Return sums over channels; no part has a share of those of a head."""
        values = by_position(read)
        squares = (values**2).sum(axis=1)
        if self._norm == "layer":
            return np.stack([values.sum(axis=1), squares], axis=1)
        return squares[:, None] if self._norm == "rms" else None

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:
        assert weights is not None
        read = self._by_head(reads[0])
        sums = self._sums(read) if self._heads else sums
        self._scale = along_channels(weights[0], read)
        self._normed, self._spread = self._normalised(read, sums)
        scaled = self._normed * self._scale
        if len(weights) > 1:
            scaled = scaled + along_channels(weights[1], read)
        return scaled.reshape(reads[0].shape)

    def _normalised(self, read: Array, sums: Array | None) -> tuple[Array, Array]:
        """Return the normed input, and one over its spread."""
        if self._norm == "affine":
            return read, np.ones_like(read)
        if sums is not None:
            mean = sums[:, 0] / self._channels if self._norm == "layer" else np.zeros(len(sums))
            # The mean of squares may fall short of the mean's square by rounding.
            variance = np.maximum(sums[:, -1] / self._channels - mean**2, 0.0)
            spread = along_positions(1.0 / np.sqrt(variance + self._epsilon), read)
            return (read - along_positions(mean, read)) * spread, spread
        axes = (0, *position_axes(read))
        normed, spread = np.empty_like(read), np.empty_like(read)
        for group in self.shard.groups:
            part = read[group]
            apart = part - part.mean(axis=axes, keepdims=True)
            variance = (apart**2).mean(axis=axes, keepdims=True)
            spread[group] = 1.0 / np.sqrt(variance + self._epsilon)
            normed[group] = apart * spread[group]
        return normed, spread

    def error_sums(self, error: Array) -> Array | None:
        return None if self._heads else self._error_sums(error)

    def _error_sums(self, error: Array) -> Array | None:
        self._scaled = error * self._scale
        products = by_position(self._scaled * self._normed).sum(axis=1)
        if self._norm == "layer":
            return np.stack([by_position(self._scaled).sum(axis=1), products], axis=1)
        return products[:, None] if self._norm == "rms" else None

    def backward(self, error: Array, sums: Array | None) -> tuple[Sequence[Array], Array | None]:
        shape, error = error.shape, self._by_head(error)
        sums = self._error_sums(error) if self._heads else sums
        axes = (0, *position_axes(error))
        gradients = [(error * self._normed).sum(axis=axes), error.sum(axis=axes)]
        shifts = cast("Norm", self.shard.layer).sizes(self.shard.maps)["s"]
        of_read = self._input_error(sums) * self._spread
        return [of_read.reshape(shape)], np.stack(gradients[:shifts])

    def _input_error(self, sums: Array | None) -> Array:
        scaled, normed = self._scaled, self._normed
        if self._norm == "affine":
            return scaled
        if sums is not None:
            of_product = along_positions(sums[:, -1] / self._channels, scaled)
            rest: Array = scaled - normed * of_product
            if self._norm == "layer":
                rest -= along_positions(sums[:, 0] / self._channels, scaled)
            return rest
        axes = (0, *position_axes(scaled))
        input_error = np.empty_like(scaled)
        for group in self.shard.groups:
            part, normed_part = scaled[group], normed[group]
            mean = part.mean(axis=axes, keepdims=True)
            product = (part * normed_part).mean(axis=axes, keepdims=True)
            input_error[group] = part - mean - normed_part * product
        return input_error


KINDS: dict[str, type[Arithmetic]] = {"norm": NormArithmetic}
