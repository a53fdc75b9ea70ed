"""Normalisations."""

from __future__ import annotations

import math
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
    channel_axis,
    position_axes,
)
from hypar_opt.workload.operators.norm import EPSILON

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.operators.norm import Norm


class NormArithmetic(Arithmetic):
    """A norm with its scale and shift; layer and RMS norm use sums over all channels.

    Each unit of normalisation, a head of a token or a group with all positions, is treated as a
    token whose channels are the elements that its sums are over.
    """

    kept_inputs = 3

    @classmethod
    def footprint(cls, tensors: LayerTensors) -> Footprint:
        # The sums of heads are not statistics, which parts would exchange.
        layer, sizes = cast("Norm", tensors.operator), tensors.sizes
        heads = sizes["b"] * sizes.get("t", 1) * sizes["g"] if layer.heads else 0
        return super().footprint(tensors)._replace(saved=12 * heads)

    def __init__(self, shard: LayerShard) -> None:
        super().__init__(shard)
        layer, over = cast("Norm", shard.layer), shard.maps.input
        self._norm = layer.norm
        self._epsilon = EPSILON if layer.epsilon is None else layer.epsilon
        self._heads, self._groups = layer.heads, layer.groups
        # If devices share a group, each has a part of the elements of its sums.
        self._whole = over.channels // (layer.heads or layer.groups or 1)
        self._summed = self._whole * (over.positions if layer.groups else 1)

    def _as_tokens(self, array: Array) -> Array:
        """Return an array with its units of normalisation, heads or groups, as tokens."""
        if not (self._heads or self._groups):
            return array
        if self._groups:
            array = np.moveaxis(array, channel_axis(array), 1)
            images, channels, *places = array.shape
            # A device has whole groups, or a part of a single one.
            whole = self._whole if self._groups > 1 else channels
            groups = channels // self._whole if self._groups > 1 else 1
            return array.reshape(images, groups, whole * math.prod(places))
        images, tokens, features = array.shape
        return array.reshape(images, tokens * (features // self._whole), self._whole)

    def _from_tokens(self, tokens: Array, like: Array) -> Array:
        """Return the inverse of `_as_tokens`, in the shape of an array."""
        if not self._groups:
            return tokens.reshape(like.shape)
        axis = channel_axis(like)
        shape = np.moveaxis(like, axis, 1).shape
        return np.moveaxis(tokens.reshape(shape), 1, axis)

    def sums(self, reads: Sequence[Array]) -> Array | None:
        return None if self._heads else self._sums(self._as_tokens(reads[0]))

    def _sums(self, read: Array) -> Array | None:
        """Return sums over channels; those of a head are never partial."""
        values = by_position(read)
        squares = (values**2).sum(axis=1)
        if self._norm == "layer":
            return np.stack([values.sum(axis=1), squares], axis=1)
        return squares[:, None] if self._norm == "rms" else None

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:
        assert weights is not None
        (read,), self._shape = reads, weights.shape
        tokens = self._as_tokens(read)
        sums = self._sums(tokens) if self._heads else sums
        normed, spread = self._normalised(tokens, sums)
        self._normed, self._spread = self._from_tokens(normed, read), spread
        # All heads share one scale.
        channels = read.shape[channel_axis(read)]
        of_heads = channels // self._whole if self._heads else 1
        learned = np.tile(weights.reshape(len(weights), -1), of_heads)
        self._scale = along_channels(learned[0], read)
        scaled = self._normed * self._scale
        return scaled + along_channels(learned[1], read) if len(learned) > 1 else scaled

    def _normalised(self, read: Array, sums: Array | None) -> tuple[Array, Array]:
        """Return the normed input, and one over its spread."""
        if self._norm == "affine":
            return read, np.ones_like(read)
        if sums is not None:
            mean = sums[:, 0] / self._summed if self._norm == "layer" else np.zeros(len(sums))
            # The mean of squares may fall short of the mean's square by rounding.
            variance = np.maximum(sums[:, -1] / self._summed - mean**2, 0.0)
            spread = along_positions(1.0 / np.sqrt(variance + self._epsilon), read)
            return (read - along_positions(mean, read)) * spread, spread
        axes = (0, *position_axes(read))
        normed, spread = np.empty_like(read), np.empty_like(read)
        for group in self.shard.groups:
            part = read[group]
            centred = part - part.mean(axis=axes, keepdims=True)
            variance = (centred**2).mean(axis=axes, keepdims=True)
            spread[group] = 1.0 / np.sqrt(variance + self._epsilon)
            normed[group] = centred * spread[group]
        return normed, spread

    def error_sums(self, error: Array) -> Array | None:
        return None if self._heads else self._error_sums(error)

    def _error_sums(self, error: Array) -> Array | None:
        scaled, normed = self._as_tokens(error * self._scale), self._as_tokens(self._normed)
        products = by_position(scaled * normed).sum(axis=1)
        if self._norm == "layer":
            return np.stack([by_position(scaled).sum(axis=1), products], axis=1)
        return products[:, None] if self._norm == "rms" else None

    def backward(self, error: Array, sums: Array | None) -> tuple[Sequence[Array], Array | None]:
        sums = self._error_sums(error) if self._heads else sums
        axes = (0, *position_axes(error))
        gradients = np.stack([(error * self._normed).sum(axis=axes), error.sum(axis=axes)])
        learned = gradients[: self._shape[0]]
        if self._heads:
            learned = learned.reshape(len(learned), -1, self._whole).sum(axis=1)
        scaled = self._as_tokens(error * self._scale)
        of_read = self._input_error(scaled, self._as_tokens(self._normed), sums) * self._spread
        return [self._from_tokens(of_read, error)], learned.reshape(self._shape)

    def _input_error(self, scaled: Array, normed: Array, sums: Array | None) -> Array:
        if self._norm == "affine":
            return scaled
        if sums is not None:
            of_product = along_positions(sums[:, -1] / self._summed, scaled)
            rest: Array = scaled - normed * of_product
            if self._norm == "layer":
                rest -= along_positions(sums[:, 0] / self._summed, scaled)
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
