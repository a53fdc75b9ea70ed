"""Parts of its model that a network omits, so that no step computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypar_opt.workload.operators.experts import Router
from hypar_opt.workload.operators.maps import LogitMap

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network


def left_out(network: Network) -> tuple[str, ...]:
    """Return one short phrase per part of its model that a network's step leaves out."""
    return network.not_kept or ()


def remarks_on(network: Network) -> tuple[str, ...]:
    """Return sentences on how a network's model was read."""
    return sentences(network.not_kept or (), network.remarks or ())


def slots_in_words(slots: int, group: int) -> str:
    """Return what an expert has slots for, as the beginning of a remark."""
    return f"an expert takes at most {slots} tokens of each group of {group}"


def remarks_after(before: Network, after: Network) -> tuple[str, ...]:
    """Return the remarks on a network whose keys were changed, which are of its routers' slots.

    Of experts that take all tokens that choose them none says that tokens are dropped.
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
    """Return what each router's experts have slots for, in words; None for all tokens."""
    limits: dict[str, str | None] = {}
    for layer, maps in zip(network.layers, network.maps(), strict=True):
        if isinstance(layer, Router) and isinstance(maps.output, LogitMap):
            _, groups, slots = maps.output.slots
            group = maps.output.tokens // groups
            is_limited = not layer.load and slots < group
            limits[layer.name] = slots_in_words(slots, group) if is_limited else None
    return limits


def sentences(not_kept: Sequence[str], remarks: Sequence[str]) -> tuple[str, ...]:
    """Return the sentences on omitted parts and remarks of a network file."""
    first = [f"not kept of its model: {'; '.join(not_kept)}"] if not_kept else []
    return (*first, *remarks)
