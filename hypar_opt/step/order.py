"""The exchanges of one plan: the operations of its states, in the order of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.sharding.conversions import StepKind, elements_not_local
from hypar_opt.sharding.passes import TRAINING, Phase
from hypar_opt.step.operations import Collective
from hypar_opt.step.rules import exchanges_of, rules_of
from hypar_opt.step.shares import Share
from hypar_opt.step.states import states_from_rows
from hypar_opt.workload.parallelism import PART_WORDS
from hypar_opt.workload.repeats import REDUCTION_GROUPS, ZERO_STAGES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypar_opt.sharding.program import Program
    from hypar_opt.step.rules import StepRules
    from hypar_opt.workload.layer_tensors import Extent
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True, eq=False)
class PlanExchanges:
    """The exchanges of a plan that move anything, in integers.

    Parameters
    ----------
    nodes, boundaries
        The exchanges of each node, or boundary, within each pass in the order of a run.
    """

    workload: Workload
    nodes: Sequence[Sequence[Collective]]
    boundaries: Sequence[Sequence[Collective]]

    @classmethod
    def of(cls, rules: StepRules, rows: Sequence[Sequence[int]]) -> PlanExchanges:
        """Return the exchanges that rules yield for a plan.

        Parameters
        ----------
        rows : (levels, nodes)
            The column of every node's choice, H1 first.
        """
        workload = rules.workload
        nodes: list[list[Collective]] = [[] for _ in workload.nodes]
        boundaries: list[list[Collective]] = [[] for _ in workload.boundaries]
        states, ends = states_from_rows(rows, len(nodes)), workload.ends
        for exchange in _by_number(rules.node(np.arange(len(nodes)), states), len(nodes)):
            nodes[exchange.node].append(exchange)
        of_ends = ([block[:, end] for block in states] for end in ends.T)
        operations = rules.boundary(np.arange(len(boundaries)), *of_ends)
        for exchange in _by_number(operations, len(boundaries)):
            number, (source, target) = exchange.node, ends[exchange.node].tolist()
            if exchange.tensor == "output":  # which the boundary may defer
                nodes[source].append(exchange._replace(node=source))
            else:
                boundaries[number].append(exchange._replace(node=target, boundary=number))
        for exchanges in (*nodes, *boundaries):
            exchanges.sort(key=_place)
        return cls(workload, nodes, boundaries)

    def __iter__(self) -> Iterator[Collective]:
        """Yield the exchanges of a run: forward, then backward and gradients, layer by layer."""
        shared, layers = self.workload.shared, range(self.workload.shared, len(self.nodes))
        for node in layers:
            yield from self._layer_exchanges(node, Phase.FORWARD)
        for node in reversed(layers):
            yield from self._layer_exchanges(node, Phase.BACKWARD)
            yield from self._gradient(node)
        for node in range(shared):
            yield from self._gradient(node)

    def _layer_exchanges(self, node: int, phase: Phase) -> Iterator[Collective]:
        """Yield a layer's exchanges in a pass: of its inputs, its own tensors, and its output."""
        into_shared = self.workload.boundary_into_shared.get(node)
        inputs = [self.boundaries[number] for number in self.workload.boundaries_read[node]]
        stored = [] if into_shared is None else self.boundaries[into_shared]
        parts = [[*chain(*inputs)], self.nodes[node], stored]
        for part in parts if phase is Phase.FORWARD else reversed(parts):
            yield from in_pass(part, phase)

    def _gradient(self, node: int) -> Iterator[Collective]:
        """Yield a gradient's exchanges; split weights are gathered by each layer that uses them."""
        users = self.workload.weight_users.get(node, (node,))
        for exchange in in_pass(self.nodes[node], Phase.GRADIENT):
            stage = ZERO_STAGES[REDUCTION_GROUPS[exchange.group][-1]]
            passes = next((half.passes for half in stage if half.kind == exchange.kind), ())
            uses = [(user, Phase(name)) for user in users for name in passes]
            uses = uses or [(node, Phase.GRADIENT)]
            quarters, times = exchange.quarters // len(uses), exchange.times // len(uses)
            for user, phase in uses:
                yield exchange._replace(phase=phase, node=user, quarters=quarters, times=times)


def in_pass(exchanges: Iterable[Collective], phase: Phase) -> list[Collective]:
    """Return the exchanges that belong to a pass."""
    return [exchange for exchange in exchanges if exchange.phase is phase]


