"""The order of a training step's tasks: passes, collectives and boundaries, layer by layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.collectives import Crossing, all_reduce
from hypar_opt.simulator.exchanges import Reduction, added, sent_of
from hypar_opt.simulator.streams import Streams
from hypar_opt.simulator.tasks import (
    ComputeTask,
    Dependencies,
    ExchangeKind,
    ExchangeTask,
    OfParts,
    Task,
    changed,
)
from hypar_opt.workload.repeats import COLLECTIVES, ONCE

if TYPE_CHECKING:
    from hypar_opt.costs.physical import Pairs
    from hypar_opt.simulator.exchanges import LevelBytes, StepExchanges
    from hypar_opt.workload.repeats import Repeats
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True)
class Schedule:
    """What determines a step's tasks: bytes, seconds, and the algorithms of the exchanges.

    Parameters
    ----------
    exchanges
        The steps of all exchanges, with their bytes.
    seconds
        The computing time of every node on one accelerator, by pass; in each part of H1 where
        there are groups.
    pairs
        The exchanges that convert tensors.
    collective
        Those that reduce and gather: between pairs, too, or around rings.
    buckets
        The nodes whose gradients are all-reduced together, in the order of the backward pass.
    overlap
        Which exchanges overlap what follows: one of `hypar_opt.simulator.streams.OVERLAPS`.
    repeats
        What the backward pass computes again.
    updates
        The seconds in which each node's weights are updated; none where that is not counted.
    """

    workload: Workload
    exchanges: StepExchanges
    seconds: Mapping[Phase, Sequence[float | OfParts]]
    pairs: Pairs
    collective: Pairs
    buckets: Sequence[Sequence[int]]
    overlap: str
    repeats: Repeats = ONCE
    updates: Sequence[float | OfParts] = ()

    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks, forward and then backward through the layers.

        Forward, a layer's inputs are converted, the layer computed, its partial sums reduced.
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
        if Phase.BACKWARD in self.seconds:
            for layer in reversed(layers):
                step.backward(layer)
            for node in range(len(self.workload.nodes)):
                step.update(node)
        return tuple(step.streams.tasks)

    def conversion(self, boundary: int, layer: str, phase: Phase) -> list[ExchangeTask]:
        """Return the exchanges that convert a boundary's tensor, always between pairs."""
        between = self.pairs.interconnect.between
        return [
            changed(
                self._exchange(layer, phase, ExchangeKind.BOUNDARY, [moved], self.pairs),
                rounds=between(self.pairs.placement[moved.level], moved.messages),
            )
            for moved in self.exchanges.conversions.get((phase, boundary), ())
        ]

    def gradients(self, nodes: Sequence[int], layer: str) -> Iterator[list[list[ExchangeTask]]]:
        """Yield the exchanges of a bucket's gradients: of those reduced alike together.

        A layer that is all in one part of H1 is reduced by itself, there alone. What is scattered
        in each micro-batch comes before what its shards are all-reduced over.
        """
        for group in range(len(COLLECTIVES)):
            together: defaultdict[_Alike, list[Sequence[LevelBytes]]] = defaultdict(list)
            for node in nodes:
                key = Reduction(Phase.GRADIENT, ExchangeKind.GRADIENTS, node, group)
                if steps := self.exchanges.reductions.get(key):
                    # In one of several parts of H1 others send nothing.
                    together[tuple((step.level, step.silent) for step in steps)].append(steps)
            yield [
                self._reduction([*map(added, zip(*alike, strict=True))], key, layer)
                for alike in together.values()
            ]

    def gathered_weights(
        self, node: int, group: int, layer: str, phase: Phase, *, once: bool = False
    ) -> list[ExchangeTask]:
        """Return the all-gather of a node's weights: half of its gradient's all-reduce.

        Parameters
        ----------
        group
            By what is split at the levels that it crosses.
        """
        key = Reduction(Phase.GRADIENT, ExchangeKind.WEIGHTS, node, group)
        steps = self.exchanges.reductions.get(key)
        key = key._replace(phase=phase)
        return self._reduction(steps, key, layer, once=once) if steps else []

    def reduction(
        self, node: int, layer: str, phase: Phase, tensor: ExchangeKind
    ) -> list[ExchangeTask]:
        """Return the exchanges that reduce or gather one of a node's own tensors."""
        key = Reduction(phase, tensor, node)
        steps = self.exchanges.reductions.get(key)
        return self._reduction(steps, key, layer) if steps else []

    def _reduction(
        self, steps: Sequence[LevelBytes], what: Reduction, layer: str, *, once: bool = False
    ) -> list[ExchangeTask]:
        phase, tensor, *_ = what
        key = tuple(steps), phase, tensor, once
        if key not in self._reductions:
            self._reductions[key] = self._new_reduction(steps, layer, phase, tensor, once=once)
        return [
            task if task.layer == layer else changed(task, layer=layer)
            for task in self._reductions[key]
        ]

    @cached_property
    def _reductions(self) -> dict[tuple[object, ...], list[ExchangeTask]]:
        """The tasks of reductions that were asked for: those of equal blocks are equal."""
        return {}

    def _new_reduction(
        self,
        steps: Sequence[LevelBytes],
        layer: str,
        phase: Phase,
        tensor: ExchangeKind,
        *,
        once: bool,
    ) -> list[ExchangeTask]:
        at_level = {step.level: step for step in steps}
        between = self.pairs if tensor is ExchangeKind.HALOS else self.collective
        stages = between.stages(list(at_level))
        crossings = [Crossing(stage, Fraction(1), 1) for stage in stages]
        if steps[0].step is StepKind.ALL_REDUCE:
            crossings, once = all_reduce(stages), once or tensor is ExchangeKind.GRADIENTS
        return [
            self._exchange(
                *(layer, phase, tensor, [at_level[n] for n in stage], between),
                share=share,
                times=times,
                once=once,
            )
            for stage, share, times in crossings
        ]

    def _exchange(
        self,
        layer: str,
        phase: Phase,
        tensor: ExchangeKind,
        steps: Sequence[LevelBytes],
        between: Pairs,
        *,
        share: Fraction = Fraction(1),
        times: int = 1,
        once: bool = False,
    ) -> ExchangeTask:
        """Return an exchange of a share of the bytes of some levels' steps."""
        levels = tuple(sorted(step.level for step in steps))
        return ExchangeTask(
            layer=layer,
            phase=phase,
            kind=tensor,
            levels=levels,
            digits=tuple(between.placement[level] for level in levels),
            bytes=float(share * sum(step.bytes for step in steps)),
            rounds=between.rounds(levels, times),
            step=StepKind.ALL_REDUCE if tensor in _OF_WEIGHTS else steps[0].step,
            sent=tuple(float(share * amount) for amount in sent_of(steps)),
            once=once,
        )

    @cached_property
    def inputs(self) -> list[list[tuple[int, int]]]:
        """The boundaries whose feature maps each node reads, with their sources.

        A boundary from shared weights moves nothing: the users slice what they need.
        """
        inputs: list[list[tuple[int, int]]] = [[] for _ in self.workload.nodes]
        for number, boundary in enumerate(self.workload.boundaries):
            if not boundary.weights:
                inputs[boundary.target].append((number, boundary.source))
        return inputs

    @cached_property
    def stored(self) -> dict[int, tuple[int, int]]:
        """The boundary to, and node of, each output that several layers read, by its writer."""
        shared = range(self.workload.shared)
        return {source: (number, node) for node in shared for number, source in self.inputs[node]}


