"""The order of a training step's tasks: passes, collectives and boundaries, layer by layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.exchanges import REDUCED_ONCE, ExchangeKey, added, sent_of
from hypar_opt.simulator.streams import OF_WEIGHTS, Streams
from hypar_opt.simulator.tasks import (
    ComputeTask,
    Dependencies,
    ExchangeKind,
    ExchangeTask,
    OfParts,
    Task,
    changed,
)
from hypar_opt.workload.repeats import EPILOGUE, PASS, REDUCTION_GROUPS

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
        Which exchanges overlap with what follows: one of `hypar_opt.simulator.streams.OVERLAPS`.
    repeats
        What the backward pass recomputes.
    updates
        The seconds in which each node's weights are updated; empty if that is not modelled.
    units
        The nodes whose weights are gathered together where they are prefetched: as
        `hypar_opt.workload.recomputation.units_of`.
    epilogues
        The seconds of what follows each node's products, for when only that runs again.
    """

    workload: Workload
    exchanges: StepExchanges
    seconds: Mapping[Phase, Sequence[float | OfParts]]
    pairs: Pairs
    collective: Pairs
    buckets: Sequence[Sequence[int]]
    overlap: str
    repeats: Repeats
    updates: Sequence[float | OfParts]
    units: Sequence[range]
    epilogues: Sequence[float | OfParts]

    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks, forward and then backward through the layers.

        Forward, a layer's inputs are converted, the layer computed, its partial sums reduced.
        Backward, the error is gathered where that was a reduce-scatter; the gradient is
        computed and all-reduced, which may overlap with computing the error of the layer's
        inputs and handing it to the layers before. A tensor that several layers read is
        converted once, after its writer; its writer's backward pass follows those of all of
        them.

        Source: docs/assumptions.md.
        """
        return tuple(task for _, tasks in self.visits() for task in tasks)

    def visits(self) -> Iterator[tuple[int, Sequence[Task]]]:
        """Yield each layer in its passes and each node in its update, with the tasks scheduled."""
        step, done = _Prefetched(self) if self.overlap == "prefetch" else _Step(self), 0
        layers = range(self.workload.shared, len(self.workload.nodes))

        def begun() -> Iterator[tuple[Callable[[int], None], Sequence[int]]]:
            step.begin(Phase.FORWARD)
            yield step.forward, layers
            if Phase.BACKWARD in self.seconds:
                step.begin(Phase.BACKWARD)
                yield step.backward, layers[::-1]
                step.end()
                yield step.update, range(len(self.workload.nodes))

        for schedule, order in begun():
            for node in order:
                schedule(node)
                yield node, step.streams.tasks[done:]
                done = len(step.streams.tasks)

    def exchange_tasks(self, key: ExchangeKey, layer: str, phase: Phase) -> list[ExchangeTask]:
        """Return the exchanges of a tensor, for a layer and the pass that uses it."""
        steps = self.exchanges.get(key)
        return self._tasks(steps, layer, phase, key) if steps else []

    def joined(self, keys: Iterable[ExchangeKey], layer: str, phase: Phase) -> list[ExchangeTask]:
        """Return the joined exchanges of the weights or gradients of several nodes.

        One over each stage, with the bytes of all that are over the same levels, and its latency
        once.
        """
        joined: defaultdict[tuple[int, int, Sequence[int]], list[ExchangeTask]] = defaultdict(list)
        for key in keys:
            for kind, steps in _by_kind(self.exchanges.get(key, ())):
                exchanges = self._tasks(steps, layer, phase, key)
                middle = len(exchanges) // 2
                for position, exchange in enumerate(exchanges):
                    level, over = exchange.levels[0], exchange.levels
                    if kind is StepKind.REDUCE_SCATTER:  # from the deepest level up
                        joined[0, -level, over].append(exchange)
                    elif kind is StepKind.ALL_REDUCE:
                        side = (position > middle) - (position < middle)
                        joined[2 + side, -level if side < 0 else level, over].append(exchange)
                    else:
                        joined[4, level, over].append(exchange)
        return [_sum_of(joined[position]) for position in sorted(joined)]

    def gradients(self, nodes: Sequence[int], layer: str) -> Iterator[list[list[ExchangeTask]]]:
        """Yield the exchanges of a bucket's gradients, joined if they have equal levels.

        A layer that is all in one part of H1 is reduced within that part. Scatters of each
        micro-batch come before all-reduces of the shards.
        """
        of_gradients = Phase.GRADIENT, ExchangeKind.GRADIENTS
        for group in range(len(REDUCTION_GROUPS)):
            together: defaultdict[_ReductionLevels, list[Sequence[LevelBytes]]] = defaultdict(list)
            for node in nodes:
                if steps := self.exchanges.get(ExchangeKey(*of_gradients, node, group)):
                    # If a layer is in one part of H1, the others send nothing.
                    together[tuple((step.level, step.silent) for step in steps)].append(steps)
            yield [
                self._tasks(
                    [*map(added, zip(*exchanges, strict=True))],
                    layer,
                    Phase.GRADIENT,
                    ExchangeKey(*of_gradients, nodes[0], group),
                )
                for exchanges in together.values()
            ]

    def _tasks(
        self, steps: Sequence[LevelBytes], layer: str, phase: Phase, of: ExchangeKey
    ) -> list[ExchangeTask]:
        """Return the exchanges of some steps, of one or several tensors."""
        key = tuple(steps), phase, of.tensor, of.group
        if key not in self._task_cache:
            self._task_cache[key] = [*self._new_tasks(steps, layer, phase, of)]
        return [
            task if task.layer == layer else changed(task, layer=layer)
            for task in self._task_cache[key]
        ]

    @cached_property
    def _task_cache(self) -> dict[tuple[object, ...], list[ExchangeTask]]:
        """A cache of the tasks of exchanges: those of equal blocks are equal."""
        return {}

    def _new_tasks(
        self, steps: Sequence[LevelBytes], layer: str, phase: Phase, of: ExchangeKey
    ) -> Iterator[ExchangeTask]:
        """Yield the exchanges over the levels of some steps, always between pairs at boundaries.

        Those of gradients and weights at the end of a step occur once.
        """
        tensor = of.tensor
        between = self.pairs if tensor in _BETWEEN_PAIRS else self.collective
        last = of.group == REDUCED_ONCE or tensor is ExchangeKind.WEIGHTS
        for kind, of_kind in _by_kind(steps):
            at_level = {step.level: step for step in of_kind}
            stages = between.stages(list(at_level))
            crossings = [
                Crossing(stage, Fraction(1), 1, at_level[stage[0]].step) for stage in stages
            ]
            reduces = kind is StepKind.ALL_REDUCE
            for stage, share, times, collective in all_reduced(stages) if reduces else crossings:
                levels, crossed = tuple(sorted(stage)), [at_level[level] for level in stage]
                digits = tuple(between.placement[level] for level in levels)
                rounds = between.rounds(levels, times)
                if tensor is ExchangeKind.BOUNDARY:
                    rounds = between.interconnect.between(digits[0], crossed[0].messages)
                yield ExchangeTask(
                    layer=layer,
                    phase=phase,
                    kind=tensor,
                    levels=levels,
                    digits=digits,
                    bytes=float(share * sum(step.bytes for step in crossed)),
                    rounds=rounds,
                    step=StepKind.ALL_REDUCE if tensor in OF_WEIGHTS else crossed[0].step,
                    sent=tuple(float(share * amount) for amount in sent_of(crossed)),
                    between=crossed[0].between if len(crossed) == 1 else (),
                    once=phase is Phase.GRADIENT and last,
                    collective=collective,
                )


def _by_kind(
    steps: Sequence[LevelBytes],
) -> Iterator[tuple[StepKind | None, Sequence[LevelBytes]]]:
    """Yield the steps of a tensor, separately those of an all-reduce that may follow a scatter."""
    for _, group in groupby(steps, key=lambda step: step.step is StepKind.ALL_REDUCE):
        members = tuple(group)
        yield members[0].step, members


def _sum_of(exchanges: Sequence[ExchangeTask]) -> ExchangeTask:
    """Return exchanges over the same levels as one."""
    first, *rest = exchanges
    if not rest:
        return first
    sent = [exchange.sent or (exchange.bytes,) for exchange in exchanges]
    return changed(
        first,
        bytes=sum(exchange.bytes for exchange in exchanges),
        sent=tuple(map(sum, zip(*sent, strict=True)))
        if any(exchange.sent for exchange in exchanges)
        else (),
    )


_BETWEEN_PAIRS = (ExchangeKind.BOUNDARY, ExchangeKind.HALOS)

_BY_USE, _ONCE = (REDUCTION_GROUPS.index((word,)) for word in ("weights", "gradients"))
"""Weights are gathered for each use where they are split, and once where gradients are."""

_ReductionLevels = tuple[tuple[int, tuple[int, ...]], ...]
"""The levels over which gradients are reduced, and the parts of H1 that send nothing."""


class Crossing(NamedTuple):
    """An exchange of an all-reduce over the levels of a stage.

    Parameters
    ----------
    share
        Of the bytes that the all-reduce moves across these levels.
    times
        2 to reduce-scatter and gather, else 1.
    collective
        The collective; None if the reading only says how many bytes move.
    """

    stage: tuple[int, ...]
    share: Fraction
    times: int
    collective: StepKind | None


def all_reduced(stages: Sequence[tuple[int, ...]]) -> list[Crossing]:
    """Return the exchanges of an all-reduce, in their order.

    Reduce-scatter from the deepest stage up, then all-gather. The topmost stage is reduced and
    gathered in one exchange.

    Parameters
    ----------
    stages
        Levels that are reduced over together, topmost first: between pairs, one each.

    Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
    operations in MPICH", IJHPCA 19(1), 2005, section 4: recursive halving and doubling.
    """
    topmost, *below = stages
    halves = [
        [Crossing(stage, Fraction(1, 2), 1, half) for stage in below]
        for half in (StepKind.REDUCE_SCATTER, StepKind.ALL_GATHER)
    ]
    return [
        *reversed(halves[0]),
        Crossing(topmost, Fraction(1), 2, StepKind.ALL_REDUCE),
        *halves[1],
    ]


def _task(layer: str, phase: Phase, seconds: float | OfParts) -> ComputeTask:
    if isinstance(seconds, tuple):
        return ComputeTask(layer, phase, max(seconds), of_parts=seconds)
    return ComputeTask(layer, phase, seconds)


class _Step:
    """The tasks scheduled so far, and those after which each tensor is complete."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule, self._workload = schedule, schedule.workload
        self.streams = Streams(schedule.overlap)
        self._maps: dict[int, Dependencies] = {}
        # A tensor's errors come from all that read it, and shared weights' gradients from all
        # that use them.
        self._errors: defaultdict[int, Dependencies] = defaultdict(tuple)
        self._gradients: defaultdict[int, Dependencies] = defaultdict(tuple)
        self._converted: set[int] = set()
        self._ends = self._workload.boundaries
        self._stored = self._workload.boundary_into_shared
        users = self._workload.weight_users
        self._weights_of = {user: node for node, layers in users.items() for user in layers}
        self._bucket_of = {node: bucket for bucket in schedule.buckets for node in bucket}

    def begin(self, phase: Phase) -> None:
        """Schedule what precedes a pass."""

    def end(self) -> None:
        """Schedule what follows the backward pass."""

    def forward(self, layer: int) -> None:
        """Schedule a layer's forward pass."""
        arrived: Dependencies = ()
        for boundary in self._workload.boundaries_read[layer]:
            maps = self._maps[self._ends[boundary].source]
            arrived += self._conversion(boundary, layer, Phase.FORWARD, maps)
        arrived = self._reduction(layer, Phase.FORWARD, ExchangeKind.HALOS, arrived)
        self._gather_weights(layer, Phase.FORWARD)
        self._maps[layer] = reduced = self._computed(layer, Phase.FORWARD, arrived)
        if layer in self._stored:
            boundary = self._stored[layer]
            stored = self._conversion(boundary, layer, Phase.FORWARD, reduced)
            self._maps[self._ends[boundary].target] = stored

    def backward(self, layer: int) -> None:
        """Schedule a layer's backward pass: its gradient, and the errors of its inputs."""
        phase = Phase.BACKWARD
        error = self._reduction(layer, phase, ExchangeKind.ERRORS, self._error_of(layer))
        self._gather_weights(layer, phase)
        error = self._forward_again(layer, error)
        error = self._converted_again(layer, error)
        # The gradient comes first, so that its all-reduce can overlap the error's computation.
        computed = self._compute(layer, Phase.GRADIENT, error)
        self._reduce_gradient(layer, computed)
        error = self._computed(layer, phase, computed)
        error = self._reduction(layer, phase, ExchangeKind.HALOS, error)
        # Last in the backward pass, as they come first forward: in another order more bytes would
        # move.
        for boundary in self._workload.boundaries_read[layer]:
            source = self._ends[boundary].source
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
        self._gather_updated(node)

    def _gather_updated(self, node: int) -> None:
        """All-gather a node's updated weights."""
        users = self._workload.weight_users.get(node, (node,))
        key = ExchangeKey(Phase.GRADIENT, ExchangeKind.WEIGHTS, node, _ONCE)
        self._exchange(key, min(users), Phase.GRADIENT, self._gradients[node])

    def _gather_weights(self, layer: int, phase: Phase) -> None:
        """All-gather the weights that a layer uses, where data parallelism splits them."""
        node = self._weights_of.get(layer, layer)
        key = ExchangeKey(Phase.GRADIENT, ExchangeKind.WEIGHTS, node, _BY_USE)
        self._exchange(key, layer, phase, ())

    def _forward_again(self, layer: int, operands: Dependencies) -> Dependencies:
        """Run a layer's recomputation; with exchanges, unless it is recomputed by itself."""
        phase, repeats = Phase.FORWARD, self._schedule.repeats
        together, word = repeats.recomputed.get(layer) is not None, repeats.by_op.get(layer)
        if together or word:
            for boundary in self._workload.boundaries_read[layer]:
                operands = self._conversion(boundary, layer, phase, operands)
            operands = self._reduction(layer, phase, ExchangeKind.HALOS, operands)
        if together or word == PASS:
            operands = self._computed(layer, phase, operands)
        elif layer in repeats.recomputed:
            operands = self._compute(layer, phase, operands)
        elif word == EPILOGUE:
            task = _task(self._name(layer), phase, self._schedule.epilogues[layer])
            operands = self.streams.add(task, operands) if task.seconds else operands
        if layer in self._stored:
            boundary = self._stored[layer]
            if together or self._ends[boundary].target in repeats.by_op:
                operands = self._conversion(boundary, layer, phase, operands)
        return operands

    def _converted_again(self, layer: int, operands: Dependencies) -> Dependencies:
        """Convert a layer's shared inputs, unless they are kept or already converted."""
        again = self._schedule.repeats.converted_again
        for boundary in self._workload.boundaries_read[layer]:
            node = self._ends[boundary].source
            if node in again and node not in self._converted:
                self._converted.add(node)
                (number,) = self._workload.boundaries_read[node]
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
        if layer not in self._stored:
            # The error of an output without readers is the loss's, known once it is computed.
            return self._errors[layer] or self._maps[layer]
        boundary = self._stored[layer]
        errors = self._errors[self._ends[boundary].target]
        return self._conversion(boundary, layer, Phase.BACKWARD, errors)

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
            if bucket and node == bucket[-1]:
                computed = tuple(sorted({n for one in bucket for n in self._gradients[one]}))
                for reductions in self._schedule.gradients(bucket, self._name(layer)):
                    ended = [self._in_order(exchanges, computed) for exchanges in reductions]
                    computed += sum(ended, ())

    def _compute(self, layer: int, phase: Phase, operands: Dependencies) -> Dependencies:
        seconds = self._schedule.seconds[phase][layer]
        return self.streams.add(_task(self._name(layer), phase, seconds), operands)

    def _conversion(
        self, boundary: int, layer: int, phase: Phase, operands: Dependencies
    ) -> Dependencies:
        key = ExchangeKey(phase, ExchangeKind.BOUNDARY, boundary)
        return self._exchange(key, layer, phase, operands)

    def _reduction(
        self, layer: int, phase: Phase, tensor: ExchangeKind, operands: Dependencies
    ) -> Dependencies:
        return self._exchange(ExchangeKey(phase, tensor, layer), layer, phase, operands)

    def _exchange(
        self, key: ExchangeKey, layer: int, phase: Phase, operands: Dependencies
    ) -> Dependencies:
        exchanges = self._schedule.exchange_tasks(key, self._name(layer), phase)
        return self._in_order(exchanges, operands)

    def _in_order(self, exchanges: Sequence[ExchangeTask], operands: Dependencies) -> Dependencies:
        """Add exchanges one after the other; without any, the operands are the result."""
        for exchange in exchanges:
            operands = self.streams.add(exchange, operands)
        return operands

    def _name(self, layer: int) -> str:
        return self._workload.nodes[layer].name


