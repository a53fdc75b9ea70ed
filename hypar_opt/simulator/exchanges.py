"""The exchanges of a step: of the program that runs a plan, or of a reading's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.sides import Parts, Share, SideBytes
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.tasks import ExchangeKind
from hypar_opt.step.states import of_rows

if TYPE_CHECKING:
    from hypar_opt.costs.communication import CommunicationCost
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.integers import Integers
    from hypar_opt.sharding.program import Program
    from hypar_opt.step.states import Indices
    from hypar_opt.workload.tensors import Workload


class LevelBytes(NamedTuple):
    """The bytes that one step of an exchange moves across a level.

    Parameters
    ----------
    step
        None if the reading only says how many bytes move.
    level
        From 0 for H1.
    bytes
        Received by all accelerators together.
    sent
        As if all accelerators sent as much as the longest part of a tensor, or as those of each
        part of H1; none where all send as much.
    messages
        To each other part of the level.
    """

    step: StepKind | None
    level: int
    bytes: Fraction
    sent: tuple[Fraction, ...] = ()
    messages: int = 1

    @property
    def silent(self) -> tuple[int, ...]:
        """The parts of H1 whose accelerators send nothing."""
        return tuple(part for part, amount in enumerate(self.sent) if not amount)


@dataclass(frozen=True)
class StepExchanges:
    """All exchanges of a plan's step: the steps that move any bytes, in order.

    Parameters
    ----------
    reductions
        A node's own partial sums, errors, statistics and gradients, by pass, tensor and node.
        Those of an all-reduce are topmost first, one per level.
    conversions
        Feature maps or errors between two nodes, by pass and boundary.
    """

    reductions: Mapping[tuple[Phase, ExchangeKind, int], Sequence[LevelBytes]]
    conversions: Mapping[tuple[Phase, int], Sequence[LevelBytes]]


_TENSORS = {
    StepKind.REDUCE_SCATTER: ExchangeKind.PARTIAL_SUMS,
    StepKind.ALL_GATHER: ExchangeKind.ERRORS,
    StepKind.ALL_REDUCE: ExchangeKind.STATISTICS,
    StepKind.HALO: ExchangeKind.HALOS,
}
"""The node's own tensor that a step of its forward or backward pass moves."""


def of_program(program: Program, phases: Sequence[Phase], element_bytes: int) -> StepExchanges:
    """Return the exchanges of a plan's program, as under the readings of a run."""
    reductions: dict[tuple[Phase, ExchangeKind, int], list[LevelBytes]] = {}
    conversions: dict[tuple[Phase, int], list[LevelBytes]] = {}
    for phase, step, level, node, boundary, elements, _, messages in program.exchanges(phases):
        moved = LevelBytes(step, level, Fraction(elements * element_bytes), messages=messages)
        if boundary is not None:
            conversions.setdefault((phase, boundary), []).append(moved)
            continue
        tensor = ExchangeKind.GRADIENTS if phase is Phase.GRADIENT else _TENSORS[step]
        reductions.setdefault((phase, tensor, node), []).append(moved)
    return StepExchanges(reductions, conversions)


_HALVES = MappingProxyType(
    {Phase.FORWARD: StepKind.REDUCE_SCATTER, Phase.BACKWARD: StepKind.ALL_GATHER}
)
"""The halves of an all-reduce of partial sums, which a run has in two passes."""


def of_tables(workload: Workload, cost: CommunicationCost, rows: Rows) -> StepExchanges:
    """Return the exchanges that the cost tables charge a plan; partial sums are all-reduced.

    Under the readings of a run they are reduce-scattered and, in another pass, gathered.

    Parameters
    ----------
    rows : (levels, nodes)
        The column of every node's choice, H1 first.
    """
    in_passes = {phase: [cost.of(phase)] for phase in cost.phases}
    halves = _HALVES if cost.reading in RUN_READINGS else MappingProxyType({})
    return _charged(workload, rows, in_passes, cost.resolution, halves)


def of_groups(
    workload: Workload, cost: CommunicationCost, rows: Rows, parts: Parts
) -> StepExchanges:
    """Return the exchanges of groups of accelerators that split H1 by their shares.

    Parameters
    ----------
    cost
        Of equal parts.
    rows : (levels, nodes)
        The column of every node's choice, H1 first.
    parts
        The share of each part of H1.
    """
    sides = {
        phase: [SideBytes.among(cost.of(phase), share) for share in Share.each(parts)]
        for phase in cost.phases
    }
    received = _charged(workload, rows, sides, cost.resolution, _HALVES)
    if len(parts) == 2:
        return received
    waiting = {phase: [replace(own, longest=True) for own in sides[phase]] for phase in sides}
    longest = _charged(workload, rows, waiting, cost.resolution, _HALVES)
    # Parts send as much as they wait for.
    return _with_sent(received, longest, lambda _, waited_for: waited_for.sent)


def of_longest(exchanges: StepExchanges, longest: StepExchanges) -> StepExchanges:
    """Return exchanges in which the longest part of each tensor is sent, as `of_tables` has it."""

    def sent(step: LevelBytes, most: LevelBytes) -> tuple[Fraction, ...]:
        return (most.bytes,) if most.bytes != step.bytes else ()

    return _with_sent(exchanges, longest, sent)


