"""Layers without weights that treat all channels the same: sums, products, pools and losses."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import accumulate
from typing import Annotated, ClassVar, Literal

from hypar_opt.documents.document import Positive, Size
from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.axes import (
    ADDENDS,
    CHANNELS,
    DATA_CHOICE,
    OUTPUT,
    REPLICATED,
    SPATIAL,
    TOKENS,
    Choice,
    Contraction,
    Parts,
    Run,
)
from hypar_opt.workload.operators.base import Activation, Statistics, default
from hypar_opt.workload.operators.free_sizes import (
    FreeSizes,
    SmallLayer,
    SmallMap,
    constant,
    plus,
)
from hypar_opt.workload.operators.kernels import (
    NO_KERNELS,
    Fused,
    Loss,
    PassesKernels,
    PassKernels,
)
from hypar_opt.workload.operators.maps import (
    ExpertMap,
    FeatureMap,
    LayerMaps,
    Map,
    TokenMap,
    described,
)
from hypar_opt.workload.operators.saved import Intermediate, Saved, activated
from hypar_opt.workload.operators.weightless import WITH_EXPERTS, Weightless
from hypar_opt.workload.operators.windows import Pair, PoolWindow, Window

_SINGLE_POSITION_CHOICES = FrozenDict(
    data=DATA_CHOICE, model=CHANNELS, output=REPLICATED, tokens=TOKENS
)


class _Broadcast(Weightless):
    """Two or more inputs of one size; one with a single position is broadcast to all."""

    activation: Activation | None = None

    reads: ClassVar[tuple[int, int]] = (2, 2**31)
    choices: ClassVar[Mapping[str, Choice]] = WITH_EXPERTS
    reads_experts: ClassVar[bool] = True

    def maps(self, *reads: Map) -> LayerMaps:
        # A single token and a vector have one position each; their sum is a token.
        largest = max(reads, key=lambda read: (read.positions, read.tokens))
        for read in reads:
            if read != largest and (read.positions, read.channels) != (1, largest.channels):
                raise self.refuse(
                    "inputs",
                    f"should be of one size, got {described(largest)} and {described(read)}",
                )
        return LayerMaps(reads[0], largest, largest, reads[1:])

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:
        first = reads[maps.inputs.index(maps.output)]
        for read, was in zip(reads, maps.inputs, strict=True):
            small.equate(read.channels, first.channels, self.name)
            if read.features and first.features:
                small.equate(read.features, first.features, self.name)
            if was.positions == maps.output.positions and first.tokens and read.tokens:
                small.equate(read.tokens, first.tokens, self.name)
        return first, {}


class Add(_Broadcast):
    """The sum of its inputs: a residual connection, or an embedding of positions."""

    kind: Literal["add"]
    dropout: Annotated[bool | None, default(False)] = None
    """Whether its last input is dropped at random: for time and memory; a run adds all of it."""

    choices: ClassVar[Mapping[str, Choice]] = FrozenDict({**WITH_EXPERTS, "addends": ADDENDS})
    merges: ClassVar[bool] = True

    @property
    def splits(self) -> Mapping[str, Choice]:
        return self.choices if self.leaves_addends and not self.dropout else WITH_EXPERTS

    def kernels(self, sizes: Mapping[str, int], *, fused: Fused) -> PassesKernels:
        there, back, gradient = super().kernels(sizes, fused=fused)
        if not self.dropout:
            return there, back, gradient
        # The dropout mask has one byte per element of two; backward it is read, and the error
        # written.
        return there._replace(output=2), back._replace(output=4), gradient

    def saves(self, *, fused: Fused) -> Saved:
        mask = Intermediate(self.axes.output, bytes=1)
        return super().saves(fused=fused)._replace(intermediates=(mask,) if self.dropout else ())


_GATED = Contraction.parse("x[b,t,c] * z[b,t] -> y[b,t,c]")


class Mul(_Broadcast):
    """The product of its inputs, element by element: a gate."""

    kind: Literal["mul"]
    gate: Annotated[bool | None, default(False)] = None
    """Whether its second input is a number for each token, by which all features are multiplied."""

    @property
    def axes(self) -> Contraction:
        return _GATED if self.gate else self.contraction

    @property
    def splits(self) -> Mapping[str, Choice]:
        return _SINGLE_POSITION_CHOICES if self.gate else self.choices

    def maps(self, *reads: Map) -> LayerMaps:
        if not self.gate:
            return super().maps(*reads)
        first, second, *more = reads
        if more or not isinstance(first, TokenMap) or second != first._replace(channels=1):
            got = " and ".join(map(described, reads))
            raise self.refuse("inputs", f"should be tokens and a feature for each, got {got}")
        return LayerMaps(first, first, first, (second,))

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:
        if not self.gate:
            return super().scaled_down(small, maps, *reads)
        small.equate(reads[1].channels, constant(1), self.name)
        return reads[0], {}

    def saves(self, *, fused: Fused) -> Saved:  # noqa: ARG002
        return activated(self.activation, inputs=True)


class Concat(Weightless):
    """Its inputs concatenated: by channels, or one sequence after the other."""

    kind: Literal["concat"]
    axis: Literal["channels", "tokens"] = "channels"

    reads: ClassVar[tuple[int, int]] = (2, 2**31)
    merges: ClassVar[bool] = True

    def maps(self, *reads: Map) -> LayerMaps:
        plain = [read for read in reads if not isinstance(read, ExpertMap)]  # `reads_experts`
        first, *rest = plain
        output: Map | None = None
        if self.axis == "tokens":
            if all(isinstance(read, TokenMap) for read in plain):
                output = TokenMap(sum(read.tokens for read in plain), first.channels)
                fits = {read.channels for read in plain} == {first.channels}
        else:
            fits = all(
                type(read) is type(first)
                and read._replace(channels=1) == first._replace(channels=1)
                for read in plain
            )
            output = first._replace(channels=sum(read.channels for read in plain))
        if output is None or not fits:
            got = " and ".join(map(described, reads))
            raise self.refuse("inputs", f"should differ in {self.axis} alone, got {got}")
        return LayerMaps(first, output, output, tuple(rest))

    def parts(self, maps: LayerMaps) -> tuple[Parts, ...]:
        if self.axis == "tokens":
            return super().parts(maps)
        counts = [read.channels for read in maps.inputs]
        return tuple(
            Parts(
                CHANNELS.part,
                count,
                (Run(OUTPUT, offset=end - count), Run(number)),
                CHANNELS.axis,
            )
            for number, (count, end) in enumerate(zip(counts, accumulate(counts), strict=True))
        )

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:  # noqa: ARG002
        first, *rest = reads
        tokens = [read.tokens for read in reads if read.tokens]
        if self.axis == "tokens":
            for read in rest:
                small.equate(read.channels, first.channels, self.name)
            return first._replace(tokens=plus(tokens)), {}
        for size in tokens[1:]:
            small.equate(size, tokens[0], self.name)
        return first._replace(channels=plus(read.channels for read in reads)), {}


class Pool(Weightless):
    """A separate pool, where it cannot be fused with the layer before it."""

    kind: Literal["pool"]
    pool: PoolWindow

    reads_images: ClassVar[bool] = True

    def window_along(self, axis: str) -> Window:
        return self.pool.window(axis)

    def saves(self, *, fused: Fused) -> Saved:  # noqa: ARG002
        return Saved(inputs=self.pool.kind == "max")

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        assert isinstance(read, FeatureMap)
        output = self.pool.pooled(self.name, read)
        return LayerMaps(read, output, output)

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:  # noqa: ARG002
        (read,) = reads
        pooled = self.pool.pooled(self.name, FeatureMap(1, *read.extent))
        return read._replace(extent=(pooled.height, pooled.width)), {}


class Upsample(Weightless):
    """An image enlarged: each pixel repeated ``factor`` times along rows and columns."""

    kind: Literal["upsample"]
    factor: Pair = (2, 2)

    reads_images: ClassVar[bool] = True

    def window_along(self, axis: str) -> Window:
        return Window(stride=Fraction(1, self.factor[SPATIAL.index(axis)]))

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        assert isinstance(read, FeatureMap)
        rows, columns = self.factor
        output = FeatureMap(read.channels, read.height * rows, read.width * columns)
        return LayerMaps(read, output, output)

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:  # noqa: ARG002
        (read,), (rows, columns) = reads, self.factor
        height, width = read.extent
        return read._replace(extent=(height * rows, width * columns)), {}


class GlobalPool(Weightless):
    """One vector for all positions: their average or maximum, or the first or last token."""

    kind: Literal["global_pool"]
    over: Literal["average", "max", "first", "last"] = "average"

    # An average over some rows is a partial sum of the whole average.
    contraction: ClassVar[Contraction] = Contraction.parse("x[b,t,c,p,q] -> y[b,t,c]")
    writes_vectors: ClassVar[bool] = True

    @property
    def splits(self) -> Mapping[str, Choice]:
        return self.choices if self.over == "average" else _SINGLE_POSITION_CHOICES

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        sizes, read = super().sizes(maps), maps.input
        if not isinstance(read, FeatureMap) or read.positions == 1:
            return sizes
        return {**sizes, "p": read.height, "q": read.width}

    def saves(self, *, fused: Fused) -> Saved:  # noqa: ARG002
        return Saved(inputs=self.over == "max")

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        if self.over in ("first", "last") and not isinstance(read, TokenMap):
            raise self.refuse("over", f"{self.over!r} needs tokens, got {described(read)}")
        output = FeatureMap(read.channels)
        return LayerMaps(read, output, output)

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:  # noqa: ARG002
        return SmallMap(reads[0].channels, None), {}


_SINGLES_PER_LOGIT: Mapping[Loss, int] = FrozenDict(
    {"eager": 3, "in-place-eager": 1, "in-place": 1, "fused": 0}
)
"""The single-precision values per logit, by implementation of the loss."""


# Kernels move quarters of elements; the bytes below are of elements of 2 bytes. Eagerly a pass has
# 24 of each logit: the largest, exponentials and their sum in single precision, and as many
# backward. In place, compiled, it copies (reads 2, writes 4) and takes exponentials (4, 4), and
# backward errors (4, 4) and a copy of them (4, 2). In place, one operation after the other as in
# Megatron-LM, these are the copy (2, 4), the largest (4, 0), differences (4, 4), exponentials
# (4, 4), their sum (4, 0) and quotients (4, 4), and backward products (4, 4) and the copy (4, 2).
# Fused it reads a logit forward, and backward reads it and writes its error.
_LOSS_KERNELS: Mapping[Loss, tuple[PassKernels, PassKernels]] = FrozenDict(
    {
        "eager": (PassKernels(output=48, launches=3), PassKernels(output=48, launches=3)),
        "in-place-eager": (PassKernels(output=76, launches=6), PassKernels(output=28, launches=2)),
        "in-place": (PassKernels(output=28, launches=2), PassKernels(output=28, launches=2)),
        "fused": (PassKernels(output=4, launches=1), PassKernels(output=8, launches=1)),
    }
)
"""The forward and the backward kernels of a loss, by implementation."""


class Output(Weightless):
    """The end of a network: softmax and loss of each token or image; or an unchanged output."""

    kind: Literal["output"]
    loss: Literal["softmax", "none"] = "softmax"
    softcap: Positive | None = None
    """The bound of logits, each replaced by softcap * tanh(logit / softcap) before the loss."""
    classes: Size | None = None
    """The channels that a softmax is over, the first ones; others are padding. By default all, or
    the units of a padded layer that it reads."""

    # Whole, each part computes the whole loss: a last resort.
    choices: ClassVar[Mapping[str, Choice]] = FrozenDict(
        {word: choice for word, choice in Weightless.choices.items() if choice != REPLICATED}
    )
    ends: ClassVar[bool] = True

    def kernels(self, sizes: Mapping[str, int], *, fused: Fused) -> PassesKernels:  # noqa: ARG002
        there, back = (
            _LOSS_KERNELS[fused.loss] if self.loss == "softmax" else (NO_KERNELS, NO_KERNELS)
        )
        if self.softcap is not None and (self.loss == "none" or fused.loss != "fused"):
            # The soft cap is an activation of the logits, unless the loss is fused.
            there = there._replace(output=there.output + 8, launches=there.launches + 1)
            back = back._replace(output=back.output + 12, launches=back.launches + 1)
        return there, back, NO_KERNELS

    def saves(self, *, fused: Fused) -> Saved:
        if self.loss == "none":
            return Saved(intermediates=self._tangents)
        singles = _SINGLES_PER_LOGIT[fused.loss]
        tangents = self._tangents if singles else ()
        return Saved(
            inputs=singles > 0, intermediates=tangents, singles=singles, unwritten=not singles
        )

    @property
    def _tangents(self) -> tuple[Intermediate, ...]:
        return () if self.softcap is None else (Intermediate(self.axes.output, 1),)

    @property
    def statistics(self) -> Statistics:
        # The largest logit, the sum of exponentials, and the target's logit, each of which a part
        # has only for its own channels.
        return Statistics(forward=3) if self.loss == "softmax" else Statistics()

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        if self.classes is not None and (self.loss == "none" or self.classes > read.channels):
            limit = (
                f"at most {read.channels}" if self.loss == "softmax" else "left out without loss"
            )
            raise self.refuse("classes", f"should be {limit}, got {self.classes}")
        return super().maps(read)

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:
        written, keys = super().scaled_down(small, maps, *reads)
        if self.classes is not None and self.classes < maps.input.channels:
            keys["classes"] = plus([written.channels, constant(-1)])
        return written, keys
