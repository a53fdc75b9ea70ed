"""What a step exchanges: by the program of a run's conversions, or by the tables of a reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.base import SplitCounts
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.tasks import ExchangeKind

if TYPE_CHECKING:
    from hypar_opt.costs.communication import CommunicationCost
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.costs.table import Integers
    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.tensors import Workload


class LevelBytes(NamedTuple):
    """What one step of an exchange moves across a level.

    Parameters
    ----------
    step
        None where a reading says how many bytes move and not how.
    level
        From 0 for H1.
    bytes
        Received by all accelerators together.
    """

    step: StepKind | None
    level: int
    bytes: Fraction


@dataclass(frozen=True)
class StepExchanges:
    """All that a plan's step exchanges, in steps that move something, in their order.

    Parameters
    ----------
    reductions
        By pass, tensor and node: a node's own partial sums, errors, statistics and gradients.
        Those of an all-reduce are topmost first, a level once.
    conversions
        By pass and boundary: feature maps or errors between two nodes.
    """

    reductions: Mapping[tuple[Phase, ExchangeKind, int], Sequence[LevelBytes]]
    conversions: Mapping[tuple[Phase, int], Sequence[LevelBytes]]


_TENSORS = {
    StepKind.REDUCE_SCATTER: ExchangeKind.PARTIAL_SUMS,
    StepKind.ALL_GATHER: ExchangeKind.ERRORS,
    StepKind.ALL_REDUCE: ExchangeKind.STATISTICS,
}
"""Which of a node's own tensors a step of its forward or backward pass moves."""


def of_program(program: Program, phases: Sequence[Phase], element_bytes: int) -> StepExchanges:
    """Return what a plan's program exchanges: the reading ``executed``."""
    reductions: dict[tuple[Phase, ExchangeKind, int], list[LevelBytes]] = {}
    conversions: dict[tuple[Phase, int], list[LevelBytes]] = {}
    for phase, step, level, node, boundary, elements in program.exchanges(phases):
        moved = LevelBytes(step, level, elements * element_bytes)
        if boundary is not None:
            conversions.setdefault((phase, boundary), []).append(moved)
            continue
        tensor = ExchangeKind.GRADIENTS if phase is Phase.GRADIENT else _TENSORS[step]
        reductions.setdefault((phase, tensor, node), []).append(moved)
    return StepExchanges(reductions, conversions)


def of_tables(workload: Workload, cost: CommunicationCost, rows: Rows) -> StepExchanges:
    """Return what the cost tables charge at a plan's choices, partial sums all-reduced.

    Parameters
    ----------
    rows : (levels, nodes)
        The column of every node's choice, H1 first.
    """
    reductions: dict[tuple[Phase, ExchangeKind, int], list[LevelBytes]] = {}
    conversions: dict[tuple[Phase, int], list[LevelBytes]] = {}
    for phase in cost.phases:
        tensors = [_reduced(phase, node.statistics) for node in workload.nodes]
        for level, (nodes, boundaries) in enumerate(_charges(workload, cost.of(phase), rows)):
            for number, moved in enumerate(_in_bytes(nodes, cost)):
                if moved:
                    own = reductions.setdefault((phase, tensors[number], number), [])
                    own.append(LevelBytes(StepKind.ALL_REDUCE, level, moved))
            for number, moved in enumerate(_in_bytes(boundaries, cost)):
                if moved:
                    own = conversions.setdefault((phase, number), [])
                    own.append(LevelBytes(None, level, moved))
    return StepExchanges(reductions, conversions)


def _reduced(phase: Phase, statistics: tuple[int, int]) -> ExchangeKind:
    if phase is Phase.GRADIENT:
        return ExchangeKind.GRADIENTS
    return ExchangeKind.STATISTICS if any(statistics) else ExchangeKind.PARTIAL_SUMS


def _charges(
    workload: Workload, cost: CommunicationCost, rows: Rows
) -> list[tuple[Integers, Integers]]:
    """Return what every node and every boundary is charged at each level, H1 first."""
    sources, targets = workload.ends.T
    charges = []
    splits_above = SplitCounts.down(len(workload.nodes), cost.choices, rows)
    # `down` yields one more: the splits below the deepest level.
    for splits, row in zip(splits_above, rows, strict=False):
        choice = np.asarray(row, np.intp)
        node = cost.node(workload, splits)[np.arange(len(choice)), choice]
        edge = cost.edge(workload, splits, splits)
        pairs = edge[np.arange(len(edge)), choice[sources], choice[targets]]
        charges.append((node, pairs))
    return charges


def _in_bytes(charges: Integers, cost: CommunicationCost) -> list[Fraction]:
    # Small elements have fractional bytes: a table of theirs counts halves or quarters.
    return [Fraction(charge, cost.resolution) for charge in charges.tolist()]
