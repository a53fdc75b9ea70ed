"""The charge of a layer at a level, exchange by exchange: bytes, and time on an array."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.costs.buckets import LATENCY
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.reductions import joined
from hypar_opt.errors import HyparError, UnknownNameError, argument
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.micro_batch import micro_batch_of
from hypar_opt.plan.stored_layouts import rows_of_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hypar_opt.costs.time import TimeCost
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import Problem
    from hypar_opt.step.operations import Collective
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True)
class Exchange:
    """The charge of one exchange of a layer, or of a tensor that it reads, in a reading.

    Parameters
    ----------
    phase, tensor
        The pass, and what is exchanged: of `hypar_opt.step.operations.TENSORS`.
    source
        The layer or tensor that is the source of a boundary; None for the layer's own tensors.
    elements
        Elements in one group of the level, summed over its parts.
    """

    phase: str
    tensor: str
    source: str | None
    elements: Fraction


@dataclass(frozen=True)
class ExchangeTime:
    """The time of an exchange, or of a reduction over several levels, on a plan's array.

    Parameters
    ----------
    phase, tensor, source
        As of an `Exchange`.
    levels
        The names of those that a ring joins; of an exchange between pairs its own.
    bytes
        The bytes moved over all these levels together.
    bytes_per_second
        The total bandwidth of the links that it crosses.
    messages, latency
        Those one after the other, and what each takes in seconds; around a ring all rounds are one.
    share
        Of the messages' latencies, where a bucket of gradients shares them.
    crossing
        The part of a ring's bytes that crosses the explained level, which is charged as much of it.
    """

    phase: str
    tensor: str
    source: str | None
    levels: tuple[str, ...]
    bytes: Fraction
    bytes_per_second: Fraction
    messages: int
    latency: Fraction
    share: Fraction = Fraction(1)
    crossing: Fraction = Fraction(1)

    @property
    def seconds(self) -> Fraction:
        """The charge of the explained level, before rounding to the cost's unit."""
        latencies = self.messages * self.latency * self.share
        return (self.bytes / self.bytes_per_second + latencies) * self.crossing


@dataclass(frozen=True)
class Explanation:
    """The charge of a layer at a level.

    Parameters
    ----------
    layer, level, choice
        The names of the layer and the level, and the layer's choice there.
    groups
        The groups of accelerators that the level splits.
    element_bytes, weight
        Bytes of an element, and what a byte of the level is charged.
    exchanges
        Each of them moves ``groups x elements x element_bytes x weight`` bytes.
    seconds
        What they take with their latencies, and what the layer computes, both as the plan's time
        charges them at this level; None of another cost.
    transfers
        Of a plan of time: what its exchanges take, one by one.
    """

    layer: str
    level: str
    choice: str
    groups: int
    element_bytes: int
    weight: int
    exchanges: tuple[Exchange, ...]
    seconds: tuple[Fraction, Fraction] | None = None
    transfers: tuple[ExchangeTime, ...] = ()

    def bytes_of(self, exchange: Exchange) -> Fraction:
        """Return the weighted bytes of an exchange."""
        return self.groups * exchange.elements * self.element_bytes * self.weight

    @property
    def bytes(self) -> Fraction:
        """Return the weighted bytes of all exchanges."""
        return sum(map(self.bytes_of, self.exchanges), Fraction())


def explain(plan: Plan, place: str) -> Explanation:
    """Return the charge of a layer at a level of a plan.

    A boundary between two layers is charged to the one that reads it. Of a plan of time the layer's
    computation is charged at the last level.

    Parameters
    ----------
    place
        ``LAYER@LEVEL``, as ``fc1@H2``; in place of a layer also a tensor that several layers read,
        as ``output of conv1``.

    Raises
    ------
    HyparError
        If there is no such layer or level, or the plan is in stages or between groups.
    """
    if plan.is_staged or plan.groups:
        what = "in stages" if plan.is_staged else "between groups of accelerators"
        raise HyparError(f"{argument('explain')} takes no plan {what}")
    instance = Instance.of_plan(plan)
    workload = instance.workload
    node, number = _located(place, workload, plan.level_names)
    layer, level = workload.nodes[node].name, plan.level_names[number]
    states = np.array(rows_of_plan(plan, workload))
    problem = instance.problem
    communication = CommunicationCost.of_problem(problem)
    groups = problem.hierarchy.parts(range(number))
    exchanges = [
        Exchange(operation.phase.value, operation.tensor, _name(workload, source), amount / groups)
        for source, operations in exchanges_of_node(communication, workload, states, node)
        for operation in operations
        if operation.level == number
        and (amount := Fraction(int(np.asarray(operation.quarters).sum()), 4))
    ]
    choice = workload.words[node][states[number, node]] or ""
    weight = problem.level_weights[number] if problem.level_weights else 1
    rates = (communication.element_bytes, weight, tuple(exchanges))
    return Explanation(
        layer, level, choice, groups, *rates, **_time(instance, states, node, number)
    )


def check_place(place: str, network: Network, problem: Problem) -> None:
    """Check a place before its problem is solved: `explain` would refuse it afterwards."""
    workload = micro_batch_of(problem, network, shared_tensors=True)
    _located(place, workload, problem.hierarchy.names)


