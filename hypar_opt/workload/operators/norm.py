"""Normalisations, with the scale and shift that they learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict, ValidationInfo, field_validator

from hypar_opt.documents.document import Size
from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.axes import (
    BATCH,
    DATA_CHOICE,
    REPLICATED,
    TOKENS,
    Choice,
    Contraction,
)
from hypar_opt.workload.operators.base import Activation, Operator, Statistics, default
from hypar_opt.workload.operators.conv import GROUPS
from hypar_opt.workload.operators.free_sizes import (
    SMALL_HEAD,
    FreeSizes,
    SmallLayer,
    SmallMap,
    constant,
    times,
)
from hypar_opt.workload.operators.kernels import Fused, PassesKernels, elementwise_kernels
from hypar_opt.workload.operators.maps import LayerMaps, Map, TokenMap, described
from hypar_opt.workload.operators.saved import Saved, activated
from hypar_opt.workload.operators.weightless import Weightless, channel_sizes

EPSILON = 1e-5
"""The default of ``epsilon``."""

_BATCH_NORM_CHOICES = FrozenDict(
    {word: choice for word, choice in Weightless.choices.items() if choice != TOKENS}
)

NORMED_HEADS = Choice("heads", "g", "head", "●", "M")
"""Each part has a share of the heads, which are normalised separately, and the shared scale."""

_HEAD_CHOICES = FrozenDict(data=DATA_CHOICE, model=NORMED_HEADS, output=REPLICATED, tokens=TOKENS)
_BY_HEAD = Contraction.parse("x[b,t,g,e] * w[s,e] -> y[b,t,g,e]")


_GROUP_NORM_CHOICES = FrozenDict({**Weightless.choices, "model": GROUPS})


class Norm(Operator):
    """A normalisation: over a token's features, over the batch, or a learned scale alone.

    Where the batch or images are split, a batch norm takes the statistics of its shard, as
    frameworks do by default; where channels are split, it needs no exchange. A layer norm then
    all-reduces its sums; but of ``heads`` of a token each is normalised by itself, and all have one
    scale, whose gradient is all-reduced where heads are split. The sums of ``groups`` are over all
    positions, too, so that they are all-reduced where rows, columns or tokens are split; channels
    are split by whole groups, or within the only one.

    Source: Wu and He, "Group Normalization", ECCV 2018; of a channel each, Ulyanov, Vedaldi and
    Lempitsky, "Instance Normalization", 2016.
    """

    kind: Literal["norm"]
    norm: Literal["layer", "rms", "batch", "affine"]
    bias: bool | None = None
    """Whether it learns a shift too; by default all but ``rms`` do."""
    epsilon: Annotated[
        float | None, Strict(), Field(ge=0, allow_inf_nan=False), default(EPSILON)
    ] = None
    """What is added to the variance, or to the mean square."""
    heads: Annotated[Size | None, default(1)] = None
    """The equal parts of a token's channels that are normalised one by one: heads of queries or
    keys. Scale and shift are those of one, the same for all."""
    groups: Size | None = None
    """The equal parts of the channels that are normalised one by one, each with all positions of an
    image or a sequence; without it, each position is. Scale and shift are each channel's."""
    activation: Activation | None = None

    # Scale and shift are the two values of s.
    # Channels c are those of one of several groups g.
    contraction: ClassVar[Contraction] = Contraction.parse(
        "x[b,t,g,c,p,q] * w[s,g,c] -> y[b,t,g,c,p,q]"
    )
    choices: ClassVar[Mapping[str, Choice]] = Weightless.choices
    trick: ClassVar[str] = "data"

    @field_validator("bias")
    @classmethod
    def _default_is_left_out(cls, given: bool | None, info: ValidationInfo) -> bool | None:
        return None if given == (info.data.get("norm") != "rms") else given

    @property
    def axes(self) -> Contraction:
        return _BY_HEAD if self.heads else self.contraction

    @property
    def splits(self) -> Mapping[str, Choice]:
        if self.heads:
            return _HEAD_CHOICES
        if self._has_groups:
            return _GROUP_NORM_CHOICES
        # Frameworks take batch statistics per shard of images or rows, but not per shard of tokens.
        return _BATCH_NORM_CHOICES if self.norm == "batch" else self.choices

    @property
    def _has_groups(self) -> bool:
        """Whether there are several groups, each of which a split keeps whole."""
        return (self.groups or 1) > 1

    @property
    def _shifts(self) -> bool:
        return self.norm != "rms" if self.bias is None else self.bias

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        of_tokens = isinstance(read, TokenMap)
        if self.heads and self.groups:
            raise self.refuse("groups", "should be left out where there are heads")
        for key, count in (("heads", self.heads), ("groups", self.groups)):
            if count and self.norm not in ("layer", "rms"):
                raise self.refuse(key, f"should be left out where norm = {self.norm!r}")
            if self.heads and not of_tokens:
                raise self.refuse("heads", f"needs tokens, got {described(read)}")
            if count and read.channels % count:
                what = "features" if of_tokens else "channels"
                problem = f"should divide the {read.channels} {what}, got {count} {key}"
                raise self.refuse(key, problem)
        return LayerMaps(read, read, read)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        learned = {"s": 1 + self._shifts}
        if self.heads:
            size = maps.input.channels // self.heads
            return {**learned, "t": maps.input.tokens, "g": self.heads, "e": size}
        sizes = {**learned, **channel_sizes(maps)}
        if not self._has_groups:
            return sizes
        assert self.groups is not None
        return {**sizes, "g": self.groups, "c": sizes["c"] // self.groups}

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:
        if not self.heads:
            output, keys = super().scaled_down(small, maps, *reads)
            if self._has_groups:
                alone = self.groups == maps.input.channels  # each channel is a group
                keys = {"groups": reads[0].channels if alone else constant(small.parts)}
            return output, keys
        (read,), heads = reads, small.free()
        small.equate(read.channels, times(heads, SMALL_HEAD), self.name)
        return read, {"heads": heads}

    def fan_in(self, sizes: Mapping[str, int]) -> int:  # noqa: ARG002
        return 0

    def macs(self, sizes: Mapping[str, int]) -> int:  # noqa: ARG002
        return 0  # elementwise, as activations are

    def kernels(self, sizes: Mapping[str, int], *, fused: Fused) -> PassesKernels:  # noqa: ARG002
        # Statistics over images take a kernel of their own; a token's are computed on chip.
        over_images = self.norm == "batch" or bool(self.groups)
        passes = (6, 10) if over_images else (4, 7)
        launches = 2 if over_images else 1
        return elementwise_kernels(
            *passes, launches=launches, activation=self.activation is not None
        )

    def saves(self, *, fused: Fused) -> Saved:  # noqa: ARG002
        return activated(self.activation, inputs=True)

    @property
    def statistics(self) -> Statistics:
        # Sum and sum of squares; backward, those of the error and of its product with the output.
        # Heads stay whole, so each part has the statistics of its own.
        of = {} if self.heads else {"layer": Statistics(2, 2), "rms": Statistics(1, 1)}
        statistics = of.get(self.norm, Statistics())
        return statistics._replace(axes=(BATCH, GROUPS.axis)) if self.groups else statistics
