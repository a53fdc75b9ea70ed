"""The sizes of the maps on edges of the layer graph, for one image or sequence."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple, Self, cast

Load = tuple[int, ...]
"""The ratios of the experts' token counts; all ones if the load is even."""


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


class Routing(NamedTuple):
    """How a router sends tokens to experts.

    Parameters
    ----------
    top_k
        Experts of each token.
    group
        Consecutive tokens, in each group of which an expert has as many slots; None for all tokens
        of a sequence.
    capacity_factor
        Slots of an expert, as a multiple of its equal share of a group's choices.
    over_chosen
        Whether what weighs experts' outputs adds up to 1 over a token's chosen experts: a softmax
        over these, or their sigmoids divided by their sum. Else a softmax over all experts, or
        plain sigmoids.
    sigmoid
        Whether sigmoids of logits weigh outputs, in place of a softmax.
    factor
        The factor of the weights.
    limit
        The groups of consecutive experts, and how many of these a token chooses experts from.
    load
        How tokens are spread over experts, of which each takes all that choose it; none where they
        have a capacity.
    """

    top_k: int
    group: int | None
    capacity_factor: Fraction
    over_chosen: bool
    sigmoid: bool = False
    factor: float = 1.0
    limit: tuple[int, int] = (1, 1)
    load: Load = ()


class LogitMap(TokenMap):
    """A router's logits, one per token and expert, and how they route tokens."""

    routing: Routing

    def __new__(cls, tokens: int, channels: int, routing: Routing) -> Self:
        """Return the map; as a tuple it has only the tensor's axes, not the routing."""
        instance = super().__new__(cls, tokens, channels)
        instance.routing = routing
        return instance

    @property
    def slots(self) -> tuple[int, int, int]:
        """The experts, the groups of tokens, and the tokens of a group that an expert takes.

        Without a capacity slots are the mean over experts, which may be fractional.
        """
        routing = self.routing
        group = routing.group or self.tokens
        share = routing.capacity_factor * routing.top_k * group / self.channels
        count = min(group, max(1, math.ceil(share)))
        if routing.load:
            # Tensors made of it have a whole number of elements over all experts together.
            count = share.numerator if share.denominator == 1 else cast("int", share)
        return self.channels, self.tokens // group, count

    def __getnewargs__(self) -> tuple[int, int, Routing]:
        return (*self, self.routing)


class _Dispatched(NamedTuple):
    experts: int
    groups: int
    slots: int
    features: int


class ExpertMap(_Dispatched):
    """The size of one sequence's dispatched tokens, in the slots of experts.

    Parameters
    ----------
    slots
        Without a capacity the mean over experts, which may be a ``Fraction``.
    load
        As in `Routing`.
    """

    load: Load

    def __new__(cls, experts: int, groups: int, slots: int, features: int, load: Load = ()) -> Self:
        """Return the map; as a tuple it has only the tensor's axes, not the load."""
        instance = super().__new__(cls, experts, groups, slots, features)
        instance.load = load
        return instance

    def with_features(self, features: int) -> Self:
        """Return the map of the same tokens with another number of features."""
        return type(self)(*self[:-1], features, self.load)

    def __eq__(self, other: object) -> bool:
        same_load = self.load == getattr(other, "load", ())
        return super().__eq__(other) is True and same_load

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((*self, self.load))

    def __getnewargs__(self) -> tuple[int, int, int, int, Load]:
        return (*self, self.load)

    @property
    def elements(self) -> int:
        return int(math.prod(self))

    @property
    def tokens(self) -> int:
        """The number of routing groups, which a split by token divides."""
        return self.groups

    @property
    def channels(self) -> int:
        """The features of a slot."""
        return self.features

    @property
    def positions(self) -> int:
        """The slots of all experts."""
        return int(self.experts * self.groups * self.slots)


Map = FeatureMap | TokenMap | ExpertMap


class LayerMaps(NamedTuple):
    """The inputs and output of one layer for one image or sequence."""

    input: Map
    """Its input; the first of several."""
    output: Map
    pooled: Map
    """The output after pooling, if there is a pool, as the next layer reads it."""
    further_inputs: tuple[Map, ...] = ()
    """Its further inputs, in order; or further operands concatenated in its single input."""

    @property
    def inputs(self) -> tuple[Map, ...]:
        """All its inputs, in order."""
        return self.input, *self.further_inputs


def described(over: Map) -> str:
    """Return a map's size in words: ``64 x 56x56``, ``196 tokens of 768``."""
    if isinstance(over, TokenMap):
        return f"{over.tokens} tokens of {over.channels} features"
    if isinstance(over, ExpertMap):
        slots = f"{over.groups} x {over.slots} slots of {over.features} features"
        return f"{over.experts} experts with {slots}"
    if over.positions == 1:
        return f"{over.channels} features"
    return f"{over.channels} channels of {over.height}x{over.width}"
