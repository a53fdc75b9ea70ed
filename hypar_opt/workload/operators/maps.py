"""The sizes of the maps on edges of the layer graph, for one image or sequence."""

from __future__ import annotations

import math
from typing import NamedTuple


class FeatureMap(NamedTuple):
    """The size of one image's feature map; a vector has height and width 1."""

    channels: int
    height: int = 1
    width: int = 1

    @property
    def elements(self) -> int:
        return math.prod(self)

    @property
    def tokens(self) -> int:
        """Zero: only a `TokenMap` has tokens."""
        return 0

    @property
    def positions(self) -> int:
        """The pixels of an image."""
        return self.height * self.width


class TokenMap(NamedTuple):
    """The size of one sequence: its tokens, and the features of each of them."""

    tokens: int
    channels: int

    @property
    def elements(self) -> int:
        return math.prod(self)

    @property
    def positions(self) -> int:
        """The tokens of a sequence."""
        return self.tokens


Map = FeatureMap | TokenMap


class LayerMaps(NamedTuple):
    """The inputs and output of one layer for one image or sequence."""

    input: Map
    """Its input; the first of several."""
    output: Map
    pooled: Map
    """The output after pooling, if there is a pool, as the next layer reads it."""
    others: tuple[Map, ...] = ()
    """Its further inputs, in order."""

    @property
    def inputs(self) -> tuple[Map, ...]:
        """All its inputs, in order."""
        return self.input, *self.others


def described(over: Map) -> str:
    """Return a map's size as a message gives it: ``64 x 56x56``, ``196 tokens of 768``."""
    if isinstance(over, TokenMap):
        return f"{over.tokens} tokens of {over.channels} features"
    if over.positions == 1:
        return f"{over.channels} features"
    return f"{over.channels} channels of {over.height}x{over.width}"