class _Prefetched(_Step):
    """A step whose weights are gathered, and gradients reduced, a unit at a time, in a queue.

    A unit is a repetition of a block of the network; the root is all outside of them. The queue
    runs one collective at a time, in the order in which they are issued, beside the program: the
    computations, and the exchanges that something waits for.

    - Weights that are split are gathered for a block's forward pass, and again for its backward
      pass; those of the root once. The root's gather is issued as a micro-batch begins, and the
      program waits for it. That of the first block is issued then, too, in either pass; that of
      each further block as the block before it begins. Whatever a block does in a pass waits for
      its gather.
    - Updated weights that are whole (ZeRO-1 and 2) are gathered once a step: in front of the
      forward gather of their unit, in the first micro-batch.
    - Gradients that are scattered in each micro-batch are so as the unit's backward pass ends, the
      root's as the pass of all ends. Where shards are all-reduced or scattered further, over other
      levels, in the last micro-batch, this follows at once.
    - All other gradients are reduced by buckets, each as the gradient that completes it has been
      computed, in the last micro-batch.
    - Weights are updated when all gradients are there.

    Source: PyTorch, ``torch.distributed.fsdp``: forward and backward prefetching of one unit.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        nodes = range(self._workload.shared, len(self._workload.nodes))
        self._unit_of = {node: unit for unit in schedule.units for node in unit}
        self._root = [node for node in nodes if node not in self._unit_of]
        buckets = [
            [n for n in nodes_of_bucket if not self._is_scattered(n)]
            for nodes_of_bucket in schedule.buckets
        ]
        self._bucket_of = {
            node: bucket
            for whole, bucket in zip(schedule.buckets, buckets, strict=True)
            for node in whole
        }
        # Their gathers in the order of a pass, and those issued so far.
        self._units: Iterator[Sequence[int]] = iter(())
        self._gathers: dict[Sequence[int], Dependencies] = {}

    def begin(self, phase: Phase) -> None:
        units = self._schedule.units
        self._phase, self._gathers = phase, {}
        self._units = iter(units if phase is Phase.FORWARD else units[::-1])
        if phase is Phase.FORWARD:
            self.streams.wait(self._gathered(self._root))
        self._prefetch()

    def end(self) -> None:
        self._scattered(self._root)
        self.streams.wait_for_queue()

    def forward(self, layer: int) -> None:
        self._wait_for_weights(layer)
        super().forward(layer)

    def backward(self, layer: int) -> None:
        self._wait_for_weights(layer)
        super().backward(layer)
        unit = self._unit_of.get(layer)
        if unit is not None and layer == unit[0]:
            self._scattered(unit)

    def _prefetch(self) -> None:
        """Issue the gather of the next unit that has one."""
        for unit in self._units:
            if gathered := self._gathered(unit):
                self._gathers[unit] = gathered
                return

    def _wait_for_weights(self, layer: int) -> None:
        """Let a unit wait for its weights as its first layer begins, and prefetch the next ones."""
        gathered = self._gathers.pop(self._unit_of.get(layer, range(0)), ())
        if gathered:
            self.streams.wait(gathered)
            self._prefetch()

    def _gathered(self, layers: Sequence[int]) -> Dependencies:
        """Gather a unit's weights for a pass; return what its layers wait for."""
        if not layers:
            return ()
        exchanges: list[ExchangeTask] = []
        layer = layers[0] if self._phase is Phase.FORWARD else layers[-1]
        of_weights = Phase.GRADIENT, ExchangeKind.WEIGHTS
        if self._phase is Phase.FORWARD:
            for group in (REDUCED_ONCE, _ONCE):
                keys = [ExchangeKey(*of_weights, node, group) for node in self._owned(layers)]
                exchanges += self._schedule.joined(keys, self._name(layer), Phase.GRADIENT)
        used = dict.fromkeys(self._weights_of.get(node, node) for node in layers)
        keys = [ExchangeKey(*of_weights, node, _BY_USE) for node in used]
        exchanges += self._schedule.joined(keys, self._name(layer), self._phase)
        return self._in_order(exchanges, ())

    def _scattered(self, layers: Sequence[int]) -> None:
        """Reduce those of a unit's gradients that are scattered in each micro-batch."""
        nodes = [node for node in self._owned(layers) if self._is_scattered(node)]
        for group in range(len(REDUCTION_GROUPS)) if nodes else ():
            keys = [
                ExchangeKey(Phase.GRADIENT, ExchangeKind.GRADIENTS, node, group) for node in nodes
            ]
            self._in_order(self._schedule.joined(keys, self._name(layers[0]), Phase.GRADIENT), ())

    def _owned(self, layers: Sequence[int]) -> list[int]:
        """Return the nodes whose gradients are complete with one of some layers."""
        users = self._workload.weight_users
        shared = [node for node, layers_of in users.items() if min(layers_of) in layers]
        return [*shared, *layers]

    def _is_scattered(self, node: int) -> bool:
        of_gradients = Phase.GRADIENT, ExchangeKind.GRADIENTS
        return any(
            ExchangeKey(*of_gradients, node, group) in self._schedule.exchanges
            for group in (_BY_USE, _ONCE)
        )

    def _gather_weights(self, layer: int, phase: Phase) -> None:
        """Gather nothing: it has been, with the unit."""

    def _gather_updated(self, node: int) -> None:
        """Gather nothing: the next step does, in its forward pass."""
