"""Lower bounds on the seconds of configurations' steps, which exclude most from being simulated.

No step takes less than its program, which is charged for all meshes at once; nor than its program
and its queue of exchanges, with what each waits for of the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.costs.buckets import buckets_of
from hypar_opt.costs.kinds import kinds_of_boundaries, kinds_of_nodes
from hypar_opt.costs.overlap import OverlapTime, least_of
from hypar_opt.costs.time import TimeCost
from hypar_opt.costs.work import launches_of
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.plan.configuration import Configuration
from hypar_opt.search.short_steps import Lengths, Mesh, ShortStep, ShortSteps
from hypar_opt.search.step_queues import Queue, QueueExchanges, Visits, queues_of
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.step import phases_of, repeats_on
from hypar_opt.step.states import exact_sum
from hypar_opt.step.work import passes_of
from hypar_opt.workload.recomputation import with_repeats
from hypar_opt.workload.repeats import REDUCTION_GROUPS, ZERO_STAGES, Repeats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.plan.problem import Problem
    from hypar_opt.step.operations import Collective
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload

_ROUNDING = 1e-9
"""Relative: more than the charges of a bound are rounded."""


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


class StepBounds(ShortSteps):
    """Lower bounds on the seconds of configurations of a network with blocks.

    Parameters
    ----------
    deadline
        After which nothing more is bounded. The other parameters are those of `ShortSteps`.
    """

    def __init__(
        self, network: Network, problem: Problem, *, deadline: Deadline = NEVER, **steps: Any
    ) -> None:
        super().__init__(network, problem, **steps)
        self.deadline = deadline
        self._layers, self._places = cache(self._new_layers), cache(self._new_places)
        self._queues_of: dict[tuple[Mesh, str], tuple[Queue, Queue]] = {}
        self._seconds_of: defaultdict[tuple[int, str], dict[Mesh, NDArray[np.float64]]]
        self._seconds_of = defaultdict(dict)

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
        by_batch: dict[int, dict[str, list[int]]] = {}
        for number, one in enumerate(configurations):
            of_batch = by_batch.setdefault(self.problem.batch // one.micro_batches, {"none": []})
            of_batch.setdefault(one.recompute, []).append(number)
        layers, blocks = self._layers(self._uniform)
        times = np.bincount(layers)
        for batch, by_word in by_batch.items():
            self.deadline.check()
            meshes = [configurations[number][:6] for some in by_word.values() for number in some]
            self.meshes.update(meshes)
            passes = self._passes(batch, "none", meshes)
            once = {
                mesh: (seconds.forward + seconds.backward) @ times
                for mesh, seconds in passes.items()
            }
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
        if self.is_branched or not self._counts:
            return self.bounds([configuration])[0]
        mesh, count = configuration[:6], configuration.micro_batches
        passes = self._passes(self.problem.batch // count, configuration.recompute, [mesh])[mesh]
        layers, blocks = self._layers(self._uniform)
        again = np.where(self._runs_again(configuration, blocks), passes.again[layers], 0)
        visits = passes.forward[layers], (passes.backward[layers] + again)[::-1]
        # Either pass has a start, before its layers.
        begun = np.cumsum(np.concatenate([[0.0], visits[0], [0.0, 0.0], visits[1]]))
        last, before = (
            queue.lower_bound(begun) for queue in self._queues(mesh, configuration.zero)
        )
        return (last + (count - 1) * before) * (1 - _ROUNDING)

    def _lower_bound_cost(self, workload: Workload) -> TimeCost:
        """Return what the tensors of a step cost at least."""
        cost = TimeCost.from_problem(self.problem, workload)
        return least_of(cost, self.array, RunOptions().on(self.array)[1])

    def _new_layers(self, short: ShortStep) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the place of each layer of a whole step among those of a shortened one.

        And the number of its block, from 0; -1 outside of all.
        """
        first, begun = self._workload(short.lengths, self._base).shared, 0
        of_layers = self._blocks(short.lengths)[first:].tolist()
        layers: list[int] = []
        blocks: list[int] = []
        for block, run in groupby(range(len(of_layers)), of_layers.__getitem__):
            places, times = [*run], short.times[block - 1] if block else 1
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
            meshes = self._meshes_with(mesh, degrees=1)
            queues = queues_of(*self._queue_exchanges(zero, meshes), self._visits)
            for number, degrees in enumerate(meshes):
                self._queues_of[degrees, zero] = queues[number]
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

    def _queue_exchanges(
        self, zero: str, meshes: Sequence[Mesh]
    ) -> tuple[list[QueueExchanges], NDArray[np.float64]]:
        """Return the exchanges of the queue, of nodes in meshes of one degree of replication.

        And the seconds in which these update all weights: ``(meshes,)``.
        """
        lengths = self._uniform.lengths
        replicas = meshes[0][0]
        one = Configuration(replicas, self._base // replicas, zero=zero)
        workload = self._trained(one, self._uniform, self._base)
        cost = self._lower_bound_cost(workload)
        phases = Phase.GRADIENT in cost.communication.phases and (Phase.GRADIENT,)
        communication = replace(
            cost.communication, phases=phases or (), by_largest_shard=cost.by_largest_shard
        )
        cost = replace(cost, communication=communication, latencies=None, by_largest_shard=False)
        rows = np.array([self._rows(mesh, lengths) for mesh in meshes], np.intp)
        states, nodes = rows.transpose(1, 2, 0), np.arange(len(workload.nodes))[:, None]
        levels, shape = len(states), states.shape[1:]
        together: dict[tuple[str, bool], list[Collective]] = {}
        for collective in cost.rules(workload, levels).node(nodes, [states]):
            stages = ZERO_STAGES[REDUCTION_GROUPS[collective.group][-1]]
            each_micro_batch = any(
                stage.each_micro_batch and stage.weights == (collective.tensor == "weights")
                for stage in stages
            )
            together.setdefault((collective.tensor, each_micro_batch), []).append(
                collective._replace(
                    quarters=collective.quarters // np.maximum(collective.times, 1),
                    times=np.minimum(collective.times, 1),
                )
            )
        queued = []
        for key, exchanges in together.items():
            charged = [
                np.broadcast_to(
                    exact_sum(cost.charges(of, workload, nodes, shape, levels)), shape
                ).astype(np.float64)
                / cost.per_unit
                for of in (exchanges, [exchange._replace(times=0) for exchange in exchanges])
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
        forward, *backward = phases_of(self.problem)
        of_words: dict[str, Sequence[tuple[Phase, ...]]] = {"none": ((forward,), tuple(backward))}
        of_words.setdefault(recompute, ((forward,),))
        for word, passes in of_words.items():
            cache = self._seconds_of[batch, word]
            if missing := [*dict.fromkeys(mesh for mesh in meshes if mesh not in cache)]:
                charged = self._program_seconds(batch, word, passes, missing)
                cache.update(zip(missing, charged, strict=True))
        once, again = (self._seconds_of[batch, word] for word in ("none", recompute))
        return {
            mesh: _Passes(once[mesh][0], once[mesh][1], again[mesh][0] - once[mesh][0])
            for mesh in meshes
        }

    def _program_seconds(
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
        again_of = Repeats(
            recomputed=repeats.recomputed, by_op=repeats.by_op, blocks=repeats.blocks
        )
        workload = with_repeats(workload, again_of)
        cost = self._lower_bound_cost(workload)
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
        nodes, meshes_of, all_nodes = _distinct(kinds_of_nodes(workload).numbers, numbers)
        of_nodes = [states[:, nodes, meshes_of]]
        edges, meshes_of, all_edges = _distinct(
            kinds_of_boundaries(workload).numbers, *numbers[ends]
        )
        at_ends = [[states[:, end[edges], meshes_of]] for end in ends]
        seconds = np.zeros((len(passes), len(numbers) - workload.shared, len(meshes)))
        for of_pass, phases in zip(seconds, passes, strict=True):
            communication = replace(cost.communication, phases=phases)
            program = OverlapTime.of(replace(cost, communication=communication), workload)
            program = program.attributed
            if self.is_branched:  # any exchange may be hidden
                charged = [([program.compute(workload, nodes, of_nodes)], all_nodes, places)]
            else:
                between = program.edge(workload, edges, *at_ends)
                charged = [
                    (program.node(workload, nodes, of_nodes), all_nodes, places),
                    (between, all_edges, places[ends[1]]),
                ]
            for charges, inverse, at in charged:
                amounts = np.broadcast_to(exact_sum(charges), inverse.max() + 1).astype(np.float64)
                np.add.at(of_pass, at, amounts[inverse] / program.per_unit)
        return seconds.transpose(2, 0, 1)


def _distinct(
    kinds: NDArray[np.intp], *numbers: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return one of all that have a kind and some numbers, and the place of each among these.

    Parameters
    ----------
    kinds : (items,)
    numbers : (items, meshes)

    Returns
    -------
    items, meshes : (alike,)
    places : (items, meshes)
    """
    keys = np.broadcast_to(kinds[:, None], numbers[0].shape)
    for column in numbers:
        keys = keys * (column.max(initial=0) + 1) + column
    _, first, places = np.unique(keys, return_index=True, return_inverse=True)
    items, meshes = np.unravel_index(first, keys.shape)
    return items, meshes, places.reshape(keys.shape)
