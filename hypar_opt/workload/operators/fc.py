"""Fully-connected layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from hypar_opt.documents.document import Name, Size
from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.axes import (
    DATA_CHOICE,
    INPUT_CHANNELS,
    OUTPUT_CHANNELS,
    TOKENS,
    Choice,
    Contraction,
)
from hypar_opt.workload.operators.base import Activation, Operator, default, padded
from hypar_opt.workload.operators.free_sizes import (
    FreeSizes,
    SmallLayer,
    SmallMap,
    one_padded,
)
from hypar_opt.workload.operators.maps import FeatureMap, LayerMaps, Map, TokenMap


class FullyConnected(Operator):
    """A fully-connected layer of ``units`` outputs for each token, or for a flattened image."""

    kind: Literal["fc", "linear"]  # a network has ``fc`` for both
    units: Size
    pad: Annotated[Size | None, default(1)] = None
    """Its units, classes or words, are padded up to a multiple; the loss leaves padding out."""
    bias: Annotated[bool | None, default(False)] = None
    tied: Name | None = None
    """The embedding (transposed) or fully-connected layer that it shares weights with."""
    part: Annotated[bool | None, default(False)] = None
    """Whether a model's module has its weights beside those of others: its name is the module's and
    its own behind a dot."""
    activation: Activation | None = None

    # A layer that reads no tokens has no axis t.
    contraction: ClassVar[Contraction] = Contraction.parse("x[b,t,i] * w[i,o] -> y[b,t,o]")
    choices: ClassVar[Mapping[str, Choice]] = FrozenDict(
        data=DATA_CHOICE, model=INPUT_CHANNELS, output=OUTPUT_CHANNELS, tokens=TOKENS
    )
    # Fully-connected layers have many weights and small outputs.
    trick: ClassVar[str] = "model"
    writes_vectors: ClassVar[bool] = True
    adds_bias: ClassVar[bool] = True

    @property
    def shares_weights_with(self) -> str | None:
        return self.tied

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        tokens = isinstance(read, TokenMap)
        units = padded(self.units, self.pad)
        output = TokenMap(read.tokens, units) if tokens else FeatureMap(units)
        return LayerMaps(read, output, output)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        units = maps.output.channels
        if isinstance(maps.input, TokenMap):
            return {"t": maps.input.tokens, "i": maps.input.channels, "o": units}
        # Flattening turns channels, height and width into input features.
        return {"i": maps.input.elements, "o": units}

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:  # noqa: ARG002
        (read,) = reads
        units = small.free()
        small.tie(self.name, self.tied or self.name, read.channels, units)
        written = SmallMap(units, read.tokens)
        return written, {"units": units} if self.pad is None else one_padded("units", units)
