"""Virtual devices' exchanges: the only way from one device's memory to another's, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.execution.virtual.shards import Array, DividedTensor, cut, place
from hypar_opt.sharding.conversions import Layouts, Step, StepKind

if TYPE_CHECKING:
    from hypar_opt.sharding.passes import Phase

Blocks = list[Array]
"""An array of each device: its part of a tensor, and nothing else."""

_RECEIVING = frozenset((StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL, StepKind.ALL_GATHER))


class Source(NamedTuple):
    """Whose exchange it is: see `hypar_opt.sharding.program.Exchange`."""

    phase: Phase
    node: int
    boundary: int | None


class Purpose(NamedTuple):
    """What the elements that cross a level are counted by."""

    source: Source
    kind: StepKind
    level: int


class Fabric:
    """2^levels devices, and the elements that they have received.

    Parameters
    ----------
    levels
        Device d is on the side of level h, from 0 for H1, that bit ``levels - 1 - h`` of d says.
    """

    def __init__(self, levels: int) -> None:
        self.levels = levels
        self.devices = range(1 << levels)
        self.received: Counter[Purpose] = Counter()

    def swap(self, messages: Sequence[Array], purpose: Purpose) -> Blocks:
        """Have each device receive its partner's message across a level, and count it."""
        bit = 1 << (self.levels - 1 - purpose.level)
        # Copied: a view of a sender's array would be its memory, read by another device.
        arrived = [messages[device ^ bit].copy() for device in self.devices]
        self.received[purpose] += sum(message.size for message in arrived)
        return arrived

    def convert(
        self,
        tensor: DividedTensor,
        blocks: Blocks,
        layouts: Layouts,
        steps: Sequence[Step],
        whose: Source,
    ) -> tuple[Blocks, Layouts]:
        """Return a tensor in another layout, reached by these steps."""
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
        kept = [tensor.common(before, device, after, device) for device in self.devices]
        own = [
            cut(block, rows, axis, columns)
            for block, ((rows, columns), _) in zip(blocks, kept, strict=True)
        ]
        if step.kind is StepKind.SLICE:
            return [part.copy() for part in own]
        arrived: Blocks | None = None
        if step.kind in _RECEIVING:
            bit = 1 << (self.levels - 1 - step.level)
            shares = [tensor.common(before, d, after, d ^ bit) for d in self.devices]
            messages = [
                cut(block, rows, axis, columns)
                for block, ((rows, columns), _) in zip(blocks, shares, strict=True)
            ]
            arrived = self.swap(messages, Purpose(whose, step.kind, step.level))
            if step.kind is StepKind.REDUCE_SCATTER:
                return [part + other for part, other in zip(own, arrived, strict=True)]
        made = []
        for device, part in enumerate(own):
            block = np.zeros(tensor.shape(blocks[device], after, device))
            place(block, kept[device][1][0], axis, kept[device][1][1], part)
            if arrived is not None:
                rows, columns = shares[device ^ bit][1]
                place(block, rows, axis, columns, arrived[device])
            made.append(block)
        return made

    def all_reduce(
        self,
        blocks: Blocks,
        steps: Sequence[Step],
        whose: Source,
        combine: Callable[[Array, Array], Array] = np.add,
    ) -> Blocks:
        """Return what the steps' levels have combined: on each device all of it.

        By recursive halving along the first axis, from the deepest level up, then by doubling.
        """
        levels = [step.level for step in steps]
        for level in reversed(levels):
            purpose = Purpose(whose, StepKind.ALL_REDUCE, level)
            sides = [self._halves(block, device, level) for device, block in enumerate(blocks)]
            arrived = self.swap([other for _, other in sides], purpose)
            blocks = [combine(own, other) for (own, _), other in zip(sides, arrived, strict=True)]
        for level in levels:
            purpose = Purpose(whose, StepKind.ALL_REDUCE, level)
            arrived = self.swap(blocks, purpose)
            bit = 1 << (self.levels - 1 - level)
            blocks = [
                np.concatenate([other, own] if device & bit else [own, other])
                for device, (own, other) in enumerate(zip(blocks, arrived, strict=True))
            ]
        return blocks

    def _halves(self, block: Array, device: int, level: int) -> tuple[Array, Array]:
        """Return the half that a device reduces at a level, and the one that it sends."""
        middle = (len(block) + 1) // 2
        halves = block[:middle], block[middle:]
        return halves[::-1] if device >> (self.levels - 1 - level) & 1 else halves
