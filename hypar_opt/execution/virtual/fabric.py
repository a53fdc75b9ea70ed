"""The exchanges of virtual devices: the only way from one memory to another, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.execution.virtual.shards import Array, DividedTensor, cut, place
from hypar_opt.sharding.conversions import Layouts, Step, StepKind

if TYPE_CHECKING:
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.sharding.passes import Phase

Blocks = list[Array]
"""One array per device: its part of a tensor."""

_RECEIVING = frozenset((StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL, StepKind.ALL_GATHER))


class Source(NamedTuple):
    """The pass, node and boundary of an exchange (`hypar_opt.sharding.program.Exchange`)."""

    phase: Phase
    node: int
    boundary: int | None


class Purpose(NamedTuple):
    """The key by which the elements that cross a level are counted."""

    source: Source
    kind: StepKind
    level: int


class Fabric:
    """The devices of a hierarchy, and counts of the elements that they have received."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy
        self.devices = range(hierarchy.accelerators)
        self.received: Counter[Purpose] = Counter()

    def exchange(
        self, message: Callable[[int, int], Array], purpose: Purpose
    ) -> list[dict[int, Array]]:
        """Deliver what each device sends its peers across a level, and count it.

        Parameters
        ----------
        message
            Returns what the first device sends the second.

        Returns
        -------
        list of dict
            What each device receives, by its sender.
        """
        # Copied: a view would let one device read another's memory.
        arrived = [
            {peer: message(peer, device).copy() for peer in self._peers(device, purpose.level)}
            for device in self.devices
        ]
        self.received[purpose] += sum(block.size for of in arrived for block in of.values())
        return arrived

    def _peers(self, device: int, level: int) -> list[int]:
        """Return the other devices of a group."""
        return [peer for peer in self._hierarchy.peers(device, level) if peer != device]

    def convert(
        self,
        tensor: DividedTensor,
        blocks: Blocks,
        layouts: Layouts,
        steps: Sequence[Step],
        whose: Source,
    ) -> tuple[Blocks, Layouts]:
        """Return a tensor in the layout that some steps lead to."""
        for step in steps:
            after = (*layouts[: step.level], step.target, *layouts[step.level + 1 :])
            blocks = self._take(tensor, blocks, layouts, after, step, whose)
            layouts = after
        return blocks, layouts

    def _take(
        self,
        tensor: DividedTensor,
        blocks: Blocks,
        before: Layouts,
        after: Layouts,
        step: Step,
        whose: Source,
    ) -> Blocks:
        axis = tensor.channel_axis

        def part(of: int, wanted_by: int) -> Array:
            """Return what a device has of what another is to hold."""
            (rows, columns), _ = tensor.common(before, of, after, wanted_by)
            return cut(blocks[of], rows, axis, columns)

        kept = [part(device, device) for device in self.devices]
        if step.kind is StepKind.SLICE:
            return [block.copy() for block in kept]
        arrived: list[dict[int, Array]] = [{} for _ in self.devices]
        if step.kind in _RECEIVING:
            arrived = self.exchange(part, Purpose(whose, step.kind, step.level))
        if step.kind is StepKind.REDUCE_SCATTER:
            return [sum(of.values(), own) for own, of in zip(kept, arrived, strict=True)]
        converted = []
        for device, received in enumerate(arrived):
            block = np.zeros(tensor.shape(blocks[device], after, device))
            for source, values in {device: kept[device], **received}.items():
                _, (rows, columns) = tensor.common(before, source, after, device)
                place(block, rows, axis, columns, values)
            converted.append(block)
        return converted

    def all_reduce(
        self,
        blocks: Blocks,
        steps: Sequence[Step],
        whose: Source,
        combine: Callable[[Array, Array], Array] = np.add,
    ) -> Blocks:
        """All-reduce the devices' blocks over the levels of the steps.

        A reduce-scatter along the first axis, from the deepest level up, then an all-gather.
        """
        levels = [step.level for step in steps]
        for level in reversed(levels):
            purpose = Purpose(whose, StepKind.ALL_REDUCE, level)
            chunks = [np.array_split(block, self._hierarchy.sizes[level]) for block in blocks]
            part = partial(self._chunk, chunks, level)
            arrived = self.exchange(part, purpose)
            blocks = [
                reduce(combine, of.values(), part(device, device))
                for device, of in enumerate(arrived)
            ]
        for level in levels:
            own = blocks
            arrived = self.exchange(
                partial(_all_of, own), Purpose(whose, StepKind.ALL_REDUCE, level)
            )
            blocks = [
                np.concatenate(
                    [
                        own[device] if peer == device else arrived[device][peer]
                        for peer in self._hierarchy.peers(device, level)
                    ]
                )
                for device in self.devices
            ]
        return blocks

    def _chunk(
        self, chunks: Sequence[Sequence[Array]], level: int, source: int, device: int
    ) -> Array:
        """Return what a device has of the chunk that another reduces at a level."""
        return chunks[source][self._hierarchy.digit(device, level)]


def _all_of(blocks: Blocks, source: int, device: int) -> Array:  # noqa: ARG001
    """Return all that a device has."""
    return blocks[source]
