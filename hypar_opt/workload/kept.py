"""Parts of its model that a network omits, so that no step computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network


def left_out(network: Network) -> tuple[str, ...]:
    """Return one short phrase per part of its model that a network's step leaves out."""
    return network.not_kept or ()


def remarks_on(network: Network) -> tuple[str, ...]:
    """Return sentences on how a network's model was read."""
    return sentences(network.not_kept or (), network.remarks or ())


def sentences(not_kept: Sequence[str], remarks: Sequence[str]) -> tuple[str, ...]:
    """Return the sentences on omitted parts and remarks of a network file."""
    first = [f"not kept of its model: {'; '.join(not_kept)}"] if not_kept else []
    return (*first, *remarks)
