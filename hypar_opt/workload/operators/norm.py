"""Normalisations, with the scale and shift that they learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from hypar_opt.documents.document import Size
from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.axes import DATA_CHOICE, REPLICAS, TOKENS, Choice, Contraction
from hypar_opt.workload.operators.base import Activation, Operator, Statistics, default
from hypar_opt.workload.operators.free_sizes import (
    SMALL_HEAD,
    FreeSizes,
    SmallLayer,
    SmallMap,
    times,
)
from hypar_opt.workload.operators.kernels import Fused, PassesKernels, of_elements
from hypar_opt.workload.operators.maps import LayerMaps, Map, TokenMap, described
from hypar_opt.workload.operators.saved import Saved, activated
from hypar_opt.workload.operators.weightless import Weightless, channel_sizes

EPSILON = 1e-5
"""The default of ``epsilon``."""

_OF_BATCH = FrozenDict({word: own for word, own in Weightless.choices.items() if own != TOKENS})

NORMED_HEADS = Choice("heads", "g", "head", "●", "M")
"""Each part has a share of the heads that are normalised one by one, and the scale of all."""

_OF_HEADS = FrozenDict(data=DATA_CHOICE, model=NORMED_HEADS, output=REPLICAS, tokens=TOKENS)
_BY_HEAD = Contraction.parse("x[b,t,g,e] * w[s,e] -> y[b,t,g,e]")


class Norm(Operator):
    """A normalisation: over a token's features, over the batch, or a learned scale alone.

    Where the batch or images are split, a batch norm takes the statistics of its shard, as
    frameworks do by default; where channels are split, it needs no exchange. A layer norm then
    all-reduces its sums; but of ``heads`` of a token each is normalised by itself, and all have one
    scale, whose gradient is all-reduced where heads are split.
    """

    kind: Literal["norm"]
    norm: Literal["layer", "rms", "batch", "affine"]
    bias: bool | None = None
    """Whether it learns a shift too; by default all but ``rms`` do."""
    epsilon: Annotated[float | None, Field(ge=0, allow_inf_nan=False), default(EPSILON)] = None
    """What is added to the variance, or to the mean square."""
    heads: Annotated[Size | None, default(1)] = None
    """The equal parts of a token's channels that are normalised one by one: heads of queries or
    keys. Scale and shift are those of one, the same for all."""
    activation: Activation | None = None

    # Scale and shift are the two values of s.
    contraction: ClassVar[Contraction] = Contraction.parse("x[b,t,c,p,q] * w[s,c] -> y[b,t,c,p,q]")
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
            return _OF_HEADS
        # A shard of images or rows has statistics of its own; tokens of sequences would not.
        return _OF_BATCH if self.norm == "batch" else self.choices

    @property
    def _shifts(self) -> bool:
        return self.norm != "rms" if self.bias is None else self.bias

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        if self.heads:
            if self.norm not in ("layer", "rms"):
                raise self.refuse("heads", f"should be left out where norm = {self.norm!r}")
            if not isinstance(read, TokenMap):
                raise self.refuse("heads", f"needs tokens, got {described(read)}")
            if read.channels % self.heads:
                problem = f"should divide the {read.channels} features, got {self.heads} heads"
                raise self.refuse("heads", problem)
        return LayerMaps(read, read, read)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        learned = {"s": 1 + self._shifts}
        if self.heads:
            size = maps.input.channels // self.heads
            return {**learned, "t": maps.input.tokens, "g": self.heads, "e": size}
        return {**learned, **channel_sizes(maps)}

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:
        if not self.heads:
            return super().scaled_down(small, maps, *reads)
        (read,), heads = reads, small.free()
        small.equate(read.channels, times(heads, SMALL_HEAD), self.name)
        return read, {"heads": heads}

    def fan_in(self, sizes: Mapping[str, int]) -> int:  # noqa: ARG002
        return 0

    def macs(self, sizes: Mapping[str, int]) -> int:  # noqa: ARG002
        return 0  # elementwise, as activations are

    def kernels(self, sizes: Mapping[str, int], *, fused: Fused) -> PassesKernels:  # noqa: ARG002
        # Over the batch statistics are a pass of their own; a token's are at hand.
        passes = (6, 10) if self.norm == "batch" else (4, 7)
        launches = 2 if self.norm == "batch" else 1
        return of_elements(*passes, launches=launches, activation=self.activation is not None)

    def saves(self, *, fused: Fused) -> Saved:  # noqa: ARG002
        return activated(self.activation, inputs=True)

    @property
    def statistics(self) -> Statistics:
        # Sum and sum of squares; backward, those of the error and of its product with the output.
        # Of heads, which stay whole, each part has its own.
        of = {} if self.heads else {"layer": Statistics(2, 2), "rms": Statistics(1, 1)}
        return of.get(self.norm, Statistics())
