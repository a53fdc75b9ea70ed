"""Fully-connected layers."""

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


class FullyConnected(Operator):
    """A fully-connected layer of ``units`` outputs; it flattens what precedes it."""

    kind: Literal["fc"]
    units: Size
    activation: Annotated[str, Field(min_length=1)] | None = None

    contraction: ClassVar[Contraction] = Contraction.parse("x[b,i] * w[i,o] -> y[b,o]")
    choices: ClassVar[tuple[Choice, ...]] = (DATA_CHOICE, INPUT_CHANNELS, OUTPUT_CHANNELS)
    # Fully-connected layers have many weights and small outputs.
    trick: ClassVar[str] = "model"
    writes_vectors: ClassVar[bool] = True

    def maps(self, read: FeatureMap) -> LayerMaps:
        output = FeatureMap(self.units)
        return LayerMaps(read, output, output)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        # Flattening turns channels, height and width into input features.
        return {"i": maps.input.elements, "o": self.units}