def _by_number(operations: Iterable[Collective], count: int) -> Iterator[Collective]:
    """Yield the operations of each node or boundary that moves anything, with its number."""
    for exchange in operations:
        (moves,) = np.broadcast_to(exchange.quarters, count).nonzero()
        amounts = exchange.quarters, exchange.times, exchange.group, exchange.messages
        columns = [
            [amount] * len(moves) if isinstance(amount, int) else amount[moves].tolist()
            for amount in amounts
        ]
        phase, kind, tensor, level, *_ = exchange
        for number, quarters, times, group, messages in zip(moves.tolist(), *columns, strict=True):
            yield Collective(
                *(phase, kind, tensor, level, quarters, times),
                group=group,
                messages=messages,
                node=number,
            )


_TENSORS = ("halo", "statistics", "output", "error")
"""What a node exchanges in its forward pass, in this order; backward in reverse."""

_STEPS = (StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL, StepKind.ALL_GATHER)
"""The order of a conversion, forward and backward: the duals of its steps, in reverse."""


def _place(exchange: Collective) -> tuple[int, int, bool, int]:
    """Return the sort key of an exchange among those of its node or boundary in a pass.

    What is reduce-scattered comes from the deepest level up, all else from the topmost down; and
    backward conversions in reverse, but for the levels of one all-to-all.
    """
    if exchange.phase is Phase.GRADIENT:
        return 0, 0, False, exchange.level
    backward, joined = exchange.phase is Phase.BACKWARD, exchange.group > 0
    number = (
        _TENSORS.index(exchange.tensor) * (-1 if backward else 1)
        if exchange.boundary is None
        else 0
    )
    if exchange.kind not in _STEPS:  # of halos rows before columns
        return number, 0, False, exchange.level * (exchange.kind is not StepKind.HALO)
    reverse = exchange.kind is StepKind.REDUCE_SCATTER
    reverse |= exchange.kind is StepKind.ALL_TO_ALL and backward and not joined
    level = -exchange.level if reverse else exchange.level
    return number, _STEPS.index(exchange.kind), joined != backward, level


def exchanges_of_step(program: Program, phases: tuple[Phase, ...] = TRAINING) -> PlanExchanges:
    """Return the exchanges of a program's step.

    Where the parts of H1 are unequal, an all-to-all between them moves whole indices.
    """
    reading = "joined" if program.joined else "executed"
    rules = rules_of(program.workload, program.hierarchy, reading, phases)
    exchanges = PlanExchanges.of(rules, program.rows)
    if program.shares is None:
        return exchanges
    boundaries = [
        [
            *_unequal_all_to_alls(program, number, phases),
            *(exchange for exchange in equal if not _is_all_to_all_at_h1(exchange)),
        ]
        for number, equal in enumerate(exchanges.boundaries)
    ]
    return replace(exchanges, boundaries=[sorted(exchange, key=_place) for exchange in boundaries])


def _is_all_to_all_at_h1(exchange: Collective) -> bool:
    return (exchange.kind, exchange.level) == (StepKind.ALL_TO_ALL, 0)


def _unequal_all_to_alls(
    program: Program, boundary: int, phases: tuple[Phase, ...]
) -> Iterator[Collective]:
    """Yield a boundary's all-to-alls between unequal parts of H1."""
    workload = program.workload
    target, extent = workload.boundaries[boundary].target, workload.extents[boundary]
    for step in program.input_steps(boundary):
        if (step.kind, step.levels) != (StepKind.ALL_TO_ALL, (0,)):
            continue
        _, *sizes = extent
        overlap = sum(
            prod(
                map(min, *(_held(extent, ends[0], share) for ends in (step.sources, step.targets)))
            )
            for share in Share.of_parts(program.shares or ())
        )
        quarters = 4 * step.copies * elements_not_local(extent, prod(sizes), overlap)
        for phase in {*phases} & {Phase.FORWARD, Phase.BACKWARD}:
            times = int(exchanges_of(workload, phase, inputs=True)[target])
            times *= phase is Phase.FORWARD or bool(workload.has_error[boundary])
            if times and quarters:
                exchange = phase, step.kind, "input", 0, times * quarters, times
                yield Collective(*exchange, node=target, boundary=boundary)


def _held(tensor: Extent, layout: str, share: Share) -> list[int]:
    """Return the indices of each axis that a part of H1 has of a tensor in a layout."""
    _, *sizes = tensor
    if layout in PART_WORDS:
        return [size * (PART_WORDS[layout] == share.part) for size in sizes]
    axis = tensor.axis(layout) - 1
    sizes[axis] = int(share.indices(np.asarray(sizes[axis])))
    return sizes
