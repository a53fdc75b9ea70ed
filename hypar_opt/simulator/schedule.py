"""The order of a training step's tasks: passes, collectives and boundaries, layer by layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from hypar_opt.costs.readings import Phase
from hypar_opt.simulator.collectives import Collective, all_gather, all_reduce, reduce_scatter
from hypar_opt.simulator.streams import Streams
from hypar_opt.simulator.tasks import Compute, Ends, Exchange, ExchangeKind, Task

if TYPE_CHECKING:
    from hypar_opt.workload.tensors import Workload

BytesByLevel = tuple[tuple[Fraction, ...], ...]
"""Bytes by hierarchy level, H1 first, and by node or boundary of the workload."""


@dataclass(frozen=True)
class ExchangedBytes:
    """What one pass of a plan exchanges, in bytes of all accelerators together.

    Parameters
    ----------
    nodes : levels x nodes
        Each node's own exchanges: partial sums, statistics or gradients.
    boundaries : levels x boundaries
        Conversions of feature maps or errors between two nodes.
    """

    nodes: BytesByLevel
    boundaries: BytesByLevel


@dataclass(frozen=True)
class Schedule:
    """What determines a step's tasks: bytes, seconds, and the algorithms of the exchanges.

    Parameters
    ----------
    exchanged
        By pass, the bytes of its exchanges.
    seconds
        By pass, the computing time of every node on one accelerator.
    placement
        For every level, the bit of an accelerator's number that it splits.
    scatter
        Reduce-scatter partial sums forward and all-gather errors backward, as the reading
        ``executed`` does; otherwise all-reduce partial sums.
    ring
        Run collectives around rings, not between pairs.
    overlap
        Which exchanges overlap what follows, of `hypar_opt.simulator.streams.OVERLAPS`.
    """

    workload: Workload
    exchanged: Mapping[Phase, ExchangedBytes]
    seconds: Mapping[Phase, Sequence[float]]
    placement: tuple[int, ...]
    scatter: bool = False
    ring: bool = False
    overlap: str = "none"

    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks, forward and then backward through the layers.

        Forward, a layer's inputs are exchanged, the layer computed, its partial sums reduced.
        Backward, the error is gathered where that was a reduce-scatter; the gradient is
        computed and all-reduced, which may overlap with computing the error of the layer's
        inputs and handing it to the layers before. A tensor that several layers read is
        converted once, after its writer; its writer's backward pass follows those of all of
        them.

        Source: docs/simulator.md.
        """
        step = _Step(self)
        layers = range(self.workload.shared, len(self.workload.nodes))
        for layer in layers:
            step.forward(layer)
        if Phase.BACKWARD in self.exchanged:
            for layer in reversed(layers):
                step.backward(layer)
        return tuple(step.streams.tasks)

    def boundary(self, boundary: int, layer: str, phase: Phase) -> list[Exchange]:
        """Return the exchanges of a boundary, topmost level first."""
        amounts = [float(level[boundary]) for level in self.exchanged[phase].boundaries]
        # Nothing moves where both nodes have the tensor in the same layout.
        return [
            Exchange(layer, phase, ExchangeKind.BOUNDARY, (level,), (self.placement[level],), moved)
            for level, moved in enumerate(amounts)
            if moved
        ]

    def collective(
        self, collective: Collective, node: int, layer: str, phase: Phase, kind: ExchangeKind
    ) -> list[Exchange]:
        """Return the exchanges over the levels at which a node's shards are reduced or gathered."""
        amounts = [level_bytes[node] for level_bytes in self.exchanged[phase].nodes]
        # A node communicates only at the levels whose choice leaves partial sums or replicas.
        levels = [level for level, moved in enumerate(amounts) if moved]
        if self.ring and levels:  # one ring through all these levels
            exchanges = [(tuple(levels), sum(amounts[level] for level in levels))]
            # An all-reduce is a reduce-scatter and an all-gather, of n - 1 messages each.
            messages = (2 if collective is all_reduce else 1) * (2 ** len(levels) - 1)
        else:
            exchanges = [((level,), share * amounts[level]) for level, share in collective(levels)]
            messages = 1
        return [
            Exchange(
                layer=layer,
                phase=phase,
                kind=kind,
                levels=crossed,
                bits=tuple(self.placement[level] for level in crossed),
                bytes=float(moved),
                messages=messages,
                ring=self.ring,
            )
            for crossed, moved in exchanges
        ]

    @cached_property
    def inputs(self) -> list[list[tuple[int, int]]]:
        """For every node, the boundaries whose feature maps it reads, and their sources.

        What leads from shared weights moves nothing: their users slice what they need.
        """
        found: list[list[tuple[int, int]]] = [[] for _ in self.workload.nodes]
        for number, boundary in enumerate(self.workload.boundaries):
            if not boundary.weights:
                found[boundary.target].append((number, boundary.source))
        return found

    @cached_property
    def stored(self) -> dict[int, tuple[int, int]]:
        """For every layer whose output several read, the boundary to it and its node."""
        shared = range(self.workload.shared)
        return {source: (number, node) for node in shared for number, source in self.inputs[node]}


