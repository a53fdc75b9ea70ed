"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from hypar_opt.documents.document import Size
from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.axes import (
    COLUMNS,
    DATA_CHOICE,
    INPUT_CHANNELS,
    OUTPUT_CHANNELS,
    ROWS,
    SPATIAL,
    Choice,
    Contraction,
)
from hypar_opt.workload.operators.base import Activation, Operator, default, elements
from hypar_opt.workload.operators.free_sizes import (
    FreeSizes,
    SmallLayer,
    SmallMap,
    constant,
    times,
)
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.operators.maps import FeatureMap, LayerMaps, Map
from hypar_opt.workload.operators.saved import Saved
from hypar_opt.workload.operators.windows import Borders, Pair, PoolWindow, Window, slide

GROUPS = Choice("channel", "g", "group", "●", "M")
"""A grouped convolution is split by group: kernel, input and output alike."""


_GROUPED_CHOICES = FrozenDict(data=DATA_CHOICE, model=GROUPS, rows=ROWS, columns=COLUMNS)
_TRANSPOSED = FrozenDict(data=DATA_CHOICE, model=INPUT_CHANNELS, output=OUTPUT_CHANNELS)
_TRANSPOSED_GROUPED = FrozenDict(data=DATA_CHOICE, model=GROUPS)


class Conv(Operator):
    """A convolution with ``filters`` output channels, in groups of channels or in one.

    Transposed, it writes what another convolution of that kernel, stride and padding would read:
    each pixel of its input adds a window to its output, and padding cuts borders off.

    Source: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016,
    chapter 4.
    """

    kind: Literal["conv"]
    filters: Size
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Borders = (0, 0)
    # None for a default that version 1 of the format did not have: its digests stay.
    groups: Annotated[Size | None, default(1)] = None
    dilation: Annotated[Pair | None, default((1, 1))] = None
    transposed: Annotated[bool | None, default(False)] = None
    bias: Annotated[bool | None, default(False)] = None
    part: Annotated[bool | None, default(False)] = None
    """Whether a model's module has its weights beside those of others: its name is the module's and
    its own behind a dot."""
    activation: Activation | None = None
    pool: PoolWindow | None = None

    # Rows p and columns q are the output's, and those of the input that they read; the input's own
    # sizes are h and w. A convolution in one group has no axis g.
    contraction: ClassVar[Contraction] = Contraction.parse(
        "x[b,g,i,p,q] * w[k,l,g,i,o] -> y[b,g,o,p,q]"
    )
    choices: ClassVar[Mapping[str, Choice]] = FrozenDict(
        data=DATA_CHOICE,
        model=INPUT_CHANNELS,
        output=OUTPUT_CHANNELS,
        rows=ROWS,
        columns=COLUMNS,
    )
    # Convolutions have few weights and large feature maps; data parallelism moves the weights.
    trick: ClassVar[str] = "data"
    reads_images: ClassVar[bool] = True
    adds_bias: ClassVar[bool] = True

    @property
    def fused_pool(self) -> PoolWindow | None:
        return self.pool

    def saves(self, *, fused: Fused) -> Saved:
        saved = super().saves(fused=fused)
        maximum = self.pool is not None and self.pool.kind == "max"
        return saved._replace(output=saved.output or maximum)

    @property
    def splits(self) -> Mapping[str, Choice]:
        if self.transposed:
            return _TRANSPOSED_GROUPED if self._groups > 1 else _TRANSPOSED
        return _GROUPED_CHOICES if self._groups > 1 else self.choices

    @property
    def _groups(self) -> int:
        return self.groups or 1

    def window_along(self, axis: str) -> Window:
        number = SPATIAL.index(axis)
        dilation = self.dilation[number] if self.dilation else 1
        reach = (self.kernel[number] - 1) * dilation + 1
        return Window(reach, self.stride[number], self.padding[number])

    def _slide(self, read: FeatureMap, filters: int) -> FeatureMap:
        window = self.window_along(ROWS.axis).size, self.window_along(COLUMNS.axis).size
        if not self.transposed:
            return slide(self.name, "kernel", read, window, self.stride, self.padding, filters)
        whole = [
            (extent - 1) * step + reach
            for extent, step, reach in zip(read[1:], self.stride, window, strict=True)
        ]
        height, width = (
            size - before - after
            for size, before, after in zip(whole, self.padding[:2], self.padding[-2:], strict=True)
        )
        if min(height, width) < 1:
            shape = "x".join(map(str, whole))
            raise self.refuse(
                "padding", f"should leave a part of {shape} pixels, got {list(self.padding)}"
            )
        return FeatureMap(filters, height, width)

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        assert isinstance(read, FeatureMap)  # `reads_images`
        for key, channels in (("input channels", read.channels), ("filters", self.filters)):
            if channels % self._groups:
                raise self.refuse(
                    "groups", f"should divide the {channels} {key}, got {self._groups}"
                )
        output = self._slide(read, self.filters)
        # The pool belongs to the layer: the next layer reads the pooled map, which crosses the
        # boundary.
        pooled = self.pool.pooled(self.name, output) if self.pool else output
        return LayerMaps(read, output, pooled)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        read, output, *_ = maps
        assert isinstance(read, FeatureMap)
        assert isinstance(output, FeatureMap)
        rows, columns = self.kernel
        sizes = {
            "i": read.channels // self._groups,
            "h": read.height,
            "w": read.width,
            "k": rows,
            "l": columns,
            "o": output.channels // self._groups,
            "p": output.height,
            "q": output.width,
        }
        return {"g": self._groups, **sizes} if self._groups > 1 else sizes

    def macs(self, sizes: Mapping[str, int]) -> int:
        if not self.transposed:
            return super().macs(sizes)
        # Each pixel of the input is multiplied by a whole window.
        return elements(("b", "h", "w", *self.axes.weight), sizes)

    def fan_in(self, sizes: Mapping[str, int]) -> int:
        summed = super().fan_in(sizes)
        return max(1, summed // math.prod(self.stride)) if self.transposed else summed

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:
        (read,) = reads
        keys = {"filters": small.free()}
        if self._groups == maps.input.channels > 1:  # depthwise: one group per channel
            keys["filters"] = times(read.channels, self.filters // self._groups)
            keys["groups"] = read.channels
        elif self._groups > 1:
            keys["groups"] = constant(small.parts)
        output = self._slide(FeatureMap(1, *read.extent), 1)
        output = self.pool.pooled(self.name, output) if self.pool else output
        return SmallMap(keys["filters"], None, (output.height, output.width)), keys
