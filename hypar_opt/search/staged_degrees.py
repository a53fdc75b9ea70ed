"""The best configurations with pipeline stages: times of stages, walked through a schedule.

First the steps of all configurations are bounded: a device runs its passes of all micro-batches,
after the first forward passes and before the last backward passes of the stages before it, and no
stage takes less than the program of its layers. Programs are those of the whole network on a part
of the array, of which a stage has the share of its layers. Only configurations whose bounds are
below the best steps are simulated: one of equal stages, for a micro-batch and the end of a step.
Data parallelism shards over all of a stage's parts, and what tensor parallelism leaves whole is
split by token where possible.

Source: D. Narayanan et al., "Efficient large-scale language model training on GPU clusters using
Megatron-LM", SC 2021, sections 2.2 and 3; docs/stages.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from heapq import heapify, heappop, heappush
from itertools import accumulate, groupby, pairwise
from math import inf
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.costs.stage_messages import seconds_of_tied, tied_reductions
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import HyparError, NoAnswerError
from hypar_opt.instance.stage import stage_context, stage_training
from hypar_opt.instance.staged import in_stages_of, reduced_bytes
from hypar_opt.integers import divisors
from hypar_opt.plan.configuration import (
    Configuration,
    choices_of_configurations,
    family,
    rows_of,
    stages_of_configuration,
    training_of,
)
from hypar_opt.plan.micro_batch import micro_batch_of
from hypar_opt.plan.problem import ArrayRecord
from hypar_opt.search.cuts import balanced_cuts
from hypar_opt.search.degrees import Candidate, Evaluated, Evaluator, HeldBytes, Searched
from hypar_opt.search.result import Progress, silent
from hypar_opt.search.short_steps import ShortSteps
from hypar_opt.simulator.lockstep import NotInLockstepError
from hypar_opt.simulator.memory import counted_memory, reserved_by
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.pipeline import pipeline_step, stage_passes
from hypar_opt.simulator.pipeline_order import in_flight_of_stages
from hypar_opt.simulator.repeated_parts import Messages, RepeatedPart, seconds_of_parts
from hypar_opt.step.holds import KEPT
from hypar_opt.workload.stages import block_starts, kinds_of_layers, stage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from numpy.typing import NDArray

    from hypar_opt.costs.stage_messages import TiedReduction
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.problem import Problem
    from hypar_opt.plan.stages import Stages
    from hypar_opt.search.short_steps import Mesh
    from hypar_opt.simulator.pipeline import StagePasses
    from hypar_opt.simulator.tasks import Task
    from hypar_opt.step.holds import HoldArrays
    from hypar_opt.workload.network import Network

    Allowed = Callable[[Configuration], bool]

_ROUNDED = 1 - 2.0**-20
"""A factor for bounds, whose sums may be rounded differently than a simulation's."""

_NEAR = 1 - 2.0**-10
"""The part of a stage's estimated memory that has to fit before it is counted exactly."""


_MAX_CHUNKS = 8
"""The most chunks of a stage: more make little difference, and take much longer to simulate."""


class Shape(NamedTuple):
    """The cuts of a network: a configuration's `pp`, `interleave` and `cuts`."""

    pp: int
    interleave: int = 1
    cuts: tuple[int, ...] = ()


class CountedStage(NamedTuple):
    """The passes and the memory of an accelerator of a stage.

    Parameters
    ----------
    kept
        The bytes other than saved activations and the reserve.
    saved
        The bytes that are saved of a micro-batch in each chunk.
    in_flight
        The micro-batches in flight of each chunk.
    """

    kept: int
    saved: tuple[int, ...]
    reserve: int
    passes: Callable[[], StagePasses]
    in_flight: tuple[int, ...] = ()

    def holding(self, in_flight: tuple[int, ...]) -> CountedStage:
        """Return the stage with other numbers of micro-batches in flight."""
        return self._replace(in_flight=in_flight)

    @property
    def memory(self) -> int:
        """The bytes of an accelerator, including the reserve."""
        in_flight: int = sum(map(mul, self.saved, self.in_flight))
        return self.kept + in_flight + self.reserve


