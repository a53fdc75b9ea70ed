"""The exchanges of a plan's nodes and edges, given their choices at the topmost levels.

Amounts are quarters of an element, of all groups of a level together. With d data, m model and o
output choices of a layer above a level these have W * 2^d of its weights, F * 2^m of its output
and A * 2^o of its input: integers, even where a size is odd.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.reference.nodes import PlanGraph, PlanNode, State, nodes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.plan.plan import Plan


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
    gathered_map, gathered_error
        A boundary from a split to an input that is read whole, on A: forward and backward.
    input_error
        An input that is read whole, backward: an all-reduce; 0 where it is reduce-scattered, as
        its boundary says. None if the reading has no charge for such a choice.
    of_network_input
        Whether that is charged for the network's first layer too.
    scattered
        Whether it is a run's, which all-gathers a tensor after all else.

    Source: Tables 1 and 2, section 3.4; docs/model.md.
    """

    gradient: int
    forward_sum: int
    backward_sum: int
    feature_map: int
    error: int
    behind_model: int
    gathered_map: int = 2
    gathered_error: int = 0
    input_error: int | None = None
    of_network_input: bool = False
    scattered: bool = False


READINGS: Mapping[str, ReadingFactors] = MappingProxyType(
    {
        "tables": ReadingFactors(4, 4, 0, 1, 1, 2, input_error=4, of_network_input=True),
        "text": ReadingFactors(8, 8, 0, 1, 1, 2, input_error=8),
        "figures": ReadingFactors(8, 8, 0, 2, 2, 0),
        "executed": ReadingFactors(8, 4, 4, 2, 2, 0, 4, 4, input_error=0, scattered=True),
    }
)


class Reduction(NamedTuple):
    """Partial sums of one of a node's tensors, reduced in one pass."""

    step: Pass
    choices: frozenset[int]
    """Those that leave partial sums."""
    doubling: frozenset[int]
    """Those that double what is reduced at the levels below."""
    quarters: int
    """At a level above which nothing is split."""
    all_reduce: bool


class Reduced(NamedTuple):
    """What a node reduces in one pass."""

    levels: dict[int, int]
    """Quarters of an element, by level."""
    all_reduce: bool


