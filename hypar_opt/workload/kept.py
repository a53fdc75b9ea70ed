"""What of its model a network does not keep, and so what no step of it computes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network


def left_out(network: Network) -> tuple[str, ...]:
    """Return what a step of a network leaves out of its model, a short phrase each.

    That is what its file says, and the biases of its layers: they are neither charged nor
    computed.
    """
    biased = (getattr(layer, "bias", None) for layer in network.layers if layer.kind != "norm")
    return tuple(dict.fromkeys((*(network.not_kept or ()), *biases(biased))))


def biases(given: Iterable[Any]) -> list[str]:
    """Return the phrase about layers' biases, if there are any."""
    count = sum(map(bool, given))
    layers = "1 layer" if count == 1 else f"{count} layers"
    return [f"the biases of {layers}"] if count else []


def remarks_on(network: Network) -> tuple[str, ...]:
    """Return what a network's file says of how its model was read, in sentences."""
    return sentences(network.not_kept or (), network.remarks or ())


def sentences(not_kept: Sequence[str], remarks: Sequence[str]) -> tuple[str, ...]:
    """Return what a network file says of how its model was read, in sentences."""
    own = [f"not kept of its model: {'; '.join(not_kept)}"] if not_kept else []
    return (*own, *remarks)
