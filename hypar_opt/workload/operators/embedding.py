"""Embeddings: rows of a table, chosen by token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from hypar_opt.documents.document import Name, Positive, Size
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
from hypar_opt.workload.operators.kernels import NO_KERNELS, Fused, PassesKernels, PassKernels
from hypar_opt.workload.operators.maps import LayerMaps, Map, TokenMap

VOCABULARY = Choice("model", "i", "word", "●", "M")
"""The table is split by row: each part adds the rows of its tokens."""


_TABLE = Contraction.parse("w[t,o] -> y[b,t,o]")
_TABLE_CHOICES = FrozenDict(data=DATA_CHOICE, model=OUTPUT_CHANNELS, tokens=TOKENS)


class Embedding(Operator):
    """A table of ``vocabulary`` rows; each token reads one of them.

    Without inputs it is a learned tensor that is read row by row, such as the embeddings of all
    positions or of a class token; or with ``ids`` it reads a second sequence, such as a decoder's.
    """

    kind: Literal["embedding"]
    features: Size
    vocabulary: Size | None = None
    """Rows of the table; by default the vocabulary of the network's input."""
    pad: Annotated[Size | None, default(1)] = None
    """Its rows are padded up to a multiple; no token reads those of the padding."""
    tokens: Size | None = None
    """Without inputs: the rows that are read, the first ones; by default all."""
    ids: Size | None = None
    """Without inputs: the tokens of a second sequence, whose ids it reads."""
    tied: Name | None = None
    """The embedding that it shares weights with."""
    scale: Annotated[Positive | None, default(1.0)] = None
    """The factor of the rows that are read."""

    # A product of one-hot rows and the table, whose input is read for free and has no error.
    contraction: ClassVar[Contraction] = Contraction.parse("w[i,o] -> y[b,t,o]")
    # By features first: that split moves nothing, and needs no partial sums.
    choices: ClassVar[Mapping[str, Choice]] = FrozenDict(
        data=DATA_CHOICE, model=OUTPUT_CHANNELS, output=VOCABULARY, tokens=TOKENS
    )
    trick: ClassVar[str] = "data"
    reads: ClassVar[tuple[int, int]] = (0, 1)
    reads_ids: ClassVar[bool] = True

    @property
    def axes(self) -> Contraction:
        return _TABLE if self._has_row_of_token else self.contraction

    @property
    def splits(self) -> Mapping[str, Choice]:
        return _TABLE_CHOICES if self._has_row_of_token else self.choices

    @property
    def shares_weights_with(self) -> str | None:
        return self.tied

    @property
    def is_table(self) -> bool:
        """Whether it reads its rows in order, and no ids."""
        return self.inputs == () and self.ids is None

    @property
    def _has_row_of_token(self) -> bool:
        """Whether rows and tokens correspond one to one: a part of tokens has only its rows."""
        return self.is_table and self.tokens in (None, self.vocabulary)

    def maps(self, *reads: Map) -> LayerMaps:
        if reads:
            (read,) = reads
            assert isinstance(read, TokenMap)  # `Network.maps` gives it the network's tokens
            for key in ("tokens", "ids"):
                if getattr(self, key) is not None:
                    raise self.refuse(key, "goes with no inputs: should be 'inputs = []'")
            tokens = read.tokens
        elif self.ids is not None:
            if self.tokens is not None:
                raise self.refuse("tokens", "should be left out: 'ids' says how many there are")
            tokens = self.ids
        else:
            tokens = self._rows()
        output = TokenMap(tokens, self.features)
        return LayerMaps(TokenMap(tokens, 1), output, output)

    def _rows(self) -> int:
        """Return the rows that are read in order."""
        if self.vocabulary is None:
            raise self.refuse("vocabulary", "is missing, and the layer has no inputs")
        for key in ("pad", "tied"):
            if getattr(self, key) is not None:
                raise self.refuse(key, "should be left out: rows are read in order")
        if self.tokens is not None and self.tokens > self.vocabulary:
            raise self.refuse(
                "tokens", f"should be at most the {self.vocabulary} rows, got {self.tokens}"
            )
        return self.tokens or self.vocabulary

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        sizes = {"t": maps.output.tokens, "o": self.features}
        if self._has_row_of_token:
            return sizes
        assert self.vocabulary is not None
        return {**sizes, "i": padded(self.vocabulary, self.pad)}

    def fan_in(self, sizes: Mapping[str, int]) -> int:  # noqa: ARG002
        return 1  # a row

    def macs(self, sizes: Mapping[str, int]) -> int:  # noqa: ARG002
        return 0  # rows are read, not multiplied

    def kernels(self, sizes: Mapping[str, int], *, fused: Fused) -> PassesKernels:  # noqa: ARG002
        rows = PassKernels(output=8, launches=1)
        return rows, NO_KERNELS, rows._replace(output=4)

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:
        features, rows = small.free(), maps.output.tokens
        keys = {"features": features}
        if reads or self.ids:
            words = small.words if self.vocabulary == small.vocabulary else small.free()
        else:
            words = constant(1) if rows == 1 else small.free(min(rows, small.parts))
        small.tie(self.name, self.tied or self.name, features, words)  # as tied layers read it
        if self.ids:
            tokens = keys["ids"] = constant(min(self.ids, small.parts))
        elif self.tokens:
            tokens = keys["tokens"] = words
        else:
            tokens = small.tokens if reads else words
        table = {"vocabulary": words} if self.pad is None else one_padded("vocabulary", words)
        return SmallMap(features, tokens), keys | table
