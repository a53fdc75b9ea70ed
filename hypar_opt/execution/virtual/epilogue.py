"""A layer's epilogue: bias, activation and pool, which keep any layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from hypar_opt.execution.virtual.arithmetic.base import along_channels, position_axes
from hypar_opt.execution.virtual.arithmetic.windows import Pooling
from hypar_opt.workload.activations import ACTIVATIONS

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.maps import FeatureMap, LayerMaps


class Epilogue:
    """A layer's bias, activation and pool on one device.

    Parameters
    ----------
    bias : (channels,) or (experts, channels)
        That of what the device has of the output, if the layer has one.
    """

    def __init__(self, layer: Operator, maps: LayerMaps, bias: Array | None = None) -> None:
        self._bias = bias
        self.bias_gradient: Array | None = None
        word = getattr(layer, "activation", None)
        self._activation = ACTIVATIONS.get(word) if word else None
        self._window, self._maps = layer.fused_pool, maps
        self._pool: Pooling | None = None

    def forward(self, output: Array) -> Array:
        if self._bias is not None:
            output = output + along_channels(self._bias, output)
        self._output = output
        if self._activation is not None:
            output = self._activation[0](output)
        if self._window is None:
            return output
        extent = output.shape[2:]
        before, after = cast("FeatureMap", self._maps.output), cast("FeatureMap", self._maps.pooled)
        # A part of an image has whole windows alone.
        rows, columns = (
            whole if length == size else length // stride
            for length, size, whole, stride in zip(
                extent, before[1:], after[1:], self._window.stride, strict=True
            )
        )
        self._pool = Pooling(self._window, extent, (rows, columns))
        return self._pool.forward(output)

    def backward(self, error: Array) -> Array:
        if self._pool is not None:
            error = self._pool.backward(error)
        if self._activation is not None:
            error = error * self._activation[1](self._output)
        if self._bias is not None:
            self.bias_gradient = error.sum(axis=(0, *position_axes(error)))
        return error
