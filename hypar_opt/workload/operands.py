"""What layers read, operand by operand: several may be side by side in one layer's output."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.maps import LayerMaps


class LayerOperand(NamedTuple):
    """What a layer reads as one of its operands.

    Parameters
    ----------
    source
        The position of the layer that writes it; -1 for the network's input.
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


def _operands(sources: Sequence[int], maps: LayerMaps) -> tuple[LayerOperand, ...]:
    if len(sources) >= len(maps.inputs) or not sources:
        return tuple(map(LayerOperand, sources))
    ends = list(accumulate(over.channels for over in maps.inputs))
    return tuple(LayerOperand(sources[0], ends) for ends in pairwise((0, *ends)))
