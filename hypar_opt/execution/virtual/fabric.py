"""The fabric between virtual devices, the only way between their memories; it counts elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.execution.virtual.shards import Array, DividedTensor, cut, place
from hypar_opt.frozen import FrozenDict
from hypar_opt.sharding.conversions import Layouts, Step, StepKind
from hypar_opt.sharding.layouts import PARTIAL, WHOLE
from hypar_opt.sharding.passes import Phase

if TYPE_CHECKING:
    from hypar_opt.hierarchy import Hierarchy


Blocks = list[Array]
"""One array per device: its part of a tensor."""

_RECEIVING = frozenset((StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL, StepKind.ALL_GATHER))


class Source(NamedTuple):
    """The purpose of an exchange (`hypar_opt.step.operations.Collective`)."""

    phase: Phase
    node: int
    boundary: int | None
    weights: bool = False


class Purpose(NamedTuple):
    """The key by which the elements that cross a level are counted."""

    source: Source
    kind: StepKind
    level: int


class Fabric:
    """The devices of a hierarchy, and counts of the elements that they have received.

    Parameters
    ----------
    reduced, holders
        As in `Repeats`: the elements that one of a gradient counts for where it is reduced, and the
        parts of H1 that reduce the gradients of some nodes.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        reduced: int = 1,
        holders: Mapping[int, Sequence[int]] = FrozenDict(),
    ) -> None:
        self.hierarchy, self._reduced, self._holders = hierarchy, reduced, holders
        self.devices = range(hierarchy.accelerators)
        self.received: Counter[Purpose] = Counter()

    def exchange(
        self, message: Callable[[int, int], Array], purpose: Purpose, *below: int
    ) -> list[dict[int, Array]]:
        """Deliver every device's messages to its peers across a level, and count them.

        Parameters
        ----------
        message
            Returns what the first device sends the second.
        below
            Further levels that it crosses, topmost first. What is sent counts at the topmost level
            at which its two devices are in different parts.

        Returns
        -------
        list of dict
            What each device receives, by its sender.
        """
        # Copied: a view would let one device read another's memory.
        levels = purpose.level, *below
        arrived: list[dict[int, Array]] = [{} for _ in self.devices]
        for device, received in enumerate(arrived):
            group = self.hierarchy.group(device, levels) if below else self._group(device, purpose)
            for peer in group:
                if peer != device:
                    received[peer] = message(peer, device).copy()
                    crossed = purpose._replace(level=self._topmost(device, peer, levels))
                    if received[peer].size:
                        self.received[crossed] += received[peer].size * self._elements(purpose)
        return arrived

    def _group(self, device: int, purpose: Purpose) -> list[int]:
        """Return the devices that exchange with a device across one level, itself among them."""
        peers = self.hierarchy.peers(device, purpose.level)
        holders = None if purpose.level else self._holders.get(purpose.source.node)
        if holders is None:
            return peers
        among = [peer for peer in peers if self.hierarchy.digit(peer, 0) in holders]
        return among if device in among else [device]

    def _elements(self, purpose: Purpose) -> int:
        """Return how many elements each exchanged element counts for."""
        whose = purpose.source
        of_gradient = whose.phase is Phase.GRADIENT and not whose.weights
        return self._reduced if of_gradient else 1

    def _topmost(self, device: int, peer: int, levels: Sequence[int]) -> int:
        """Return the first of some levels at which two devices are in different parts."""
        digit = self.hierarchy.digit
        return next(n for n in levels if digit(device, n) != digit(peer, n))

    def convert(
        self,
        tensor: DividedTensor,
        blocks: Blocks,
        layouts: Layouts,
        steps: Sequence[Step],
        whose: Source,
    ) -> tuple[Blocks, Layouts]:
        """Return a tensor converted by some steps."""
        for step in steps:
            changed = dict(zip(step.levels, step.targets, strict=True))
            after = tuple(changed.get(level, layout) for level, layout in enumerate(layouts))
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
        def part(source: int, receiver: int) -> Array:
            """Return the source's share of what the receiver will hold."""
            return cut(blocks[source], tensor.common(before, source, after, receiver)[0])

        local = [part(device, device) for device in self.devices]
        # If replicas become addends, the first stays and the others become zeros.
        ends = zip(step.levels, step.sources, step.targets, strict=True)
        if one := [level for level, *layouts in ends if layouts == [WHOLE, PARTIAL]]:
            within = self.hierarchy.within
            return [block * (not within(device, one)) for device, block in enumerate(local)]
        if step.kind is StepKind.SLICE:
            return [block.copy() for block in local]
        arrived: list[dict[int, Array]] = [{} for _ in self.devices]
        if step.kind in _RECEIVING:
            topmost, *below = step.levels
            arrived = self.exchange(part, Purpose(whose, step.kind, topmost), *below)
        if step.kind is StepKind.REDUCE_SCATTER:
            return [sum(of.values(), block) for block, of in zip(local, arrived, strict=True)]
        converted = []
        for device, received in enumerate(arrived):
            block = np.zeros(tensor.shape(blocks[device], after, device))
            for source, values in {device: local[device], **received}.items():
                place(block, tensor.common(before, source, after, device)[1], values)
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
        kind = StepKind.ALL_REDUCE
        chunks = self.reduce_scatter(blocks, steps, whose, kind, combine)
        return self.all_gather(chunks, steps, whose, kind)

    def reduce_scatter(
        self,
        blocks: Blocks,
        steps: Sequence[Step],
        whose: Source,
        kind: StepKind = StepKind.REDUCE_SCATTER,
        combine: Callable[[Array, Array], Array] = np.add,
    ) -> Blocks:
        """Return the chunk of the reduced blocks that each device keeps: `chunk`."""
        for step in reversed(steps):
            blocks = self._scattered(blocks, Purpose(whose, kind, step.level), combine)
        return blocks

    def all_gather(
        self,
        chunks: Blocks,
        steps: Sequence[Step],
        whose: Source,
        kind: StepKind = StepKind.ALL_GATHER,
    ) -> Blocks:
        """Return the blocks of which each device has a chunk."""
        for step in steps:
            chunks = self._gathered(chunks, Purpose(whose, kind, step.level))
        return chunks

    def chunk(self, block: Array, steps: Sequence[Step], device: int) -> Array:
        """Return a device's own chunk of its block, along the first axis."""
        for step in reversed(steps):
            parts = np.array_split(block, self.hierarchy.sizes[step.level])
            block = parts[self.hierarchy.digit(device, step.level)]
        return block

    def _scattered(
        self, blocks: Blocks, purpose: Purpose, combine: Callable[[Array, Array], Array]
    ) -> Blocks:
        """Return the chunk that each device reduces across a level."""
        groups = [self._group(device, purpose) for device in self.devices]
        chunks = [
            np.array_split(block, len(group)) for block, group in zip(blocks, groups, strict=True)
        ]

        def chunk(source: int, device: int) -> Array:
            """Return the source's addend of the chunk that another device reduces."""
            return chunks[source][groups[device].index(device)]

        arrived = self.exchange(chunk, purpose)
        return [
            reduce(combine, received.values(), chunk(device, device))
            for device, received in enumerate(arrived)
        ]

    def _gathered(self, blocks: Blocks, purpose: Purpose) -> Blocks:
        """Return the blocks of each group across a level, one after the other."""
        arrived = self.exchange(lambda source, _: blocks[source], purpose)
        return [
            np.concatenate(
                [received.get(peer, blocks[device]) for peer in self._group(device, purpose)]
            )
            for device, received in enumerate(arrived)
        ]
