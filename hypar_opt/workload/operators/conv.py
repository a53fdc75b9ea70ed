"""Convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from hypar_opt.documents import Size
from hypar_opt.workload.operators.axes import (
    DATA_CHOICE,
    INPUT_CHANNELS,
    OUTPUT_CHANNELS,
    Choice,
    Contraction,
)
from hypar_opt.workload.operators.base import FeatureMap, LayerMaps, Operator
from hypar_opt.workload.operators.windows import BorderPair, Pair, Pool, slide


class Conv(Operator):
    """A convolution with ``filters`` output channels; no biases."""

    kind: Literal["conv"]
    filters: Size
    kernel: Pair
    stride: Pair = (1, 1)
    padding: BorderPair = (0, 0)
    activation: Annotated[str, Field(min_length=1)] | None = None
    pool: Pool | None = None

    # Rows and columns of the input (h, w) and of the output (p, q) are axes of their own; no choice
    # halves them, since the paper splits batches and channels only (section 3.1).
    contraction: ClassVar[Contraction] = Contraction.parse("x[b,i,h,w] * w[k,l,i,o] -> y[b,o,p,q]")
    choices: ClassVar[tuple[Choice, ...]] = (DATA_CHOICE, INPUT_CHANNELS, OUTPUT_CHANNELS)
    # Convolutions have few weights and large feature maps; data parallelism moves the weights.
    trick: ClassVar[str] = "data"
    reads_images: ClassVar[bool] = True

    def maps(self, read: FeatureMap) -> LayerMaps:
        output = slide(
            self.name, "kernel", read, self.kernel, self.stride, self.padding, self.filters
        )
        # The pool belongs to the layer: the next layer reads the pooled map, so that is what
        # crosses the boundary.
        pooled = self.pool.pooled(self.name, output) if self.pool else output
        return LayerMaps(read, output, pooled)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        rows, columns = self.kernel
        read, output, _ = maps
        return {
            "i": read.channels,
            "h": read.height,
            "w": read.width,
            "k": rows,
            "l": columns,
            "o": output.channels,
            "p": output.height,
            "q": output.width,
        }
