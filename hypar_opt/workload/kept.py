"""Parts of its model that a network omits, so that no step computes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network


def left_out(network: Network) -> tuple[str, ...]:
    """Return one short phrase per part of its model that a network's step leaves out.

    These are what its file lists, and the biases of its layers, which are neither charged nor
    computed.
    """
    biased = (layer.has_bias for layer in network.layers)
    return tuple(dict.fromkeys((*(network.not_kept or ()), *biases(biased))))


def biases(flags: Iterable[Any]) -> list[str]:
    """Return the phrase on layers' biases, if there are any."""
    count = sum(map(bool, flags))
    layers = "1 layer" if count == 1 else f"{count} layers"
    return [f"the biases of {layers}"] if count else []


def remarks_on(network: Network) -> tuple[str, ...]:
    """Return sentences on how a network's model was read."""
    return sentences(network.not_kept or (), network.remarks or ())


def sentences(not_kept: Sequence[str], remarks: Sequence[str]) -> tuple[str, ...]:
    """Return the sentences on omitted parts and remarks of a network file."""
    first = [f"not kept of its model: {'; '.join(not_kept)}"] if not_kept else []
    return (*first, *remarks)