@dataclass(frozen=True)
class EdgeConversion:
    """A tensor on its way between the layouts of two nodes' choices.

    Parameters
    ----------
    quarters
        For each choice of the source and of the target, what each pass moves of an element where
        nothing is whole above.
    written_whole, read_whole
        Whether each choice of the source writes it whole, and of the target reads it whole.
    all_gathers_last
        Whether it is all-gathered after all else, from the topmost level down. Where it is stored
        whole and read whole both sides repeat all of that, each for its own replica.
    """

    elements: int
    quarters: tuple[tuple[tuple[int, ...], ...], ...]
    written_whole: tuple[bool, ...]
    read_whole: tuple[bool, ...]
    all_gathers_last: bool

    def copies(self, written: NDArray[np.intp], read: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the copies of the tensor that are moved at each level, as exponents of 2.

        Parameters
        ----------
        written, read
            The choices of both ends at each level: the first axis is that of levels.
        """
        whole = np.array(self.read_whole)[read]
        above: NDArray[np.intp] = whole.cumsum(axis=0) - whole
        if not self.all_gathers_last:
            return above
        kept = whole & np.array(self.written_whole)[written]
        gathered = whole & ~kept
        gathered_above = gathered.cumsum(axis=0) - gathered
        copies: NDArray[np.intp] = kept.sum(axis=0) + gathered * gathered_above
        return copies


@dataclass(frozen=True)
class Exchanges:
    """The exchanges of a plan's problem: the reductions of each node, each edge's conversion."""

    graph: PlanGraph
    reductions: tuple[tuple[Reduction, ...], ...]
    conversions: tuple[EdgeConversion, ...]

    def reduced(self, node: int, state: State) -> list[Reduced]:
        """Return what a node reduces in each pass, given its choices at the topmost levels."""
        passes: dict[Pass, Reduced] = {}
        for step, choices, doubling, quarters, _ in self.reductions[node]:
            copies = 0
            for level, choice in enumerate(state):
                if choice in choices:
                    if step not in passes:
                        # One reduction joins all levels of a pass, whichever their choices.
                        own = (r.all_reduce for r in self.reductions[node] if r.step is step)
                        passes[step] = Reduced({}, any(own))
                    levels = passes[step].levels
                    levels[level] = levels.get(level, 0) + (quarters << copies)
                copies += choice in doubling
        return list(passes.values())

    @property
    def has_thresholds(self) -> bool:
        """Whether a choice's charge at a level depends only on that choice's own count above."""
        return not any(
            any(split.input == "whole" for split in node.splits)
            or all(split.keeps_weights for split in node.splits)
            or all(split.output == "partial" for split in node.splits)
            for node in self.graph.nodes
        )


def exchanges_of(plan: Plan) -> Exchanges:
    """Return the exchanges of a plan's problem.

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
    reductions = []
    for position, node in enumerate(graph.nodes):
        # No layer reads the error of the network's input; AccPar charges it by convention.
        is_fed = position in fed or reading.of_network_input
        charged = _reductions(reading, node, is_fed=is_fed)
        kept = (r for r in charged if r.step in passes and r.quarters and r.choices)
        reductions.append(tuple(kept))
    # No proof rests on a choice that a node does not have, but potentials state one for it.
    as_first = reading.scattered and graph.reads_whole

    def padded(layouts: list[str]) -> list[str]:
        missing = layouts[:1] if as_first else ["none"]
        return layouts + missing * (len(plan.choices) - len(layouts))

    conversions = (
        conversion_of(
            reading,
            edge.elements,
            padded([split.output for split in graph.nodes[edge.source].splits]),
            padded([split.input for split in graph.nodes[edge.target].splits]),
            # Weights move in no conversion: a layer has them as stored, or slices its part.
            () if edge.weights else passes,
        )
        for edge in graph.edges
    )
    return Exchanges(graph, tuple(reductions), tuple(conversions))


def shares_tensors(plan: Plan) -> bool:
    """Return whether a tensor with several readers is a node by the plan's reading."""
    reading = READINGS.get(plan.cost.reading)
    return reading is not None and reading.scattered


def _reductions(reading: ReadingFactors, node: PlanNode, *, is_fed: bool) -> Iterator[Reduction]:
    """Yield the reductions of a node: Table 1, and AccPar's Type III.

    Those of 0 quarters, or by no choice, are among them.
    """
    # A program reduces partial sums before the activation and the pool; the paper counts the pooled
    # map.
    output = node.outputs if reading.scattered else node.pooled
    error = (reading.input_error or 0) * node.inputs if is_fed else 0
    weights, inputs, outputs = node.copied_by
    partial = frozenset(c for c, split in enumerate(node.splits) if split.output == "partial")
    sums = frozenset(c for c, split in enumerate(node.splits) if split.shares_statistics)
    yield Reduction(Pass.GRADIENT, weights, weights, reading.gradient * node.stored, True)
    forward, backward = reading.forward_sum * output, reading.backward_sum * output
    yield Reduction(Pass.FORWARD, partial, outputs, forward, not reading.scattered)
    yield Reduction(Pass.BACKWARD, partial, outputs, backward, False)
    yield Reduction(Pass.BACKWARD, inputs, inputs, error, True)
    for step, size in zip((Pass.FORWARD, Pass.BACKWARD), node.statistics, strict=True):
        yield Reduction(step, sums, sums, reading.gradient * size, True)


def conversion_of(
    reading: ReadingFactors,
    elements: int,
    written: Sequence[str],
    read: Sequence[str],
    passes: Sequence[Pass],
) -> EdgeConversion:
    """Return the conversion of a tensor.

    Parameters
    ----------
    written, read
        The layout of each choice: ``batch``, ``channel``, ``shuffled``, ``whole``, ``partial`` or
        ``none``.
    """

    def moved(own: str, wanted: str) -> tuple[int, ...]:
        return tuple(_quarters(reading, step, own, wanted) for step in passes)

    return EdgeConversion(
        elements,
        tuple(tuple(moved(own, wanted) for wanted in read) for own in written),
        tuple(layout == "whole" for layout in written),
        tuple(layout == "whole" for layout in read),
        all_gathers_last=reading.scattered,
    )


def _quarters(reading: ReadingFactors, step: Pass, written: str, read: str) -> int:
    """Return the quarters of an element of A that a pass moves: Table 2, and AccPar's."""
    forward = step is Pass.FORWARD
    if step is Pass.GRADIENT or "none" in (written, read):
        return 0
    if written == "partial" and not reading.scattered:
        # All-reduced, it is on both sides; its error is on none.
        return 0 if forward or read == "whole" else reading.behind_model
    if written == "partial":  # scattered into what is read, or by batch where that is whole
        written = "batch" if read == "whole" else read
    if written in ("whole", read):
        return 0
    if read == "whole":
        return reading.gathered_map if forward else reading.gathered_error
    return reading.feature_map if forward else reading.error
