"""The charge of a layer at a level, exchange by exchange: bytes, and time on an array."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.errors import HyparError, UnknownNameError, argument
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.stored_layouts import rows_of_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hypar_opt.plan.plan import Plan
    from hypar_opt.step.operations import Collective


@dataclass(frozen=True)
class Exchange:
    """What a reading charges for one exchange of a layer, or of a tensor that it reads.

    Parameters
    ----------
    phase, tensor
        The pass, and what is exchanged: of `hypar_opt.step.operations.TENSORS`.
    source
        The layer or tensor that a boundary begins at; None of the layer's own tensors.
    elements
        Of one group of the level, its parts together.
    """

    phase: str
    tensor: str
    source: str | None
    elements: Fraction


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
    bytes_per_second, latency
        Of the level between pairs: what all of its links carry together, and what a message takes.
    """

    layer: str
    level: str
    choice: str
    groups: int
    element_bytes: int
    weight: int
    exchanges: tuple[Exchange, ...]
    seconds: tuple[Fraction, Fraction] | None = None
    bytes_per_second: Fraction = Fraction()
    latency: Fraction = Fraction()

    def bytes_of(self, exchange: Exchange) -> Fraction:
        """Return what an exchange moves, in weighted bytes."""
        return self.groups * exchange.elements * self.element_bytes * self.weight

    @property
    def bytes(self) -> Fraction:
        """Return what all of them move."""
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
    layer, at, level = place.rpartition("@")
    if not at:
        raise HyparError(f"{argument('explain')} should be LAYER@LEVEL, as fc1@H2, got {place!r}")
    if plan.is_staged or plan.groups:
        what = "in stages" if plan.is_staged else "between groups of accelerators"
        raise HyparError(f"{argument('explain')} takes no plan {what}")
    instance = Instance.of_plan(plan)
    workload = instance.workload
    names = [node.name for node in workload.nodes]
    if layer not in names:
        raise UnknownNameError("layer", layer, names)
    if not plan.level_names:
        raise HyparError(f"{argument('explain')}: the plan is of one accelerator, without levels")
    if level not in plan.level_names:
        raise UnknownNameError("level", level, list(plan.level_names))
    node, number = names.index(layer), plan.level_names.index(level)
    states = np.array(rows_of_plan(plan, workload))
    problem = instance.problem
    communication = CommunicationCost.of_problem(problem)
    groups = problem.hierarchy.parts(range(number))
    exchanges = [
        Exchange(operation.phase.value, operation.tensor, source, amount / groups)
        for source, operation in _operations(instance, states, node)
        if operation.level == number
        and (amount := Fraction(int(np.asarray(operation.quarters).sum()), 4))
    ]
    choice = workload.words[node][states[number, node]] or ""
    weight = problem.level_weights[number] if problem.level_weights else 1
    rates = (communication.element_bytes, weight, tuple(exchanges))
    return Explanation(
        layer, level, choice, groups, *rates, **_time(instance, states, node, number)
    )


def _operations(
    instance: Instance, states: Any, node: int
) -> Iterator[tuple[str | None, Collective]]:
    """Yield what a node exchanges at each level, and what boundaries do that it reads."""
    workload = instance.workload
    rules = CommunicationCost.of_problem(instance.problem).rules(workload, len(states))
    for operation in rules.node(np.array([[node]]), [states[:, None, [node]]]):
        yield None, operation
    for number in _read(instance, node):
        source = workload.ends[number, 0]
        ends = [states[:, None, [source]]], [states[:, None, [node]]]
        for operation in rules.boundary(np.array([[number]]), *ends):
            yield workload.nodes[source].name, operation


def _read(instance: Instance, node: int) -> Iterable[int]:
    """Return the numbers of the boundaries that a node reads."""
    return np.flatnonzero(instance.workload.ends[:, 1] == node).tolist()


def _time(instance: Instance, states: Any, node: int, level: int) -> dict[str, Any]:
    """Return what a plan of time takes for a node's exchanges and for its computation."""
    workload, cost = instance.workload, instance.cost
    if cost.time is None:
        return {}
    own = (cost if cost.is_additive else cost.of_plan(workload, states.tolist())).attributed
    of_node = [states[:, None, [node]]]
    charges = int(own.node(workload, np.array([[node]]), of_node)[level].sum())
    for number in _read(instance, node):
        sources = [states[:, None, [workload.ends[number, 0]]]]
        charges += int(own.edge(workload, np.array([[number]]), sources, of_node)[level].sum())
    computes = 0
    if level == len(states) - 1:
        computes = int(own.time.compute(workload, np.array([[node]]), of_node).sum())
    link = own.time.splits[level]
    a_second = own.time.per_unit
    return {
        "seconds": (Fraction(charges - computes, a_second), Fraction(computes, a_second)),
        "bytes_per_second": 1 / link.seconds_per_byte,
        "latency": link.latency,
    }