_OF_WEIGHTS = (ExchangeKind.GRADIENTS, ExchangeKind.WEIGHTS)
"""They are part of an all-reduce, whether that is one exchange or in halves."""

_BY_USE, _ONCE, _ = range(len(COLLECTIVES))
"""Weights are gathered for each use where they are split, and once where gradients are."""

_Alike = tuple[tuple[int, tuple[int, ...]], ...]
"""The levels that gradients are reduced over, and the parts of H1 that send nothing there."""


def _task(layer: str, phase: Phase, seconds: float | OfParts) -> ComputeTask:
    if isinstance(seconds, tuple):
        return ComputeTask(layer, phase, max(seconds), of_parts=seconds)
    return ComputeTask(layer, phase, seconds)


class _Step:
    """The tasks scheduled so far, and those after which each tensor is complete."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._workload = schedule.workload
        self.streams = Streams(schedule.overlap)
        self._maps: dict[int, Dependencies] = {}
        # A tensor's errors come from all that read it, and shared weights' gradients from all
        # that use them.
        self._errors: defaultdict[int, Dependencies] = defaultdict(tuple)
        self._gradients: defaultdict[int, Dependencies] = defaultdict(tuple)
        self._converted: set[int] = set()
        users = self._workload.weight_users
        self._weights_of = {user: node for node, layers in users.items() for user in layers}
        self._bucket_of = {node: bucket for bucket in schedule.buckets for node in bucket}

    def forward(self, layer: int) -> None:
        """Schedule a layer's forward pass."""
        schedule, phase = self._schedule, Phase.FORWARD
        arrived: Dependencies = ()
        for boundary, source in schedule.inputs[layer]:
            arrived += self._conversion(boundary, layer, phase, self._maps[source])
        arrived = self._reduction(layer, phase, ExchangeKind.HALOS, arrived)
        self._gather_weights(layer, phase)
        self._maps[layer] = reduced = self._computed(layer, phase, arrived)
        if layer in schedule.stored:
            boundary, node = schedule.stored[layer]
            self._maps[node] = self._conversion(boundary, layer, phase, reduced)

    def backward(self, layer: int) -> None:
        """Schedule a layer's backward pass: its gradient, and the errors of its inputs."""
        phase = Phase.BACKWARD
        error = self._reduction(layer, phase, ExchangeKind.ERRORS, self._error_of(layer))
        self._gather_weights(layer, phase)
        if layer in self._schedule.repeats.again:
            error = self._forward_again(layer, error)
        error = self._converted_again(layer, error)
        # The gradient comes first, so that its all-reduce can overlap the error's computation.
        computed = self._compute(layer, Phase.GRADIENT, error)
        self._reduce_gradient(layer, computed)
        error = self._computed(layer, phase, computed)
        error = self._reduction(layer, phase, ExchangeKind.HALOS, error)
        # Last backward, as they are first forward: in another order more bytes would move.
        for boundary, source in self._schedule.inputs[layer]:
            self._errors[source] += self._conversion(boundary, layer, phase, error)

    def update(self, node: int) -> None:
        """Schedule the update of a node's weights, after all gradients."""
        # Weights that layers share are the first one's.
        users = self._workload.weight_users.get(node, (node,))
        name, phase = self._name(min(users)), Phase.GRADIENT
        seconds = self._schedule.updates[node] if self._schedule.updates else 0.0
        task = _task(name, phase, seconds)
        if task.seconds:
            self.streams.add(changed(task, once=True), self._gradients[node])
        gathered = self._schedule.gathered_weights(node, _ONCE, name, phase, once=True)
        self._in_order(gathered, self._gradients[node])

    def _gather_weights(self, layer: int, phase: Phase) -> None:
        """All-gather the weights that a layer uses, where data parallelism splits them."""
        node = self._weights_of.get(layer, layer)
        gathered = self._schedule.gathered_weights(node, _BY_USE, self._name(layer), phase)
        self._in_order(gathered, ())

    def _forward_again(self, layer: int, operands: Dependencies) -> Dependencies:
        """Run a layer's forward pass again; its exchanges, too, if they are."""
        schedule, phase = self._schedule, Phase.FORWARD
        if schedule.repeats.again[layer] is None:
            return self._compute(layer, phase, operands)
        for boundary, _ in schedule.inputs[layer]:
            operands = self._conversion(boundary, layer, phase, operands)
        operands = self._reduction(layer, phase, ExchangeKind.HALOS, operands)
        operands = self._computed(layer, phase, operands)
        if layer in schedule.stored:
            operands = self._conversion(schedule.stored[layer][0], layer, phase, operands)
        return operands

    def _converted_again(self, layer: int, operands: Dependencies) -> Dependencies:
        """Convert what a layer reads with others, unless that is kept, or one of them has."""
        schedule = self._schedule
        for _, node in schedule.inputs[layer]:
            if node in schedule.repeats.converted_again and node not in self._converted:
                self._converted.add(node)
                ((number, _),) = schedule.inputs[node]
                operands = self._conversion(number, layer, Phase.FORWARD, operands)
        return operands

    def _computed(self, layer: int, phase: Phase, operands: Dependencies) -> Dependencies:
        """Compute a pass of a layer, and reduce its statistics and partial sums."""
        operands = self._compute(layer, phase, operands)
        for tensor in (ExchangeKind.STATISTICS, ExchangeKind.PARTIAL_SUMS):
            operands = self._reduction(layer, phase, tensor, operands)
        return operands

    def _error_of(self, layer: int) -> Dependencies:
        """Return the tasks after which the error of a layer's output is complete."""
        if layer not in self._schedule.stored:
            # The error of an output that nobody reads is the loss's, known once it is computed.
            return self._errors[layer] or self._maps[layer]
        boundary, node = self._schedule.stored[layer]
        return self._conversion(boundary, layer, Phase.BACKWARD, self._errors[node])

    def _reduce_gradient(self, layer: int, computed: Dependencies) -> None:
        """All-reduce the gradients of a bucket that this layer's completes.

        Those of shared weights are complete with their last user's.
        """
        weights = self._weights_of.get(layer)
        complete = [layer]
        self._gradients[layer] = computed
        if weights is not None:
            self._gradients[weights] += computed
            if layer == min(self._workload.weight_users[weights]):
                complete.append(weights)
        for node in complete:
            bucket = self._bucket_of.get(node, (node,))
            if node == bucket[-1]:
                computed = tuple(sorted({n for one in bucket for n in self._gradients[one]}))
                for alike in self._schedule.gradients(bucket, self._name(layer)):
                    ended = [self._in_order(exchanges, computed) for exchanges in alike]
                    computed += sum(ended, ())

    def _compute(self, layer: int, phase: Phase, operands: Dependencies) -> Dependencies:
        seconds = self._schedule.seconds[phase][layer]
        return self.streams.add(_task(self._name(layer), phase, seconds), operands)

    def _conversion(
        self, boundary: int, layer: int, phase: Phase, operands: Dependencies
    ) -> Dependencies:
        exchanges = self._schedule.conversion(boundary, self._name(layer), phase)
        return self._in_order(exchanges, operands)

    def _reduction(
        self, layer: int, phase: Phase, tensor: ExchangeKind, operands: Dependencies
    ) -> Dependencies:
        exchanges = self._schedule.reduction(layer, self._name(layer), phase, tensor)
        return self._in_order(exchanges, operands)

    def _in_order(self, exchanges: Sequence[ExchangeTask], operands: Dependencies) -> Dependencies:
        """Add exchanges one after the other; without any, the operands are the result."""
        for exchange in exchanges:
            operands = self.streams.add(exchange, operands)
        return operands

    def _name(self, layer: int) -> str:
        return self._workload.nodes[layer].name
