"""The exchanges of virtual devices: the only way from one memory to another, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
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
    """The devices of a hierarchy of halves, and counts of the elements that they have received."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy
        self.devices = range(hierarchy.accelerators)
        self.received: Counter[Purpose] = Counter()

    def swap(self, messages: Sequence[Array], purpose: Purpose) -> Blocks:
        """Deliver each device's message to its partner across a level, and count it."""
        bit = self._hierarchy.stride(purpose.level)
        # Copied: a view would let one device read another's memory.
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
        kept = [tensor.common(before, device, after, device) for device in self.devices]
        kept_parts = [
            cut(block, rows, axis, columns)
            for block, ((rows, columns), _) in zip(blocks, kept, strict=True)
        ]
        if step.kind is StepKind.SLICE:
            return [part.copy() for part in kept_parts]
        arrived: Blocks | None = None
        if step.kind in _RECEIVING:
            bit = self._hierarchy.stride(step.level)
            sent = [tensor.common(before, d, after, d ^ bit) for d in self.devices]
            messages = [
                cut(block, rows, axis, columns)
                for block, ((rows, columns), _) in zip(blocks, sent, strict=True)
            ]
            arrived = self.swap(messages, Purpose(whose, step.kind, step.level))
            if step.kind is StepKind.REDUCE_SCATTER:
                return [part + other for part, other in zip(kept_parts, arrived, strict=True)]
        converted = []
        for device, part in enumerate(kept_parts):
            block = np.zeros(tensor.shape(blocks[device], after, device))
            place(block, kept[device][1][0], axis, kept[device][1][1], part)
            if arrived is not None:
                rows, columns = sent[device ^ bit][1]
                place(block, rows, axis, columns, arrived[device])
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

        Recursive halving along the first axis, from the deepest level up, then doubling.
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
            second = (self._hierarchy.digit(device, level) for device in self.devices)
            blocks = [
                np.concatenate([other, own] if is_second else [own, other])
                for is_second, own, other in zip(second, blocks, arrived, strict=True)
            ]
        return blocks

    def _halves(self, block: Array, device: int, level: int) -> tuple[Array, Array]:
        """Return the half that a device reduces at a level, and the one that it sends."""
        middle = (len(block) + 1) // 2
        halves = block[:middle], block[middle:]
        return halves[::-1] if self._hierarchy.digit(device, level) else halves
