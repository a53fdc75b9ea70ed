"""Convolutions, fully-connected layers, and embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from hypar_opt.execution.virtual.arithmetic.base import Arithmetic, Footprint, LayerShard
from hypar_opt.execution.virtual.arithmetic.windows import Windows, padding_of

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.operators.conv import Conv
    from hypar_opt.workload.operators.embedding import Embedding


class ConvArithmetic(Arithmetic):
    """A convolution by unfolding (im2col): one matrix product per group."""

    @classmethod
    def footprint(cls, tensors: LayerTensors) -> Footprint:
        # One row per window and group.
        sizes = tensors.sizes
        row = math.prod(sizes[axis] for axis in "kli") * sizes.get("g", 1)
        unfolded = sizes["b"] * row * math.prod(tensors.output[2:])
        # Windows may have gaps, so that the padded map is larger than all windows together.
        layer = cast("Conv", tensors.operator)
        (top, left), (bottom, right) = layer.padding[:2], layer.padding[-2:]
        channels = sizes["i"] * sizes.get("g", 1)
        padded = channels * (sizes["h"] + top + bottom) * (sizes["w"] + left + right)
        working = 2 * unfolded + max(unfolded, sizes["b"] * padded)
        return Footprint(saved=unfolded, working=working)

    def __init__(self, shard: LayerShard) -> None:
        super().__init__(shard)
        assert shard.extents is not None
        self._written, begins = shard.extents
        self._padding = padding_of(cast("Conv", shard.layer).padding, begins)

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        assert weights is not None
        (image,) = reads
        self._kernel = weights if weights.ndim == 5 else weights[:, :, None]
        groups, inputs, outputs = self._kernel.shape[2:]
        layer, (height, width) = cast("Conv", self.shard.layer), image.shape[2:]
        self._windows = Windows(
            (height, width),
            self._written,
            layer.kernel,
            layer.stride,
            self._padding,
            layer.dilation or (1, 1),
        )
        windows = self._windows.of(image)
        images, _, p, q, rows, columns = windows.shape
        self._shape = images, groups, inputs, p, q, rows, columns
        # (groups, images and positions, kernel and input channels)
        parts = windows.reshape(self._shape).transpose(1, 0, 3, 4, 5, 6, 2)
        self._unfolded = parts.reshape(groups, images * p * q, rows * columns * inputs)
        product = self._unfolded @ self._matrix()
        product = product.reshape(groups, images, p, q, outputs).transpose(1, 0, 4, 2, 3)
        return product.reshape(images, groups * outputs, p, q)

    def _matrix(self) -> Array:
        rows, columns, groups, inputs, outputs = self._kernel.shape
        kernel = self._kernel.transpose(2, 0, 1, 3, 4)
        return kernel.reshape(groups, rows * columns * inputs, outputs)

    def backward(self, error: Array, sums: Array | None) -> tuple[Sequence[Array], Array | None]:  # noqa: ARG002
        images, groups, inputs, p, q, rows, columns = self._shape
        outputs = self._kernel.shape[4]
        parts = error.reshape(images, groups, outputs, p, q).transpose(1, 0, 3, 4, 2)
        parts = parts.reshape(groups, images * p * q, outputs)
        gradient = self._unfolded.transpose(0, 2, 1) @ parts
        gradient = gradient.reshape(groups, rows, columns, inputs, outputs)
        gradient = gradient.transpose(1, 2, 0, 3, 4)
        windows = parts @ self._matrix().transpose(0, 2, 1)
        windows = windows.reshape(groups, images, p, q, rows, columns, inputs)
        windows = windows.transpose(1, 0, 6, 2, 3, 4, 5)
        windows = windows.reshape(images, groups * inputs, p, q, rows, columns)
        if (getattr(self.shard.layer, "groups", None) or 1) == 1:  # weights without their axis
            gradient = gradient[:, :, 0]
        folded = self._windows.added(windows.shape[:2], lambda k, m: windows[..., k, m])
        return [folded], gradient


class TransposedArithmetic(Arithmetic):
    """A transposed convolution: one matrix product per group, whose windows are added up."""

    @classmethod
    def footprint(cls, tensors: LayerTensors) -> Footprint:
        sizes = tensors.sizes
        channels = sizes["o"] * sizes.get("g", 1)
        windows = sizes["b"] * sizes["h"] * sizes["w"] * channels * sizes["k"] * sizes["l"]
        layer = cast("Conv", tensors.operator)
        (top, left), (bottom, right) = layer.padding[:2], layer.padding[-2:]
        padded = channels * (sizes["p"] + top + bottom) * (sizes["q"] + left + right)
        return Footprint(working=2 * windows + max(windows, sizes["b"] * padded))

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        assert weights is not None
        assert self.shard.extents is not None
        (image,) = reads
        self._kernel = weights if weights.ndim == 5 else weights[:, :, None]
        rows, columns, groups, inputs, outputs = self._kernel.shape
        images, _, height, width = image.shape
        layer = cast("Conv", self.shard.layer)
        self._windows = Windows(
            self.shard.extents.written,
            (height, width),
            layer.kernel,
            layer.stride,
            layer.padding,
            layer.dilation or (1, 1),
        )
        self._shape = images, groups, height, width
        parts = image.reshape(images, groups, inputs, height * width).transpose(1, 0, 3, 2)
        self._read = parts.reshape(groups, images * height * width, inputs)
        windows = self._read @ self._matrix()
        windows = windows.reshape(groups, images, height, width, rows, columns, outputs)
        windows = windows.transpose(1, 0, 6, 2, 3, 4, 5)
        windows = windows.reshape(images, groups * outputs, height, width, rows, columns)
        return self._windows.added(windows.shape[:2], lambda k, m: windows[..., k, m])

    def _matrix(self) -> Array:
        rows, columns, groups, inputs, outputs = self._kernel.shape
        kernel = self._kernel.transpose(2, 3, 0, 1, 4)
        return kernel.reshape(groups, inputs, rows * columns * outputs)

    def backward(self, error: Array, sums: Array | None) -> tuple[Sequence[Array], Array | None]:  # noqa: ARG002
        images, groups, height, width = self._shape
        rows, columns, _, inputs, outputs = self._kernel.shape
        windows = self._windows.of(error)
        windows = windows.reshape(images, groups, outputs, height * width, rows, columns)
        parts = windows.transpose(1, 0, 3, 4, 5, 2)
        parts = parts.reshape(groups, images * height * width, rows * columns * outputs)
        gradient = self._read.transpose(0, 2, 1) @ parts
        gradient = gradient.reshape(groups, inputs, rows, columns, outputs)
        gradient = gradient.transpose(2, 3, 0, 1, 4)
        if (cast("Conv", self.shard.layer).groups or 1) == 1:  # weights without their axis
            gradient = gradient[:, :, 0]
        of_input = parts @ self._matrix().transpose(0, 2, 1)
        of_input = of_input.reshape(groups, images, height * width, inputs).transpose(1, 0, 3, 2)
        return [of_input.reshape(images, groups * inputs, height, width)], gradient


class FullyConnectedArithmetic(Arithmetic):
    """The product of features and weights, for each token or a flattened image."""

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        assert weights is not None
        (self._read,) = reads
        self._weights = weights
        product: Array = self._flat(self._read) @ weights
        return product if self._read.ndim == 3 else product[:, :, None, None]

    def _flat(self, array: Array) -> Array:
        if array.ndim == 3:
            return array
        return array.reshape(array.shape[0], math.prod(array.shape[1:]))

    def backward(self, error: Array, sums: Array | None) -> tuple[Sequence[Array], Array | None]:  # noqa: ARG002
        error, read = self._flat(error), self._flat(self._read)
        inputs, outputs = self._weights.shape
        rows = read.reshape(read.size // inputs if inputs else 0, inputs)
        if not inputs:
            rows = np.zeros((int(np.prod(read.shape[:-1])), 0))
        gradient = rows.T @ error.reshape(len(rows), outputs)
        return [(error @ self._weights.T).reshape(self._read.shape)], gradient


class EmbeddingArithmetic(Arithmetic):
    """Rows of a table, times a factor; rows that other devices hold contribute zeros."""

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        assert weights is not None
        shard = self.shard
        self._shape = weights.shape
        # Without ids, every image reads the table: one row per token.
        ids = np.tile(shard.tokens, (shard.images, 1)) if shard.data is None else shard.data
        self._held = np.isin(ids, shard.rows)
        self._row = np.searchsorted(shard.rows, ids[self._held])
        features = np.zeros((*ids.shape, weights.shape[1]))
        features[self._held] = self._scale * weights[self._row]
        return features

    def backward(self, error: Array, sums: Array | None) -> tuple[Sequence[Array], Array | None]:  # noqa: ARG002
        gradient = np.zeros(self._shape)
        np.add.at(gradient, self._row, self._scale * error[self._held])
        return [], gradient

    @property
    def _scale(self) -> float:
        return cast("Embedding", self.shard.layer).scale or 1.0


KINDS: dict[str, type[Arithmetic]] = {
    "conv": ConvArithmetic,
    "fc": FullyConnectedArithmetic,
    "embedding": EmbeddingArithmetic,
}
