"""The exchanges of one plan, in the order in which a run makes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.sharding.passes import TRAINING
from hypar_opt.sharding.repetitions import exchanges_of
from hypar_opt.sharding.shares import moved
from hypar_opt.step.operations import Phase, StepKind
from hypar_opt.step.rules import StepRules
from hypar_opt.step.states import of_rows
from hypar_opt.workload.repeats import COLLECTIVES

if TYPE_CHECKING:
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.sharding.program import Program
    from hypar_opt.step.operations import Collective
    from hypar_opt.workload.tensors import Workload


class Exchange(NamedTuple):
    """A `Collective` of a plan: that of one node, or of one boundary.

    Parameters
    ----------
    kind, level, tensor, quarters, times, group, messages
        As in `Collective`.
    phase
        Of weights in a run the pass for which they are gathered.
    node
        The position in `Workload.nodes` of the layer whose output, statistics, gradient or halo it
        is; of a boundary that which reads the tensor, of weights in a run that which uses them.
    boundary
        None for a node's tensors.
    """

    phase: Phase
    kind: StepKind | None
    level: int
    node: int
    boundary: int | None
    tensor: str
    quarters: int
    times: int = 1
    group: int = 0
    messages: int = 1

    @property
    def elements(self) -> int:
        """What all accelerators together receive in a step; a run exchanges whole elements."""
        return self.quarters // 4


@dataclass(frozen=True, eq=False)
class PlanExchanges:
    """The exchanges of a plan that move anything.

    Parameters
    ----------
    nodes, boundaries
        Of each; of one pass and tensor in their order.
    """

    workload: Workload
    nodes: Sequence[Sequence[Exchange]]
    boundaries: Sequence[Sequence[Exchange]]

    @classmethod
    def of(cls, rules: StepRules, rows: Sequence[Sequence[int]]) -> PlanExchanges:
        """Return what rules say of a plan.

        Parameters
        ----------
        rows : (levels, nodes)
            The column of every node's choice, H1 first.
        """
        workload = rules.workload
        nodes: list[list[Exchange]] = [[] for _ in workload.nodes]
        boundaries: list[list[Exchange]] = [[] for _ in workload.boundaries]
        states = of_rows(rows, len(nodes))
        for collective in rules.node(np.arange(len(nodes)), states):
            for node, *amounts in _amounts(collective, len(nodes)):
                nodes[node].append(_exchange(collective, node, None, *amounts))
        sources, targets = ([block[:, ends] for block in states] for ends in workload.ends.T)
        for collective in rules.boundary(np.arange(len(boundaries)), sources, targets):
            for number, *amounts in _amounts(collective, len(boundaries)):
                source, target = workload.ends[number].tolist()
                if collective.tensor == "output":  # which the boundary may pass on as addends
                    nodes[source].append(_exchange(collective, source, None, *amounts))
                else:
                    boundaries[number].append(_exchange(collective, target, number, *amounts))
        for exchanges in (*nodes, *boundaries):
            exchanges.sort(key=_place)
        return cls(workload, nodes, boundaries)

    def __iter__(self) -> Iterator[Exchange]:
        """Yield the exchanges in the order of a run: forward, then backward and gradients."""
        layers = range(self.workload.shared, len(self.nodes))
        for node in layers:
            yield from self._forward(node)
        for node in reversed(layers):
            yield from self._backward(node)
            yield from self._gradient(node)
        for node in range(self.workload.shared):
            yield from self._gradient(node)

    def of_node(self, node: int, phase: Phase) -> list[Exchange]:
        """Return what a node exchanges in a pass."""
        return [exchange for exchange in self.nodes[node] if exchange.phase is phase]

    def of_boundary(self, boundary: int, phase: Phase) -> list[Exchange]:
        """Return what a boundary exchanges in a pass."""
        return [exchange for exchange in self.boundaries[boundary] if exchange.phase is phase]

    def _forward(self, node: int) -> Iterator[Exchange]:
        for boundary in self._inputs[node]:
            yield from self.of_boundary(boundary, Phase.FORWARD)
        yield from self.of_node(node, Phase.FORWARD)
        stored = self.workload.boundary_into_shared.get(node)
        if stored is not None:
            yield from self.of_boundary(stored, Phase.FORWARD)

    def _backward(self, node: int) -> Iterator[Exchange]:
        stored = self.workload.boundary_into_shared.get(node)
        if stored is not None:
            yield from self.of_boundary(stored, Phase.BACKWARD)
        yield from self.of_node(node, Phase.BACKWARD)
        for boundary in self._inputs[node]:
            yield from self.of_boundary(boundary, Phase.BACKWARD)

    def _gradient(self, node: int) -> Iterator[Exchange]:
        """Yield a gradient's exchanges; split weights are gathered by each layer that uses them."""
        users = self.workload.weight_users.get(node, (node,))
        uses = [(user, phase) for user in users for phase in (Phase.FORWARD, Phase.BACKWARD)]
        for exchange in self.of_node(node, Phase.GRADIENT):
            if exchange.tensor != "weights" or COLLECTIVES[exchange.group] != ("weights",):
                yield exchange
                continue
            times, quarters = exchange.times // len(uses), exchange.quarters // len(uses)
            for user, phase in uses:
                yield exchange._replace(phase=phase, node=user, quarters=quarters, times=times)

    @cached_property
    def _inputs(self) -> list[list[int]]:
        """The boundaries of each layer's inputs."""
        inputs: list[list[int]] = [[] for _ in self.nodes]
        for number, boundary in enumerate(self.workload.boundaries):
            if not boundary.weights:
                inputs[boundary.target].append(number)
        return inputs


