"""The exchanges of a plan's nodes and edges, given their choices at the topmost levels.

Amounts are of all groups of a level together. Where the levels above have split a layer into d
parts by data, m by model and o by output parallelism, these groups have W * d of its weights,
F * m of its output and A * o of its input; in t parts by tokens, W * t, and the keys and values of
attention t times. Between n parts a reduce-scatter or an all-gather moves n - 1 times as much, an
all-reduce twice that, and an all-to-all all but what a part has before and after it. Amounts count
quarters of an element, as the paper's tables do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.reference.buckets import Share, shares_of_latency
from hypar_opt.proofs.reference.conversions import EdgeConversion
from hypar_opt.proofs.reference.images import borders_of
from hypar_opt.proofs.reference.nodes import nodes_of
from hypar_opt.proofs.reference.plan_graph import (
    PlanEdge,
    PlanGraph,
    PlanNode,
    State,
    longest_parts,
    of_longest,
)
from hypar_opt.proofs.reference.readings import READINGS, ReadingFactors
from hypar_opt.proofs.reference.reductions import Often, Reduced, Reduction
from hypar_opt.proofs.reference.repetitions import Pass, StepCounts, repetitions_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.plan.plan import Plan


@dataclass(frozen=True)
class Exchanges:
    """The exchanges of a plan's problem: the reductions of each node, each edge's conversion."""

    hierarchy: Hierarchy
    reading: ReadingFactors
    graph: PlanGraph
    reductions: tuple[tuple[Reduction, ...], ...]
    conversions: tuple[EdgeConversion, ...]
    repetitions: StepCounts
    borders: tuple[tuple[int, ...], ...]
    """How often each node's parts of images exchange their borders, by pass."""

    def passes(self, node: int) -> tuple[int, ...]:
        """Return how often each of a node's passes computes."""
        return tuple(self.repetitions.computed[step, node] for step in Pass)

    def reduced(self, node: int, state: State, *, longest: bool = False) -> list[Reduced]:
        """Return what a node reduces in each pass, given its choices at the topmost levels.

        Parameters
        ----------
        longest
            Whether as if every part were as long as the longest, of a state of all levels.
        """
        passes: dict[tuple[Pass, frozenset[int] | None], Reduced] = {}
        splits = self.graph.nodes[node].own.items() if longest else ()
        levels_here = [*zip(state, self.hierarchy.sizes, strict=False)]
        for own in self.reductions[node]:
            step, choices, copying, amount, _, latency, repeating, joins, _ = own
            amount *= prod(parts for choice, parts in levels_here if choice in repeating)
            axes = ((n, split.size) for n, split in splits if n not in copying)
            uneven = longest_parts(axes, state, self.hierarchy)
            for level, (choice, parts) in enumerate(levels_here):
                if choice in choices and (joins is None or level in joins):
                    if (step, joins) not in passes:
                        # One reduction joins all levels of a pass, whichever their choices; of
                        # gradients those that share out the same.
                        alike = (r for r in self.reductions[node] if r.step is step)
                        often = max(r.often for r in alike if r.levels == joins)
                        passes[step, joins] = Reduced({}, often, latency)
                    if own.takes_place(level):
                        levels = passes[step, joins].levels
                        moved = of_longest(amount * (parts - 1), uneven)
                        levels[level] = levels.get(level, 0) + moved
                amount *= parts if choice in copying else 1
        return [*passes.values()]

    def at_borders(
        self, node: int, state: State, *, longest: bool = False
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield a level that borders of images cross, and what each pass moves there."""
        own = self.graph.nodes[node]
        if own.image is None:
            return
        # No proof rests on a choice that a node does not have.
        layouts = [own.own[n].inputs[0] if n in own.own else "none" for n in state]
        moved = borders_of(own.image, layouts, self.hierarchy)
        whole = {n for n, split in own.own.items() if split.inputs[0] == "whole"}
        axes = ((n, split.size) for n, split in own.own.items() if longest and n not in whole)
        uneven = longest_parts(axes, state, self.hierarchy)
        for level, amount in moved.items():
            yield level, [of_longest(4 * times * amount, uneven) for times in self.borders[node]]

    @property
    def has_thresholds(self) -> bool:
        """Whether a choice's charge at a level depends only on that choice's own count above."""
        return not self.reading.at_once and not any(
            any("whole" in split.inputs for split in splits)
            or all(split.keeps_weights for split in splits)
            or all(split.output == "partial" for split in splits)
            for splits in (node.own.values() for node in self.graph.nodes)
        )


def exchanges_of(plan: Plan, chosen: Sequence[State] = ()) -> Exchanges:
    """Return the exchanges of a plan's problem, or, given its nodes' states, of the plan itself.

    Raises
    ------
    CheckFailedError
        If its reading is unknown, or has no charge for one of its choices.
    """
    reading = READINGS.get(plan.cost.reading)
    graph = nodes_of(plan, shared_tensors=shares_tensors(plan))
    if reading is None or (graph.reads_whole and reading.input_error is None):
        raise CheckFailedError(
            f"cost, reading: {plan.cost.reading!r} charges nothing for the choices"
            f" {', '.join(plan.choices)}"
        )
    passes = (Pass.FORWARD,) if plan.inference else tuple(Pass)
    fed = {edge.target for edge in graph.edges if not edge.weights}
    adds_up = graph.adds_up()
    passing = {edge.source for edge, adds in zip(graph.edges, adds_up, strict=True) if adds}
    repetitions = repetitions_of(plan, graph)
    reductions, shares = [], _shares_of_latency(plan, graph, chosen, repetitions)
    for position, node in enumerate(graph.nodes):
        # No layer reads the error of the network's input; AccPar charges it by convention.
        is_fed = position in fed or reading.of_network_input
        own = repetitions, position, repetitions.sharing(position, plan.levels)
        charged = [*_reductions(reading, node, shares[position], *own, is_fed=is_fed)]
        if position not in passing:  # else they are an edge's
            charged += _summed(reading, node, repetitions, position)
        kept = (r for r in charged if r.step in passes and r.quarters and r.choices)
        reductions.append(tuple(kept))
    # No proof rests on a choice that a node does not have, but potentials state one for it.
    as_first = reading.scattered and graph.reads_whole

    def padded(layouts: Sequence[str | None]) -> tuple[str, ...]:
        return tuple(layout or (as_first and layouts[0]) or "none" for layout in layouts)

    def converted(edge: PlanEdge, adds: bool) -> EdgeConversion:
        source, target = graph.nodes[edge.source], graph.nodes[edge.target]
        written = [split and split.output for split in source.splits]
        read = [split and split.inputs[edge.operand] for split in target.splits]
        return EdgeConversion(
            reading,
            edge._replace(source=0, target=0, operand=0),
            padded(written),
            padded(read),
            (source.axes(written), target.axes(read)),
            # Weights move in no conversion: a layer has them as stored, or slices its part.
            ()
            if edge.weights
            else tuple(
                (step, repetitions.exchanged[step, edge.target])
                for step in passes
                if edge.has_error or step is not Pass.BACKWARD
            ),
            tuple(
                own
                for own in _summed(reading, source, repetitions, edge.source)
                if adds and own.step in passes
            ),
        )

    conversions = tuple(map(converted, graph.edges, adds_up))
    reduced = tuple(reductions)
    # The network's input arrives with them; weights have none.
    borders = tuple(
        tuple(repetitions.exchanged[step, node] for step in passes[:2] if node in fed)
        for node in range(len(graph.nodes))
    )
    parts = graph, reduced, conversions, repetitions, borders
    return Exchanges(plan.hierarchy, reading, *parts)


def shares_tensors(plan: Plan) -> bool:
    """Return whether a tensor with several readers is a node by the plan's reading."""
    reading = READINGS.get(plan.cost.reading)
    return reading is not None and reading.scattered


def _shares_of_latency(
    plan: Plan, graph: PlanGraph, chosen: Sequence[State], repetitions: StepCounts
) -> list[dict[str, Share]]:
    most = plan.array.description.bucket_elements(plan.element_bytes) if plan.array else 1
    if most == 1:
        return [{} for _ in graph.nodes]
    sharing = [repetitions.sharing(node, plan.levels) for node in range(len(graph.nodes))]
    return shares_of_latency(graph, most, chosen, sharing)


def _reductions(
    reading: ReadingFactors,
    node: PlanNode,
    latency: Mapping[str, Share],
    repetitions: StepCounts,
    position: int,
    sharing: Mapping[str, Sequence[int]],
    *,
    is_fed: bool,
) -> Iterator[Reduction]:
    """Yield the reductions of a node: Table 1, and AccPar's Type III.

    Those of 0 quarters, or by no choice, are among them.
    """
    weights, inputs, _ = node.copied_by
    sums = frozenset(c for c, split in node.own.items() if split.shares_statistics)
    for word, levels in sharing.items():
        halves = tuple(
            counts[position, levels[0]] for counts in (repetitions.scattered, repetitions.gathered)
        )
        apart = Often(1) if word == "none" else Often(0, *halves)
        # What one all-reduce joins may be gathered as gradients at some levels, and at others as
        # the weights of a state that is shared out.
        alike: dict[int, set[int]] = {}
        for level in levels:
            alike.setdefault(repetitions.moved(position, level), set()).add(level)
        for moved, some in alike.items():
            of = reading.gradient // 2 * node.stored * moved, apart, latency.get(word)
            at = frozenset(levels), frozenset(some)
            yield Reduction(Pass.GRADIENT, weights, weights, *of, frozenset(), *at)
    behind = repetitions.exchanged[Pass.BACKWARD, position]
    whole = frozenset(c for c, split in node.own.items() if split.output == "whole")
    for size, copying in zip(node.inputs, inputs, strict=True):
        error = (reading.input_error or 0) * size if is_fed else 0
        yield Reduction(Pass.BACKWARD, copying, copying, behind * error, Often(behind))
    for step, size in zip((Pass.FORWARD, Pass.BACKWARD), node.statistics, strict=True):
        times = repetitions.exchanged[step, position]
        amount = times * reading.gradient * size
        yield Reduction(step, sums, sums, amount, Often(times), repeating=whole)


def _summed(
    reading: ReadingFactors, node: PlanNode, repetitions: StepCounts, position: int
) -> Iterator[Reduction]:
    """Yield the reductions of a node's output: of partial sums, and all-gathers of their error."""
    # A program reduces partial sums before the activation and the pool; the paper counts the pooled
    # map.
    output = node.outputs if reading.scattered else node.pooled
    partial, whole = (
        frozenset(c for c, split in node.own.items() if split.output == word)
        for word in ("partial", "whole")
    )
    ahead, behind = (
        repetitions.exchanged[step, position] for step in (Pass.FORWARD, Pass.BACKWARD)
    )
    summed = Often(scatters=ahead) if reading.scattered else Often(ahead)
    for step, times, factor, often in (
        (Pass.FORWARD, ahead, reading.forward_sum, summed),
        (Pass.BACKWARD, behind, reading.backward_sum, Often(gathers=behind)),
    ):
        yield Reduction(step, partial, partial, times * factor * output, often, repeating=whole)
