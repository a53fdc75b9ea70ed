"""Normalisations, with the scale and shift that they learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.axes import TOKENS, Choice, Contraction
from hypar_opt.workload.operators.base import Activation, Operator, Statistics, default
from hypar_opt.workload.operators.kernels import Fused, PassesKernels, of_elements
from hypar_opt.workload.operators.maps import LayerMaps, Map
from hypar_opt.workload.operators.saved import Saved, activated
from hypar_opt.workload.operators.weightless import Weightless, channel_sizes

EPSILON = 1e-5
"""The default of ``epsilon``."""

_OF_BATCH = FrozenDict({word: own for word, own in Weightless.choices.items() if own != TOKENS})


class Norm(Operator):
    """A normalisation: over a token's features, over the batch, or a learned scale alone.

    Where the batch or images are split, a batch norm takes the statistics of its shard, as
    frameworks do by default; where channels are split, it needs no exchange. A layer norm then
    all-reduces its sums.
    """

    kind: Literal["norm"]
    norm: Literal["layer", "rms", "batch", "affine"]
    bias: bool | None = None
    """Whether it learns a shift too; by default all but ``rms`` do."""
    epsilon: Annotated[float | None, Field(ge=0, allow_inf_nan=False), default(EPSILON)] = None
    """What is added to the variance, or to the mean square."""
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
    def splits(self) -> Mapping[str, Choice]:
        # A shard of images or rows has statistics of its own; tokens of sequences would not.
        return _OF_BATCH if self.norm == "batch" else self.choices

    @property
    def _shifts(self) -> bool:
        return self.norm != "rms" if self.bias is None else self.bias

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        return LayerMaps(read, read, read)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        return {"s": 1 + self._shifts, **channel_sizes(maps)}

    def fan_in(self, sizes: Mapping[str, int]) -> int:  # noqa: ARG002
        return 0

    def macs(self, sizes: Mapping[str, int]) -> int:  # noqa: ARG002
        return 0  # elementwise, as activations are

    def kernels(self, *, fused: Fused) -> PassesKernels:  # noqa: ARG002
        # Over the batch statistics are a pass of their own; a token's are at hand.
        passes = (6, 10) if self.norm == "batch" else (4, 7)
        launches = 2 if self.norm == "batch" else 1
        return of_elements(*passes, launches=launches, activation=self.activation is not None)

    def saves(self, *, fused: Fused) -> Saved:  # noqa: ARG002
        return activated(self.activation, inputs=True)

    @property
    def statistics(self) -> Statistics:
        # Sum and sum of squares; backward, those of the error and of its product with the output.
        of = {"layer": Statistics(2, 2), "rms": Statistics(1, 1)}
        return of.get(self.norm, Statistics())
