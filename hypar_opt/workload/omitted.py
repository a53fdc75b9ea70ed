"""Parts of its model that a network omits, so that no step computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypar_opt.workload.operators.experts import Router
from hypar_opt.workload.operators.maps import LogitMap

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network


def omitted_parts(network: Network) -> tuple[str, ...]:
    """Return a short phrase for each part of the model that the network omits."""
    return network.not_kept or ()


def reading_remarks(network: Network) -> tuple[str, ...]:
    """Return the remarks on how the model was read as a network."""
    return sentences(network.not_kept or (), network.remarks or ())


def described_slots(slots: int, group: int) -> str:
    """Return an expert's capacity in words, as the beginning of a remark."""
    return f"an expert takes at most {slots} tokens of each group of {group}"


def updated_remarks(before: Network, after: Network) -> tuple[str, ...]:
    """Return a network's remarks after its keys changed: those on router capacities are updated.

    Without a capacity no remark says that tokens are dropped.
    """
    slots_before, slots_after = _slots(before), _slots(after)
    remarks = []
    for remark in after.remarks or ():
        said = {
            words: slots_after.get(name)
            for name, words in slots_before.items()
            if words is not None and remark.startswith(words)
        }
        if not said:
            remarks.append(remark)
        for words, now in said.items():
            if now is not None:
                remarks.append(now + remark.removeprefix(words))
    return tuple(dict.fromkeys(remarks))


def _slots(network: Network) -> dict[str, str | None]:
    """Return the capacity of each router's experts in words; None if they take all tokens."""
    limits: dict[str, str | None] = {}
    for layer, maps in zip(network.layers, network.maps(), strict=True):
        if isinstance(layer, Router) and isinstance(maps.output, LogitMap):
            _, groups, slots = maps.output.slots
            group = maps.output.tokens // groups
            is_limited = not layer.load and slots < group
            limits[layer.name] = described_slots(slots, group) if is_limited else None
    return limits


def sentences(not_kept: Sequence[str], remarks: Sequence[str]) -> tuple[str, ...]:
    """Return the sentences on omitted parts and remarks of a network file."""
    first = [f"not kept of its model: {'; '.join(not_kept)}"] if not_kept else []
    return (*first, *remarks)
