"""Mixtures of experts: router, dispatch, experts, and the combination of their outputs.

Tokens are routed in groups: an expert takes as many tokens of each group as it has slots, in the
order of the tokens, and drops the rest. So traffic depends on the slots alone. Without a capacity
each expert takes all tokens that choose it: a load states how many, all experts together have one
slot per choice, and the part with the most loaded experts takes longest. Shared experts, which all
tokens use, are plain fully-connected layers beside these.

Source: Lepikhin et al., "GShard", ICLR 2021, section 2.2; Fedus et al., "Switch Transformers", JMLR
2022, section 2.2; Gale et al., "MegaBlocks", MLSys 2023, section 3; docs/model.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, Strict, ValidationError, WrapValidator

from hypar_opt.documents.document import LARGEST_SIZE, Positive, Size, rule
from hypar_opt.documents.parsing import shown
from hypar_opt.errors import RefusedError
from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.axes import (
    CHANNELS,
    DATA_CHOICE,
    EXPERTS,
    INPUT_CHANNELS,
    OUTPUT_CHANNELS,
    TOKENS,
    Choice,
    Contraction,
)
from hypar_opt.workload.operators.base import Activation, Operator, default
from hypar_opt.workload.operators.free_sizes import FreeSizes, SmallLayer, SmallMap, constant
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.operators.maps import (
    ExpertMap,
    LayerMaps,
    Load,
    LogitMap,
    Map,
    Routing,
    TokenMap,
    described,
)
from hypar_opt.workload.operators.saved import Intermediate, Saved
from hypar_opt.workload.operators.weightless import expert_sizes

if TYPE_CHECKING:
    from pydantic import ValidatorFunctionWrapHandler

GROUPS = Choice("tokens", "t", "group", TOKENS.glyph, TOKENS.ascii_glyph)
"""Each sequence is split by routing group."""

_FEATURES = FrozenDict(
    data=DATA_CHOICE,
    model=Choice("channel", "i", "feature", CHANNELS.glyph, CHANNELS.ascii_glyph),
    tokens=GROUPS,
    experts=EXPERTS,
)


_Counts = Annotated[
    tuple[Annotated[int, Strict(), Field(ge=0, le=LARGEST_SIZE)], ...], Field(min_length=1)
]


def _load(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    try:
        return handler(value)
    except ValidationError:
        what = "'even', the tokens of each expert, or a list of them for each repetition of a block"
        raise rule(f"should be {what}, got {shown(value)}") from None


class Router(Operator):
    """A logit of each expert for each token, of which the ``top_k`` largest choose experts."""

    kind: Literal["router"]
    experts: Size
    top_k: Size
    group: Size | None = None
    """Consecutive tokens that are routed together; by default a whole sequence, and with a ``load``
    each token by itself."""
    capacity_factor: Annotated[float | None, Strict(), Field(gt=0, le=2**31), default(1.0)] = None
    """Slots of an expert, as a multiple of its equal share of a group's choices."""
    load: Annotated[
        Literal["even"] | _Counts | Annotated[tuple[_Counts, ...], Field(min_length=1)] | None,
        WrapValidator(_load),
    ] = None
    """No capacity: each expert takes all tokens that choose it. These are equally many of each, or
    in the ratios of counts, of a block one list for each repetition."""
    softmax: Annotated[Literal["chosen", "all"] | None, default("chosen")] = None
    """The experts that the softmax of their outputs' weights is over."""
    sigmoid: Literal["normalised", "plain"] | None = None
    """Sigmoids of logits as these weights, in place of a softmax: divided by the sum of a token's
    chosen experts', or not."""
    factor: Annotated[Positive | None, default(1.0)] = None
    """What the weights are multiplied by."""
    expert_groups: Annotated[Size | None, default(1)] = None
    """Equal groups of consecutive experts; a token's experts are in its best groups."""
    top_groups: Annotated[Size | None, default(1)] = None
    """The groups that a token chooses experts from: those with the largest logits, or with the
    largest sums of their two largest sigmoids."""
    bias: Annotated[bool | None, default(False)] = None

    contraction: ClassVar[Contraction] = Contraction.parse("x[b,t,i] * w[i,X] -> y[b,t,X]")
    # Top-k needs all logits of a token, so a split by expert is not a choice.
    choices: ClassVar[Mapping[str, Choice]] = FrozenDict(
        data=DATA_CHOICE, model=INPUT_CHANNELS, tokens=TOKENS
    )
    trick: ClassVar[str] = "data"
    adds_bias: ClassVar[bool] = True

    @property
    def routing(self) -> Routing:
        """How the layers that read its logits route tokens."""
        factor = Fraction(str(self.capacity_factor or 1))
        return Routing(
            self.top_k,
            self.group or (1 if self.load else None),
            factor,
            self.softmax != "all" and self.sigmoid != "plain",
            self.sigmoid is not None,
            self.factor or 1.0,
            self._limit,
            self._ratios,
        )

    @property
    def _ratios(self) -> Load:
        """The load of experts, in the form of `Routing.load`."""
        if self.load is None:
            return ()
        if self.load == "even":
            return (1,) * self.experts
        counts = [int(count) for count in self.load if not isinstance(count, tuple)]
        return tuple(count // gcd(*counts) for count in counts)

    def in_repetition(self, number: int, count: int) -> Self:
        if not (isinstance(self.load, tuple) and isinstance(self.load[0], tuple)):
            return self
        if len(self.load) != count:
            problem = f"should have counts for each of {count} repetitions, got {len(self.load)}"
            raise self.refuse("load", problem)
        return self.model_copy(update={"load": self.load[number]})

    def in_repetitions(self, numbers: range) -> Self:
        if not (isinstance(self.load, tuple) and isinstance(self.load[0], tuple)):
            return self
        return self.model_copy(update={"load": self.load[numbers.start : numbers.stop]})

    @property
    def _limit(self) -> tuple[int, int]:
        return self.expert_groups or 1, self.top_groups or 1

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        if not isinstance(read, TokenMap):
            raise self.refuse("inputs", f"should be tokens, got {described(read)}")
        if self.top_k > self.experts:
            raise self.refuse(
                "top_k", f"should be at most the {self.experts} experts, got {self.top_k}"
            )
        groups, top = self._limit
        if self.experts % groups:
            problem = f"should divide {self.experts} experts, got {groups}"
            raise self.refuse("expert_groups", problem)
        if not -(-self.top_k * groups // self.experts) <= top <= groups:
            problem = f"should be groups with at least {self.top_k} experts of {groups}, got {top}"
            raise self.refuse("top_groups", problem)
        if self.softmax and self.sigmoid:
            raise self.refuse("sigmoid", "should be left out where softmax is stated")
        self._check_load()
        if read.tokens % (self.group or 1):
            raise self.refuse("group", f"should divide {read.tokens} tokens, got {self.group}")
        output = LogitMap(read.tokens, self.experts, self.routing)
        return LayerMaps(read, output, output)

    def _check_load(self) -> None:
        """Check that a load comes without a capacity, and that its counts are possible."""
        if self.load is None:
            return
        if self.capacity_factor is not None:
            raise self.refuse("capacity_factor", "should be left out where load is stated")
        if self.load == "even":
            return
        counts = [count for count in self.load if isinstance(count, int)]
        if len(counts) < len(self.load):
            raise self.refuse("load", "should be one list of counts outside of a block's layers")
        if len(counts) != self.experts:
            problem = f"should have counts of {self.experts} experts, got {len(counts)}"
            raise self.refuse("load", problem)
        if not sum(counts):
            raise self.refuse("load", "should count some tokens, got zeros")
        # A token chooses an expert at most once.
        if max(counts) * self.top_k > sum(counts):
            problem = f"should be at most {sum(counts) // self.top_k:,} of an expert, the tokens"
            problem += f" of {sum(counts):,} choices of {self.top_k} each, got {max(counts):,}"
            raise self.refuse("load", problem)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        return {"t": maps.output.tokens, "i": maps.input.channels, "X": self.experts}

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:
        self.check_runs()
        (read,) = reads
        assert read.tokens is not None
        experts, tokens = constant(small.parts), small.of(read.tokens)
        keys = {"experts": experts, "top_k": constant(min(self.top_k, 2))}
        if self.expert_groups is not None:
            keys |= {"expert_groups": constant(1), "top_groups": constant(1)}
        if self.group is not None:
            keys["group"] = constant(tokens // gcd(tokens, maps.input.tokens // self.group))
        return SmallMap(experts, read.tokens), keys

    def check_runs(self) -> None:
        """Refuse to execute a mixture of experts without a capacity.

        Raises
        ------
        RefusedError
            With the capacity at which no token is dropped either.
        """
        if self.load is not None:
            raise RefusedError(
                f"layer {self.name!r}, load: what experts without a capacity exchange is known once"
                f" tokens are routed, and does not run; capacity_factor = {self.experts} /"
                f" {self.top_k} in place of load drops no token either, with slots for all"
            )


class _Routed(Operator):
    """A layer that reads a router's logits as its second input."""

    trick: ClassVar[str] = "data"
    reads: ClassVar[tuple[int, int]] = (2, 2)

    def routed(self, *reads: Map) -> tuple[Map, LogitMap]:
        """Return its two inputs: a map, and a router's logits."""
        first, logits = reads
        if not isinstance(logits, LogitMap):
            raise self.refuse("inputs", f"the second should be a 'router', got {described(logits)}")
        return first, logits


class Dispatch(_Routed):
    """The tokens of each expert in its slots; empty slots are zero."""

    kind: Literal["dispatch"]

    choices: ClassVar[Mapping[str, Choice]] = _FEATURES
    zero_error_inputs: ClassVar[tuple[int, ...]] = (1,)
    # Tokens t are groups of T; an expert has k slots in each group.
    contraction: ClassVar[Contraction] = Contraction.parse(
        "x[b,t,T,i] * l[b,t,T,X] -> y[b,x,t,k,i]"
    )

    def maps(self, *reads: Map) -> LayerMaps:
        read, logits = self.routed(*reads)
        if not isinstance(read, TokenMap) or read.tokens != logits.tokens:
            raise self.refuse(
                "inputs",
                f"the first should be the {logits.tokens} tokens that are routed, got"
                f" {described(read)}",
            )
        output = ExpertMap(*logits.slots, read.channels, logits.routing.load)
        return LayerMaps(read, output, output, (logits,))

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        assert isinstance(maps.output, ExpertMap)
        return _sizes(maps.output, maps.input.tokens) | {"i": maps.input.channels}

    def saves(self, *, fused: Fused) -> Saved:  # noqa: ARG002
        # The index of the token in each slot.
        return Saved(intermediates=(Intermediate(("b", "x", "t", "k"), bytes=4),))

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:  # noqa: ARG002
        read, logits = reads
        return SmallMap(logits.channels, None, features=read.channels), {}


class Experts(Operator):
    """A fully-connected layer of ``units`` outputs for each expert: its slots', by its weights."""

    kind: Literal["experts"]
    units: Size
    bias: Annotated[bool | None, default(False)] = None
    activation: Activation | None = None

    contraction: ClassVar[Contraction] = Contraction.parse(
        "x[b,x,t,k,i] * w[x,i,o] -> y[b,x,t,k,o]"
    )
    choices: ClassVar[Mapping[str, Choice]] = FrozenDict(
        data=DATA_CHOICE,
        model=INPUT_CHANNELS,
        output=OUTPUT_CHANNELS,
        tokens=GROUPS,
        experts=EXPERTS,
    )
    trick: ClassVar[str] = "model"
    reads_experts: ClassVar[bool] = True
    adds_bias: ClassVar[bool] = True

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        if not isinstance(read, ExpertMap):
            raise self.refuse("inputs", f"should be dispatched tokens, got {described(read)}")
        output = read.with_features(self.units)
        return LayerMaps(read, output, output)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        read = maps.input
        assert isinstance(read, ExpertMap)
        return {**expert_sizes(read), "i": read.features, "o": self.units}

    def fan_in(self, sizes: Mapping[str, int]) -> int:
        return sizes["i"]

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:  # noqa: ARG002
        units = small.free()
        return reads[0]._replace(features=units), {"units": units}


class Combine(_Routed):
    """The sum of the outputs of each token's experts, weighted by their logits."""

    kind: Literal["combine"]

    choices: ClassVar[Mapping[str, Choice]] = FrozenDict(
        _FEATURES | {"model": replace(_FEATURES["model"], axis="o")}
    )
    contraction: ClassVar[Contraction] = Contraction.parse(
        "x[b,x,t,k,o] * l[b,t,T,X] -> y[b,t,T,o]"
    )
    reads_experts: ClassVar[bool] = True

    def maps(self, *reads: Map) -> LayerMaps:
        read, logits = self.routed(*reads)
        if not isinstance(read, ExpertMap) or read[:-1] != logits.slots:
            experts, groups, slots = logits.slots
            raise self.refuse(
                "inputs",
                f"the first should be dispatched by the second: {experts} experts with"
                f" {groups} x {slots} slots, got {described(read)}",
            )
        output = TokenMap(logits.tokens, read.features)
        return LayerMaps(read, output, output, (logits,))

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        assert isinstance(maps.input, ExpertMap)
        return _sizes(maps.input, maps.output.tokens) | {"o": maps.output.channels}

    def saves(self, *, fused: Fused) -> Saved:  # noqa: ARG002
        return Saved(inputs=True)

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:  # noqa: ARG002
        read, logits = reads
        assert read.features is not None
        return SmallMap(read.features, logits.tokens), {}


def _sizes(over: ExpertMap, tokens: int) -> dict[str, int]:
    """Return the sizes of the axes of dispatched tokens and of their logits."""
    return {**expert_sizes(over), "T": tokens // over.groups, "X": over.experts}
