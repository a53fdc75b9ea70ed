"""The exchanges of a simulated step, grouped by tensor, with the bytes at each level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.tasks import ExchangeKind
from hypar_opt.step.order import PlanExchanges, in_pass
from hypar_opt.step.shares import Parts, Share, received, senders
from hypar_opt.step.states import states_from_rows
from hypar_opt.workload.repeats import REDUCTION_GROUPS

if TYPE_CHECKING:
    from hypar_opt.costs.communication import CommunicationCost
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.step.operations import Collective
    from hypar_opt.step.rules import StepRules
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
        The bytes as if all accelerators sent as much as the longest part of a tensor, or as those
        of each part of H1; empty if all send equally much.
    messages
        The messages to each other part of the level.
    between
        For three or more parts of H1, the bytes that each sends to each other, row by row, scaled
        as if all pairs sent as much. Empty below H1, and if all send equally much.
    """

    step: StepKind | None
    level: int
    bytes: Fraction
    sent: tuple[Fraction, ...] = ()
    messages: int = 1
    between: tuple[Fraction, ...] = ()

    @property
    def silent(self) -> tuple[int, ...]:
        """The parts of H1 whose accelerators send nothing."""
        return tuple(part for part, amount in enumerate(self.sent) if not amount)


class ExchangeKey(NamedTuple):
    """A key of steps that form one exchange: a tensor in a pass, over all of its levels.

    Parameters
    ----------
    number
        The number of the boundary whose tensors are converted, or else of the node.
    group
        For gradients and weights, by what is sharded at these levels: in `REDUCTION_GROUPS`.
    """

    phase: Phase
    tensor: ExchangeKind
    number: int
    group: int = 0


StepExchanges = Mapping[ExchangeKey, Sequence[LevelBytes]]
"""All exchanges of a plan's step: the steps that move any bytes, in order, one for each level."""

REDUCED_ONCE = len(REDUCTION_GROUPS) - 1
"""The group of gradients that are all-reduced, or of which both halves are at the step's end."""

_TENSORS = {
    "output": ExchangeKind.PARTIAL_SUMS,
    "error": ExchangeKind.PARTIAL_SUMS,
    "statistics": ExchangeKind.STATISTICS,
    "halo": ExchangeKind.HALOS,
}
"""What an exchange of a node's forward or backward pass moves, except all-gathers of errors."""

_SCATTER = StepKind.REDUCE_SCATTER


def of_plan(
    rules: StepRules,
    rows: Rows,
    element_bytes: int,
    longest: StepRules | None = None,
    *,
    in_halves: bool = False,
) -> StepExchanges:
    """Return the exchanges of a micro-batch, and those at the end of a plan's step.

    Parameters
    ----------
    rules
        The rules of a step of one micro-batch.
    rows : (levels, nodes)
        The column of every node's choice, H1 first.
    longest
        The rules by longest parts, if these are sent.
    in_halves
        Whether an all-reduce whose gather is that of updated weights (ZeRO-1) is in halves.
    """
    exchanges = PlanExchanges.of(rules, rows)
    longer = exchanges if longest is None else PlanExchanges.of(longest, rows)
    pairs = zip(
        chain(*exchanges.nodes, *exchanges.boundaries),
        chain(*longer.nodes, *longer.boundaries),
        strict=True,
    )

    @cache
    def bytes_of(quarters: int, times: int) -> Fraction:
        return Fraction(quarters * element_bytes, 4 * times)

    moved = []
    for exchange, slowest in pairs:
        bytes_ = bytes_of(exchange.quarters, exchange.times)
        sent: tuple[Fraction, ...] = ()
        if slowest.quarters != exchange.quarters:
            sent = (bytes_of(slowest.quarters, slowest.times),)
        step = LevelBytes(exchange.kind, exchange.level, bytes_, sent, exchange.messages)
        moved.append((_key(exchange, in_halves=in_halves), step))
    return _together(moved, in_halves=in_halves)


def _key(exchange: Collective, *, in_halves: bool = False) -> ExchangeKey:
    """Return the key of an exchange."""
    phase, kind, tensor, *_ = exchange
    if exchange.boundary is not None:
        return ExchangeKey(phase, ExchangeKind.BOUNDARY, exchange.boundary)
    if phase is Phase.GRADIENT:
        gathered = tensor == "weights" and (in_halves or exchange.group != REDUCED_ONCE)
        moved = ExchangeKind.WEIGHTS if gathered else ExchangeKind.GRADIENTS
        return ExchangeKey(phase, moved, exchange.node, exchange.group)
    moved = ExchangeKind.ERRORS if kind is StepKind.ALL_GATHER else _TENSORS[tensor]
    return ExchangeKey(phase, moved, exchange.node)


def _together(
    steps: Iterable[tuple[ExchangeKey, LevelBytes]], *, in_halves: bool = False
) -> StepExchanges:
    """Return steps by key, with those of a reduction at one level merged."""
    exchanges: defaultdict[ExchangeKey, defaultdict[int, list[LevelBytes]]]
    exchanges = defaultdict(lambda: defaultdict(list))
    for key, step in steps:
        exchanges[key][step.level].append(step)
    together = {key: [*map(added, at.values())] for key, at in exchanges.items()}
    for key, levels in together.items():
        if key.tensor is ExchangeKind.GRADIENTS and key.group == REDUCED_ONCE:
            scattered = [step for step in levels if in_halves and step.step is _SCATTER]
            reduced = [step for step in levels if step not in scattered]
            together[key] = [
                *reversed(scattered),
                *(step._replace(step=StepKind.ALL_REDUCE) for step in reduced),
            ]
        elif key.tensor is ExchangeKind.GRADIENTS:
            levels.reverse()  # reduce-scattered from the deepest level up
    return together


