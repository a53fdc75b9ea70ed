"""Embeddings: rows of a table, chosen by token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from hypar_opt.documents.document import Size
from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.axes import (
    DATA_CHOICE,
    OUTPUT_CHANNELS,
    TOKENS,
    Choice,
    Contraction,
)
from hypar_opt.workload.operators.base import Operator, default, padded
from hypar_opt.workload.operators.free_sizes import (
    FreeSizes,
    SmallLayer,
    SmallMap,
    constant,
    one_padded,
)
from hypar_opt.workload.operators.kernels import NO_KERNELS, PassesKernels, PassKernels
from hypar_opt.workload.operators.maps import LayerMaps, Map, TokenMap

VOCABULARY = Choice("model", "i", "word", "●", "M")
"""The table is split by row: each part adds the rows of its tokens."""


class Embedding(Operator):
    """A table of ``vocabulary`` rows; each token reads one of them.

    Without inputs it is a learned tensor that is read whole, such as the embeddings of all
    positions or of a class token.
    """

    kind: Literal["embedding"]
    features: Size
    vocabulary: Size | None = None
    """Rows of the table; by default the vocabulary of the network's input."""
    pad: Annotated[Size | None, default(1)] = None
    """Its rows are padded up to a multiple; no token reads those of the padding."""

    # A product of one-hot rows and the table, whose input is read for free and has no error.
    contraction: ClassVar[Contraction] = Contraction.parse("w[i,o] -> y[b,t,o]")
    # By features first: that split moves nothing, and needs no partial sums.
    choices: ClassVar[Mapping[str, Choice]] = FrozenDict(
        data=DATA_CHOICE, model=OUTPUT_CHANNELS, output=VOCABULARY, tokens=TOKENS
    )
    trick: ClassVar[str] = "data"
    reads: ClassVar[tuple[int, int]] = (0, 1)
    reads_ids: ClassVar[bool] = True

    def maps(self, *reads: Map) -> LayerMaps:
        if not reads:
            if self.vocabulary is None:
                raise self.refuse("vocabulary", "is missing, and the layer has no inputs")
            if self.pad is not None:
                raise self.refuse("pad", "should be left out: the table is read whole")
            output = TokenMap(self.vocabulary, self.features)
            return LayerMaps(TokenMap(self.vocabulary, 1), output, output)
        (read,) = reads
        assert isinstance(read, TokenMap)  # `Network.maps` gives it the network's tokens
        output = TokenMap(read.tokens, self.features)
        return LayerMaps(TokenMap(read.tokens, 1), output, output)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        assert self.vocabulary is not None
        return {"t": maps.output.tokens, "i": padded(self.vocabulary, self.pad), "o": self.features}

    def fan_in(self, sizes: Mapping[str, int]) -> int:  # noqa: ARG002
        return 1  # a row

    def macs(self, sizes: Mapping[str, int]) -> int:  # noqa: ARG002
        return 0  # rows are read, not multiplied

    def kernels(self, *, fused: bool) -> PassesKernels:  # noqa: ARG002
        rows = PassKernels(output=8, launches=1)
        return rows, NO_KERNELS, rows._replace(output=4)

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:
        features, rows = small.free(), maps.output.tokens
        if reads:
            words = small.words if self.vocabulary == small.vocabulary else small.free()
        else:
            words = constant(1) if rows == 1 else small.free(min(rows, small.parts))
        small.tie(self.name, self.name, features, words)  # as a layer tied to it reads it
        written = SmallMap(features, small.tokens if reads else words)
        table = {"vocabulary": words} if self.pad is None else one_padded("vocabulary", words)
        return written, {"features": features} | table
