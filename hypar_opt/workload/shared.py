"""What several layers share: nodes of the optimisation that are no layers of a plan.

A tensor with several readers is stored once, in a layout that its writer and each of its readers
convert from and to; weights that several layers use are stored once too. Both take the layout
that costs least, given the layers' choices.

Source: docs/decisions/0010-graphs.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from hypar_opt.workload.operators.axes import (
    CHANNELS,
    DATA_CHOICE,
    INPUT_CHANNELS,
    OUTPUT_CHANNELS,
    Choice,
    Contraction,
)
from hypar_opt.workload.operators.base import Operator
from hypar_opt.workload.operators.elementwise import Weightless, channel_sizes
from hypar_opt.workload.operators.maps import FeatureMap, LayerMaps, Map


class SharedTensor(Weightless):
    """A tensor that several layers read, split by batch or by channel."""

    kind: Literal["tensor"] = "tensor"

    choices: ClassVar[tuple[Choice, ...]] = (DATA_CHOICE, CHANNELS)

    def maps(self, *reads: Map) -> LayerMaps:
        (read,) = reads
        return LayerMaps(read, read, read)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        return channel_sizes(maps)


class SharedWeights(Operator):
    """Weights that several layers use: replicated, or split as all of these split them.

    They are whole where any user takes data parallelism: a user that splits them slices its part,
    which is free, and the gradients of all users are added before they are all-reduced. Users
    split them by feature in their second choice and by word of the vocabulary in their third.
    """

    kind: Literal["weights"] = "weights"

    contraction: ClassVar[Contraction] = Contraction((), ("i", "o"), ())
    choices: ClassVar[tuple[Choice, ...]] = (DATA_CHOICE, OUTPUT_CHANNELS, INPUT_CHANNELS)
    trick: ClassVar[str] = "data"

    def maps(self, *reads: Map) -> LayerMaps:
        """Return maps of one number: weights are no feature map."""
        return LayerMaps(reads[0], FeatureMap(1), FeatureMap(1))

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        assert isinstance(maps.input, FeatureMap)
        return {"i": maps.input.channels, "o": maps.input.height}

    def macs(self, sizes: Mapping[str, int]) -> int:  # noqa: ARG002
        return 0  # its users' are counted