def _located(place: str, workload: Workload, levels: Sequence[str]) -> tuple[int, int]:
    """Return the numbers of the node and of the level that a place names."""
    layer, at, level = place.rpartition("@")
    if not at:
        raise HyparError(f"{argument('explain')} should be LAYER@LEVEL, as fc1@H2, got {place!r}")
    names = [node.name for node in workload.nodes]
    if layer not in names:
        raise UnknownNameError("layer", layer, names)
    if not levels:
        raise HyparError(f"{argument('explain')}: the plan is of one accelerator, without levels")
    if level not in levels:
        raise UnknownNameError("level", level, [*levels])
    return names.index(layer), levels.index(level)


def exchanges_of_node(
    cost: CommunicationCost | TimeCost, workload: Workload, states: Any, node: int
) -> Iterator[tuple[int | None, list[Collective]]]:
    """Yield a node's exchanges, and those of each boundary that it reads, by source."""
    rules = cost.rules(workload, len(states))
    yield None, [*rules.node(np.array([[node]]), [states[:, None, [node]]])]
    for number in _read(workload, node):
        source = int(workload.ends[number, 0])
        ends = [states[:, None, [source]]], [states[:, None, [node]]]
        yield source, [*rules.boundary(np.array([[number]]), *ends)]


def _name(workload: Workload, node: int | None) -> str | None:
    return None if node is None else workload.nodes[node].name


def _read(workload: Workload, node: int) -> Iterable[int]:
    """Return the numbers of the boundaries that a node reads."""
    return np.flatnonzero(workload.ends[:, 1] == node).tolist()


def _time(instance: Instance, states: Any, node: int, level: int) -> dict[str, Any]:
    """Return the times of a node's exchanges and of its computation in a plan for time."""
    workload, cost = instance.workload, instance.cost
    if cost.time is None:
        return {}
    attributed = (cost if cost.is_additive else cost.for_plan(workload, states.tolist())).attributed
    of_node = [states[:, None, [node]]]
    charges = int(attributed.node(workload, np.array([[node]]), of_node)[level].sum())
    for number in _read(workload, node):
        sources = [states[:, None, [workload.ends[number, 0]]]]
        charges += int(
            attributed.edge(workload, np.array([[number]]), sources, of_node)[level].sum()
        )
    computes = 0
    if level == len(states) - 1:
        computes = int(attributed.time.compute(workload, np.array([[node]]), of_node).sum())
    time = attributed.time
    exchanging = time.largest_shard_charges if time.by_largest_shard else time
    a_second = time.per_unit
    return {
        "seconds": (Fraction(charges - computes, a_second), Fraction(computes, a_second)),
        "transfers": tuple(
            transfer
            for source, operations in exchanges_of_node(exchanging, workload, states, node)
            for transfer in _transfers(exchanging, workload, node, source, operations, level)
        ),
    }


def _transfers(
    cost: TimeCost,
    workload: Workload,
    node: int,
    source: int | None,
    operations: Sequence[Collective],
    level: int,
) -> Iterator[ExchangeTime]:
    """Yield the times at a level of a node's exchanges, or of those of a boundary it reads."""
    names = cost.communication.hierarchy.names
    between, reductions = cost.exchanges_and_reductions(operations, len(names))

    def transfer(
        first: Collective, stage: Sequence[int], link: BisectionLink, *amounts: Any, **parts: Any
    ) -> ExchangeTime:
        moved, messages = (int(np.max(amount)) for amount in amounts)
        return ExchangeTime(
            first.phase.value,
            first.tensor,
            _name(workload, source),
            tuple(names[digit] for digit in stage),
            Fraction(moved, cost.communication.resolution),
            1 / link.seconds_per_byte,
            messages,
            link.latency,
            **parts,
        )

    for first, *rest in between:
        if first.level == level:
            moved = cost.communication.fold([first, *rest], level + 1)[level]
            yield transfer(first, [level], cost.splits[level], moved, cost.messages(first))
    for key, reduction in reductions.items():
        first = next(
            operation for operation in operations if (operation.phase, operation.group) == key
        )
        levels, moved = joined(reduction.moved, (1, 1))
        crossed = [digit for digit in range(len(names)) if int(levels.max()) >> digit & 1]
        if level not in crossed:
            continue
        stage, link, crossing = _stage(cost, crossed, level)
        messages = reduction.rounds
        if cost.rings is None:
            messages = [*cost.messages_between_pairs(reduction)][level]
        nodes = np.array([[node if source is None else source]])
        share = cost.share_of_latency(key[0], reduction, workload, nodes, (1, 1))
        part = Fraction(1)
        if share is not None:
            shared = share(LATENCY, np.broadcast_to(messages, (1, 1)))
            part = Fraction(int(shared.max()), LATENCY * int(np.max(messages)))
        over_all = sum(moved[digit] for digit in stage)
        yield transfer(first, stage, link, over_all, messages, share=part, crossing=crossing)


def _stage(
    cost: TimeCost, crossed: Sequence[int], level: int
) -> tuple[Sequence[int], BisectionLink, Fraction]:
    """Return the levels that a reduction joins with a level, their link, and its crossing."""
    if cost.rings is None:
        return [level], cost.splits[level], Fraction(1)
    stage = next(digits for digits in cost.rings.stages(crossed) if level in digits)
    return stage, cost.rings.link(stage), cost.rings.crossing(stage)[stage.index(level)]
