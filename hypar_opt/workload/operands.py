"""What layers read, operand by operand: several may be side by side in one layer's output."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.workload.layer_tensors import Boundary, LayerTensors
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.maps import LayerMaps


class LayerOperand(NamedTuple):
    """What a layer reads as one of its operands.

    Parameters
    ----------
    source
        The position of the layer that writes it; below zero, an input of the network.
    channels
        Those of that layer's output from a first one up to another; None for all.
    """

    source: int
    channels: tuple[int, int] | None = None


@lru_cache(maxsize=16)
def operands_of(network: Network) -> tuple[tuple[LayerOperand, ...], ...]:
    """Return what each layer reads, operand by operand.

    Operands that are side by side in an only input are results of the layer that writes it.
    """
    return tuple(map(_operands, network.sources, network.maps()))


def with_split_outputs(
    nodes: Sequence[LayerTensors], boundaries: Sequence[Boundary]
) -> list[LayerTensors]:
    """Return nodes with the channels of their results, where one reader has several of them."""
    read: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for edge in boundaries:
        if not edge.weights:
            read[edge.source, edge.target].append(edge.extent.channels)
    updated = [*nodes]
    for (source, _), channels in read.items():
        if len(channels) > 1:
            updated[source] = replace(
                updated[source], split_outputs=(*updated[source].split_outputs, *channels)
            )
    return updated


def _operands(sources: Sequence[int], maps: LayerMaps) -> tuple[LayerOperand, ...]:
    if len(sources) >= len(maps.inputs) or not sources:
        return tuple(map(LayerOperand, sources))
    ends = list(accumulate(over.channels for over in maps.inputs))
    return tuple(LayerOperand(sources[0], ends) for ends in pairwise((0, *ends)))
