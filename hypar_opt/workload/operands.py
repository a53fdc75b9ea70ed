"""What layers read, operand by operand; one layer's output may hold several operands."""

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
    """The source of one operand of a layer.

    Parameters
    ----------
    source
        The position of the layer that writes it; below zero, an input of the network.
    channels
        The range of that layer's output channels, first and end; None for all.
    """

    source: int
    channels: tuple[int, int] | None = None


@lru_cache(maxsize=16)
def operands_of(network: Network) -> tuple[tuple[LayerOperand, ...], ...]:
    """Return what each layer reads, operand by operand.

    Operands concatenated in a single input count as separate results of its writer.
    """
    return tuple(map(_operands, network.sources, network.maps()))


def with_split_outputs(
    nodes: Sequence[LayerTensors], boundaries: Sequence[Boundary]
) -> list[LayerTensors]:
    """Return nodes with the channels of their results, where one reader reads several of them."""
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