class StagedEvaluator:
    """Seconds and bytes of configurations with one number of stages.

    Parameters
    ----------
    problem
        Without stages, on the whole array.
    count
        The number of stages.
    """

    def __init__(
        self, network: Network, problem: Problem, count: int, *, deadline: Deadline = NEVER
    ) -> None:
        assert problem.array is not None
        whole: Array = problem.array.description
        self.network, self.deadline, self.count = network, deadline, count
        choices = choices_of_configurations(network, kv_replicated=True)
        problem = problem.model_copy(update={"choices": choices})
        self.staged = in_stages_of(problem, count, 1, problem.training.schedule)
        self.array = whole.part(count)
        self._links = [whole.stage_link(number % count, count) for number in range(-1, count)]
        part = {
            "array": ArrayRecord.of(self.array),
            "placement": self.array.placement,
            "levels": self.array.levels,
            "parts": self.array.hierarchy().unless_binary,
        }
        self.problem = problem.model_copy(update=part)
        self.whole = _WholeNetwork(network, self.problem, deadline=deadline)
        self.stages = cache(self._new_stages)
        self._orders, self._network = cache(self._new_orders), cache(self._new_network)
        self._tied = cache(self._new_tied)
        self._kinds = kinds_of_layers(network)
        self._found: dict[Hashable, StagePasses] = {}
        self._messages = Messages(self.array.interconnect)

    def _new_stages(self, shape: Shape) -> Stages:
        return stages_of_configuration(Configuration(**shape._asdict()), self.network)

    def _new_tied(self, shape: Shape) -> tuple[TiedReduction, ...]:
        whole = self.staged.array
        assert whole is not None
        return tied_reductions(self.stages(shape), whole.description, reduced_bytes(self.staged))

    def _new_network(self, chunks: tuple[range, ...]) -> Network:
        return stage_of(self.network, chunks)

    def _new_orders(self, shape: Shape, count: int) -> tuple[tuple[int, ...], ...]:
        """Return the micro-batches in flight of each chunk of each stage."""
        return in_flight_of_stages(self.stages(shape), self.staged.training.schedule, count)

    def fits(self, memory: int, reserve: int) -> bool:
        """Return whether bytes, including a reserve, fit an accelerator."""
        stated = self.problem.constraints.memory
        within = stated is None or memory - reserve <= stated
        return within and memory <= int(self.array.accelerator.dram_capacity)

    # Cuts

    def cut(self, ones: Sequence[Configuration]) -> Iterator[list[Configuration]]:
        """Yield configurations in stages, grouped by how the network is cut.

        It is cut evenly, into up to eight chunks per stage, which only `1f1b` interleaves; and so
        that the program of a configuration's micro-batch takes about equally long in each stage.
        """
        blocks, parts = len(block_starts(self.network)), self.count
        max_chunks = _MAX_CHUNKS if self.staged.training.schedule == "1f1b" else 1
        shapes: dict[Shape, list[Configuration]] = {
            Shape(parts, chunks): [
                one for one in ones if chunks == 1 or one.micro_batches % parts == 0
            ]
            for chunks in divisors(blocks)
            if chunks <= max_chunks and blocks % (parts * chunks) == 0
        }
        for one, cuts in zip(ones, self._balanced(ones), strict=True):
            if cuts and not (blocks % parts == 0 and len({*cuts}) == 1):
                shapes.setdefault(Shape(parts, 1, cuts), []).append(one)
        for shape, cut in shapes.items():
            try:
                self.stages(shape)
            except HyparError:  # more than one tensor crosses
                continue
            yield [one._replace(**shape._asdict()) for one in cut]

    def _balanced(self, ones: Sequence[Configuration]) -> Iterator[tuple[int, ...]]:
        """Yield the blocks of each stage that minimise the longest stage's program."""
        cuts: dict[tuple[Mesh, int], tuple[int, ...]] = {}
        seconds = self.whole.programs(ones)
        for one in ones:
            key = one[:6], one.micro_batches
            if key not in cuts:
                self.deadline.check()
                picoseconds = np.rint(seconds[key] * 1e12).astype(np.int64)
                cuts[key] = balanced_cuts(self.network, picoseconds, self.count)
            yield cuts[key]

    # Bounds

    def bounds(self, ones: Sequence[Configuration]) -> NDArray[np.float64]:
        """Return lower bounds on the seconds of configurations of one shape."""
        stages, tied = self.stages(_shape(ones[0])), self._tied(_shape(ones[0]))
        chunks, reduced = (charge.T for charge in self.whole.chunks_of(ones, stages))
        before = np.cumsum(chunks[: stages.parts], axis=0) - chunks[: stages.parts]
        shape = stages.chunks, stages.parts, -1
        per_part, last = (of.reshape(shape).sum(axis=0) for of in (chunks, reduced))
        counts = np.array([one.micro_batches for one in ones]) - 1
        seconds = before + counts * per_part + np.maximum(per_part, last)
        seconds += [[float(seconds_of_tied(tied, part))] for part in range(stages.parts)]
        bounds: NDArray[np.float64] = seconds.max(axis=0) * _ROUNDED
        return bounds

    def shape_of(self, one: Configuration) -> tuple[Stages, Sequence[Sequence[int]]]:
        """Return a configuration's stages, and the micro-batches in flight of each one's chunks."""
        shape = _shape(one)
        return self.stages(shape), self._orders(shape, one.micro_batches)

    def max_blocks(self, shape: Shape) -> int:
        """Return the blocks of the chunk that has the most."""
        blocks = len(block_starts(self.network))
        return max(shape.cuts, default=blocks // (shape.pp * shape.interleave))

    def may_fit(self, one: Configuration) -> bool:
        """Return whether a configuration's stages may fit, by an estimate."""
        memory, reserve = self.whole.estimated_memory(one, *self.shape_of(one))
        return self.fits(int((memory - reserve) * _NEAR) + reserve, reserve)

    # Exactly

    def counted(self, one: Configuration) -> list[CountedStage]:
        """Return what stages hold, and functions for their times; equal stages are counted once."""
        shape, count = _shape(one), one.micro_batches
        stages, in_flight = self.shape_of(one)
        trained = self.staged.training.model_copy(update={"micro_batches": count})
        training = training_of(one, self.network, self.staged.hierarchy, trained)
        by_kinds: dict[Hashable, CountedStage] = {}
        counted = []
        for part in range(shape.pp):
            chunks = stages.chunks_of(part)
            links = self._links[part], self._links[part + 1]
            kinds = tuple(self._kinds[chunk.start : chunk.stop] for chunk in chunks), links
            if kinds not in by_kinds:
                stage_network = self._network(chunks)
                once = (1,) * len(chunks)
                update = {
                    "training": stage_training(training, self.network, stage_network, 1),
                    "stage": stage_context(self.network, stage_network, chunks, once, *links),
                }
                problem = self.problem.model_copy(update=update)
                trains = one._replace(pp=1, interleave=1, cuts=())
                sizes = [len(chunk) for chunk in chunks]
                by_kinds[kinds] = self._stage(stage_network, problem, one, sizes, (*kinds, trains))
            counted.append(by_kinds[kinds].holding(tuple(in_flight[part])))
        return counted

    def _stage(
        self,
        network: Network,
        problem: Problem,
        one: Configuration,
        sizes: Sequence[int],
        key: Hashable,
    ) -> CountedStage:
        """Return a stage with one micro-batch in flight.

        Parameters
        ----------
        sizes
            The number of layers in each chunk.
        key
            A key that is equal for stages that take equally long.
        """
        assert problem.stage is not None
        workload = micro_batch_of(problem, network, shared_tensors=True)
        rows = rows_of(one.inside, network, workload, problem.hierarchy)
        chip = self.array.accelerator
        layers, moment = counted_memory(problem, network, workload, rows, chip)
        reserve = reserved_by(chip, workload, rows)
        fixed = (
            sum(layer.weights + layer.gradients + layer.state for layer in layers) + moment.total
        )
        options, messages = RunOptions(**problem.training.stated), problem.stage.links
        saved = [layer.saved for layer in layers if layer.layer not in messages]
        places = pairwise(accumulate(sizes, initial=0))
        of_chunks = tuple(sum(saved[first:end]) for first, end in places)
        # Received tensors are held where they are read.
        fixed += sum(layer.saved for layer in layers if layer.layer in messages)

        def passes() -> StagePasses:
            if key not in self._found:
                self.deadline.check()
                step = network, problem, workload, self.array, options
                try:
                    if self.whole.is_branched:
                        raise NotInLockstepError("of several queues")
                    # If blocks in the middle are recomputed, a step cannot be shortened.
                    if len(sizes) == 1 or one.recompute == "none" or one.blocks is None:
                        steps = _ShortStage(network, problem, choices=problem.choices)
                        passes = steps.passes(one.inside, self._messages)
                    else:
                        passes = stage_passes(*step, rows=rows, measure=self._in_lockstep)
                except NotInLockstepError:  # each accelerator is simulated
                    passes = stage_passes(*step, rows=rows)
                self._found[key] = passes
            return self._found[key]

        return CountedStage(fixed, of_chunks, reserve, passes)

    def _in_lockstep(self, tasks: Sequence[Task], _nodes: Sequence[int]) -> float:
        parts = [RepeatedPart(0, len(tasks))]
        return seconds_of_parts(tasks, parts, self._messages, self.array.efficiency_of_overlap)

    def evaluate(self, one: Configuration, counted: Sequence[CountedStage]) -> Evaluated:
        """Return the time and memory of a configuration's step, given what its stages hold."""
        passes = [stage.passes() for stage in counted]
        schedule = self.staged.training.schedule
        step = pipeline_step(passes, schedule, one.micro_batches, tied=self._tied(_shape(one)))
        fullest = max(stage.memory for stage in counted)
        bubble = sum(step.bubbles) / len(step.bubbles)
        return Evaluated(one, step.seconds, fullest, None, bubble)


def _shape(one: Configuration) -> Shape:
    return Shape(one.pp, one.interleave, one.cuts)


class _ShortStage(ShortSteps):
    """Steps of a stage with few repetitions of each block, of accelerators in lockstep."""

    def passes(self, configuration: Configuration, messages: Messages) -> StagePasses:
        """Return the times of a micro-batch's passes.

        Raises
        ------
        NotInLockstepError
            If accelerators are not in lockstep.
        """
        last = self._last_alone(configuration.zero)
        short = self._shortened(self._again(configuration), last)
        network, problem = self._network(short.lengths), self.problem
        batch = problem.batch // configuration.micro_batches
        workload = self._workload(short.lengths, batch)
        blocks, times = self._blocks(short.lengths).tolist(), (1, *short.times)

        def seconds(tasks: Sequence[Task], nodes: Sequence[int]) -> float:
            parts, first = [], 0
            for block, run in groupby(blocks[node] for node in nodes):
                end = first + len([*run])
                parts.append(RepeatedPart(first, end, times[block]))
                first = end
            return seconds_of_parts(tasks, parts, messages, self.array.efficiency_of_overlap)

        return stage_passes(
            *(network, problem, workload, self.array, self._options(configuration, short)),
            rows=self._rows(configuration[:6], short.lengths),
            measure=seconds,
            often=[times[block] for block in blocks],
        )


class _WholeNetwork(Evaluator):
    """Times and memory of a network's layers on a part of an array, as if it had all of them."""

    def programs(
        self, ones: Sequence[Configuration]
    ) -> dict[tuple[Mesh, int], NDArray[np.float64]]:
        """Return the seconds of a micro-batch's program by layer, ``(layers,)``.

        By the mesh and the number of micro-batches; without recomputation.
        """
        seconds: dict[tuple[Mesh, int], NDArray[np.float64]] = {}
        places = self._layers(self._uniform)[0]
        self.meshes.update(one[:6] for one in ones)
        for count in {one.micro_batches for one in ones}:
            meshes = [one[:6] for one in ones if one.micro_batches == count]
            passes = self._passes(self.problem.batch // count, "none", meshes)
            for mesh, program in passes.items():
                seconds[mesh, count] = (program.forward + program.backward)[places]
        return seconds

    def chunks_of(
        self, ones: Sequence[Configuration], stages: Stages
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return bounds on the seconds of each chunk, each ``(configurations, chunks)``.

        One for a micro-batch; and one for all exchanges of the last micro-batch beside its program.
        """
        seconds = np.zeros((len(ones), len(stages.ends)))
        reduced = np.zeros_like(seconds)
        numbers_by_key: dict[tuple[Any, ...], list[int]] = {}
        for number, one in enumerate(ones):
            numbers_by_key.setdefault((one.micro_batches, *one[7:10]), []).append(number)
        self.meshes.update(one[:6] for one in ones)
        for (count, recompute, blocks, zero), numbers in numbers_by_key.items():
            self.deadline.check()
            meshes = [ones[number][:6] for number in numbers]
            passes = self._passes(self.problem.batch // count, recompute, meshes)
            once = np.array([passes[mesh].forward + passes[mesh].backward for mesh in meshes])
            again = np.array([passes[mesh].again for mesh in meshes])
            often, runs_again = self._often(stages, 0 if recompute == "none" else blocks)
            program = once @ often + again @ runs_again
            queued = np.array([self._exchanged(mesh, zero) for mesh in meshes])
            seconds[numbers] = np.maximum(program, queued[:, 0] @ often)
            reduced[numbers] = queued.sum(axis=1) @ often
        return seconds, reduced

    def _often(
        self, stages: Stages, blocks: int | None
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return how often chunks have each layer of the shortened network: ``(layers, chunks)``.

        With ``blocks``, only in so many blocks of each chunk, from the first.
        """
        places, again = self._layers(self._uniform)[0], self._again_in(stages, blocks)
        often, count = [], places.max() + 1
        for layers in stages.layers:
            inside, of = (
                places[layers.start : layers.stop],
                again[layers.start : layers.stop],
            )
            often.append([np.bincount(some, minlength=count) for some in (inside, inside[of])])
        whole, runs_again = np.array(often).transpose(1, 2, 0)
        return whole, runs_again

    def _again_in(self, stages: Stages, blocks: int | None) -> NDArray[np.bool_]:
        """Return which layers are in the first blocks of each chunk."""
        of_layers = self._layers(self._uniform)[1]
        again = np.zeros(len(of_layers), bool)
        for layers in stages.layers:
            inside = of_layers[layers.start : layers.stop]
            first = inside[inside >= 0].min(initial=len(of_layers))
            run_again = len(of_layers) if blocks is None else blocks
            again[layers.start : layers.stop] = (inside >= 0) & (inside < first + run_again)
        return again

    def _exchanged(self, mesh: Mesh, zero: str) -> NDArray[np.float64]:
        """Return the seconds of layers' exchanges beside the program: ``(2, layers)``.

        In every micro-batch, and only in the last one.
        """
        if (mesh, zero) not in self._exchanged_of:
            meshes = self._meshes_with(mesh, degrees=1)
            queued, _ = self._queue_exchanges(zero, meshes)
            places = self._places(self._uniform.lengths)
            count = len(self._network(self._uniform.lengths).layers)
            seconds = np.zeros((2, count, len(meshes)))
            for queue in queued:
                np.add.at(seconds[0 if queue.each else 1], places, queue.seconds)
            for number, other in enumerate(meshes):
                self._exchanged_of[other, zero] = seconds[:, :, number]
        return self._exchanged_of[mesh, zero]

    @cached_property
    def _exchanged_of(self) -> dict[tuple[Mesh, str], NDArray[np.float64]]:
        return {}

    def estimated_memory(
        self, one: Configuration, stages: Stages, in_flight: Sequence[Sequence[int]]
    ) -> tuple[int, int]:
        """Return an estimate of the fullest stage's bytes, including the reserve, and the reserve.

        Parameters
        ----------
        in_flight
            The micro-batches in flight of each stage's chunks.
        """
        mesh, lengths = one[:6], self._uniform.lengths
        micro_batch = self.problem.batch // one.micro_batches
        batch = self._base
        if micro_batch % self._parts_of_batch(mesh, lengths):
            batch = micro_batch
        weights, reserve = self._weights(mesh, lengths, one.zero)
        places = self._layers(self._uniform)[0]
        weight_bytes = weights.kept[places]
        maps = self._maps(mesh, lengths, 0, "none", batch)
        saved, transient = maps.kept[places], maps.transient[places]
        if one.recompute != "none":
            length = len(self._uniform.times)
            maps_of_span = self._maps(mesh, lengths, length, one.recompute, batch)
            again = self._again_in(stages, one.blocks)
            saved = np.where(again, maps_of_span.kept[places], saved)
            transient = np.where(again, maps_of_span.transient[places], transient)
        transient = weights.transient[places] + transient * micro_batch // batch
        starts, shape = (0, *stages.ends[:-1]), (stages.chunks, stages.parts)
        of_chunks = np.add.reduceat(saved, starts).reshape(shape) * micro_batch // batch
        bytes_ = np.add.reduceat(weight_bytes, starts).reshape(shape).sum(axis=0)
        bytes_ += np.maximum.reduceat(transient, starts).reshape(shape).max(axis=0)
        bytes_ += (np.array(in_flight).T * of_chunks).sum(axis=0)
        for weight in stages.tied:
            readers = [part for part in weight.parts if part != stages.part_of_layers[weight.owner]]
            bytes_[readers] += weight_bytes[weight.owner]
        return int(bytes_.max()) + reserve, reserve

    def _mesh_bytes(
        self, meshes: Sequence[Mesh], lengths: tuple[int, ...], holds: HoldArrays
    ) -> dict[Mesh, HeldBytes]:
        """Return the bytes that meshes hold, by layer of the shortened network."""
        places = self._places(lengths)
        amounts = holds.largest([self._program(mesh, lengths) for mesh in meshes])
        weights = np.zeros((places.max() + 1, len(meshes)), np.int64)
        transient = np.zeros_like(weights)
        for hold, column in zip(holds.holds, amounts.T.astype(np.int64), strict=True):
            for node in hold.layers:
                (weights if hold.tensor in KEPT else transient)[places[node]] += column
        return dict(zip(meshes, map(HeldBytes, weights.T, transient.T), strict=True))


def search_stages(
    network: Network,
    problem: Problem,
    *,
    counts: Sequence[int] | None = None,
    count: int = 10,
    fixed: Mapping[str, Any] | None = None,
    allowed: Allowed | None = None,
    cutoff: float = inf,
    deadline: Deadline = NEVER,
    progress: Progress = silent,
) -> Searched:
    """Return the configurations with stages that fit and take the least time.

    Of configurations that fit, only simulated ones are known.

    Parameters
    ----------
    problem
        Has an array, and no stages.
    counts
        The possible numbers of stages; None for any number of parts of the array.
    count
        The number of configurations to return.
    fixed, allowed
        As for `hypar_opt.search.degrees.search_degrees`.
    cutoff
        Configurations have to take less than these seconds.
    """
    assert problem.array is not None
    if counts is None:
        counts = offered_counts(network, problem.array.description)
    evaluators: dict[int, StagedEvaluator] = {}
    candidates: list[Configuration] = []
    order: list[tuple[float, int]] = []
    best: list[tuple[float, int, int, Evaluated]] = []
    smallest: tuple[Candidate, ...] = ()
    simulated, complete = 0, True
    try:
        for parts in counts:
            evaluator = StagedEvaluator(network, problem, parts, deadline=deadline)
            evaluators[parts] = evaluator
            for ones in _families(evaluator, fixed, allowed):
                bounds = evaluator.bounds(ones).tolist()
                for one, bound in zip(ones, bounds, strict=True):
                    order.append((bound, len(candidates)))
                    candidates.append(one)
        heapify(order)
        saves_all = {one for one in candidates if one.recompute == "none"}
        settled: set[int] = set()
        while order and order[0][0] < (best[-1][0] if len(best) == count else cutoff):
            bound, number = heappop(order)
            one = candidates[number]
            evaluator = evaluators[one.pp]
            if number not in settled:
                # Its bound is without recomputation of blocks.
                settled.add(number)
                saves = one._replace(recompute="none", blocks=None)
                if saves in saves_all and saves != one and evaluator.may_fit(saves):
                    continue  # its time is less
                if (smaller := _least_recomputation(evaluator, one, allowed)) is not None:
                    candidates[number] = smaller
                    (new,) = evaluator.bounds([smaller]).tolist()
                    heappush(order, (max(bound, new), number))
                continue
            progress(simulated, len(candidates))
            counted = evaluator.counted(one)
            if not all(evaluator.fits(stage.memory, stage.reserve) for stage in counted):
                if one.recompute != "none" and one.blocks is not None:
                    candidates[number] = _more_again(evaluator, one)
                    heappush(order, (bound, number))
                continue
            evaluated = evaluator.evaluate(one, counted)
            simulated += 1
            if evaluated.seconds < cutoff:
                rank = evaluated.seconds, evaluated.memory, number
                best = sorted([*best, (*rank, evaluated)])[:count]
        if not (simulated or order):
            smallest = _least(evaluators, candidates)
    except NoAnswerError:  # a limit
        complete = False
    progress(len(candidates), len(candidates))
    fastest = tuple(evaluated for *_, evaluated in best)
    return Searched(fastest, len(candidates), None, simulated, smallest, complete)


def _least(
    evaluators: Mapping[int, StagedEvaluator], candidates: Sequence[Configuration]
) -> tuple[Candidate, ...]:
    """Return the three that need the least memory, counted exactly, with full recomputation."""
    estimates = []
    for number, one in enumerate(candidates):
        evaluator, whole = evaluators[one.pp], one._replace(blocks=None)
        evaluator.deadline.check()
        memory, _ = evaluator.whole.estimated_memory(whole, *evaluator.shape_of(whole))
        estimates.append((memory, number, whole))
    smallest: list[tuple[int, int, Candidate]] = []
    for estimate, number, one in sorted(estimates):
        if len(smallest) == 3 and estimate * _NEAR > smallest[-1][0]:
            break
        evaluators[one.pp].deadline.check()
        memory = max(stage.memory for stage in evaluators[one.pp].counted(one))
        smallest = sorted([*smallest, (memory, number, Candidate(one, memory))])[:3]
    return tuple(candidate for *_, candidate in smallest)


def offered_counts(network: Network, array: Array) -> list[int]:
    """Return the numbers of stages, from two on, that a network may have on an array."""
    blocks = len(block_starts(network))
    return [parts for parts in array.part_counts if 1 < parts <= blocks]


def _families(
    evaluator: StagedEvaluator, fixed: Mapping[str, Any] | None, allowed: Allowed | None
) -> Iterator[list[Configuration]]:
    """Yield the configurations for each cut of the network, before blocks are recomputed."""
    fixed_degrees = {"dp_replicate": 1, **(fixed or {})}
    fixed_degrees.pop("pp", None)
    chunks = fixed_degrees.pop("interleave", None)
    whole = evaluator.whole
    configurations = [
        *family(evaluator.network, evaluator.problem, fixed=fixed_degrees, recompute=whole.policies)
    ]
    # Sequence parallelism moves no more, and holds less.
    with_sp = {one[:5] for one in configurations if one.sp}
    variants = [
        one._replace(blocks=0 if one.recompute != "none" else None)
        for one in configurations
        if one.sp or one[:5] not in with_sp
    ]
    for cut in evaluator.cut(variants):
        allowed_ones = [
            one
            for one in cut
            if chunks in (None, one.interleave)
            and (allowed is None or allowed(one._replace(blocks=None)))
        ]
        if allowed_ones:
            yield allowed_ones


def _least_recomputation(
    evaluator: StagedEvaluator, one: Configuration, allowed: Allowed | None
) -> Configuration | None:
    """Return a configuration with the fewest recomputed blocks that may fit; None if none may."""
    if one.recompute == "none":
        return one if evaluator.may_fit(one) else None
    whole = one._replace(blocks=None)
    if not evaluator.may_fit(whole):
        return None
    below, enough = 0, evaluator.max_blocks(_shape(one))
    while enough - below > 1:
        middle = (below + enough) // 2
        if evaluator.may_fit(one._replace(blocks=middle)):
            enough = middle
        else:
            below = middle
    fewer = one._replace(blocks=enough)
    if enough == evaluator.max_blocks(_shape(one)) or not (allowed is None or allowed(fewer)):
        return whole
    return fewer


def _more_again(evaluator: StagedEvaluator, one: Configuration) -> Configuration:
    assert one.blocks is not None
    more = one.blocks + 1
    return one._replace(blocks=None if more >= evaluator.max_blocks(_shape(one)) else more)