class _Step:
    """A step's tasks as they are scheduled, and after which of them each tensor is complete."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._workload = schedule.workload
        self.streams = Streams(schedule.overlap)
        self._maps: dict[int, Ends] = {}
        # A tensor's errors come from all that read it, and shared weights' gradients from all
        # that use them.
        self._errors: defaultdict[int, Ends] = defaultdict(tuple)
        self._gradients: defaultdict[int, Ends] = defaultdict(tuple)
        users = self._workload.weight_users
        self._weights_of = {user: node for node, layers in users.items() for user in layers}
        self._users_left = {node: len(layers) for node, layers in users.items()}

    def forward(self, layer: int) -> None:
        """Schedule a layer's forward pass."""
        schedule, phase = self._schedule, Phase.FORWARD
        arrived: Ends = ()
        for boundary, source in schedule.inputs[layer]:
            arrived += self._boundary(boundary, layer, phase, self._maps[source])
        computed = self._compute(layer, phase, arrived)
        # Where errors are all-gathered backward, every accelerator needs a shard of the sum only.
        scatters = schedule.scatter and not self._has_statistics(layer)
        self._maps[layer] = self._collective(
            reduce_scatter if scatters else all_reduce, layer, phase, computed
        )
        if layer in schedule.stored:
            boundary, node = schedule.stored[layer]
            self._maps[node] = self._boundary(boundary, layer, phase, self._maps[layer])

    def backward(self, layer: int) -> None:
        """Schedule a layer's backward pass: its gradient, and the errors of its inputs."""
        schedule, phase = self._schedule, Phase.BACKWARD
        error = self._error_of(layer)
        gathers = schedule.scatter and not self._has_statistics(layer)
        if gathers:
            error = self._collective(all_gather, layer, phase, error)
        # The gradient comes first, so that its all-reduce can overlap the error's computation.
        computed = self._compute(layer, Phase.GRADIENT, error)
        self._reduce_gradient(layer, computed)
        error = self._compute(layer, phase, computed)
        if not gathers:
            error = self._collective(all_reduce, layer, phase, error)
        # Last backward, as they are first forward: in another order more bytes would move.
        for boundary, source in schedule.inputs[layer]:
            self._errors[source] += self._boundary(boundary, layer, phase, error)

    def _error_of(self, layer: int) -> Ends:
        """Return after which tasks a layer has the error of its output."""
        if layer not in self._schedule.stored:
            # The error of an output that nobody reads is the loss's, known once it is computed.
            return self._errors[layer] or self._maps[layer]
        boundary, node = self._schedule.stored[layer]
        return self._boundary(boundary, layer, Phase.BACKWARD, self._errors[node])

    def _reduce_gradient(self, layer: int, computed: Ends) -> None:
        """All-reduce a layer's gradient: of shared weights once, after the last of their users."""
        weights = self._weights_of.get(layer)
        self._collective(all_reduce, layer, Phase.GRADIENT, computed)
        if weights is None:
            return
        self._gradients[weights] += computed
        self._users_left[weights] -= 1
        if not self._users_left[weights]:
            self._collective(
                all_reduce, layer, Phase.GRADIENT, self._gradients[weights], node=weights
            )

    def _compute(self, layer: int, phase: Phase, operands: Ends) -> Ends:
        seconds = self._schedule.seconds[phase][layer]
        return self.streams.add(Compute(self._name(layer), phase, seconds), operands)

    def _boundary(self, boundary: int, layer: int, phase: Phase, operands: Ends) -> Ends:
        exchanges = self._schedule.boundary(boundary, self._name(layer), phase)
        return self._in_order(exchanges, operands)

    def _collective(
        self,
        collective: Collective,
        layer: int,
        phase: Phase,
        operands: Ends,
        *,
        node: int | None = None,
    ) -> Ends:
        if phase is Phase.GRADIENT:
            kind = ExchangeKind.GRADIENTS
        elif self._has_statistics(layer):
            kind = ExchangeKind.STATISTICS
        else:
            kind = ExchangeKind.ERRORS if collective is all_gather else ExchangeKind.PARTIAL_SUMS
        name, shards = self._name(layer), layer if node is None else node
        exchanges = self._schedule.collective(collective, shards, name, phase, kind)
        return self._in_order(exchanges, operands)

    def _in_order(self, exchanges: Sequence[Exchange], operands: Ends) -> Ends:
        """Add exchanges one after the other; without any, the operands are the result."""
        for exchange in exchanges:
            operands = self.streams.add(exchange, operands)
        return operands

    def _has_statistics(self, layer: int) -> bool:
        return any(self._workload.nodes[layer].statistics)

    def _name(self, layer: int) -> str:
        return self._workload.nodes[layer].name
