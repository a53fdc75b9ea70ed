"""Sinusoidal embedding of a number, such as the time step of diffusion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from hypar_opt.documents.document import Positive, Size
from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.axes import CHANNELS, DATA_CHOICE, REPLICATED, Choice, Contraction
from hypar_opt.workload.operators.base import Operator, default
from hypar_opt.workload.operators.free_sizes import (
    FreeSizes,
    SmallLayer,
    SmallMap,
    constant,
    times,
)
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.operators.maps import FeatureMap, LayerMaps, Map, described
from hypar_opt.workload.operators.saved import Saved

SINUSOID_BASE = 10_000.0


class Sinusoid(Operator):
    """A number embedded as cosines and sines of its multiples, ``features / 2`` of each.

    Of a number t, feature j of either half is of the angle ``scale t / base^(2j / features)``.

    Source: J. Ho, A. Jain and P. Abbeel, "Denoising Diffusion Probabilistic Models", NeurIPS 2020,
    appendix B; A. Vaswani et al., "Attention Is All You Need", NIPS 2017, section 3.5.
    """

    kind: Literal["sinusoid"]
    features: Annotated[Size, Field(multiple_of=2)]
    base: Annotated[Positive | None, default(SINUSOID_BASE)] = None
    scale: Annotated[Positive | None, default(1.0)] = None
    first: Literal["cos", "sin"] = "cos"
    """The half that stands first."""

    contraction: ClassVar[Contraction] = Contraction.parse("x[b] -> y[b,c]")
    choices: ClassVar[Mapping[str, Choice]] = FrozenDict(
        data=DATA_CHOICE, model=CHANNELS, output=REPLICATED
    )
    trick: ClassVar[str] = "data"
    writes_vectors: ClassVar[bool] = True

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        if read != FeatureMap(1):
            raise self.refuse("inputs", f"should be a vector of 1 feature, got {described(read)}")
        output = FeatureMap(self.features)
        return LayerMaps(read, output, output)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        return {"c": maps.output.channels}

    def saves(self, *, fused: Fused) -> Saved:  # noqa: ARG002
        return Saved(inputs=True)

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:  # noqa: ARG002
        small.equate(reads[0].channels, constant(1), self.name)
        features = times(small.free(), 2)
        return SmallMap(features, None), {"features": features}
