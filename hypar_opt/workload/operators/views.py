"""Layers without weights that reshape a map, permute its channels, or select some of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar, Literal

from hypar_opt.documents.document import Size
from hypar_opt.errors import RefusedError
from hypar_opt.workload.operators.axes import CHANNELS, OUTPUT, SPATIAL, Contraction, Parts, Run
from hypar_opt.workload.operators.free_sizes import (
    FreeSizes,
    SmallLayer,
    SmallMap,
    constant,
    times,
)
from hypar_opt.workload.operators.kernels import NO_KERNELS, NOTHING_RUNS, Fused, PassesKernels
from hypar_opt.workload.operators.maps import (
    ExpertMap,
    FeatureMap,
    LayerMaps,
    Map,
    TokenMap,
    described,
)
from hypar_opt.workload.operators.weightless import Weightless, channel_sizes
from hypar_opt.workload.operators.windows import Border, Pair, Window


class Flatten(Weightless):
    """An image or tokens as one vector, or an image's pixels as tokens."""

    kind: Literal["flatten"]
    to: Literal["features", "tokens"] = "features"

    writes_vectors: ClassVar[bool] = True

    def kernels(self, sizes: Mapping[str, int], *, fused: Fused) -> PassesKernels:  # noqa: ARG002
        return NOTHING_RUNS  # the same bytes, seen otherwise

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        output: Map = FeatureMap(read.elements)
        if self.to == "tokens":
            output = TokenMap(read.positions, read.channels)
        return LayerMaps(read, output, output)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        # The positions of a channel stay together, so a split goes by channel.
        sizes = {"c": maps.input.channels}
        return {"t": maps.output.tokens, **sizes} if maps.output.tokens else sizes

    def parts(self, maps: LayerMaps) -> tuple[Parts, ...]:
        if self.to == "tokens" or not maps.input.tokens:
            return super().parts(maps)
        # A sequence is flattened token by token, an image channel by channel.
        runs = Run(OUTPUT, repeats=maps.input.tokens), Run(0)
        return (Parts(CHANNELS.part, maps.input.channels, runs, CHANNELS.axis),)

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:  # noqa: ARG002
        (read,) = reads
        positions = read.tokens or constant(math.prod(read.extent))
        if self.to == "tokens":
            return SmallMap(read.channels, positions), {}
        return SmallMap(times(read.channels, small.of(positions)), None), {}


