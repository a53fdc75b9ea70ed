"""How often a step runs each pass and each exchange, counted by walking through the step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.reference.nodes import PlanGraph


class Pass(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"
    GRADIENT = "gradient"


@dataclass(frozen=True)
class StepCounts:
    """How often a step runs what it would once: of a batch at once all counts are one.

    Parameters
    ----------
    computed
        By pass and layer.
    exchanged
        What a node reads and reduces, by pass and node: a tensor with several readers is converted
        in its writer's passes.
    scattered, gathered
        The reduce-scatters of each node's gradient, and the all-gathers of its weights; the two
        halves of an all-reduce.
    sharded
        The same data parallelism's parts keep: nothing but ``none`` is all.
    """

    computed: Counter[tuple[Pass, int]]
    exchanged: Counter[tuple[Pass, int]]
    scattered: Counter[int]
    gathered: Counter[int]
    sharded: str

    @property
    def any(self) -> bool:
        """Whether anything is repeated or sharded."""
        counts = *self.computed.values(), *self.exchanged.values()
        return self.sharded != "none" or any(count > 1 for count in counts)

    @property
    def in_halves(self) -> bool:
        """Whether gradients are never all-reduced, but scattered and weights gathered apart."""
        return self.sharded in ("gradients", "weights")


def repetitions_of(plan: Plan, graph: PlanGraph) -> StepCounts:
    """Return how often a plan's step runs each pass and exchange of its graph.

    Source: Rajbhandari et al., "ZeRO", SC20, section 5; Korthikanti et al., MLSys 2023, section 5.
    """
    sharded, recompute = plan.training.shard or "none", plan.training.recompute or "none"
    again = _computed_again(plan, graph, recompute)
    count = plan.training.micro_batches or 1
    layers = range(graph.shared, len(graph.nodes))
    weights_of = {user: node for node in range(graph.shared) for user in graph.users(node)}
    tensor = {edge.source: edge.target for edge in graph.edges if edge.target < graph.shared}
    steps = StepCounts(Counter(), Counter(), Counter(), Counter(), sharded)

    def run(step: Pass, layer: int, *, exchanges: bool = True) -> None:
        steps.computed[step, layer] += count
        if exchanges:
            steps.exchanged[step, layer] += count
            if layer in tensor:
                steps.exchanged[step, tensor[layer]] += count

    def gather(layer: int) -> None:
        if sharded == "weights":
            steps.gathered[weights_of.get(layer, layer)] += count

    # One of the micro-batches, each of which does the same.
    for layer in layers:
        gather(layer)
        run(Pass.FORWARD, layer)
    for layer in reversed(layers):
        gather(layer)
        if layer in again:
            run(Pass.FORWARD, layer, exchanges=recompute == "full")
        run(Pass.BACKWARD, layer)
        run(Pass.GRADIENT, layer, exchanges=False)
    for node in range(len(graph.nodes)):
        steps.scattered[node] += count if steps.in_halves else 1
        steps.gathered[node] += 0 if sharded == "weights" else 1
    return steps


def _computed_again(plan: Plan, graph: PlanGraph, recompute: str) -> set[int]:
    """Return the layers whose forward pass the backward pass runs again."""
    network = plan.network.description
    if recompute == "full":
        blocks = [n for b in network.repeats for n in range(b.first, b.first + b.length * b.count)]
        others = [n for n, layer in enumerate(network.layers) if not layer.ends]
        return {graph.shared + n for n in blocks or others}
    writes_scores = plan.array and plan.array.description.accelerator.attention == "unfused"
    if recompute == "selective" and writes_scores:
        return {n for n, node in enumerate(graph.nodes) if node.inner}
    return set()