def _with_sent(
    exchanges: StepExchanges,
    longest: StepExchanges,
    sent_of: Callable[[LevelBytes, LevelBytes], tuple[Fraction, ...]],
) -> StepExchanges:
    """Return exchanges with what is sent at each level, given those and others' steps there."""

    def sent(steps: Sequence[LevelBytes], others: Sequence[LevelBytes]) -> list[LevelBytes]:
        at_level = {step.level: step for step in others}
        return [step._replace(sent=sent_of(step, at_level[step.level])) for step in steps]

    return StepExchanges(
        {key: sent(steps, longest.reductions[key]) for key, steps in exchanges.reductions.items()},
        {
            key: sent(steps, longest.conversions[key])
            for key, steps in exchanges.conversions.items()
        },
    )


def _charged(
    workload: Workload,
    rows: Rows,
    sides: Mapping[Phase, Sequence[CommunicationCost]],
    resolution: int,
    halves: Mapping[Phase, StepKind],
) -> StepExchanges:
    """Return the exchanges that cost models charge a plan.

    Parameters
    ----------
    sides
        The model of each pass; or of each part of H1, as if all had as much.
    resolution
        Their charges per byte.
    halves
        The step of an all-reduce of partial sums in each pass, where it is divided among passes.
    """
    reductions: dict[tuple[Phase, ExchangeKind, int], list[LevelBytes]] = {}
    conversions: dict[tuple[Phase, int], list[LevelBytes]] = {}
    states = of_rows(rows, len(workload.nodes))
    sources, targets = ([block[:, ends] for block in states] for ends in workload.ends.T)
    every_node, every_boundary = np.arange(len(workload.nodes)), np.arange(len(workload.ends))

    def moved(
        charges: Sequence[Sequence[Integers]], level: int, of: Indices
    ) -> Iterator[tuple[int, LevelBytes]]:
        """Yield what each node or boundary moves across a level, and its number."""
        # Between two parts one sends what the other receives.
        turned = not level and len(charges) == 2
        by_side = [side[level] for side in (charges[::-1] if turned else charges)]
        # Elements smaller than a byte: their charges count halves or quarters of one.
        each = [np.broadcast_to(side, of.shape).tolist() for side in by_side]
        for number, own in enumerate(zip(*each, strict=True)):
            if any(own):
                sent = tuple(Fraction(charge, resolution) for charge in own)
                mean = sum(sent, Fraction()) / len(sent)
                yield number, LevelBytes(None, level, mean, sent if len(sent) > 1 else ())

    for phase, in_pass in sides.items():
        nodes = workload, every_node, states
        ends = workload, every_boundary, sources, targets
        if isinstance(in_pass[0], SideBytes):
            of_nodes = [side.node(*nodes) for side in in_pass]
            of_edges = [side.edge(*ends) for side in in_pass]
            borders, passed = [], []
        else:
            (cost,), levels = in_pass, len(rows)
            rules = cost.rules(workload, levels)
            of_node = [*rules.node(every_node, states)]
            of_edge = [*rules.boundary(every_boundary, sources, targets)]
            is_halo = [own.tensor == "halo" for own in of_node]
            is_input = [own.tensor == "input" for own in of_edge]
            parts = (
                [own for own, halo in zip(of_node, is_halo, strict=True) if not halo],
                [own for own, halo in zip(of_node, is_halo, strict=True) if halo],
                [own for own, given in zip(of_edge, is_input, strict=True) if given],
                [own for own, given in zip(of_edge, is_input, strict=True) if not given],
            )
            of_nodes, borders, of_edges, passed = (
                [cost.fold(some, levels)] if some else [] for some in parts
            )
        for level in range(len(rows)):
            for number, step in moved(passed, level, every_boundary) if passed else ():
                half, source = halves[phase], int(workload.ends[number, 0])
                sums = reductions.setdefault((phase, _TENSORS[half], source), [])
                sums.append(step._replace(step=half))
            for number, step in moved(of_nodes, level, every_node) if of_nodes else ():
                kind, tensor = StepKind.ALL_REDUCE, _sums(phase, workload.nodes[number].statistics)
                if tensor is ExchangeKind.PARTIAL_SUMS and phase in halves:
                    kind = halves[phase]
                    tensor = _TENSORS[kind]
                key = phase, tensor, number
                reductions.setdefault(key, []).append(step._replace(step=kind))
            for number, step in moved(borders, level, every_node) if borders else ():
                moving = reductions.setdefault((phase, ExchangeKind.HALOS, number), [])
                moving.append(step._replace(step=StepKind.HALO))
            for number, step in moved(of_edges, level, every_boundary) if of_edges else ():
                conversions.setdefault((phase, number), []).append(step)
    return StepExchanges(reductions, conversions)


def _sums(phase: Phase, statistics: tuple[int, int]) -> ExchangeKind:
    """Return the tensor that a node's reduction in a pass is of."""
    if phase is Phase.GRADIENT:
        return ExchangeKind.GRADIENTS
    return ExchangeKind.STATISTICS if any(statistics) else ExchangeKind.PARTIAL_SUMS
