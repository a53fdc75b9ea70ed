"""What nodes hold in a step, derived a second time, and what a device holds at least.

Weights, gradients, states and saved tensors are those that kinds of layers declare, each tensor
once; copies of the network's input, and of tensors of a single layer, are not counted, and axes are
divided exactly. So the fullest device holds at least an equal share of this.

Source: docs/memory.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.hardware.accelerator import SINGLE, state_bytes
from hypar_opt.proofs.check.nodes import fused_of, images_of
from hypar_opt.proofs.check.training import (
    OF_BLOCKS,
    blocks_of,
    by_operator,
    converted_again,
    levels_of_word,
)
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.parallelism import RECOMPUTED, SHARDED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.check.nodes import PlanGraph, PlanNode, State


class HeldTensor(NamedTuple):
    """A tensor that a node holds from its forward pass to the end of the step.

    Parameters
    ----------
    bytes
        The bytes of one copy.
    copied
        The choices that leave copies of it, one in each part.
    dropped
        The words for recomputation with which it is not held.
    shared_out
        The words for sharding with which a level has no copies of it.
    """

    bytes: int
    copied: frozenset[int] = frozenset()
    dropped: tuple[str, ...] = ()
    shared_out: tuple[str, ...] = ()

    def copies(self, state: State, sizes: Sequence[int], words: Sequence[str]) -> int:
        """Return its copies in all accelerators, given what each level shards."""
        levels = zip(state, sizes, words, strict=True)
        return prod(
            parts
            for choice, parts, word in levels
            if choice in self.copied and word not in self.shared_out
        )


def bytes_held(
    holds: Iterable[HeldTensor],
    state: State,
    sizes: Sequence[int],
    recompute: str = "none",
    shard: str = "none",
) -> int:
    """Return the bytes of all accelerators together that tensors take, in a training mode."""
    words = levels_of_word(shard, len(sizes))
    saved = (hold for hold in holds if recompute not in hold.dropped)
    return sum(hold.bytes * hold.copies(state, sizes, words) for hold in saved)


def papers_bytes(plan: Plan, node: PlanNode) -> list[HeldTensor]:
    """Return what a layer holds by the paper's count.

    Its weights, its input and its output before pooling; in training their gradients and errors,
    and the optimizer's state.
    """
    size = plan.element_bytes
    optimizer = state_bytes(plan.constraints.optimizer, size)
    weights, *maps = node.copied
    factor, state = (1, 0) if plan.inference else (2, optimizer)
    sizes = zip((*node.inputs, node.outputs), maps, strict=True)
    holds = [HeldTensor(factor * size * elements, copied) for elements, copied in sizes]
    return [HeldTensor((factor * size + state) * node.stored, weights), *holds]


@dataclass(frozen=True, eq=False)
class NodeMemory:
    """What the nodes of a plan's graph hold, and the available memory."""

    plan: Plan
    graph: PlanGraph

    @property
    def capacity(self) -> int:
        """The most that all accelerators together may hold throughout, in a plan that fits."""
        assert self.plan.array is not None
        accelerator = self.plan.array.description.accelerator
        free = int(accelerator.dram_capacity) - int(accelerator.reserve or 0)
        total = self.plan.accelerators * min(self.plan.problem.device_memory or 0, free)
        return total - self._of_input - self._peak

    def of(self, node: int, state: State, recompute: str, shard: str) -> int:
        """Return what a node holds in a state, in a training mode."""
        return bytes_held(self._holds[node], state, self.plan.hierarchy.sizes, recompute, shard)

    @property
    def writes_scores(self) -> bool:
        """Whether attention writes scores, and so may recompute them."""
        return not self._fused.attention

    @property
    def _fused(self) -> Fused:
        return fused_of(self.plan)

    @cached_property
    def _readers(self) -> dict[int, set[int]]:
        """The layers whose backward pass reads each source in `Network.sources`."""
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
        """The bytes that are saved of the network's inputs."""
        network = self.plan.network.description
        sizes = (network.map_of(source).elements for source in self._readers if source < 0)
        return self.plan.element_bytes * images_of(self.plan) * sum(sizes)

    @cached_property
    def _holds(self) -> list[list[HeldTensor]]:
        """What each node holds: of its weights, and of what its passes save."""
        graph, size = self.graph, self.plan.element_bytes
        exact = max(SINGLE, size)  # mixed below four bytes an element
        optimizer = state_bytes(self.plan.constraints.optimizer, exact, int(size < SINGLE))
        widths = size, self.plan.training.reduce_bytes or exact, optimizer
        # Weights are split with their gradients, and these with their state.
        holds = [
            [
                HeldTensor(width * node.stored, node.copied[0], shared_out=SHARDED[3 - number :])
                for number, width in enumerate(widths)
            ]
            for node in graph.nodes
        ]
        network, batch = self.plan.network.description, images_of(self.plan)
        blocks = blocks_of(network)
        block_of = {layer: number for number, block in enumerate(blocks) for layer in block}
        again = converted_again(self.plan, graph)  # these are kept in their writers' layouts
        by_op, only_op = by_operator(self.plan), tuple(w for w in RECOMPUTED if w != "op")
        tensor = {n: node for n, node in graph.tensors.items() if n not in again}
        for n, (layer, maps) in enumerate(zip(network.layers, network.maps(), strict=True)):
            position, saves = n + graph.shared, layer.saves(fused=self._fused)
            node, sizes = graph.nodes[position], {"b": batch, **layer.sizes(maps)}
            of_block = OF_BLOCKS if n in block_of else ()
            full = of_block[:1]
            passing = of_block if n in by_op.passes | by_op.epilogues else full
            scores = (*of_block, "selective") if node.inner else passing
            for axes, elements, extra_bytes in saves.intermediates:
                count = int(prod(sizes[axis] for axis in axes if axis in sizes))
                holds[position].append(
                    HeldTensor((elements * size + extra_bytes) * count, dropped=scores)
                )
            before_pool = saves.output and layer.fused_pool is not None
            before = before_pool + saves.before_activation
            holds[position].append(HeldTensor(size * node.outputs * before, dropped=passing))
            if n in by_op.epilogues:  # only the tensor before the activation is kept
                holds[position].append(HeldTensor(size * node.outputs, dropped=only_op))
            readers = self._readers.get(n, set())
            lost = of_block if n in by_op.lost else full
            if full and all(block_of.get(m) == block_of[n] for m in readers):
                # With recomputation by operator, the inputs of recomputed passes are kept, too.
                reads = any(n in network.sources[m] for m in by_op.passes)
                dropped = lost if readers else only_op
                saved = size * node.pooled * (bool(readers) or (reads and n not in by_op.lost))
                holds[position].append(HeldTensor(saved, dropped=dropped))
            elif readers:  # the output of a block is kept, too, as the input of the next
                keeper = tensor.get(position, position)
                whole = graph.nodes[keeper].whole
                holds[keeper].append(HeldTensor(size * node.pooled, whole))
        return holds

    @cached_property
    def _peak(self) -> int:
        """A lower bound on transient bytes at the peak: errors between layers, and logits."""
        network, graph, size = self.plan.network.description, self.graph, self.plan.element_bytes
        saves = [layer.saves(fused=self._fused) for layer in network.layers]
        outputs = [size * node.pooled for node in graph.nodes[graph.shared :]]
        last: dict[int, int] = {}
        for n, sources in enumerate(network.sources):
            if not saves[n].unwritten:  # a fused loss has no errors of logits
                last |= {writer: n - bool(saves[n].singles) for writer in sources if writer >= 0}
        peaks = [
            SINGLE * (saved.singles - (saved.singles > 0 and size >= SINGLE)) * output // size
            for saved, output in zip(saves, outputs, strict=True)
        ]
        for writer, reader in last.items():
            for n in range(writer, reader + 1):
                peaks[n] += outputs[writer]
        return max(peaks)
