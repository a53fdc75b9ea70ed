"""The best configurations of a network on an array: the seconds and bytes of many, exactly.

A configuration's step is that of a network with few repetitions of its blocks, of which those that
are alike count several times. What a step holds is counted once for a mesh of accelerators, and is
linear in the micro-batch. No step takes less than its program, which is charged for all meshes at
once: only configurations are simulated whose programs take no longer than the best steps known.

Source: docs/simulator.md; docs/decisions/0029-memory-of-a-device.md for what is held.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from heapq import heappop, heappush
from itertools import groupby, pairwise
from math import inf, lcm
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.costs.buckets import buckets_of
from hypar_opt.costs.kinds import kinds_of_boundaries, kinds_of_nodes
from hypar_opt.costs.overlap import OverlapTime, least_of
from hypar_opt.costs.time import TimeCost
from hypar_opt.costs.work import launches_of
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import NoAnswerError
from hypar_opt.plan.configuration import (
    Configuration,
    choices_of_configurations,
    family,
    rows_of,
    training_of,
)
from hypar_opt.search.result import Progress, silent
from hypar_opt.search.step_queues import Queue, QueueExchanges, Visits, queues_of
from hypar_opt.sharding.layouts import BATCH
from hypar_opt.sharding.passes import Phase
from hypar_opt.sharding.program import Program
from hypar_opt.simulator.lockstep import NotInLockstepError
from hypar_opt.simulator.memory import reserved_by
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.repeated_parts import (
    Messages,
    RepeatedPart,
    seconds_of_parts,
)
from hypar_opt.simulator.run import seconds_of
from hypar_opt.simulator.simulation import StepTimes
from hypar_opt.simulator.step import (
    divides,
    in_parts,
    launching,
    phases_of,
    repeats_on,
    schedule_of,
)
from hypar_opt.simulator.tasks import ComputeTask, of_one_micro_batch
from hypar_opt.step.holds import KEPT, HoldArrays, HoldRules, WeightBytes
from hypar_opt.step.states import added_up
from hypar_opt.step.work import passes_of
from hypar_opt.units import format_bytes, format_si
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.parallelism import RECOMPUTED
from hypar_opt.workload.recomputation import repeated
from hypar_opt.workload.repeats import COLLECTIVES, ZERO_STAGES, Repeats
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.hardware.array import Array
    from hypar_opt.instance.instance import Instance
    from hypar_opt.plan.problem import Problem
    from hypar_opt.simulator.tasks import Task
    from hypar_opt.step.operations import Collective
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload

Allowed = Callable[[Configuration], bool]
Lengths = tuple[int, ...]
"""The repetitions of each run of a network's blocks."""
Mesh = tuple[int, int, int, int, int, bool]
"""The degrees of a configuration, and whether it has sequence parallelism."""

_CONSIDERING = 1 / 4
"""The share of the time that is left in which configurations are considered before some of them are
evaluated."""

_ROUNDING = 1e-9
"""Relative: more than the charges of a bound are rounded."""


class Evaluated(NamedTuple):
    """A configuration, and what a training step of it takes.

    Parameters
    ----------
    seconds
        Of a step of the whole batch, as `hypar_opt.simulate` says them.
    memory
        The bytes of the fullest accelerator, with what is reserved.
    exposed
        The share of the step in which accelerators wait for exchanges.
    """

    configuration: Configuration
    seconds: float
    memory: int
    exposed: float

    def __repr__(self) -> str:
        configuration = self.configuration
        unlike = [
            f"{k}={v}"
            for k, v in configuration._asdict().items()
            if v != configuration._field_defaults[k]
        ]
        amounts = f"{format_si(self.seconds, 's')}, {format_bytes(self.memory)}"
        return f"<Evaluated: {', '.join([*unlike, amounts])}>"


class Candidate(NamedTuple):
    """A configuration, and the bytes of the fullest accelerator, with what is reserved."""

    configuration: Configuration
    memory: int


class Searched(NamedTuple):
    """The answer of a search over configurations.

    Parameters
    ----------
    best
        Those that fit and take the least time, the fastest first.
    considered, fitting, simulated
        How many configurations there are, fit the memory, and were simulated: the others take
        longer than the last of ``best``.
    least
        The three that need the least memory, if none fits.
    complete
        Whether all were searched: a deadline may come first.
    """

    best: tuple[Evaluated, ...]
    considered: int
    fitting: int
    simulated: int
    least: tuple[Candidate, ...]
    complete: bool = True


class _Short(NamedTuple):
    """A step with one repetition of a block in place of several that are alike.

    Parameters
    ----------
    again
        How many of the blocks, from the first, are computed again.
    starts, times
        The number of each block's first repetition, and how many there are.
    """

    lengths: Lengths
    again: int
    starts: tuple[int, ...]
    times: tuple[int, ...]


class _Held(NamedTuple):
    """Bytes of the fullest accelerator.

    Parameters
    ----------
    kept : (1 + blocks,)
        All the time, or from a forward to a backward pass: outside all blocks, and of each.
    moments : (nodes,)
        While each layer runs.
    """

    kept: NDArray[np.int64]
    moments: NDArray[np.int64]


class _Passes(NamedTuple):
    """Seconds of each layer in a micro-batch's program, each ``(layers,)``.

    Parameters
    ----------
    again
        What its backward pass has in addition where it is computed again.
    """

    forward: NDArray[np.float64]
    backward: NDArray[np.float64]
    again: NDArray[np.float64]


