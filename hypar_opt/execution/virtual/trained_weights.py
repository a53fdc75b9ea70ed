"""The weights or biases of a step's devices, whole or in shards, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.execution.virtual.fabric import Blocks, Fabric, Source
from hypar_opt.sharding.passes import Phase
from hypar_opt.workload.repeats import IN_HALVES

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
        Returns what devices that have the same of a node share out, one of `SHARDED`.

    Source: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
    Models", SC20, section 5.
    """

    def __init__(
        self,
        division: Division,
        fabric: Fabric,
        blocks: Mapping[int, Blocks],
        steps: Callable[[int], tuple[Step, ...]],
        shard: Callable[[int], str],
    ) -> None:
        self._division, self._fabric = division, fabric
        self._steps, self._shard = steps, shard
        self._blocks = dict(blocks)
        self._shapes = {node: [b.shape for b in blocks] for node, blocks in self._blocks.items()}
        self._gradients: dict[int, Blocks] = {}
        for node, own in self._blocks.items():
            if self.sharded(node):
                self._blocks[node] = self._shards(node, own)

    def sharded(self, node: int) -> bool:
        """Whether devices keep shards of a node's weights, and gather them for each pass."""
        return self._shard(node) == "weights"

    def used(self, node: int, by: int, phase: Phase) -> Blocks:
        """Return each device's part of a node's weights, for a pass of a layer's node.

        Gathered parts are copies, which may be dropped.
        """
        if not self.sharded(node):
            return self._blocks[node]
        copies = [shard.copy() for shard in self._blocks[node]]
        return self._gathered(node, copies, Source(phase, by, None, weights=True))

    def zeros(self, node: int) -> Blocks:
        """Return zeros of the shapes of the devices' parts."""
        return [np.zeros(shape) for shape in self._shapes[node]]

    def add(self, node: int, gradients: Blocks) -> None:
        """Add a micro-batch's gradients: reduced right away where they are sharded."""
        if self._shard(node) in IN_HALVES:
            gradients = self._scattered(node, gradients)
        if node in self._gradients:
            pairs = zip(self._gradients[node], gradients, strict=True)
            gradients = [before + own for before, own in pairs]
        self._gradients[node] = gradients

    def reduced(self) -> dict[int, Blocks]:
        """Return the reduced gradients that devices keep, by layer: parts, or shards of them."""
        for node, own in self._gradients.items():
            shard = self._shard(node)
            if shard not in IN_HALVES:
                reduce = self._all_reduced if shard == "none" else self._scattered
                self._gradients[node] = reduce(node, own)
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
            shard = self._shard(node)
            kept = blocks if shard in ("none", "weights") else self._shards(node, blocks)
            new = [w - g for w, g in zip(kept, reduced[self._layer(node)], strict=True)]
            whose = Source(Phase.GRADIENT, node, None, weights=True)
            weights[node] = new if kept is blocks else self._gathered(node, new, whose)
        return self._by_layer(weights)

    def _all_reduced(self, node: int, gradients: Blocks) -> Blocks:
        steps, whose = self._steps(node), Source(Phase.GRADIENT, node, None)
        reduced = self._fabric.all_reduce(_flat(gradients), steps, whose)
        return self._shaped(node, reduced)

    def _scattered(self, node: int, gradients: Blocks) -> Blocks:
        whose = Source(Phase.GRADIENT, node, None)
        return self._fabric.reduce_scatter(_flat(gradients), self._steps(node), whose)

    def _gathered(self, node: int, shards: Blocks, whose: Source) -> Blocks:
        return self._shaped(node, self._fabric.all_gather(shards, self._steps(node), whose))

    def _shards(self, node: int, blocks: Blocks) -> Blocks:
        steps, flat = self._steps(node), _flat(blocks)
        return [self._fabric.chunk(own, steps, device).copy() for device, own in enumerate(flat)]

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
