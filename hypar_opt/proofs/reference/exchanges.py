"""The exchanges of layers at one level, pass by pass, in quarters of an element.

With d data, m model and o output choices of a layer above a level of 2^h groups, h their sum,
all groups together have W * 2^d of its weights, F * 2^m of its output and A * 2^o of its
input: integers, even where a size is odd.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.costs.table import Integers, exact_dtype
from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.reference.conversions import converted
from hypar_opt.proofs.reference.nodes import PlanGraph, PlanNode, nodes_of

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan

Counts = tuple[int, ...]
"""How often a layer makes each choice at the levels above."""

State = tuple[int, ...]
"""A node's choices at some or all levels, H1 first."""

Matrix = tuple[tuple[int, ...], ...]
"""A charge for each pair of choices, the earlier layer's first."""


class Pass(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"
    GRADIENT = "gradient"


@dataclass(frozen=True)
class ReadingFactors:
    """The factors of a reading in quarters of an element, both directions added.

    Parameters
    ----------
    gradient
        dW of a layer in data parallelism: an all-reduce.
    forward_sum, backward_sum
        The output of a layer in model parallelism: all-reduced forward, or, where
        ``scattered``, reduce-scattered before pooling forward, its error gathered backward.
    feature_map, error
        A boundary between a split by batch and one by channel, dp-mp say, on A: forward and
        backward.
    behind_model
        A boundary behind partial sums, mp-mp and mp-dp, on A: backward.
    input_error
        An input that is read whole, backward: an all-reduce; 0 where it is reduce-scattered, as
        its boundary says. None if the reading has no charge for such a choice.
    of_network_input
        Whether that is charged for the network's first layer too.

    Source: Tables 1 and 2, section 3.4; docs/model.md.
    """

    gradient: int
    forward_sum: int
    backward_sum: int
    feature_map: int
    error: int
    behind_model: int
    input_error: int | None = None
    of_network_input: bool = False
    scattered: bool = False


READINGS: Mapping[str, ReadingFactors] = MappingProxyType(
    {
        "tables": ReadingFactors(4, 4, 0, 1, 1, 2, input_error=4, of_network_input=True),
        "text": ReadingFactors(8, 8, 0, 1, 1, 2, input_error=8),
        "figures": ReadingFactors(8, 8, 0, 2, 2, 0),
        "executed": ReadingFactors(8, 4, 4, 2, 2, 0, input_error=0, scattered=True),
    }
)


class Reduction(NamedTuple):
    """An exchange of partial sums in one pass, caused by a layer's own choice."""

    choice: int
    step: Pass
    tensor: str
    """The field of `TensorCopies` that counts it."""
    quarters: int
    all_reduce: bool


@dataclass(frozen=True)
class Exchanges:
    """The exchanges of a plan's problem at a level above which nothing is split.

    Parameters
    ----------
    choices
        2, or 3 with output parallelism.
    graph
        Layers, and what several of them share.
    reductions
        Those of each node.
    conversions
        For each edge, a matrix for each pass that moves anything: the quarters of an
        element of A for each pair of choices; none of an edge that is `together`.
    passes
        The number of passes that convert a tensor: forward, and backward.
    in_order
        Whether tensors are read whole in a run, which all-gathers them after all else.
    """

    choices: int
    graph: PlanGraph
    reductions: tuple[tuple[Reduction, ...], ...]
    conversions: tuple[tuple[Matrix, ...], ...]
    passes: int
    in_order: bool

    @property
    def nodes(self) -> tuple[PlanNode, ...]:
        return self.graph.nodes

    def reduced(self, node: int, counts: Counts) -> list[tuple[Reduction, int]]:
        """Return a node's reductions and the quarters that each moves, given the choices above."""
        copies = self.nodes[node].copies(counts)
        return [
            (reduction, reduction.quarters << getattr(copies, reduction.tensor))
            for reduction in self.reductions[node]
        ]

    def choices_of(self, node: int, step: Pass) -> frozenset[int]:
        """Return the choices that reduce in a pass; it is one reduction over all their levels."""
        return frozenset(other.choice for other in self.reductions[node] if other.step is step)

    def joined(self, node: int, state: Sequence[int]) -> dict[Pass, tuple[list[int], int]]:
        """Return the levels over which each pass of a node reduces, and the quarters it moves."""
        passes = {}
        for step in {reduction.step for reduction in self.reductions[node]}:
            choices = self.choices_of(node, step)
            levels = [level for level, choice in enumerate(state) if choice in choices]
            if levels:
                own = (r for r in self.reductions[node] if r.step is step)
                passes[step] = levels, sum(self._over_levels(node, r, state) for r in own)
        return passes

    def _over_levels(self, node: int, reduction: Reduction, state: Sequence[int]) -> int:
        """Return the quarters that a reduction moves over all levels with its choice."""
        quarters = 0
        for level, choice in enumerate(state):
            if choice == reduction.choice:
                above = [state[:level].count(other) for other in range(self.choices)]
                copies = self.nodes[node].copies(above)
                quarters += reduction.quarters << getattr(copies, reduction.tensor)
        return quarters

    def boundary(self, position: int, target: Counts) -> int:
        """Return the elements of an edge's A in all groups together, as its target reads it."""
        edge = self.graph.edges[position]
        return edge.elements << self.nodes[edge.target].copies(target).inputs

    def together(self, position: int) -> bool:
        """Whether an edge's exchanges depend on its ends' choices at all levels, see `pairs`."""
        return self.in_order and not self.graph.edges[position].weights

    def pairs(self, position: int, sources: Sequence[State], targets: Sequence[State]) -> Integers:
        """Return the quarters that an edge moves in one pass, ``(levels, sources, targets)``.

        Parameters
        ----------
        sources, targets
            States of its ends: their choices at as many levels, H1 first.
        """
        edge = self.graph.edges[position]
        written = tuple(split.output for split in self.nodes[edge.source].splits)
        read = tuple(split.input for split in self.nodes[edge.target].splits)
        quarters = _converted(written, read, tuple(sources), tuple(targets))
        bound = int(quarters.max(initial=0)) * edge.elements
        return quarters.astype(exact_dtype(bound)) * edge.elements

    @property
    def has_thresholds(self) -> bool:
        """Whether a choice's charge at a level depends only on that choice's own count above."""
        return not any(
            any(split.input == "whole" for split in node.splits[: self.choices])
            or all(split.keeps_weights for split in node.splits[: self.choices])
            or all(split.output == "partial" for split in node.splits[: self.choices])
            for node in self.nodes
        )


def exchanges_of(plan: Plan) -> Exchanges:
    """Return the exchanges of a plan's problem.

    Raises
    ------
    CheckFailedError
        If its reading is unknown, or has no charge for one of its choices.
    """
    reading = READINGS.get(plan.cost.reading)
    choices = len(plan.choices)
    graph = nodes_of(plan, shared_tensors=shares_tensors(plan))
    reads_whole = any(
        split.input == "whole" for node in graph.nodes for split in node.splits[:choices]
    )
    if reading is None or (reads_whole and reading.input_error is None):
        raise CheckFailedError(
            f"cost, reading: {plan.cost.reading!r} charges nothing for the choices"
            f" {', '.join(plan.choices)}"
        )
    passes = (Pass.FORWARD,) if plan.inference else tuple(Pass)
    reductions = []
    fed = {edge.target for edge in graph.edges if not edge.weights}
    for position, node in enumerate(graph.nodes):
        # No layer reads the error of the network's input; AccPar charges it by convention.
        is_fed = position in fed or reading.of_network_input
        charged = _reductions(reading, node, choices, is_fed=is_fed)
        reductions.append(tuple(r for r in charged if r.step in passes and r.quarters))
    conversions = []
    # A run all-gathers at last, and so copies less than the readings of the paper charge.
    in_order = reads_whole and reading.scattered
    for edge in graph.edges:
        source, target = graph.nodes[edge.source], graph.nodes[edge.target]
        # Weights move in no conversion: a layer has them as they are stored, or slices its part.
        of_counts = () if in_order or edge.weights else passes
        steps = [_conversions(reading, step, source, target, choices) for step in of_counts]
        conversions.append(tuple(pairs for pairs in steps if any(map(any, pairs))))
    return Exchanges(
        choices,
        graph,
        tuple(reductions),
        tuple(conversions),
        passes=sum(step in passes for step in (Pass.FORWARD, Pass.BACKWARD)),
        in_order=in_order,
    )


@lru_cache(maxsize=256)
def _converted(
    written: tuple[str, ...],
    read: tuple[str, ...],
    sources: tuple[State, ...],
    targets: tuple[State, ...],
) -> Integers:
    """Return the quarters of an element of pairs of states: many edges have equal ends."""
    quarters = converted(
        [[_of_choice(written, choice) for choice in state] for state in sources],
        [[_of_choice(read, choice) for choice in state] for state in targets],
    )
    quarters.setflags(write=False)
    return quarters


def _of_choice(layouts: Sequence[str], choice: int) -> str:
    """Return a choice's layout; that of the first for one that the node does not have."""
    return layouts[choice] if choice < len(layouts) else layouts[0]


def shares_tensors(plan: Plan) -> bool:
    """Return whether a tensor with several readers is a node by the plan's reading."""
    reading = READINGS.get(plan.cost.reading)
    return reading is not None and reading.scattered


def _reductions(
    reading: ReadingFactors, node: PlanNode, choices: int, *, is_fed: bool
) -> Iterator[Reduction]:
    """Yield the reductions of each choice of a node: Table 1, and AccPar's Type III.

    Those of 0 quarters are among them.
    """
    # A program reduces partial sums before the activation and the pool; the paper counts the pooled
    # map.
    output = node.outputs if reading.scattered else node.pooled
    forward, backward = reading.forward_sum * output, reading.backward_sum * output
    error = (reading.input_error or 0) * node.inputs if is_fed else 0
    for choice, split in enumerate(node.splits[:choices]):
        if split.keeps_weights:
            gradient = reading.gradient * node.stored
            yield Reduction(choice, Pass.GRADIENT, "weights", gradient, True)
        if split.output == "partial":
            yield Reduction(choice, Pass.FORWARD, "outputs", forward, not reading.scattered)
            yield Reduction(choice, Pass.BACKWARD, "outputs", backward, False)
        if split.input == "whole":
            yield Reduction(choice, Pass.BACKWARD, "inputs", error, True)
        if split.shares_statistics:
            for step, size in zip((Pass.FORWARD, Pass.BACKWARD), node.statistics, strict=True):
                yield Reduction(choice, step, "statistics", reading.gradient * size, True)


def _conversions(
    reading: ReadingFactors, step: Pass, source: PlanNode, target: PlanNode, choices: int
) -> Matrix:
    """Return the quarters of an element of A for each pair of choices: Table 2, and AccPar's."""
    quarters = {
        Pass.FORWARD: {
            ("batch", "channel"): reading.feature_map,
            ("channel", "batch"): reading.feature_map,
            ("batch", "shuffled"): reading.feature_map,
            ("channel", "shuffled"): reading.feature_map,
            ("batch", "whole"): 2,
            ("channel", "whole"): 2,
        },
        Pass.BACKWARD: {
            ("batch", "channel"): reading.error,
            ("channel", "batch"): reading.error,
            ("batch", "shuffled"): reading.error,
            ("channel", "shuffled"): reading.error,
            ("partial", "channel"): reading.behind_model,
            ("partial", "shuffled"): reading.behind_model,
            ("partial", "batch"): reading.behind_model,
        },
    }.get(step, {})

    def converted(written: int, read: int) -> int:
        if written >= len(source.splits) or read >= len(target.splits):
            return 0  # a choice that the kind does not have
        return quarters.get((source.splits[written].output, target.splits[read].input), 0)

    columns = range(choices)
    return tuple(tuple(converted(written, read) for read in columns) for written in columns)
