"""The best configurations of a network on an array: exact seconds and bytes of many.

Memory is counted once for a mesh of accelerators, and is linear in the micro-batch. Only
configurations whose lower bounds are below the best known steps are simulated.

Source: docs/collectives.md; docs/memory.md for what is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from heapq import heappop, heappush
from itertools import groupby
from math import inf, lcm
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import NoAnswerError
from hypar_opt.plan.configuration import Configuration, family, rows_of
from hypar_opt.search.result import Progress, silent
from hypar_opt.search.short_steps import Lengths, Mesh, ShortStep
from hypar_opt.search.step_bounds import StepBounds
from hypar_opt.sharding.layouts import BATCH
from hypar_opt.simulator.lockstep import NotInLockstepError
from hypar_opt.simulator.memory import reserved_by
from hypar_opt.simulator.repeated_parts import Messages, RepeatedPart, seconds_of_parts
from hypar_opt.simulator.step import StepTimes, in_parts, launching, schedule_of
from hypar_opt.simulator.tasks import ComputeTask, before_last_micro_batch
from hypar_opt.step.holds import KEPT, HoldArrays, HoldRules, WeightBytes
from hypar_opt.units import format_bytes, format_si

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.instance.instance import Instance
    from hypar_opt.plan.problem import Problem
    from hypar_opt.simulator.tasks import Task
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload

Allowed = Callable[[Configuration], bool]
_CONSIDERING = 1 / 4
"""The share of the remaining time in which configurations are considered before some are
evaluated."""


class Evaluated(NamedTuple):
    """A configuration, with its time and memory in a training step.

    Parameters
    ----------
    seconds
        The duration of a step of the whole batch, as simulated by `hypar_opt.simulate`.
    memory
        The bytes of the fullest accelerator, including its reserve.
    exposed
        The share of the step in which accelerators wait for exchanges; None with stages, where it
        is not computed.
    bubble
        With stages, the mean share of the step in which they neither compute nor reduce.
    """

    configuration: Configuration
    seconds: float
    memory: int
    exposed: float | None
    bubble: float = 0.0

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
    """A configuration, and the bytes of the fullest accelerator, including its reserve."""

    configuration: Configuration
    memory: int


class Searched(NamedTuple):
    """The result of a search over configurations.

    Parameters
    ----------
    best
        The configurations that fit and take the least time, the fastest first.
    considered, fitting, simulated
        The numbers of configurations, of those that fit the memory, and of those that were
        simulated: the others take longer than the last of ``best``. With stages only those that
        were simulated are known to fit, and ``fitting`` is None.
    smallest
        The three configurations that need the least memory, if none fits.
    complete
        Whether all were searched before the deadline.
    """

    best: tuple[Evaluated, ...]
    considered: int
    fitting: int | None
    simulated: int
    smallest: tuple[Candidate, ...]
    complete: bool = True


class HeldBytes(NamedTuple):
    """Bytes of the fullest accelerator.

    Parameters
    ----------
    kept : (1 + blocks,)
        Held throughout, or from a forward to a backward pass: outside all blocks, and in each.
    transient : (nodes,)
        Held while each layer runs.
    """

    kept: NDArray[np.int64]
    transient: NDArray[np.int64]


class Evaluator(StepBounds):
    """Seconds and bytes of configurations of a network with blocks on equal accelerators.

    Parameters
    ----------
    by_events
        Whether steps of accelerators out of lockstep are simulated; else they are refused. Other
        parameters are those of `StepBounds`.
    """

    def __init__(
        self, network: Network, problem: Problem, *, by_events: bool = True, **steps: Any
    ) -> None:
        super().__init__(network, problem, **steps)
        self.by_events = by_events
        self._capacity = int(self.array.accelerator.dram_capacity)
        self._messages = Messages(self.array.interconnect)
        self._map_holds = cache(self._new_map_holds)
        self._weight_holds, self._weights = cache(self._new_weight_holds), cache(self._new_weights)
        self._parts_of_batch = cache(self._new_parts_of_batch)
        self._has_loads = any(getattr(layer, "load", None) for layer in network.layers)
        self._maps_of: dict[tuple[Lengths, int, str, int], dict[Mesh, HeldBytes]] = {}
        self._weights_of: dict[tuple[Lengths, int, str], dict[Mesh, HeldBytes]] = {}

    def fits(self, configuration: Configuration, memory: int) -> bool:
        """Return whether a configuration's step fits an accelerator and the stated memory.

        A stated memory is for tensors alone; the accelerator's reserve is not part of it.

        Parameters
        ----------
        memory
            Its bytes, including the reserve.
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
        """Return the time and memory of a training step of a configuration.

        Raises
        ------
        NoAnswerError
            If the deadline passes.
        """
        self.deadline.check()
        seconds, computed = self._seconds(configuration)
        memory = self.memory(configuration)
        return Evaluated(configuration, seconds, memory, 1 - computed / seconds)

    # Seconds

    def _seconds(self, configuration: Configuration) -> tuple[float, float]:
        """Return the seconds of a step, and those that it computes."""
        if not self.is_branched:
            try:
                last = self._last_alone(configuration.zero)
                short = self._shortened(self._again(configuration), last)
                return self._measured(configuration, short)
            except NotInLockstepError:
                if not self.by_events:
                    raise
                # Each accelerator is simulated, and each repetition
        return self._measured(configuration, None)

    def _measured(
        self, configuration: Configuration, short: ShortStep | None
    ) -> tuple[float, float]:
        """Return the seconds of a step, and those that it computes.

        Parameters
        ----------
        short
            Its repetitions, if accelerators are in lockstep; None to simulate all by events.
        """
        in_lockstep, count = short is not None, configuration.micro_batches
        if short is None:
            once = (1,) * self.blocks
            short = ShortStep(self._counts, self._again(configuration), (0,) * len(once), once)
        network = self._network(short.lengths)
        workload = self._workload(short.lengths, self.problem.batch // count)
        options = self._options(configuration, short)
        rows = self._rows(configuration[:6], short.lengths)
        step = self.problem, workload, self.array, options, rows
        schedule = schedule_of(network, *step)
        blocks, times = self._blocks(short.lengths).tolist(), (1, *short.times)
        tasks: list[Task] = []
        parts = []
        visits = (
            (blocks[node], tasks_of_node)
            for node, tasks_of_node in schedule.visits()
            if tasks_of_node
        )
        for block, of_block in groupby(visits, key=itemgetter(0)):
            first = len(tasks)
            for _, tasks_of_node in of_block:
                tasks += tasks_of_node
            parts.append(RepeatedPart(first, len(tasks), times[block]))
        efficiency = self.array.efficiency_of_overlap
        if in_lockstep:
            run = partial(seconds_of_parts, parts=parts, messages=self._messages)
        else:
            from hypar_opt.simulator.run import seconds_of  # whose packages take long to import

            tasks = [*in_parts(tasks, *step)]
            parts = [RepeatedPart(0, len(tasks))]
            run = partial(seconds_of, interconnect=self.array.interconnect, deadline=self.deadline)
        before = before_last_micro_batch(tasks) if count > 1 else []
        last, rest = (run(sequence, efficiency=efficiency) for sequence in (tasks, before))
        often = [times[block] for block in blocks]
        launched = launching(self.problem, workload, self.array, schedule.repeats, often)
        seconds = StepTimes(last, rest, launched).of(count)
        return seconds, _computed(tasks, parts) + (count - 1) * _computed(before, parts)

    # Memory

    def memory(self, configuration: Configuration) -> int:
        """Return the bytes of the fullest accelerator in a configuration's step."""
        ((_, memory),) = self.candidates([configuration])
        return memory

    def candidates(self, configurations: Sequence[Configuration]) -> list[Candidate]:
        """Return the memory of configurations whose steps repeat as many blocks, or all or none."""
        rows = []
        for one in configurations:
            short, mesh = self._shortened(self._again(one)), one[:6]
            micro_batch = self.problem.batch // one.micro_batches
            recompute = one.recompute if short.again or not self.blocks else "none"
            policy, batch = (short.lengths, short.again, recompute), self._base
            # Partial sums whose reader needs all of them are stored by batch, whatever is split.
            if micro_batch % self._parts_of_batch(mesh, short.lengths):
                batch = micro_batch
            if self._has_loads:  # shares of tokens are rounded
                batch = micro_batch
            weights, reserve = self._weights(mesh, short.lengths, one.zero)
            maps = self._maps(mesh, *policy, batch)
            rows.append((*weights, *maps, (1, *short.times), micro_batch, batch, reserve))
        columns = map(np.array, zip(*rows, strict=True))
        totals, transient, kept_maps, of_maps, times, parts, wholes, reserves = columns
        totals = (totals * times).sum(1) + (kept_maps * times).sum(1) * parts // wholes
        transient = transient.T + of_maps.T * parts // wholes
        return [*map(Candidate, configurations, (totals + transient.max(0) + reserves).tolist())]

    def _new_parts_of_batch(self, mesh: Mesh, lengths: Lengths) -> int:
        """Return by what the batch must be divisible for maps to be in proportion to it."""
        program = self._program(mesh, lengths)
        return lcm(*(program.parts(layouts, BATCH) for layouts in {*program.stored}))

    def _maps(
        self, mesh: Mesh, lengths: Lengths, again: int, recompute: str, batch: int
    ) -> HeldBytes:
        """Return the bytes of maps that a mesh holds for a micro-batch."""
        cache = self._maps_of.setdefault((lengths, again, recompute, batch), {})
        if mesh not in cache:
            holds = self._map_holds(lengths, again, recompute, batch)
            meshes = [
                other for other in self._meshes_with(mesh) if not batch % (other[0] * other[1])
            ]
            cache.update(self._mesh_bytes(meshes, lengths, holds))
        return cache[mesh]

    def _new_map_holds(
        self, lengths: Lengths, again: int, recompute: str, batch: int
    ) -> HoldArrays:
        one = Configuration(dp_shard=self._base, recompute=recompute)
        holds, _ = self._holds(one, ShortStep(lengths, again, (), ()), batch)
        return HoldArrays(tuple(holds.of_maps()), len(self.problem.choices), self._hierarchy)

    def _new_weights(self, mesh: Mesh, lengths: Lengths, zero: str) -> tuple[HeldBytes, int]:
        """Return the bytes of weights that a mesh holds, and its reserve."""
        arrays, trained = self._weight_holds(lengths, mesh[0], zero)
        cache = self._weights_of.setdefault((lengths, mesh[0], zero), {})
        if mesh not in cache:
            cache.update(self._mesh_bytes(self._meshes_with(mesh, degrees=1), lengths, arrays))
        rows = self._rows(mesh, lengths)
        reserve = reserved_by(self.array.accelerator, trained, rows)
        return cache[mesh], reserve

    def _new_weight_holds(
        self, lengths: Lengths, dp_replicate: int, zero: str
    ) -> tuple[HoldArrays, Workload]:
        one = Configuration(dp_replicate, self._base // dp_replicate, zero=zero)
        holds, trained = self._holds(one, ShortStep(lengths, 0, (), ()), self._base)
        problem = self.problem
        bytes_ = WeightBytes.of(
            problem.element_bytes, problem.constraints.optimizer, problem.training.reduce_bytes
        )
        arrays = tuple(holds.of_weights(bytes_)), len(problem.choices), self._hierarchy
        return HoldArrays(*arrays), trained

    def _holds(
        self, configuration: Configuration, short: ShortStep, batch: int
    ) -> tuple[HoldRules, Workload]:
        """Return what nodes of a shortened step hold, and its tensors with their repetitions."""
        trained = self._trained(configuration, short, batch)
        step = self._network(short.lengths), trained, self.problem.element_bytes, self._fused
        return HoldRules(*step, inference=False), trained

    def _mesh_bytes(
        self, meshes: Sequence[Mesh], lengths: Lengths, holds: HoldArrays
    ) -> dict[Mesh, HeldBytes]:
        """Return the bytes that meshes hold."""
        blocks = self._blocks(lengths)
        amounts = holds.largest([self._program(mesh, lengths) for mesh in meshes])
        persistent = np.zeros((1 + sum(lengths), len(meshes)), np.int64)
        transient = np.zeros((len(blocks), len(meshes)), np.int64)
        for hold, column in zip(holds.holds, amounts.T.astype(np.int64), strict=True):
            for node in hold.layers:
                if hold.tensor in KEPT:
                    persistent[blocks[node]] += column
                else:
                    transient[node] += column
        return dict(zip(meshes, map(HeldBytes, persistent.T, transient.T), strict=True))


def rows_by_mesh(
    instance: Instance,
) -> Callable[[Configuration], tuple[tuple[int, ...], ...] | None]:
    """Return a function from configurations to the choices of all nodes, ``(levels, nodes)``.

    It returns None if the problem lacks one of them, or its constraints forbid them.
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
    cutoff: float = inf,
    by_events: bool = True,
    deadline: Deadline = NEVER,
    progress: Progress = silent,
) -> Searched:
    """Return the configurations that fit an array's memory and take the least time, exactly.

    With full recomputation, as few blocks are recomputed as it takes to fit: each recomputed block
    reduces the memory of a step, and none reduces its time.

    Parameters
    ----------
    problem
        Has an array; its batch, optimizer, and memory, if stated, are used.
    count
        The number of configurations to return.
    choices
        The choices that plans have, as for an `Evaluator`.
    fixed
        The only values of some fields, as `hypar_opt.plan.configuration.family` takes them.
    allowed
        Which configurations are considered; None for all.
    accepted
        Whether a configuration that would be among the fastest is accepted; called for these alone.
        None accepts all.
    early_stop
        Whether recomputation of blocks stops at the last tensor that a backward pass reads.
    cutoff
        Configurations have to take less than these seconds.
    by_events
        Whether steps of accelerators out of lockstep are simulated, one by one.

    Raises
    ------
    NotInLockstepError
        If they are not, and one of them may be the fastest.
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
    # By increasingly tight bounds: launches of kernels, for all with equally many micro-batches;
    # the program; the program and its queue.
    order: list[tuple[float, int, int]] = []
    groups: dict[int, list[int]] = {}
    simulated, complete = 0, False
    for considered in _considered(evaluator, allowed, fixed):
        by_count: dict[int, list[int]] = {}
        for number, candidate in enumerate(considered.fitting, len(candidates)):
            by_count.setdefault(candidate.configuration.micro_batches, []).append(number)
        candidates += considered.fitting
        try:
            for micro_batches, numbers in by_count.items():
                groups[numbers[0]] = numbers
                heappush(order, (evaluator.launching(micro_batches), numbers[0], 0))
            until = NEVER if considered.complete else deadline.part(1 / 2)
            while order and not until.passed():
                slowest = best[-1][0] if len(best) == count else cutoff
                if order[0][0] >= slowest:
                    break
                bound, number, bounded = heappop(order)
                configuration = candidates[number].configuration
                if bounded == 0:
                    numbers = groups[number]
                    configurations = [candidates[number].configuration for number in numbers]
                    bounds.update(zip(numbers, evaluator.bounds(configurations), strict=True))
                    for number in numbers:
                        heappush(order, (bounds[number], number, 1))
                    continue
                if bounded == 1:
                    heappush(order, (max(bound, evaluator.bound(configuration)), number, 2))
                    continue
                progress(simulated, len(candidates))
                evaluated = evaluator.evaluate(configuration)
                better = evaluated.seconds < cutoff and evaluated.seconds <= slowest
                if better and (accepted is None or accepted(configuration)):
                    rank = evaluated.seconds, evaluated.memory, bounds[number], number
                    best = sorted([*best, (*rank, evaluated)])[:count]
                simulated += 1
            complete = considered.complete
        except NoAnswerError:  # a limit
            break
    progress(len(candidates), len(candidates))
    smallest = () if best else tuple(considered.smallest)
    counts = considered.considered, considered.fits, simulated
    return Searched(tuple(evaluated for *_, evaluated in best), *counts, smallest, complete)


def fitting_configurations(
    network: Network,
    problem: Problem,
    *,
    fixed: Mapping[str, Any] | None = None,
    allowed: Allowed | None = None,
    deadline: Deadline = NEVER,
    progress: Progress = silent,
) -> list[Evaluated]:
    """Return all configurations that fit, or those found before a deadline; as `search_degrees`."""
    kv_replicated = "tp" in (fixed or {})
    evaluator = Evaluator(network, problem, kv_replicated=kv_replicated, deadline=deadline)
    evaluated: list[Evaluated] = []
    with suppress(NoAnswerError):  # a limit
        for considered in _considered(evaluator, allowed, fixed):
            for candidate in considered.fitting:
                progress(len(evaluated), considered.fits)
                evaluated.append(evaluator.evaluate(candidate.configuration))
    progress(len(evaluated), len(evaluated))
    return evaluated


class _Considered(NamedTuple):
    """The configurations of a family that were considered so far.

    Parameters
    ----------
    considered, fits
        The numbers of configurations considered, and that fit.
    fitting
        New configurations among which the fastest may be.
    smallest
        The three that need the least memory.
    complete
        Whether all have been considered.
    """

    considered: int
    fits: int
    fitting: list[Candidate]
    smallest: list[Candidate]
    complete: bool


def _considered(
    evaluator: Evaluator, allowed: Allowed | None, fixed: Mapping[str, Any] | None
) -> Iterator[_Considered]:
    """Yield the configurations that are considered, and which of them fit.

    With a deadline they come in parts, each considered in some of the remaining time.

    Parameters
    ----------
    fixed
        As `hypar_opt.plan.configuration.family` takes it.
    """
    count = fits = 0
    fitting: list[Candidate] = []
    smallest: list[Candidate] = []
    until = evaluator.deadline.part(_CONSIDERING)
    saves_all: set[Configuration] = set()  # that fit
    saved_meshes: set[tuple[Mesh, str]] = set()  # micro-batches that fit
    network, problem = evaluator.network, evaluator.problem
    every_configuration = family(network, problem, fixed=fixed, recompute=evaluator.policies)
    configurations = [one for one in every_configuration if allowed is None or allowed(one)]
    evaluator.meshes.update(one[:6] for one in configurations)
    if evaluator.deadline.left() is not None:
        # The best configurations mostly divide the batch most.
        configurations.sort(key=lambda one: one.dp_replicate * one.cp * one.tp)
    considered = (
        candidate
        for _, of_mesh in groupby(configurations, key=lambda one: one[:6])
        for candidate in evaluator.candidates([*of_mesh])
    )
    for one, memory in considered:
        if until.passed() and (fitting or evaluator.deadline.passed()):
            yield _Considered(count, fits, fitting, smallest, complete=False)
            if evaluator.deadline.passed():
                return
            until, fitting = evaluator.deadline.part(_CONSIDERING), []
        count += 1
        if len(smallest) < 3 or memory < smallest[-1].memory:
            smallest = sorted(
                [*smallest, Candidate(one, memory)], key=lambda candidate: candidate.memory
            )[:3]
        if not evaluator.fits(one, memory):
            continue
        fits += 1
        if one.recompute == "none":
            saves_all.add(one)
            # Without recomputation of blocks more micro-batches gain nothing.
            if not evaluator.blocks and (one[:6], one.zero) in saved_meshes:
                continue
            saved_meshes.add((one[:6], one.zero))
        elif one._replace(recompute="none") in saves_all:
            continue
        else:
            one, memory = _least_recomputation(evaluator, one, memory, allowed)
        fitting.append(Candidate(one, memory))
    yield _Considered(count, fits, fitting, smallest, complete=True)


def _least_recomputation(
    evaluator: Evaluator, configuration: Configuration, memory: int, allowed: Allowed | None
) -> Candidate:
    """Return a configuration that recomputes as few blocks as it takes to fit."""
    below, enough = 0, evaluator.blocks
    whole = best = Candidate(configuration, memory)
    while enough - below > 1:
        middle = (below + enough) // 2
        fewer = configuration._replace(blocks=middle)
        memory = evaluator.memory(fewer)
        if evaluator.fits(fewer, memory):
            enough, best = middle, Candidate(fewer, memory)
        else:
            below = middle
    return best if allowed is None or allowed(best.configuration) else whole


def _computed(tasks: Sequence[Task], parts: Sequence[RepeatedPart]) -> float:
    """Return the seconds of computation in the parts of a step."""
    return sum(
        times * sum(task.seconds for task in tasks[first:end] if isinstance(task, ComputeTask))
        for first, end, times in parts
    )
