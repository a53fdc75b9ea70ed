"""The common base of layers without weights that treat all channels the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.axes import (
    CHANNELS,
    COLUMNS,
    DATA_CHOICE,
    EXPERTS,
    REPLICATED,
    ROWS,
    TOKENS,
    Choice,
    Contraction,
)
from hypar_opt.workload.operators.base import Operator
from hypar_opt.workload.operators.maps import ExpertMap, FeatureMap, LayerMaps, Map, TokenMap


class Weightless(Operator):
    """A layer without weights that keeps the layout of its input."""

    contraction: ClassVar[Contraction] = Contraction.parse("x[b,x,t,k,c,p,q] -> y[b,x,t,k,c,p,q]")
    choices: ClassVar[Mapping[str, Choice]] = FrozenDict(
        data=DATA_CHOICE,
        model=CHANNELS,
        output=REPLICATED,
        tokens=TOKENS,
        rows=ROWS,
        columns=COLUMNS,
    )
    trick: ClassVar[str] = "data"

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        return LayerMaps(read, read, read)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        return channel_sizes(maps)


WITH_EXPERTS = FrozenDict({**Weightless.choices, "experts": EXPERTS})
"""The choices of a layer on dispatched tokens."""


def expert_sizes(over: ExpertMap) -> dict[str, int]:
    """Return the sizes of the axes of dispatched tokens, except their features.

    Slots may be fractional, but are a whole number over all experts.
    """
    return {"x": over.experts, "t": over.groups, "k": over.slots}


def channel_sizes(maps: LayerMaps) -> dict[str, int]:
    """Return the axes of a layer whose output's channels are its own axis c."""
    written = maps.output
    if isinstance(written, TokenMap):
        return {"t": written.tokens, "c": written.channels}
    sizes = {"c": written.channels}
    if isinstance(written, ExpertMap):
        return {**expert_sizes(written), **sizes}
    read = maps.input
    if not isinstance(read, FeatureMap) or not isinstance(written, FeatureMap):
        return sizes
    if max(read.positions, written.positions) > 1:
        sizes |= {"h": read.height, "w": read.width, "p": written.height, "q": written.width}
    return sizes
