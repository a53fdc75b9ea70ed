"""The weights or biases of a step's devices, whole or in shards, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.execution.virtual.fabric import Blocks, Fabric, Source
from hypar_opt.sharding.passes import Phase
from hypar_opt.workload.parallelism import SHARDED
from hypar_opt.workload.repeats import SCATTERED_EACH_MICRO_BATCH

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.division import Division
    from hypar_opt.sharding.conversions import Step


class TrainedWeights:
    """The devices' parts of all weights, or of all biases, and of their gradients, by node.

    A shard is the chunk of a flat part that a device would reduce in its gradient's all-reduce.

    Parameters
    ----------
    blocks
        The parts, whole.
    steps
        Returns the all-reduces of the gradient of a node's.
    shard
        Returns what devices that have the same of a node share out between the parts of a level,
        one of `SHARDED`.

    Source: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
    Models", SC20, section 5.
    """

    def __init__(
        self,
        division: Division,
        fabric: Fabric,
        blocks: Mapping[int, Blocks],
        steps: Callable[[int], tuple[Step, ...]],
        shard: Callable[[int, int], str],
    ) -> None:
        self._division, self._fabric = division, fabric
        self._steps, self._shard = steps, shard
        self._blocks = dict(blocks)
        self._shapes = {node: [b.shape for b in blocks] for node, blocks in self._blocks.items()}
        self._gradients: dict[int, Blocks] = {}
        for node, parts in self._blocks.items():
            if self.sharded(node):
                self._blocks[node] = self._chunks(parts, self._over(node, "weights"))

    def sharded(self, node: int) -> bool:
        """Whether devices keep shards of a node's weights, and gather them for each pass."""
        return bool(self._over(node, "weights"))

    def _over(self, node: int, *words: str) -> tuple[Step, ...]:
        """Return the steps of a node's all-reduce at levels that split one of some words."""
        return tuple(step for step in self._steps(node) if self._shard(node, step.level) in words)

    def used(self, node: int, by: int, phase: Phase) -> Blocks:
        """Return each device's part of a node's weights, for a pass of a layer's node.

        Gathered parts are copies, which may be dropped. Of weights shared by stages, each stage
        gathers its own copy.
        """
        if not self.sharded(node):
            return self._blocks[node]
        blocks, division = self._blocks[node], self._division
        idle = [False] * len(blocks)
        if node in division.program.workload.repeats.holders:
            position = by - division.shared
            idle = [division.is_idle(position, device) for device in range(len(blocks))]
        copies = [
            block[:0] if none else block.copy() for block, none in zip(blocks, idle, strict=True)
        ]
        whose = Source(phase, by, None, weights=True)
        gathered = self._fabric.all_gather(copies, self._over(node, "weights"), whose)
        triples = zip(gathered, self._shapes[node], idle, strict=True)
        return [block if none else block.reshape(shape) for block, shape, none in triples]

    def zeros(self, node: int) -> Blocks:
        """Return zeros of the shapes of the devices' parts."""
        return [np.zeros(shape) for shape in self._shapes[node]]

    def add(self, node: int, gradients: Blocks) -> None:
        """Add a micro-batch's gradients: reduced right away where they are sharded."""
        if steps := self._over(node, *SCATTERED_EACH_MICRO_BATCH):
            gradients = self._scattered(node, gradients, steps)
        if node in self._gradients:
            pairs = zip(self._gradients[node], gradients, strict=True)
            gradients = [before + gradient for before, gradient in pairs]
        self._gradients[node] = gradients

    def reduced(self) -> dict[int, Blocks]:
        """Return the reduced gradients that devices keep, by layer: parts, or shards of them."""
        for node, blocks in self._gradients.items():
            # The gradient shards already reduced are those of the levels below.
            shards = self._scattered(node, blocks, self._over(node, "state"))
            steps, whose = self._over(node, "none"), Source(Phase.GRADIENT, node, None)
            reduced = self._fabric.all_reduce(_flat(shards), steps, whose)
            is_whole = not self._over(node, *SHARDED[1:])
            self._gradients[node] = self._shaped(node, reduced) if is_whole else reduced
        return self._by_layer(self._gradients)

    def updated(self, reduced: Mapping[int, Blocks]) -> dict[int, Blocks]:
        """Return the weights after a step of gradient descent at a rate of one, by layer.

        Each device updates its shards, which are gathered where devices keep whole parts.

        Parameters
        ----------
        reduced
            What `reduced` returned, of a step that shards something.
        """
        weights = {}
        for node, blocks in self._blocks.items():
            updated = self._over(node, "state", "gradients")
            shards = self._chunks(blocks, updated) if updated else blocks
            new = [w - g for w, g in zip(shards, reduced[self._layer(node)], strict=True)]
            whose = Source(Phase.GRADIENT, node, None, weights=True)
            if updated:
                new = self._fabric.all_gather(new, updated, whose)
            weights[node] = new if self.sharded(node) else self._shaped(node, new)
        return self._by_layer(weights)

    def _scattered(self, node: int, gradients: Blocks, steps: Sequence[Step]) -> Blocks:
        whose = Source(Phase.GRADIENT, node, None)
        return self._fabric.reduce_scatter(_flat(gradients), steps, whose)

    def _chunks(self, blocks: Blocks, steps: Sequence[Step]) -> Blocks:
        """Return each device's own chunk of its block over the levels of some steps."""
        flat = _flat(blocks)
        return [
            self._fabric.chunk(block, steps, device).copy() for device, block in enumerate(flat)
        ]

    def _shaped(self, node: int, blocks: Blocks) -> Blocks:
        return [b.reshape(shape) for b, shape in zip(blocks, self._shapes[node], strict=True)]

    def _layer(self, node: int) -> int:
        """Return the layer whose weights a node keeps; shared ones', the one that owns them."""
        shared = self._division.shared
        return node - shared if node >= shared else self._division.owner(node)

    def _by_layer(self, of_nodes: Mapping[int, Blocks]) -> dict[int, Blocks]:
        return {self._layer(node): blocks for node, blocks in of_nodes.items()}


def _flat(blocks: Blocks) -> Blocks:
    return [block.reshape(-1) for block in blocks]
