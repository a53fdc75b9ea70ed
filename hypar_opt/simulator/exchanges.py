"""The exchanges of a step: of the program that runs a plan, or of a reading's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.sides import Share, SideBytes
from hypar_opt.costs.states import of_rows
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.tasks import ExchangeKind

if TYPE_CHECKING:
    from hypar_opt.costs.communication import CommunicationCost
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.costs.states import Indices
    from hypar_opt.costs.table import Integers
    from hypar_opt.sharding.program import Program
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
    of_groups
        Sent by the accelerators of each of two groups, as if all sent as much; none where all do.
    """

    step: StepKind | None
    level: int
    bytes: Fraction
    of_groups: tuple[Fraction, ...] = ()


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
}
"""The node's own tensor that a step of its forward or backward pass moves."""


def of_program(program: Program, phases: Sequence[Phase], element_bytes: int) -> StepExchanges:
    """Return the exchanges of a plan's program, as under the reading ``executed``."""
    reductions: dict[tuple[Phase, ExchangeKind, int], list[LevelBytes]] = {}
    conversions: dict[tuple[Phase, int], list[LevelBytes]] = {}
    for phase, step, level, node, boundary, elements in program.exchanges(phases):
        moved = LevelBytes(step, level, Fraction(elements * element_bytes))
        if boundary is not None:
            conversions.setdefault((phase, boundary), []).append(moved)
            continue
        tensor = ExchangeKind.GRADIENTS if phase is Phase.GRADIENT else _TENSORS[step]
        reductions.setdefault((phase, tensor, node), []).append(moved)
    return StepExchanges(reductions, conversions)


def of_tables(workload: Workload, cost: CommunicationCost, rows: Rows) -> StepExchanges:
    """Return the exchanges that the cost tables charge a plan; partial sums are all-reduced.

    Parameters
    ----------
    rows : (levels, nodes)
        The column of every node's choice, H1 first.
    """
    reductions: dict[tuple[Phase, ExchangeKind, int], list[LevelBytes]] = {}
    conversions: dict[tuple[Phase, int], list[LevelBytes]] = {}
    states = of_rows(rows, len(workload.nodes))
    sources, targets = ([block[:, ends] for block in states] for ends in workload.ends.T)
    every_node, every_boundary = np.arange(len(workload.nodes)), np.arange(len(workload.ends))
    for phase in cost.phases:
        tensors = [_reduced(phase, node.statistics) for node in workload.nodes]
        in_pass = cost.of(phase)
        reduced = in_pass.node(workload, every_node, states)
        converted = in_pass.edge(workload, every_boundary, sources, targets)
        for level, (nodes, boundaries) in enumerate(zip(reduced, converted, strict=True)):
            for number, moved in enumerate(_in_bytes(nodes, every_node, cost)):
                if moved:
                    key = phase, tensors[number], number
                    step = LevelBytes(StepKind.ALL_REDUCE, level, moved)
                    reductions.setdefault(key, []).append(step)
            for number, moved in enumerate(_in_bytes(boundaries, every_boundary, cost)):
                if moved:
                    step = LevelBytes(None, level, moved)
                    conversions.setdefault((phase, number), []).append(step)
    return StepExchanges(reductions, conversions)


_HALVES = {Phase.FORWARD: StepKind.REDUCE_SCATTER, Phase.BACKWARD: StepKind.ALL_GATHER}
"""The halves of an all-reduce of partial sums, which a run has in two passes."""


def of_groups(workload: Workload, cost: CommunicationCost, rows: Rows, parts: int) -> StepExchanges:
    """Return the exchanges of two groups of accelerators that split H1 by their shares.

    Parameters
    ----------
    cost
        Of equal parts.
    rows : (levels, nodes)
        The column of every node's choice, H1 first.
    parts
        The first group's share, of `hypar_opt.costs.sides.SHARES`.
    """
    reductions: dict[tuple[Phase, ExchangeKind, int], list[LevelBytes]] = {}
    conversions: dict[tuple[Phase, int], list[LevelBytes]] = {}
    states = of_rows(rows, len(workload.nodes))
    sources, targets = ([block[:, ends] for block in states] for ends in workload.ends.T)
    every_node, every_boundary = np.arange(len(workload.nodes)), np.arange(len(workload.ends))
    for phase in cost.phases:
        sides = [SideBytes.among(cost.of(phase), share) for share in Share.both(parts)]
        reduced = [side.node(workload, every_node, states) for side in sides]
        converted = [side.edge(workload, every_boundary, sources, targets) for side in sides]
        for level in range(len(rows)):
            for number, own in enumerate(_of_both(reduced, level, every_node, cost)):
                if any(own):
                    statistics = any(workload.nodes[number].statistics)
                    kind = StepKind.ALL_REDUCE if statistics else _HALVES.get(phase)
                    tensor = _TENSORS[kind] if kind else ExchangeKind.GRADIENTS
                    if phase is Phase.GRADIENT:
                        kind, tensor = StepKind.ALL_REDUCE, ExchangeKind.GRADIENTS
                    step = LevelBytes(kind, level, sum(own, Fraction()) / 2, own)
                    reductions.setdefault((phase, tensor, number), []).append(step)
            for number, own in enumerate(_of_both(converted, level, every_boundary, cost)):
                if any(own):
                    step = LevelBytes(None, level, sum(own, Fraction()) / 2, own)
                    conversions.setdefault((phase, number), []).append(step)
    return StepExchanges(reductions, conversions)


def _of_both(
    rows: Sequence[Sequence[Integers]], level: int, of: Indices, cost: CommunicationCost
) -> list[tuple[Fraction, Fraction]]:
    """Return the bytes that either group sends at a level, of each node or boundary."""
    # Between the groups one sends what the other receives.
    first, second = (_in_bytes(side[level], of, cost) for side in (rows if level else rows[::-1]))
    return list(zip(first, second, strict=True))


def _reduced(phase: Phase, statistics: tuple[int, int]) -> ExchangeKind:
    if phase is Phase.GRADIENT:
        return ExchangeKind.GRADIENTS
    return ExchangeKind.STATISTICS if any(statistics) else ExchangeKind.PARTIAL_SUMS


def _in_bytes(charges: Integers, of: Indices, cost: CommunicationCost) -> list[Fraction]:
    # Elements smaller than a byte: their charges count halves or quarters of one.
    each: list[int] = np.broadcast_to(charges, of.shape).tolist()
    return [Fraction(charge, cost.resolution) for charge in each]
