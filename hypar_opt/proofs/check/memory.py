"""What nodes hold, at least, by state and way to train: bytes of all accelerators together.

Weights, gradients, states and saved tensors are what kinds of layers declare, each tensor once; of
the network's input, and of tensors that one layer has alone, no copies are counted, and parts are
as if axes were divided exactly. So no device holds less than this, shared out equally.

Source: docs/decisions/0029-memory-of-a-device.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from hypar_opt.proofs.check.nodes import images_of
from hypar_opt.proofs.check.restrictions import OPTIMIZER_ELEMENTS
from hypar_opt.proofs.check.training import blocks_of, converted_again, levels_of_word
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.parallelism import SHARDED

if TYPE_CHECKING:
    from collections.abc import Collection

    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.check.nodes import PlanGraph, State

SINGLE = 4
"""Bytes of a number in single precision."""


@dataclass
class _Saved:
    """The bytes that a node saves in all ways; unless its block runs again; or its scores do.

    Of its output, ``always`` has a copy in each part in which that is whole.
    """

    always: int = 0
    unless_full: int = 0
    unless_again: int = 0


@dataclass(frozen=True, eq=False)
class Held:
    """What the nodes of a plan's graph hold, and the memory there is."""

    plan: Plan
    graph: PlanGraph

    @property
    def capacity(self) -> int:
        """The most that all accelerators hold all the time, in a plan that fits."""
        assert self.plan.array is not None
        accelerator = self.plan.array.description.accelerator
        own = int(accelerator.dram_capacity) - int(accelerator.reserve or 0)
        total = self.plan.accelerators * min(self.plan.problem.device_memory or 0, own)
        return total - self._of_input - self._moment

    def of(self, node: int, state: State, recompute: str, shard: str) -> int:
        """Return what a node holds in a state, in a way to train."""
        saved, layer = self._saved[node], self.graph.nodes[node]
        whole = [choice for choice, split in layer.own.items() if split.output == "whole"]
        full = recompute == "full" and node - self.graph.shared in self._block_of
        total = saved.always * self._copies(state, whole) + saved.unless_full * (not full)
        total += saved.unless_again * (not full and (recompute != "selective" or not layer.inner))
        words = levels_of_word(shard, self.plan.levels)
        for number, each in enumerate(self._bytes_of_weight):
            # Weights are split with their gradients, and these with their state.
            above = [word not in SHARDED[3 - number :] for word in words]
            copies = self._copies(state, layer.copied_by.weights, above)
            total += each * layer.stored * copies
        return total

    def _copies(
        self, state: State, choices: Collection[int], levels: Collection[bool] | None = None
    ) -> int:
        sizes = self.plan.hierarchy.sizes
        at = levels if levels is not None else [True] * len(sizes)
        each = zip(state, sizes, at, strict=True)
        return prod(parts for choice, parts, here in each if here and choice in choices)

    @property
    def _bytes_of_weight(self) -> tuple[int, int, int]:
        """Bytes of a weight, its gradient and its state; mixed below four bytes an element."""
        size, optimizer = self.plan.element_bytes, self.plan.constraints.optimizer
        exact = max(SINGLE, size)
        if isinstance(optimizer, str):
            optimizer = exact * (OPTIMIZER_ELEMENTS[optimizer] + (size < SINGLE))
        return size, self.plan.training.reduce_bytes or exact, optimizer

    @property
    def writes_scores(self) -> bool:
        """Whether attention does, and so may compute them again."""
        return not self._fused.attention

    @property
    def _fused(self) -> Fused:
        assert self.plan.array is not None
        accelerator = self.plan.array.description.accelerator
        return Fused(accelerator.attention != "unfused", accelerator.loss or "eager")

    @cached_property
    def _block_of(self) -> dict[int, int]:
        """The block of each layer that may run again, by their positions in the network."""
        blocks = blocks_of(self.plan.network.description)
        return {layer: number for number, own in enumerate(blocks) for layer in own}

    @cached_property
    def _readers(self) -> dict[int, set[int]]:
        """The layers whose backward pass reads what each layer wrote; -1 is the network's input."""
        network, readers = self.plan.network.description, dict[int, set[int]]()
        for n, layer in enumerate(network.layers):
            saves = layer.saves(fused=self._fused)
            ids = {-1} if layer.reads_ids else set()
            read = {*network.sources[n]} - ids if saves.inputs else set()
            written = {n} if saves.output and layer.fused_pool is None else set()
            for writer in read | written:
                readers.setdefault(writer, set()).add(n)
        return readers

    @property
    def _of_input(self) -> int:
        """The bytes that are saved of the network's input."""
        maps = [*self.plan.network.description.maps()]
        sizes = [maps[n].inputs[0].elements for n in self._readers.get(-1, ())]
        return self.plan.element_bytes * images_of(self.plan) * min(sizes, default=0)

    @cached_property
    def _saved(self) -> list[_Saved]:
        graph, size = self.graph, self.plan.element_bytes
        network, batch = self.plan.network.description, images_of(self.plan)
        tensor = {edge.source: edge.target for edge in graph.edges if edge.target < graph.shared}
        for n in converted_again(self.plan, graph):  # is kept as it was written
            del tensor[n]
        found = [_Saved() for _ in graph.nodes]
        for n, (layer, maps) in enumerate(zip(network.layers, network.maps(), strict=True)):
            own, node = found[n + graph.shared], graph.nodes[n + graph.shared]
            saves, sizes = (
                layer.saves(fused=self._fused),
                {"b": batch, **layer.sizes(maps)},
            )
            for axes, elements, each in saves.own:
                count = prod(sizes[axis] for axis in axes if axis in sizes)
                own.unless_again += (elements * size + each) * count
            before_pool = saves.output and layer.fused_pool is not None
            own.unless_full += size * node.outputs * (before_pool + saves.before_activation)
            readers, block = self._readers.get(n, set()), self._block_of.get(n)
            if block is not None and all(self._block_of.get(m) == block for m in readers):
                own.unless_full += size * node.pooled * bool(readers)
            elif readers:  # what leaves a block is kept, where another begins with it, too
                found[tensor.get(n + graph.shared, n + graph.shared)].always += size * node.pooled
        return found

    @cached_property
    def _moment(self) -> int:
        """The least that the largest moment takes: errors between layers, and logits."""
        network, graph, size = self.plan.network.description, self.graph, self.plan.element_bytes
        saved = [layer.saves(fused=self._fused) for layer in network.layers]
        singles = [own.singles for own in saved]
        last: dict[int, int] = {}
        for n, sources in enumerate(network.sources):
            if not saved[n].unwritten:  # a fused loss has no errors of logits
                last |= {writer: n - bool(singles[n]) for writer in sources if writer >= 0}
        moments = [
            SINGLE * (own - (own > 0 and size >= SINGLE)) * graph.nodes[n + graph.shared].pooled
            for n, own in enumerate(singles)
        ]
        for writer, reader in last.items():
            for n in range(writer, reader + 1):
                moments[n] += size * graph.nodes[writer + graph.shared].pooled
        return max(moments)