_TENSORS = ("halo", "statistics", "output", "error")
"""What a node exchanges in its forward pass, in this order; backward the other way round."""

_STEPS = (StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL, StepKind.ALL_GATHER)
"""The order of a conversion, forward and backward: the duals of its steps, in reverse."""


def _place(exchange: Exchange) -> tuple[int, int, bool, int]:
    """Return the place of an exchange among those of its node or boundary in a pass.

    What is reduce-scattered comes from the deepest level up, all else from the topmost down; and
    backward conversions in reverse, but for the levels of one all-to-all.
    """
    phase, kind, level, tensor = exchange.phase, exchange.kind, exchange.level, exchange.tensor
    if phase is Phase.GRADIENT:
        return 0, 0, False, level
    backward, joined = phase is Phase.BACKWARD, exchange.group > 0
    number = _TENSORS.index(tensor) if tensor in _TENSORS else 0
    number = -number if backward else number
    if kind is StepKind.HALO:  # rows before columns
        return number, 0, False, 0
    if kind not in _STEPS:
        return number, 0, False, level
    reverse = kind is StepKind.REDUCE_SCATTER or (
        kind is StepKind.ALL_TO_ALL and backward and not joined
    )
    return number, _STEPS.index(kind), joined != backward, -level if reverse else level


def _amounts(collective: Collective, count: int) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of the nodes or boundaries of which anything moves, with their amounts."""
    moves = np.broadcast_to(collective.quarters, (count,)).nonzero()[0]
    amounts = collective.quarters, collective.times, collective.group, collective.messages
    columns = [np.broadcast_to(own, (count,))[moves].tolist() for own in amounts]
    yield from zip(moves.tolist(), *columns, strict=True)


def _exchange(collective: Collective, node: int, boundary: int | None, *amounts: int) -> Exchange:
    phase, kind, tensor, level, *_ = collective
    return Exchange(phase, kind, level, node, boundary, tensor, *amounts)


@lru_cache(maxsize=16)
def rules_of(
    workload: Workload,
    hierarchy: Hierarchy,
    reading: str,
    phases: tuple[Phase, ...],
    *,
    longest: bool = False,
) -> StepRules:
    """Return the rules of a step: the same ones for equal arguments, with the tables they built."""
    return StepRules(workload, hierarchy, reading, phases, longest=longest)


def exchanges_of_step(program: Program, phases: tuple[Phase, ...] = TRAINING) -> PlanExchanges:
    """Return the exchanges of a program's step.

    Where the parts of H1 are unequal, an all-to-all between them is of whole indices.
    """
    reading = "joined" if program.joined else "executed"
    rules = rules_of(program.workload, program.hierarchy, reading, phases)
    exchanges = PlanExchanges.of(rules, program.rows)
    if program.shares is None:
        return exchanges
    boundaries = [
        [*_between_shares(program, number, phases), *(one for one in equal if not _between(one))]
        for number, equal in enumerate(exchanges.boundaries)
    ]
    return replace(exchanges, boundaries=[sorted(own, key=_place) for own in boundaries])


def _between(exchange: Exchange) -> bool:
    return (exchange.kind, exchange.level) == (StepKind.ALL_TO_ALL, 0)


def _between_shares(
    program: Program, boundary: int, phases: tuple[Phase, ...]
) -> Iterator[Exchange]:
    """Yield a boundary's all-to-alls between unequal parts of H1."""
    workload = program.workload
    target, extent = workload.boundaries[boundary].target, workload.extents[boundary]
    for step in program.input_steps(boundary):
        if (step.kind, step.levels) != (StepKind.ALL_TO_ALL, (0,)):
            continue
        quarters = 4 * moved(step, extent, program.shares or ())
        for phase in {*phases} & {Phase.FORWARD, Phase.BACKWARD}:
            times = int(exchanges_of(workload, phase)[target])
            times *= phase is Phase.FORWARD or bool(workload.has_error[boundary])
            if times and quarters:
                own = phase, step.kind, 0, target, boundary, "input", times * quarters, times
                yield Exchange(*own)