class Unflatten(Weightless):
    """Tokens, or a vector, as an image: its pixels row by row; of a vector, channel by channel."""

    kind: Literal["unflatten"]
    height: Size
    width: Size

    contraction: ClassVar[Contraction] = Contraction.parse("x[b,t,c] -> y[b,t,c,p,q]")
    writes_images: ClassVar[bool] = True

    def kernels(self, sizes: Mapping[str, int], *, fused: Fused) -> PassesKernels:  # noqa: ARG002
        return NOTHING_RUNS  # the same bytes, seen otherwise

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        pixels = self.height * self.width
        if isinstance(read, TokenMap):
            if read.tokens != pixels:
                problem = f"should have {read.tokens} pixels with its width, got {pixels}"
                raise self.refuse("height", problem)
            channels = read.channels
        elif isinstance(read, FeatureMap) and read.positions == 1:
            channels, rest = divmod(read.channels, pixels)
            if rest:
                problem = f"should divide {read.channels} features with its width, got {pixels}"
                raise self.refuse("height", f"{problem} pixels")
        else:
            raise self.refuse("inputs", f"should be tokens or a vector, got {described(read)}")
        output = FeatureMap(channels, self.height, self.width)
        return LayerMaps(read, output, output)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        sizes = {"c": maps.output.channels, "p": self.height, "q": self.width}
        return {"t": maps.input.tokens, **sizes} if maps.input.tokens else sizes

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:  # noqa: ARG002
        (read,), extent = reads, (self.height, self.width)
        if read.tokens is None:
            features = small.number(read.channels)
            if features is not None:
                width = math.gcd(features, self.width)
                extent = math.gcd(features // width, self.height), width
            channels = small.free()
            small.equate(read.channels, times(channels, math.prod(extent)), self.name)
        else:
            channels, tokens = read.channels, small.of(read.tokens)
            if tokens != math.prod(extent):
                width = math.gcd(tokens, self.width)
                extent = tokens // width, width
        sizes = dict(zip(("height", "width"), map(constant, extent), strict=True))
        return SmallMap(channels, None, extent), sizes


class Shuffle(Weightless):
    """ShuffleNet's channel shuffle: the channels of ``groups`` groups, dealt out in turn.

    Source: Zhang et al., "ShuffleNet", CVPR 2018, section 3.1.
    """

    kind: Literal["shuffle"]
    groups: Size

    contraction: ClassVar[Contraction] = Contraction.parse("x[b,x,t,k,c',p,q] -> y[b,x,t,k,c,p,q]")

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        if read.channels % self.groups:
            raise self.refuse(
                "groups", f"should divide the {read.channels} channels, got {self.groups}"
            )
        return super().maps(read)

    def parts(self, maps: LayerMaps) -> tuple[Parts, ...]:  # noqa: ARG002
        return ()  # each part of its output has channels from all groups of its input

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:  # noqa: ARG002
        return reads[0], {"groups": constant(min(2, self.groups))}


class PixelShuffle(Weightless):
    """An image enlarged by pixels that are channels before; or made smaller, the reverse.

    Source: Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient
    Sub-Pixel Convolutional Neural Network", CVPR 2016, section 3.2.
    """

    kind: Literal["pixel_shuffle"]
    to: Literal["space", "depth"] = "space"
    """Whether blocks of pixels are made of channels, or channels of blocks of pixels."""
    factor: Pair = (2, 2)
    order: Literal["chw", "hwc", "whc"] = "chw"
    """The order of the deeper channels: by channel c of the larger image, and by row h and column w
    in a block, the outermost first."""

    reads_images: ClassVar[bool] = True

    def window_along(self, axis: str) -> Window:
        factor = self.factor[SPATIAL.index(axis)]
        return Window(factor, factor) if self.to == "depth" else Window(stride=Fraction(1, factor))

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        assert isinstance(read, FeatureMap)  # `reads_images`
        (rows, columns), block = self.factor, math.prod(self.factor)
        if self.to == "space":
            if read.channels % block:
                problem = f"should divide the {read.channels} channels in blocks, got {block}"
                raise self.refuse("factor", problem)
            output = FeatureMap(read.channels // block, read.height * rows, read.width * columns)
        else:
            if read.height % rows or read.width % columns:
                problem = f"should divide {read.height}x{read.width} pixels, got {rows}x{columns}"
                raise self.refuse("factor", problem)
            output = FeatureMap(read.channels * block, read.height // rows, read.width // columns)
        return LayerMaps(read, output, output)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        # All pixels of a block stay together, so that channels of the larger image are split.
        return {**channel_sizes(maps), "c": min(maps.input.channels, maps.output.channels)}

    def parts(self, maps: LayerMaps) -> tuple[Parts, ...]:
        block = math.prod(self.factor)
        deep, plain = (0, OUTPUT) if self.to == "space" else (OUTPUT, 0)
        run = Run(deep, scale=block) if self.order == "chw" else Run(deep, repeats=block)
        count = self.sizes(maps)["c"]
        # The output's comes first.
        runs = sorted((run, Run(plain)), key=lambda run: run.tensor)
        return (Parts(CHANNELS.part, count, tuple(runs), CHANNELS.axis),)

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:  # noqa: ARG002
        (read,), (rows, columns) = reads, self.factor
        (height, width), block = read.extent, rows * columns
        if self.to == "space":
            channels = small.free()
            small.equate(read.channels, times(channels, block), self.name)
            return SmallMap(channels, None, (height * rows, width * columns)), {}
        if height % rows or width % columns:
            raise RefusedError(f"layer {self.name!r}: its small image has no blocks of its factor")
        return SmallMap(times(read.channels, block), None, (height // rows, width // columns)), {}


class Slice(Weightless):
    """A range of the channels of a map: ``size`` of them from ``start``."""

    kind: Literal["slice"]
    start: Border = 0
    size: Size

    def kernels(self, sizes: Mapping[str, int], *, fused: Fused) -> PassesKernels:
        _, back, gradient = super().kernels(sizes, fused=fused)
        return NO_KERNELS, back, gradient  # a view; backward, zeros are written around its error

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        assert not isinstance(read, ExpertMap)  # `reads_experts`
        end = self.start + self.size
        if end > read.channels:
            problem = f"should end at most at channel {read.channels}, got {end}"
            raise self.refuse("size", problem)
        output = read._replace(channels=self.size)
        return LayerMaps(read, output, output)

    def parts(self, maps: LayerMaps) -> tuple[Parts, ...]:  # noqa: ARG002
        runs = Run(OUTPUT), Run(0, offset=self.start)
        return (Parts(CHANNELS.part, self.size, runs, CHANNELS.axis),)

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:
        (read,) = reads
        if maps.input.channels % self.size or self.start % self.size:
            raise RefusedError(f"layer {self.name!r}: its channels are no equal part of its input")
        size = small.free()
        small.equate(read.channels, times(size, maps.input.channels // self.size), self.name)
        keys = {"start": times(size, self.start // self.size), "size": size}
        return read._replace(channels=size), keys