def added(steps: Sequence[LevelBytes]) -> LevelBytes:
    """Return the steps of several tensors across a level as one."""
    if len(steps) == 1:
        return steps[0]
    pairs = zip(*(step.between for step in steps), strict=True)
    between = tuple(sum(amounts, Fraction()) for amounts in pairs)
    bytes_ = sum((step.bytes for step in steps), Fraction())
    return steps[0]._replace(bytes=bytes_, sent=sent_of(steps), between=between)


def sent_of(steps: Sequence[LevelBytes]) -> tuple[Fraction, ...]:
    """Return the sum of ``sent`` of steps; empty if all accelerators send equally much."""
    if not any(step.sent for step in steps):
        return ()
    by_part = zip(*(step.sent or (step.bytes,) for step in steps), strict=True)
    return tuple(sum(amounts, Fraction()) for amounts in by_part)


def of_groups(
    rules: StepRules,
    workload: Workload,
    rows: Rows,
    cost: CommunicationCost,
    parts: Parts,
    *,
    in_halves: bool = False,
) -> StepExchanges:
    """Return the exchanges of groups of accelerators that split H1 by their shares.

    Parameters
    ----------
    rules
        Of a micro-batch, in equal parts.
    workload
        The workload of a micro-batch, without sharding.
    rows : (levels, nodes)
        The column of every node's choice, H1 first.
    cost
        Of unequal parts.
    parts
        The share of each part of H1.
    in_halves
        As of `of_plan`.
    """
    reduced = rules.workload.repeats.reduced
    halves = {
        StepKind.ALL_REDUCE: Fraction(reduced),
        StepKind.REDUCE_SCATTER: Fraction(reduced, 2),
        StepKind.ALL_GATHER: Fraction(1, 2),
    }
    equal, unequal = PlanExchanges.of(rules, rows), cost.rules(workload, len(rows))
    steps: list[tuple[ExchangeKey, LevelBytes]] = []
    states = states_from_rows(rows, len(workload.nodes))
    for operation, number, step in _received(
        unequal.node(np.arange(len(equal.nodes)), states), cost, parts
    ):
        if operation.phase is not Phase.GRADIENT:
            key = _key(operation._replace(node=number))
            steps.append((key, step._replace(step=operation.kind)))
            continue
        for exchange in in_pass(equal.nodes[number], operation.phase):
            if exchange.level == step.level and exchange.kind is not None:
                half = halves[exchange.kind]
                sent = tuple(half * amount for amount in step.sent)
                moved = step._replace(step=exchange.kind, bytes=half * step.bytes, sent=sent)
                steps.append((_key(exchange, in_halves=in_halves), moved))
    ends = ([block[:, end] for block in states] for end in workload.ends.T)
    of_ends = unequal.boundary(np.arange(len(equal.boundaries)), *ends)
    for operation, number, step in _received(of_ends, cost, parts):
        steps.append((_key(operation._replace(boundary=number)), step))
    return _together(sorted(steps, key=lambda keyed: keyed[1].level), in_halves=in_halves)


def _received(
    operations: Iterable[Collective], cost: CommunicationCost, parts: Parts
) -> Iterator[tuple[Collective, int, LevelBytes]]:
    """Yield what parts of H1 receive, and send, of each node or boundary, and its number."""
    collectives, shares, count = list(operations), Share.of_parts(parts), len(parts)
    shared, longest = (
        received(collectives, shares, cost.scale, by_longest_message=n) for n in (False, True)
    )
    for operation, *of_parts in zip(collectives, shared, longest, strict=True):
        amounts = np.broadcast_arrays(*(part.quarters for part in chain(*of_parts)))
        for number, charges in enumerate(zip(*(part.tolist() for part in amounts), strict=True)):
            if any(charges):
                exact = [Fraction(charge, cost.resolution) for charge in charges]
                mean, sent = sum(exact[:count], Fraction()) / count, exact[count:]
                # Between two parts one sends what the other receives.
                sent = sent[::-1] if not operation.level and count == 2 else sent
                between: tuple[Fraction, ...] = ()
                if not operation.level and count > 2 and operation.phase is not Phase.GRADIENT:
                    between = _between(exact[:count], senders(operation, number, parts))
                moved = LevelBytes(None, operation.level, mean, tuple(sent), between=between)
                yield operation, number, moved


def _between(received: Sequence[Fraction], has: Parts | None) -> tuple[Fraction, ...]:
    """Return what each part sends to each other part, given what each receives.

    Parameters
    ----------
    has
        What each part has, in proportion; None for as much each.
    """
    has = has or (1,) * len(received)
    other_counts = [sum(has) - count for count in has]
    return tuple(
        Fraction(count, other_counts[to]) * received[to]
        if to != part and received[to]
        else Fraction()
        for part, count in enumerate(has)
        for to in range(len(has))
    )
