"""The exchanges of a simulated step: of each tensor together, with the bytes at each level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.sides import Parts, Share, SideBytes
from hypar_opt.simulator.tasks import ExchangeKind
from hypar_opt.step.operations import Phase, StepKind
from hypar_opt.step.order import PlanExchanges
from hypar_opt.step.states import of_rows
from hypar_opt.workload.repeats import COLLECTIVES

if TYPE_CHECKING:
    from hypar_opt.costs.communication import CommunicationCost
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.integers import Integers
    from hypar_opt.step.order import Exchange
    from hypar_opt.step.rules import StepRules
    from hypar_opt.step.states import Indices
    from hypar_opt.workload.tensors import Workload


class LevelBytes(NamedTuple):
    """The bytes that one step of an exchange moves across a level, each time.

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


class Reduction(NamedTuple):
    """What is reduced or gathered together, over all levels at which it is.

    Parameters
    ----------
    node
        Whose output, statistics, halo, gradient or weights it is.
    group
        Of gradients and weights, by what is split there: in `COLLECTIVES`.
    """

    phase: Phase
    tensor: ExchangeKind
    node: int
    group: int = 0


@dataclass(frozen=True)
class StepExchanges:
    """All exchanges of a plan's step: the steps that move any bytes, in order.

    Parameters
    ----------
    reductions
        Of nodes; one step per level. Those of an all-reduce are topmost first.
    conversions
        Feature maps or errors between two nodes, by pass and boundary.
    """

    reductions: Mapping[Reduction, Sequence[LevelBytes]]
    conversions: Mapping[tuple[Phase, int], Sequence[LevelBytes]]


_TENSORS = {
    StepKind.REDUCE_SCATTER: ExchangeKind.PARTIAL_SUMS,
    StepKind.ALL_GATHER: ExchangeKind.ERRORS,
    StepKind.ALL_REDUCE: ExchangeKind.STATISTICS,
    StepKind.HALO: ExchangeKind.HALOS,
}
"""The node's own tensor that a step of its forward or backward pass moves."""


def of_plan(
    rules: StepRules, rows: Rows, element_bytes: int, longest: StepRules | None = None
) -> StepExchanges:
    """Return the exchanges of a plan's step, of one micro-batch and the update.

    Parameters
    ----------
    rules
        Of a micro-batch.
    rows : (levels, nodes)
        The column of every node's choice, H1 first.
    longest
        The same of the longest parts, if these are sent.
    """
    mean = PlanExchanges.of(rules, rows)
    most = mean if longest is None else PlanExchanges.of(longest, rows)

    def moved(exchange: Exchange) -> Fraction:
        return Fraction(exchange.quarters * element_bytes) / (4 * exchange.times)

    def of_levels(
        exchanges: Sequence[Exchange], others: Sequence[Exchange]
    ) -> Iterator[tuple[Exchange, LevelBytes]]:
        for exchange, other in zip(exchanges, others, strict=True):
            received, sent = moved(exchange), moved(other)
            own = (sent,) if sent != received else ()
            step = exchange.kind, exchange.level, received, own, exchange.messages
            yield exchange, LevelBytes(*step)

    conversions: defaultdict[tuple[Phase, int], list[LevelBytes]] = defaultdict(list)
    for number, own in enumerate(mean.boundaries):
        for exchange, step in of_levels(own, most.boundaries[number]):
            conversions[exchange.phase, number].append(step)
    nodes = zip(mean.nodes, most.nodes, strict=True)
    reductions = (each for pair in nodes for each in of_levels(*pair))
    return StepExchanges(_reductions(rules.workload, reductions), conversions)


_ALL_REDUCED = len(COLLECTIVES) - 1
"""The group of gradients that are reduced once, and of the weights that are gathered with them."""

_HALVES = MappingProxyType(
    {Phase.FORWARD: StepKind.REDUCE_SCATTER, Phase.BACKWARD: StepKind.ALL_GATHER}
)
"""The halves of an all-reduce of partial sums, which a run has in two passes."""


def _reductions(
    workload: Workload, steps: Iterable[tuple[Exchange, LevelBytes]]
) -> dict[Reduction, Sequence[LevelBytes]]:
    """Return what nodes exchange, given each exchange's bytes: of one reduction added up."""
    reductions: defaultdict[Reduction, dict[int, LevelBytes]] = defaultdict(dict)
    for exchange, step in steps:
        key = _reduction(workload, exchange)
        if key.group == _ALL_REDUCED:  # as a whole, or in halves
            step = step._replace(step=StepKind.ALL_REDUCE)
        at_level = reductions[key]
        other = at_level.get(step.level)
        at_level[step.level] = step if other is None else added([other, step])
    return {
        key: [*at_level.values()][:: -1 if _is_scattered(key) else 1]
        for key, at_level in reductions.items()
    }


