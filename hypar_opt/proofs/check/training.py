"""Training settings: recomputation and sharding of layers, and how often each pass runs."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.proofs.check.nodes import fused_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.check.nodes import PlanGraph
    from hypar_opt.workload.network import Network


OF_BLOCKS = ("full", "op")
"""The words for a block as a whole, the strongest first."""


class Pass(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"
    GRADIENT = "gradient"


class StepCounts(NamedTuple):
    """How often a step repeats passes and exchanges: all counts are 1 for a batch at once.

    Parameters
    ----------
    computed
        By pass and layer.
    exchanged, read
        The reductions and the inputs of a node, by pass and node: a tensor with several readers is
        converted in its writer's passes.
    epilogues
        By layer: what follows its products, an activation, if that runs without them.
    scattered, gathered
        The reduce-scatters of each node's gradient, and the all-gathers of its weights, at each
        level, by both; the two halves of an all-reduce.
    sharded
        What data parallelism shards of each node's weights at each level.
    size
        The size of a gradient's element, where it is reduced, in elements of weights.
    """

    computed: Counter[tuple[Pass, int]]
    exchanged: Counter[tuple[Pass, int]]
    read: Counter[tuple[Pass, int]]
    epilogues: Counter[int]
    scattered: Counter[tuple[int, int]]
    gathered: Counter[tuple[int, int]]
    sharded: Sequence[Sequence[str]]
    size: int = 1

    def moved(self, node: int, level: int) -> int:
        """Return the elements that the halves move across a level per weight of a node.

        Reduce-scatters move gradients, and so does the all-gather if nothing is sharded.
        """
        gathered = self.gathered[node, level]
        gathered *= self.size if self.sharded[node][level] == "none" else 1
        return self.scattered[node, level] * self.size + gathered

    @property
    def computes_once(self) -> bool:
        """Whether each pass runs once, regardless of sharding."""
        return all(count == 1 for count in self.computed.values())

    def reductions(self, node: int) -> dict[str, list[int]]:
        """Return the levels of each reduction of a node's gradient, by what they shard.

        At levels that shard gradients or weights it is reduce-scattered, and weights are gathered
        separately; at all others there is one all-reduce, even if the state is sharded.
        """
        by_word: dict[str, list[int]] = {}
        for level, word in enumerate(self.sharded[node]):
            by_word.setdefault("none" if word == "state" else word, []).append(level)
        return by_word


def counts_of(plan: Plan, graph: PlanGraph) -> StepCounts:
    """Return how often a plan's step runs each pass and exchange of its graph.

    It is counted by walking through one micro-batch, as all are equal.

    Source: Rajbhandari et al., "ZeRO", SC20, section 5; Korthikanti et al., MLSys 2023, section 5.
    """
    again, with_exchanges = _computed_again(plan, graph)
    micro_batches = plan.training.micro_batches or 1
    layers = range(graph.shared, len(graph.nodes))
    weights_of = {user: node for node in range(graph.shared) for user in graph.users(node)}
    tensor = graph.tensors
    words = [word for _, word in words_of_nodes(plan, graph)]
    sharded = [levels_of_word(words[weights_of.get(n, n)], plan.levels) for n in range(len(words))]
    size = (plan.training.reduce_bytes or plan.element_bytes) // plan.element_bytes
    steps = StepCounts(
        Counter(), Counter(), Counter(), Counter(), Counter(), Counter(), sharded, size
    )

    def exchange(step: Pass, node: int) -> None:
        steps.exchanged[step, node] += micro_batches
        steps.read[step, node] += micro_batches

    def run(step: Pass, layer: int, *, exchanges: bool = True) -> None:
        steps.computed[step, layer] += micro_batches
        if exchanges:
            exchange(step, layer)
            if layer in tensor:
                exchange(step, tensor[layer])

    def gather(layer: int) -> None:
        node = weights_of.get(layer, layer)
        for level, word in enumerate(sharded[node]):
            steps.gathered[node, level] += micro_batches if word == "weights" else 0

    for layer in layers:
        gather(layer)
        run(Pass.FORWARD, layer)
    alone, by_op = converted_again(plan, graph), by_operator(plan)
    for layer in reversed(layers):
        gather(layer)
        if layer in again:
            run(Pass.FORWARD, layer, exchanges=layer in with_exchanges)
        if layer in alone:
            exchange(Pass.FORWARD, tensor[layer])
        n = layer - graph.shared
        if n in by_op.passes:
            run(Pass.FORWARD, layer, exchanges=False)
            exchange(Pass.FORWARD, layer)
        elif n in by_op.reading:
            steps.read[Pass.FORWARD, layer] += micro_batches
        steps.epilogues[layer] += micro_batches * (n in by_op.epilogues)
        if n in by_op.lost and layer in tensor:
            exchange(Pass.FORWARD, tensor[layer])
        run(Pass.BACKWARD, layer)
        run(Pass.GRADIENT, layer, exchanges=False)
    for node, by_level in enumerate(sharded):
        for level, word in enumerate(by_level):
            by_micro_batch = word in ("gradients", "weights")
            steps.scattered[node, level] += micro_batches if by_micro_batch else 1
            steps.gathered[node, level] += 0 if word == "weights" else 1
    return steps


class ByOperator(NamedTuple):
    """The layers of blocks with recomputation by operator of which some part runs again.

    Parameters
    ----------
    passes
        Those whose forward pass runs again.
    epilogues
        Those in which only what follows their products runs again.
    reading
        Those whose inputs are exchanged again.
    lost
        Those whose output is not kept, and exists again once they have run.
    """

    passes: frozenset[int]
    epilogues: frozenset[int]
    reading: frozenset[int]
    lost: frozenset[int]


def by_operator(plan: Plan) -> ByOperator:
    """Return what runs again in blocks that keep outputs of products: as little as possible."""
    network, again = plan.network.description, [word for word, _ in _words_of_layers(plan)]
    layers, saves = network.layers, [layer.saves(fused=fused_of(plan)) for layer in network.layers]
    readers: list[set[int]] = [set() for _ in layers]
    for m, sources in enumerate(network.sources):
        for n in sources:
            if n >= 0:
                readers[n].add(m)
    passes: set[int] = set()
    epilogues: set[int] = set()
    lost: set[int] = set()

    def wants(m: int) -> bool:
        return saves[m].inputs or m in passes

    blocks = ({n for n in block if not layers[n].ends} for block in blocks_of(network))
    op_blocks = [block for block in blocks if block and again[min(block)] == "op"]
    for block in op_blocks:
        leaving = {n for n in block if any(saves[m].inputs for m in readers[n] - block)}
        of_output = {n for n in block if saves[n].output}
        count = -1
        while count < len(passes) + len(lost):
            count = len(passes) + len(lost)
            lost |= {n for n in block - leaving if any(wants(m) for m in readers[n] & block)}
            rest = {
                n for n in block if saves[n].before_activation or saves[n].intermediates
            } | of_output
            passes |= {n for n in (lost & block) | rest if not layers[n].sums}
        followed = {n for n in block if layers[n].sums and not layers[n].leaves_addends}
        epilogues |= followed & (lost | of_output)
    lost &= passes | epilogues
    reading = {n for block in op_blocks for n in block if layers[n].sums and saves[n].inputs}
    return ByOperator(*map(frozenset, (passes, epilogues, reading | epilogues, lost)))


def converted_again(plan: Plan, graph: PlanGraph) -> set[int]:
    """Return the layers whose output is converted again for backward passes of several readers.

    Never one that leaves a block, nor one of a block that runs again.
    """
    network, words = plan.network.description, stated_words(plan, plan.training.gather)
    again_words = [word for word, _ in _words_of_layers(plan)]
    reads = [layer.saves(fused=fused_of(plan)).inputs for layer in network.layers]
    blocks = blocks_of(network)
    again = set()
    for n, word in enumerate(words):
        readers = {m for m, sources in enumerate(network.sources) if n in sources}
        inside = all({n, *readers} <= block or block.isdisjoint({n, *readers}) for block in blocks)
        node = graph.shared + n
        runs_again = again_words[n] in OF_BLOCKS and not network.layers[n].ends
        is_saved = node not in graph.tensors or runs_again or not any(reads[m] for m in readers)
        if word == "again" and inside and not is_saved:
            again.add(node)
    return again


def levels_of_word(word: str, levels: int) -> list[str]:
    """Return the meaning of a word at each level, such as ``state+weights@H4-H6`` of six."""
    by_level = ["none"] * levels
    for part in word.split("+"):
        what, _, where = part.partition("@")
        first = int(where.partition("-")[0][1:]) if where else 1
        by_level[first - 1 :] = [what] * (levels + 1 - first)
    return by_level


def blocks_of(network: Network) -> list[set[int]]:
    """Return the layers of each block that may run again; without blocks, all but the end."""
    return [
        {*range(block.first + n * block.length, block.first + (n + 1) * block.length)}
        for block in network.repeats
        for n in range(block.count)
    ] or [{n for n, layer in enumerate(network.layers) if not layer.ends}]


def _computed_again(plan: Plan, graph: PlanGraph) -> tuple[set[int], set[int]]:
    """Return the layers that the backward pass runs again, and those of them with exchanges."""
    words = [word for word, _ in _words_of_layers(plan)]
    blocks = blocks_of(plan.network.description)
    fully = {graph.shared + n for block in blocks for n in block if words[n] == "full"}
    selectively = {
        graph.shared + n
        for n, word in enumerate(words)
        if not fused_of(plan).attention
        and word in ("selective", "op")
        and graph.nodes[graph.shared + n].inner
    }
    return fully | selectively, fully


def words_of_nodes(plan: Plan, graph: PlanGraph) -> list[tuple[str, str]]:
    """Return the words of each node for recomputation and for sharding.

    Shared nodes are never recomputed; the word of one user decides how they are sharded.
    """
    layers = _words_of_layers(plan)
    users = (graph.users(node) for node in range(graph.shared))
    shards = ([layers[user - graph.shared][1] for user in of_node] for of_node in users)
    stated = (next((word for word in of_node if word != "none"), "none") for of_node in shards)
    return [*(("none", word) for word in stated), *layers]


def _words_of_layers(plan: Plan) -> list[tuple[str, str]]:
    """Return each layer's words: for recomputation, for its block, and for sharding."""
    again, sharded = (
        stated_words(plan, word) for word in (plan.training.recompute, plan.training.shard)
    )
    blocks = blocks_of(plan.network.description)
    # The strongest word of a block's layers holds for all of them; and for no others.
    for said in OF_BLOCKS:
        for block in blocks:
            if any(again[n] == said for n in block):
                again = [said if n in block else word for n, word in enumerate(again)]
    inside = {n for block in blocks for n in block}
    again = [
        "none" if word in OF_BLOCKS and n not in inside else word for n, word in enumerate(again)
    ]
    return list(zip(again, sharded, strict=True))


def stated_words(plan: Plan, stated: str | Mapping[str, str] | None) -> list[str]:
    """Return the word that a plan states for each layer: by name, by pattern, or for all others."""
    if stated is None or isinstance(stated, str):
        return [stated or "none"] * len(plan.layers)
    patterns = {pattern: word for pattern, word in stated.items() if pattern not in plan.layers}
    other_words = patterns.pop("*", "none")
    words = []
    for layer in plan.layers:
        named = (
            word
            for pattern, word in patterns.items()
            if fnmatchcase(layer, pattern) or fnmatchcase(layer, f"{pattern}.*")
        )
        words.append(stated[layer] if layer in stated else next(named, other_words))
    return words