class Evaluator:
    """Seconds and bytes of configurations of a network with blocks on equal accelerators.

    Parameters
    ----------
    problem
        With the array; its batch, optimizer and reading are used.
    choices
        Those of which nodes have their roles'; None for those that configurations need.
    early_stop
        Whether blocks that run again stop at the last tensor that a backward pass reads.
    by_events
        Whether steps of accelerators out of lockstep are simulated; else they are refused.
    kv_replicated
        Whether tensor parallelism may have more parts than key-value heads.
    deadline
        After which nothing more is evaluated.

    Attributes
    ----------
    meshes
        Those that may be asked for: what is computed of one is so of all.
    """

    def __init__(
        self,
        network: Network,
        problem: Problem,
        *,
        choices: tuple[str, ...] | None = None,
        early_stop: bool = False,
        by_events: bool = True,
        kv_replicated: bool = False,
        deadline: Deadline = NEVER,
    ) -> None:
        assert problem.array is not None
        self.deadline = deadline
        self.meshes: set[Mesh] = set()
        self.network, self.early_stop, self.by_events = network, early_stop, by_events
        if choices is None:
            choices = choices_of_configurations(network, kv_replicated=kv_replicated)
        self.problem = problem.model_copy(update={"choices": choices})
        self.array: Array = problem.array.description
        self._hierarchy = problem.hierarchy
        self._capacity = int(self.array.accelerator.dram_capacity)
        self._fused = Fused.on(self.array.accelerator)
        # A batch that the degrees of all meshes divide.
        self._base = self._hierarchy.accelerators
        self._counts = tuple(block.count for block in network.repeats)
        self._network, self._workload = cache(self._new_network), cache(self._new_workload)
        self._rows, self._blocks = cache(self._new_rows), cache(self._new_blocks)
        self._map_holds = cache(self._new_map_holds)
        self._parts_of_batch = cache(self._new_parts_of_batch)
        self._maps_of: dict[tuple[Lengths, int, str, int], dict[Mesh, _Held]] = {}
        self._weights_of: dict[tuple[Lengths, int, str], dict[Mesh, _Held]] = {}
        self._weight_holds, self._weights = cache(self._new_weight_holds), cache(self._new_weights)
        self._shortened, self._program = cache(self._new_shortened), cache(self._new_program)
        self._messages = Messages(self.array.interconnect)
        self._layers, self._places = cache(self._new_layers), cache(self._new_places)
        self._queues_of: dict[tuple[Mesh, str], tuple[Queue, Queue]] = {}
        self._seconds_of: defaultdict[tuple[int, str], dict[Mesh, NDArray[np.float64]]]
        self._seconds_of = defaultdict(dict)

    @property
    def blocks(self) -> int:
        """The blocks of the network."""
        return sum(self._counts)

    @cached_property
    def policies(self) -> tuple[str, ...]:
        """What the backward pass may compute again: of words that say the same, the first."""
        one, short = Configuration(dp_shard=self._base), self._uniform
        whole = short._replace(again=len(short.times))
        network, workload = self._network(short.lengths), self._workload(short.lengths, self._base)
        again: dict[object, str] = {}
        for word in RECOMPUTED:
            options = self._options(one._replace(recompute=word), whole)
            repeats = repeats_on(network, self.problem, workload, self.array, options)
            again.setdefault((repeats.again, repeats.by_op), word)
        return tuple(again.values())

    def fits(self, configuration: Configuration, memory: int) -> bool:
        """Return whether a configuration's step fits an accelerator, and what is stated.

        A stated memory is of tensors alone; the accelerator's reserve lies beside it.

        Parameters
        ----------
        memory
            Its bytes, with the reserve.
        """
        if memory > self._capacity:
            return False
        stated = self.problem.constraints.memory
        if stated is None:
            return True
        short = self._shortened(self._again(configuration))
        reserve = self._weights(configuration[:6], short.lengths, configuration.zero)[1]
        return memory - reserve <= stated

    def evaluate(self, configuration: Configuration) -> Evaluated:
        """Return what a training step of a configuration takes.

        Raises
        ------
        NoAnswerError
            If the deadline passes.
        """
        self.deadline.check()
        seconds, computed = self._seconds(configuration)
        memory = self.memory(configuration)
        return Evaluated(configuration, seconds, memory, 1 - computed / seconds)

    # A step with few repetitions

    def _again(self, configuration: Configuration) -> int:
        """Return how many blocks are computed again."""
        again = self.blocks if configuration.blocks is None else configuration.blocks
        return 0 if configuration.recompute == "none" else again

    def _new_shortened(self, again: int, last: Lengths | None = None) -> _Short:
        """Return a step with a repetition of each that differs from the others.

        Parameters
        ----------
        again
            How many blocks are computed again.
        last
            How many repetitions at the end of each run differ; None for those that do in size.
        """
        left, short, begun = again, _Short((), 0, (), ()), 0
        for count, alone in zip(self._counts, last or self._last_in_size, strict=True):
            own = min(left, count)
            left -= own
            ends = sorted({0, 1, own, *range(max(count - alone, 0), count + 1)})
            short = _Short(
                (*short.lengths, len(ends) - 1),
                short.again + sum(start < own for start in ends),
                (*short.starts, *(begun + start for start in ends[:-1])),
                (*short.times, *(end - start for start, end in pairwise(ends))),
            )
            begun += count
        return short

    def _last_alone(self, zero: str) -> Lengths:
        """Return how many repetitions at the end of each run differ, in size or in exchanges."""
        by_unit = RunOptions().on(self.array)[1] == "prefetch" and zero not in ("none", "state")
        return self._last_in_size if by_unit else self._last_in_buckets

    @cached_property
    def _last_in_size(self) -> Lengths:
        """How many differ in size: all where maps grow, as DenseNet's do; else the last alone."""
        maps, lasts = [*self.network.maps()], []
        for run in self.network.repeats:
            ends = range(run.first, run.first + run.length * run.count, run.length)
            alike = all(
                maps[own : own + run.length] == maps[ends[0] : ends[0] + run.length] for own in ends
            )
            lasts.append(1 if alike else run.count)
        return tuple(lasts)

    @cached_property
    def _last_in_buckets(self) -> Lengths:
        """How many differ in which gradients are reduced together, or in size.

        All, if this never settles: what a bucket has left is known only where one begins.
        """
        workload = self._workload(self._counts, self._base)
        buckets = buckets_of(workload, self.array.bucket_elements(self.problem.element_bytes))
        firsts, blocks = {bucket[0] for bucket in buckets}, self._blocks(self._counts)
        begins: list[list[int]] = [[] for _ in range(1 + sum(self._counts))]
        layers: list[int] = [0] * len(begins)
        for node in range(workload.shared, len(blocks)):
            if node in firsts:
                begins[blocks[node]].append(layers[blocks[node]])
            layers[blocks[node]] += 1
        lasts, first = [], 1
        for count, last in zip(self._counts, self._last_in_size, strict=True):
            # From the last repetition on, each decides how the one before it begins.
            of_run = begins[first : first + count]
            alike = next((n for n, own in enumerate(of_run) if own != of_run[0]), count)
            fresh = layers[first] - 1 in of_run[0]
            differ = count - alike + (1 if fresh else 2) if of_run[0] else count
            lasts.append(max(last, differ))
            first += count
        return tuple(lasts)

    def _new_network(self, lengths: Lengths) -> Network:
        described = self.network.description()
        numbers = [(block.name, block.number) for block in self.network.repeats]
        for block in described.get("block", ()):
            first = block.get("first", 0) if "repeat" in block else None
            count = lengths[numbers.index((block["name"], first))]
            if first is not None:
                # What reads the last repetition by its number reads the new last one.
                last, new = (f"{block['name']}.{first + n - 1}." for n in (block["repeat"], count))
                for reader in (*described.get("layer", ()), *described["block"]):
                    if reader.get("inputs"):
                        reader["inputs"] = [
                            new + one.removeprefix(last) if one.startswith(last) else one
                            for one in reader["inputs"]
                        ]
            block["repeat"] = count
        return type(self.network).model_validate(described)

    def _new_workload(self, lengths: Lengths, batch: int) -> Workload:
        choices = self.problem.choices
        return workload_of(self._network(lengths), batch, choices, shared_tensors=True)

    def _new_rows(self, mesh: Mesh, lengths: Lengths) -> Rows:
        of = self._network(lengths), self._workload(lengths, self._base), self._hierarchy
        return rows_of(Configuration(*mesh), *of)

    def _new_program(self, mesh: Mesh, lengths: Lengths) -> Program:
        workload = self._workload(lengths, self._base)
        return Program(workload, self._rows(mesh, lengths), self._hierarchy)

    def _new_blocks(self, lengths: Lengths) -> NDArray[np.intp]:
        """Return the block that each node belongs to, from 1: ``(nodes,)``; 0 outside all."""
        workload = self._workload(lengths, self._base)
        blocks, number = np.zeros(len(workload.nodes), np.intp), 0
        for run in self._network(lengths).repeats:
            first = workload.shared + run.first
            for start in range(first, first + run.length * run.count, run.length):
                number += 1
                blocks[start : start + run.length] = number
        for node, users in workload.weight_users.items():
            blocks[node] = blocks[min(users)]
        for node, writer in workload.tensor_writers.items():
            blocks[node] = blocks[writer]
        return blocks

    def _options(self, configuration: Configuration, short: _Short) -> RunOptions:
        """Return the options of a shortened step."""
        blocks = None if configuration.recompute == "none" else short.again
        of = self._network(short.lengths), self._hierarchy, self.problem.training
        training = training_of(configuration._replace(blocks=blocks), *of)
        return RunOptions(**training.stated, early_stop=self.early_stop)

    # Seconds

    def _seconds(self, configuration: Configuration) -> tuple[float, float]:
        """Return the seconds of a step, and those that it computes."""
        if not self._is_branched:
            try:
                last = self._last_alone(configuration.zero)
                short = self._shortened(self._again(configuration), last)
                return self._measured(configuration, short)
            except NotInLockstepError:
                if not self.by_events:
                    raise
                # Each accelerator is simulated, and each repetition
        return self._measured(configuration, None)

    @property
    def _is_branched(self) -> bool:
        """Whether more runs beside the program than one queue."""
        options = RunOptions()
        return options.on(self.array)[1] == "branches" or divides(self.array, options)

    def _measured(self, configuration: Configuration, short: _Short | None) -> tuple[float, float]:
        """Return the seconds of a step, and those that it computes.

        Parameters
        ----------
        short
            Its repetitions, of accelerators in lockstep; None to simulate all by events.
        """
        in_lockstep, count = short is not None, configuration.micro_batches
        if short is None:
            every = (1,) * self.blocks
            short = _Short(self._counts, self._again(configuration), (0,) * len(every), every)
        network = self._network(short.lengths)
        workload = self._workload(short.lengths, self.problem.batch // count)
        options = self._options(configuration, short)
        rows = self._rows(configuration[:6], short.lengths)
        step = self.problem, workload, self.array, options, rows
        schedule = schedule_of(network, *step)
        blocks, times = self._blocks(short.lengths).tolist(), (1, *short.times)
        tasks: list[Task] = []
        parts = []
        visits = ((blocks[node], own) for node, own in schedule.visits() if own)
        for block, of_block in groupby(visits, key=itemgetter(0)):
            first = len(tasks)
            for _, own in of_block:
                tasks += own
            parts.append(RepeatedPart(first, len(tasks), times[block]))
        efficiency = self.array.efficiency_of_overlap
        if in_lockstep:
            before = of_one_micro_batch(tasks)
            measured = [
                seconds_of_parts(own, parts, self._messages, efficiency) for own in (tasks, before)
            ]
        else:
            tasks, on = [*in_parts(tasks, *step)], self.array.interconnect
            parts, before = [RepeatedPart(0, len(tasks))], of_one_micro_batch(tasks)
            measured = [
                seconds_of(own, on, efficiency=efficiency, deadline=self.deadline)
                for own in (tasks, before)
            ]
        often = [times[block] for block in blocks]
        launched = launching(self.problem, workload, self.array, schedule.repeats, often)
        seconds = StepTimes(measured[0], measured[1], launched).of(count)
        return seconds, _computed(tasks, parts) + (count - 1) * _computed(before, parts)

    # Memory

    def memory(self, configuration: Configuration) -> int:
        """Return the bytes of the fullest accelerator in a configuration's step."""
        short, mesh = self._shortened(self._again(configuration)), configuration[:6]
        micro_batch = self.problem.batch // configuration.micro_batches
        recompute = configuration.recompute if short.again or not self.blocks else "none"
        of_maps, batch = (short.lengths, short.again, recompute), self._base
        # Partial sums whose reader has all of them are stored by batch, whatever is split.
        if micro_batch % self._parts_of_batch(mesh, short.lengths):
            batch = micro_batch
        maps = self._maps(mesh, *of_maps, batch)
        weights, reserve = self._weights(mesh, short.lengths, configuration.zero)
        times = np.array((1, *short.times))
        moments = weights.moments + maps.moments * micro_batch // batch
        kept = weights.kept @ times + maps.kept @ times * micro_batch // batch
        return int(kept + moments.max() + reserve)

    def _new_parts_of_batch(self, mesh: Mesh, lengths: Lengths) -> int:
        """Return what the batch has to be divided by for maps to be in proportion to it."""
        program = self._program(mesh, lengths)
        return lcm(*(program.parts(layouts, BATCH) for layouts in {*program.stored}))

    def _maps(self, mesh: Mesh, lengths: Lengths, again: int, recompute: str, batch: int) -> _Held:
        """Return what a mesh holds of maps in a micro-batch."""
        known = self._maps_of.setdefault((lengths, again, recompute, batch), {})
        if mesh not in known:
            holds = self._map_holds(lengths, again, recompute, batch)
            known.update(self._held(self._meshes_with(mesh), lengths, holds))
        return known[mesh]

    def _new_map_holds(
        self, lengths: Lengths, again: int, recompute: str, batch: int
    ) -> HoldArrays:
        one = Configuration(dp_shard=self._base, recompute=recompute)
        holds, _ = self._holds(one, _Short(lengths, again, (), ()), batch)
        return HoldArrays(tuple(holds.of_maps()), len(self.problem.choices), self._hierarchy)

    def _new_weights(self, mesh: Mesh, lengths: Lengths, zero: str) -> tuple[_Held, int]:
        """Return what a mesh holds of weights, and what is reserved."""
        arrays, trained = self._weight_holds(lengths, mesh[0], zero)
        known = self._weights_of.setdefault((lengths, mesh[0], zero), {})
        if mesh not in known:
            known.update(self._held(self._meshes_with(mesh, alike=1), lengths, arrays))
        rows = self._rows(mesh, lengths)
        reserve = reserved_by(self.array.accelerator, trained, rows, self._hierarchy)
        return known[mesh], reserve

    def _new_weight_holds(
        self, lengths: Lengths, dp_replicate: int, zero: str
    ) -> tuple[HoldArrays, Workload]:
        one = Configuration(dp_replicate, self._base // dp_replicate, zero=zero)
        holds, trained = self._holds(one, _Short(lengths, 0, (), ()), self._base)
        problem = self.problem
        bytes_ = WeightBytes.of(
            problem.element_bytes, problem.constraints.optimizer, problem.training.reduce_bytes
        )
        arrays = tuple(holds.of_weights(bytes_)), len(problem.choices), self._hierarchy
        return HoldArrays(*arrays), trained

    def _holds(
        self, configuration: Configuration, short: _Short, batch: int
    ) -> tuple[HoldRules, Workload]:
        """Return what the nodes of a shortened step hold, and its tensors as it trains."""
        network = self._network(short.lengths)
        workload, eb = self._workload(short.lengths, batch), self.problem.element_bytes
        options = self._options(configuration, short)
        repeats = options.repeats(network, workload, eb, fused=self._fused)
        trained = repeated(workload, repeats)
        return HoldRules(network, trained, eb, self._fused, inference=False), trained

    def _held(
        self, meshes: Sequence[Mesh], lengths: Lengths, holds: HoldArrays
    ) -> dict[Mesh, _Held]:
        """Return what meshes hold."""
        blocks = self._blocks(lengths)
        amounts = holds.largest([self._program(mesh, lengths) for mesh in meshes])
        kept = np.zeros((1 + sum(lengths), len(meshes)), np.int64)
        moments = np.zeros((len(blocks), len(meshes)), np.int64)
        for hold, own in zip(holds.holds, amounts.T.astype(np.int64), strict=True):
            for node in hold.layers:
                if hold.tensor in KEPT:
                    kept[blocks[node]] += own
                else:
                    moments[node] += own
        return dict(zip(meshes, map(_Held, kept.T, moments.T), strict=True))

    def _meshes_with(self, mesh: Mesh, *, alike: int = 0) -> list[Mesh]:
        """Return a mesh and the others that may be asked for, of which some degrees are alike."""
        others = (own for own in self.meshes if own[:alike] == mesh[:alike] and own != mesh)
        return [mesh, *others]

    # Bounds

    def launching(self, micro_batches: int) -> float:
        """Return the seconds of so many micro-batches' kernels, if they did nothing.

        No step takes less.
        """
        launch = self.array.accelerator.launch or 0
        workload = self._workload(self._uniform.lengths, self._base)
        launches = sum(
            passes_of(workload, phase) * launches_of(workload, phase, fused=self._fused)
            for phase in phases_of(self.problem)
        )
        often = np.array((1, *self._uniform.times))[self._blocks(self._uniform.lengths)]
        return float(micro_batches * int(launches @ often) * launch) * (1 - _ROUNDING)

    def bounds(self, configurations: Sequence[Configuration]) -> list[float]:
        """Return the seconds of configurations' programs alone, than which no step takes less.

        Raises
        ------
        NoAnswerError
            If the deadline passes.
        """
        bounds = [0.0] * len(configurations)
        alike: dict[int, dict[str, list[int]]] = {}
        for number, one in enumerate(configurations):
            of_batch = alike.setdefault(self.problem.batch // one.micro_batches, {"none": []})
            of_batch.setdefault(one.recompute, []).append(number)
        layers, blocks = self._layers(self._uniform)
        times = np.bincount(layers)
        for batch, by_word in alike.items():
            self.deadline.check()
            every = [configurations[number][:6] for own in by_word.values() for number in own]
            self.meshes.update(every)
            passes = self._passes(batch, "none", every)
            once = {mesh: (own.forward + own.backward) @ times for mesh, own in passes.items()}
            for word, numbers in by_word.items():
                passes = self._passes(batch, word, [configurations[n][:6] for n in numbers])
                for number in numbers:
                    one = configurations[number]
                    often = np.bincount(layers, self._runs_again(one, blocks))
                    seconds = once[one[:6]] + passes[one[:6]].again @ often
                    bounds[number] = float(seconds) * one.micro_batches * (1 - _ROUNDING)
        return bounds

    def bound(self, configuration: Configuration) -> float:
        """Return a lower bound on the seconds of a step: of its program, and of its queue.

        No micro-batch takes less than its program up to the visit of a layer in a pass, and all
        that its queue is given from there on, one exchange after the other.
        """
        # Gradients may be in several queues; without blocks each layer would be a unit.
        if self._is_branched or not self._counts:
            return self.bounds([configuration])[0]
        mesh, count = configuration[:6], configuration.micro_batches
        passes = self._passes(self.problem.batch // count, configuration.recompute, [mesh])[mesh]
        layers, blocks = self._layers(self._uniform)
        again = np.where(self._runs_again(configuration, blocks), passes.again[layers], 0)
        visits = passes.forward[layers], (passes.backward[layers] + again)[::-1]
        # Either pass has a start, before its layers.
        begun = np.cumsum(np.concatenate([[0.0], visits[0], [0.0, 0.0], visits[1]]))
        last, before = (queue.least(begun) for queue in self._queues(mesh, configuration.zero))
        return (last + (count - 1) * before) * (1 - _ROUNDING)

    def _least_of(self, workload: Workload) -> TimeCost:
        """Return what the tensors of a step cost at least."""
        cost = TimeCost.from_problem(self.problem, workload)
        return least_of(cost, self.array, RunOptions().on(self.array)[1])

    @cached_property
    def _uniform(self) -> _Short:
        return self._shortened(0)

    def _new_layers(self, short: _Short) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the place of each layer of a whole step among those of a shortened one.

        And the number of its block, from 0; -1 outside of all.
        """
        first, begun = self._workload(short.lengths, self._base).shared, 0
        of_layers = self._blocks(short.lengths)[first:].tolist()
        layers: list[int] = []
        blocks: list[int] = []
        for block, own in groupby(range(len(of_layers)), of_layers.__getitem__):
            places, times = [*own], short.times[block - 1] if block else 1
            layers += places * times
            for number in range(begun, begun + times):
                blocks += [number if block else -1] * len(places)
            begun += times if block else 0
        return np.array(layers), np.array(blocks)

    def _runs_again(
        self, configuration: Configuration, blocks: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Return which layers are among those that are computed again, given their blocks."""
        if configuration.recompute == "none" or configuration.blocks is None:
            return np.full(len(blocks), configuration.recompute != "none")
        runs_again: NDArray[np.bool_] = (blocks >= 0) & (blocks < configuration.blocks)
        return runs_again

    def _queues(self, mesh: Mesh, zero: str) -> tuple[Queue, Queue]:
        """Return the queues of the last micro-batch, and of one before it."""
        if (mesh, zero) not in self._queues_of:
            meshes = self._meshes_with(mesh, alike=1)
            queues = queues_of(*self._of_queue(zero, meshes), self._visits)
            for number, own in enumerate(meshes):
                self._queues_of[own, zero] = queues[number]
        return self._queues_of[mesh, zero]

    @cached_property
    def _visits(self) -> Visits:
        lengths = self._uniform.lengths
        return Visits(
            *self._layers(self._uniform),
            self._places(lengths),
            self._blocks(lengths),
            self._bucket_ends,
            RunOptions().on(self.array)[1],
        )

    def _of_queue(
        self, zero: str, meshes: Sequence[Mesh]
    ) -> tuple[list[QueueExchanges], NDArray[np.float64]]:
        """Return the exchanges of the queue, of nodes in meshes of one degree of replication.

        And the seconds in which these update all weights: ``(meshes,)``.
        """
        lengths = self._uniform.lengths
        _, workload = self._weight_holds(lengths, meshes[0][0], zero)
        cost = self._least_of(workload)
        phases = Phase.GRADIENT in cost.communication.phases and (Phase.GRADIENT,)
        communication = replace(cost.communication, phases=phases or (), longest=cost.longest)
        cost = replace(cost, communication=communication, latencies=None, longest=False)
        rows = np.array([self._rows(mesh, lengths) for mesh in meshes], np.intp)
        states, nodes = rows.transpose(1, 2, 0), np.arange(len(workload.nodes))[:, None]
        levels, shape = len(states), states.shape[1:]
        together: dict[tuple[str, bool], list[Collective]] = {}
        for own in cost.rules(workload, levels).node(nodes, [states]):
            stages = ZERO_STAGES[COLLECTIVES[own.group][-1]]
            each = any(
                stage.each_micro_batch and stage.weights == (own.tensor == "weights")
                for stage in stages
            )
            together.setdefault((own.tensor, each), []).append(
                own._replace(
                    quarters=own.quarters // np.maximum(own.times, 1),
                    times=np.minimum(own.times, 1),
                )
            )
        queued = []
        for key, exchanges in together.items():
            charged = [
                np.broadcast_to(
                    added_up(cost.charges(of, workload, nodes, shape, levels)), shape
                ).astype(np.float64)
                / cost.per_unit
                for of in (exchanges, [own._replace(times=0) for own in exchanges])
            ]
            whole, seconds = charged
            queued.append(QueueExchanges(*key, seconds, whole - seconds))
        updates = np.zeros(len(meshes))
        if phases and cost.work is not None:
            per_unit = cost.per_unit * cost.price
            updated = cost.work.charges_of_update(workload, nodes, [states], per_unit)
            times = np.array((1, *self._uniform.times))[self._blocks(lengths)]
            updates = times @ np.broadcast_to(updated, shape).astype(np.float64) / cost.per_unit
        return queued, updates

    def _new_places(self, lengths: Lengths) -> NDArray[np.intp]:
        """Return the place among the layers at which each node is scheduled, last backward.

        What is stored, and what layers share, is so with one of them.
        """
        workload = self._workload(lengths, self._base)
        places = np.arange(len(workload.nodes)) - workload.shared
        for node, users in workload.weight_users.items():
            places[node] = places[min(users)]
        for node, writer in workload.tensor_writers.items():
            places[node] = places[writer]
        return places

    @cached_property
    def _bucket_ends(self) -> NDArray[np.intp]:
        """The layer with which the bucket of each layer's gradient is complete: ``(layers,)``.

        Of two gradients with a layer it is that of the first bucket.
        """
        workload, places = self._workload(self._counts, self._base), self._places(self._counts)
        ends = np.full(len(workload.nodes) - workload.shared, -1)
        for bucket in buckets_of(workload, self.array.bucket_elements(self.problem.element_bytes)):
            for node in bucket:
                ends[places[node]] = max(ends[places[node]], places[bucket[-1]])
        return ends

    def _passes(self, batch: int, recompute: str, meshes: Sequence[Mesh]) -> dict[Mesh, _Passes]:
        """Return the seconds of a micro-batch's program, by mesh."""
        forward, *others = phases_of(self.problem)
        of_words = {"none": ((forward,), tuple(others))}
        of_words.setdefault(recompute, ((forward,),))
        for word, passes in of_words.items():
            known = self._seconds_of[batch, word]
            if missing := [*dict.fromkeys(mesh for mesh in meshes if mesh not in known)]:
                charged = self._of_program(batch, word, passes, missing)
                known.update(zip(missing, charged, strict=True))
        once, again = (self._seconds_of[batch, word] for word in ("none", recompute))
        return {mesh: _Passes(*once[mesh], again[mesh][0] - once[mesh][0]) for mesh in meshes}

    def _of_program(
        self,
        batch: int,
        recompute: str,
        passes: Sequence[tuple[Phase, ...]],
        meshes: Sequence[Mesh],
    ) -> NDArray[np.float64]:
        """Return the seconds of each layer in some passes of a micro-batch's program.

        Returns
        -------
        (meshes, passes, layers)
        """
        short = self._uniform
        again = 0 if recompute == "none" else len(short.times)
        workload = self._workload(short.lengths, batch)
        one = Configuration(dp_shard=self._base, recompute=recompute)
        options = self._options(one, short._replace(again=again))
        network = self._network(short.lengths)
        repeats = repeats_on(network, self.problem, workload, self.array, options)
        again_of = Repeats(again=repeats.again, by_op=repeats.by_op)
        workload = repeated(workload, again_of)
        cost = self._least_of(workload)
        assert cost.work is not None
        # How much of the update there is depends on what is sharded.
        chip = cost.work.accelerator.model_copy(update={"update": None})
        cost = replace(cost, work=replace(cost.work, accelerator=chip))
        rows = np.array([self._rows(mesh, short.lengths) for mesh in meshes], np.intp)
        states, ends, places = rows.transpose(1, 2, 0), workload.ends.T, self._places(short.lengths)
        # Nodes of one kind are charged alike, and boundaries, in the same states.
        weights = len(workload.choices) ** np.arange(len(states))
        numbers = np.unique(np.tensordot(weights, states, 1), return_inverse=True)[1]
        numbers = numbers.reshape(states.shape[1:])
        nodes, meshes_of, all_nodes = _alike(kinds_of_nodes(workload).numbers, numbers)
        of_nodes = [states[:, nodes, meshes_of]]
        edges, meshes_of, all_edges = _alike(kinds_of_boundaries(workload).numbers, *numbers[ends])
        at_ends = [[states[:, end[edges], meshes_of]] for end in ends]
        seconds = np.zeros((len(passes), len(numbers) - workload.shared, len(meshes)))
        for of_pass, phases in zip(seconds, passes, strict=True):
            communication = replace(cost.communication, phases=phases)
            program = OverlapTime.of(replace(cost, communication=communication), workload)
            program = program.attributed
            if self._is_branched:  # any exchange may be hidden
                charged = [([program.compute(workload, nodes, of_nodes)], all_nodes, places)]
            else:
                between = program.edge(workload, edges, *at_ends)
                charged = [
                    (program.node(workload, nodes, of_nodes), all_nodes, places),
                    (between, all_edges, places[ends[1]]),
                ]
            for charges, every, at in charged:
                amounts = np.broadcast_to(added_up(charges), every.max() + 1).astype(np.float64)
                np.add.at(of_pass, at, amounts[every] / program.per_unit)
        return seconds.transpose(2, 0, 1)


def _alike(
    kinds: NDArray[np.intp], *numbers: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return one of all that have a kind and some numbers, and the place of each among these.

    Parameters
    ----------
    kinds : (things,)
    numbers : (things, meshes)

    Returns
    -------
    things, meshes : (alike,)
    places : (things, meshes)
    """
    keys = np.broadcast_to(kinds[:, None], numbers[0].shape)
    for own in numbers:
        keys = keys * (own.max(initial=0) + 1) + own
    _, first, places = np.unique(keys, return_index=True, return_inverse=True)
    things, meshes = np.unravel_index(first, keys.shape)
    return things, meshes, places.reshape(keys.shape)


def rows_by_mesh(
    instance: Instance,
) -> Callable[[Configuration], tuple[tuple[int, ...], ...] | None]:
    """Return what gives the choices of all nodes in a configuration: ``(levels, nodes)``.

    None where the problem lacks one of them, or its constraints forbid them.
    """
    network, workload = instance.network, instance.workload
    hierarchy = instance.problem.hierarchy

    @cache
    def of_mesh(mesh: Mesh) -> tuple[tuple[int, ...], ...] | None:
        try:
            rows = rows_of(Configuration(*mesh), network, workload, hierarchy)
        except ValueError:
            return None
        allows = instance.constraints.allow([row[workload.shared :] for row in rows])
        return tuple(rows) if allows else None

    return lambda configuration: of_mesh(configuration[:6])


def search_degrees(
    network: Network,
    problem: Problem,
    *,
    count: int = 10,
    choices: tuple[str, ...] | None = None,
    fixed: Mapping[str, Any] | None = None,
    allowed: Allowed | None = None,
    accepted: Allowed | None = None,
    early_stop: bool = False,
    below: float = inf,
    by_events: bool = True,
    deadline: Deadline = NEVER,
    progress: Progress = silent,
) -> Searched:
    """Return the configurations that fit an array's memory and take the least time, exactly.

    Of full recomputation as many blocks are computed again as it takes to fit: the memory of a step
    falls with each of them, and its time does not.

    Parameters
    ----------
    problem
        With an array; its batch, optimizer, and memory, if stated, are used.
    count
        How many.
    choices
        Those that plans have, as of an `Evaluator`.
    fixed
        The only values of some fields, as `hypar_opt.plan.configuration.family` takes them.
    allowed
        Which configurations are considered; None for all.
    accepted
        Which of those that would be among the fastest are, asked of these alone; None for all.
    early_stop
        Whether blocks that run again stop at the last tensor that a backward pass reads.
    below
        The seconds of which a configuration has to take less.
    by_events
        Whether steps of accelerators out of lockstep are simulated, one by one.

    Raises
    ------
    NotInLockstepError
        If they are not, and one of these may be the fastest.
    """
    evaluator = Evaluator(
        network,
        problem,
        choices=choices,
        early_stop=early_stop,
        by_events=by_events,
        kv_replicated="tp" in (fixed or {}),
        deadline=deadline,
    )
    best: list[tuple[float, int, float, int, Evaluated]] = []
    candidates: list[Candidate] = []
    bounds: dict[int, float] = {}
    # By the bound of each: of its kernels' launches, with others; of its program; with its queue.
    order: list[tuple[float, int, int]] = []
    alike: dict[int, list[int]] = {}
    simulated, complete = 0, False
    for considered in _considered(evaluator, fixed, allowed):
        by_count: dict[int, list[int]] = {}
        for number, candidate in enumerate(considered.fitting, len(candidates)):
            by_count.setdefault(candidate.configuration.micro_batches, []).append(number)
        candidates += considered.fitting
        try:
            for micro_batches, numbers in by_count.items():
                alike[numbers[0]] = numbers
                heappush(order, (evaluator.launching(micro_batches), numbers[0], 0))
            until = NEVER if considered.complete else deadline.part(1 / 2)
            while order and not until.passed():
                slowest = best[-1][0] if len(best) == count else below
                if order[0][0] >= slowest:
                    break
                bound, number, bounded = heappop(order)
                one = candidates[number].configuration
                if bounded == 0:
                    numbers = alike[number]
                    ones = [candidates[number].configuration for number in numbers]
                    bounds.update(zip(numbers, evaluator.bounds(ones), strict=True))
                    for number in numbers:
                        heappush(order, (bounds[number], number, 1))
                    continue
                if bounded == 1:
                    heappush(order, (max(bound, evaluator.bound(one)), number, 2))
                    continue
                progress(simulated, len(candidates))
                evaluated = evaluator.evaluate(one)
                better = evaluated.seconds < below and evaluated.seconds <= slowest
                if better and (accepted is None or accepted(one)):
                    rank = evaluated.seconds, evaluated.memory, bounds[number], number
                    best = sorted([*best, (*rank, evaluated)])[:count]
                simulated += 1
            complete = considered.complete
        except NoAnswerError:  # a limit
            break
    progress(len(candidates), len(candidates))
    least = () if best else tuple(considered.least)
    counts = considered.considered, considered.fits, simulated
    return Searched(tuple(own for *_, own in best), *counts, least, complete)


def all_that_fit(
    network: Network,
    problem: Problem,
    *,
    fixed: Mapping[str, Any] | None = None,
    allowed: Allowed | None = None,
    early_stop: bool = False,
    deadline: Deadline = NEVER,
    progress: Progress = silent,
) -> list[Evaluated]:
    """Return all configurations that fit, or those until a deadline, as `search_degrees` does."""
    evaluator = Evaluator(
        network,
        problem,
        early_stop=early_stop,
        kv_replicated="tp" in (fixed or {}),
        deadline=deadline,
    )
    evaluated: list[Evaluated] = []
    with suppress(NoAnswerError):  # a limit
        for considered in _considered(evaluator, fixed, allowed):
            for own in considered.fitting:
                progress(len(evaluated), considered.fits)
                evaluated.append(evaluator.evaluate(own.configuration))
    progress(len(evaluated), len(evaluated))
    return evaluated


class _Considered(NamedTuple):
    """The configurations of a family that were considered so far.

    Parameters
    ----------
    considered, fits
        How many there are, and fit.
    fitting
        Those among which the fastest is, without those of the parts before.
    least
        The three that need the least memory.
    complete
        Whether these are all.
    """

    considered: int
    fits: int
    fitting: list[Candidate]
    least: list[Candidate]
    complete: bool


def _considered(
    evaluator: Evaluator, fixed: Mapping[str, Any] | None, allowed: Allowed | None
) -> Iterator[_Considered]:
    """Yield the configurations that are considered, and which of them fit.

    Under a deadline in parts, each in some of the time that is left.
    """
    count = fits = 0
    fitting: list[Candidate] = []
    least: list[Candidate] = []
    until = evaluator.deadline.part(_CONSIDERING)
    saves_all: set[Configuration] = set()  # that fit
    in_fewer: set[tuple[Mesh, str]] = set()  # micro-batches that fit
    configurations = [
        one
        for one in family(
            evaluator.network, evaluator.problem, fixed=fixed, recompute=evaluator.policies
        )
        if allowed is None or allowed(one)
    ]
    evaluator.meshes.update(one[:6] for one in configurations)
    if evaluator.deadline.left() is not None:
        # The best ones are mostly among those that divide the batch most.
        configurations.sort(key=lambda one: one.dp_replicate * one.cp * one.tp)
    for one in configurations:
        if until.passed() and (fitting or evaluator.deadline.passed()):
            yield _Considered(count, fits, fitting, least, complete=False)
            if evaluator.deadline.passed():
                return
            until, fitting = evaluator.deadline.part(_CONSIDERING), []
        count += 1
        memory = evaluator.memory(one)
        least = sorted([*least, Candidate(one, memory)], key=lambda own: own.memory)[:3]
        if not evaluator.fits(one, memory):
            continue
        fits += 1
        if one.recompute == "none":
            saves_all.add(one)
            # Without blocks that run again more micro-batches gain nothing.
            if not evaluator.blocks and (one[:6], one.zero) in in_fewer:
                continue
            in_fewer.add((one[:6], one.zero))
        elif one._replace(recompute="none") in saves_all:
            continue
        else:
            one, memory = _least_again(evaluator, one, memory, allowed)
        fitting.append(Candidate(one, memory))
    yield _Considered(count, fits, fitting, least, complete=True)


def _least_again(
    evaluator: Evaluator, one: Configuration, memory: int, allowed: Allowed | None
) -> Candidate:
    """Return a configuration that fits with as few blocks computed again as it takes to fit."""
    below, enough = 0, evaluator.blocks
    whole = best = Candidate(one, memory)
    while enough - below > 1:
        middle = (below + enough) // 2
        fewer = one._replace(blocks=middle)
        memory = evaluator.memory(fewer)
        if evaluator.fits(fewer, memory):
            enough, best = middle, Candidate(fewer, memory)
        else:
            below = middle
    return best if allowed is None or allowed(best.configuration) else whole


def _computed(tasks: Sequence[Task], parts: Sequence[RepeatedPart]) -> float:
    """Return the seconds in which a step's parts compute."""
    return sum(
        times * sum(task.seconds for task in tasks[first:end] if isinstance(task, ComputeTask))
        for first, end, times in parts
    )