def _reduction(workload: Workload, exchange: Exchange) -> Reduction:
    """Return the reduction that an exchange of a node is part of."""
    phase, node, group = exchange.phase, exchange.node, exchange.group
    if phase is Phase.GRADIENT:
        gathers = exchange.tensor == "weights" and group != _ALL_REDUCED
        tensor = ExchangeKind.WEIGHTS if gathers else ExchangeKind.GRADIENTS
        return Reduction(phase, tensor, node, group)
    assert exchange.kind is not None
    tensor = _TENSORS[exchange.kind]
    if exchange.kind is StepKind.ALL_REDUCE and not any(workload.nodes[node].statistics):
        tensor = ExchangeKind.PARTIAL_SUMS
    return Reduction(phase, tensor, node)


def _is_scattered(reduction: Reduction) -> bool:
    """Return whether gradients are reduce-scattered, from the deepest level up."""
    return reduction.tensor is ExchangeKind.GRADIENTS and reduction.group != _ALL_REDUCED


def added(steps: Sequence[LevelBytes]) -> LevelBytes:
    """Return the steps of several tensors across a level as one."""
    return steps[0]._replace(
        bytes=sum((step.bytes for step in steps), Fraction()), sent=sent_of(steps)
    )


def sent_of(steps: Sequence[LevelBytes]) -> tuple[Fraction, ...]:
    """Return the sum of what is sent of some steps; none where all accelerators send as much."""
    if not any(step.sent for step in steps):
        return ()
    each = zip(*(step.sent or (step.bytes,) for step in steps), strict=True)
    return tuple(sum(amounts, Fraction()) for amounts in each)


def of_groups(
    rules: StepRules, workload: Workload, rows: Rows, cost: CommunicationCost, parts: Parts
) -> StepExchanges:
    """Return the exchanges of groups of accelerators that split H1 by their shares.

    Parameters
    ----------
    rules
        Of a micro-batch, in equal parts.
    workload
        Of the same, but that nothing is sharded.
    rows : (levels, nodes)
        The column of every node's choice, H1 first.
    cost
        Of equal parts.
    parts
        The share of each part of H1.
    """
    reduced = rules.workload.repeats.reduced
    states = of_rows(rows, len(workload.nodes))
    nodes = workload, np.arange(len(workload.nodes)), states
    sources, targets = ([block[:, ends] for block in states] for ends in workload.ends.T)
    edges = workload, np.arange(len(workload.ends)), sources, targets
    of_gradients = {StepKind.ALL_REDUCE: Fraction(reduced)}
    of_gradients |= {StepKind.REDUCE_SCATTER: Fraction(reduced, 2)}
    of_gradients |= {StepKind.ALL_GATHER: Fraction(1, 2)}
    equal = PlanExchanges.of(rules, rows)
    gradients: list[tuple[Exchange, LevelBytes]] = []
    reductions: defaultdict[Reduction, list[LevelBytes]] = defaultdict(list)
    conversions: defaultdict[tuple[Phase, int], list[LevelBytes]] = defaultdict(list)

    def moved(
        received: Sequence[Sequence[Integers]],
        waited_for: Sequence[Sequence[Integers]],
        level: int,
        of: Indices,
    ) -> Iterator[tuple[int, LevelBytes]]:
        """Yield what each node or boundary moves across a level, and its number."""
        if len(parts) == 2:  # between two parts one sends what the other receives
            waited_for = received if level else received[::-1]
        every = zip(
            *(
                zip(*(np.broadcast_to(side[level], of.shape).tolist() for side in own), strict=True)
                for own in (received, waited_for)
            ),
            strict=True,
        )
        for number, (own, others) in enumerate(every):
            if any(own):
                mean = Fraction(sum(own), len(own) * cost.resolution)
                sent = tuple(Fraction(charge, cost.resolution) for charge in others)
                yield number, LevelBytes(None, level, mean, sent)

    for phase in cost.phases:
        of_pass = cost.of(phase)
        sides = [SideBytes.among(of_pass, share) for share in Share.each(parts)]
        waiting = [replace(side, longest=True) for side in sides]
        of_nodes = [[side.node(*nodes) for side in each] for each in (sides, waiting)]
        of_edges = [[side.edge(*edges) for side in each] for each in (sides, waiting)]
        for level in range(len(rows)):
            for number, step in moved(*of_nodes, level, nodes[1]):
                if phase is Phase.GRADIENT:
                    for exchange in equal.of_node(number, phase):
                        if exchange.level == level:
                            share = of_gradients[exchange.kind]
                            sent = tuple(share * own for own in step.sent)
                            half = step._replace(
                                step=exchange.kind, bytes=share * step.bytes, sent=sent
                            )
                            gradients.append((exchange, half))
                    continue
                kind = StepKind.ALL_REDUCE
                if not any(workload.nodes[number].statistics):
                    kind = _HALVES[phase]
                key = Reduction(phase, _TENSORS[kind], number)
                reductions[key].append(step._replace(step=kind))
            for number, step in moved(*of_edges, level, edges[1]):
                conversions[phase, number].append(step)
    return StepExchanges(reductions | _reductions(workload, gradients), conversions)
