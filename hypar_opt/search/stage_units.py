"""Units between which a network may be cut into pipeline stages, and the stages' problems.

The time of a stage is that of the fastest plan of its own problem within memory, with its messages
and the activations of micro-batches in flight. Before it is solved, its time is bounded by the sum
of its units' times, without messages and without latencies of gradients that other units may share.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.buckets import LatencyShares
from hypar_opt.costs.stage_messages import seconds_of_sum
from hypar_opt.errors import (
    InfeasibleError,
    RefusedError,
)
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.stage import check_pins, check_shards, stage_instance
from hypar_opt.instance.staged import StagedPlan, StagePlan, in_stages_of, reduced_bytes
from hypar_opt.plan.stages import Stages
from hypar_opt.search.memory.relaxation import LayerModes, dual_bound
from hypar_opt.search.two_level_neighbourhood import least_compute
from hypar_opt.workload.stages import RECEIVED, cuts_between_blocks, kinds_of_layers
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from hypar_opt.costs.base import CostModel
    from hypar_opt.costs.time import TimeCost
    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.plan.problem import Problem
    from hypar_opt.search.result import SearchRequest
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload

_ROUNDED = 1 - Fraction(1, 2**20)
"""A factor for sums of charges, which may be rounded differently than those of a whole stage."""


class Units:
    """The units into which a network may be cut, and which of them are equal."""

    def __init__(self, network: Network, problem: Problem, stages: Stages | None) -> None:
        borders = [0, *cuts_between_blocks(network), len(network.layers)]
        self._units: list[tuple[range, ...]] = [(range(*border),) for border in pairwise(borders)]
        if stages is not None:
            self._units = [*map(stages.chunks_of, range(stages.parts))]
        self.network, self.stages, self.count = network, stages, len(self._units)
        unit_of = {
            n: unit for unit, chunks in enumerate(self._units) for chunk in chunks for n in chunk
        }
        self.shared = {
            network.layers[owner].name: units
            for owner, users in network.weight_users.items()
            if len(units := sorted({unit_of[n] for n in users})) > 1
        }
        """The units that share weights, by the layer that has them."""
        self.tied = {pair for units in self.shared.values() for pair in pairwise(units)}
        """Units that share weights, each with the next one that does."""
        self.kinds = self._kinds(problem)

    def _kinds(self, problem: Problem) -> list[int]:
        """Return, for each unit, the first one that equals it; the first of all equals no other."""
        words = problem.training.recompute, problem.training.shard, problem.training.gather
        kinds = [*range(self.count)]
        if problem.constraints.fix or any(isinstance(word, Mapping) for word in words):
            return kinds
        unlike = {0, *(unit for pair in self.tied for unit in pair)}
        of_layers = kinds_of_layers(self.network)
        first: dict[Hashable, int] = {}
        for unit, chunks in enumerate(self._units):
            if unit not in unlike:
                layers = tuple(of_layers[chunk.start : chunk.stop] for chunk in chunks)
                kinds[unit] = first.setdefault(layers, unit)
        return kinds

    @property
    def runs(self) -> list[range]:
        """Runs of equal units that follow one another."""
        starts = [n for n, kind in enumerate(self.kinds) if n == 0 or self.kinds[n - 1] != kind]
        return [range(*ends) for ends in pairwise([*starts, self.count])]

    @property
    def runs_by_kind(self) -> dict[int, range]:
        return {self.kinds[run.start]: run for run in self.runs}

    def chunks(self, first: int, end: int) -> tuple[range, ...]:
        """Return the chunks of a stage of some units; those of several units are consecutive."""
        if end == first + 1:
            return self._units[first]
        (begin,), (last,) = self._units[first], self._units[end - 1]
        return (range(begin.start, last.stop),)

    def repetitions(self, first: int, end: int) -> tuple[list[int], list[int]]:
        """Return the begins and ends of runs of units of the same kinds as a stage's."""
        kinds = self.kinds[first:end]
        starts = [
            start
            for start in range(self.count - len(kinds) + 1)
            if self.kinds[start : start + len(kinds)] == kinds
        ]
        return starts, [start + len(kinds) for start in starts]


class PartsOfArray:
    """The array divided among stages: the problems of stages, and lower bounds of units."""

    def __init__(
        self,
        search: SearchRequest,
        units: Units,
        count: int,
        schedule: str,
        inside: Callable[[Instance], Instance] | None,
    ) -> None:
        problem = search.instance.problem
        assert problem.array is not None
        array = problem.array.description
        if count > 1:
            check_pins_of(search.instance, count)
        self._whole, self.search, self.units, self.count = problem, search, units, count
        self._inside = inside
        self.schedule, self.any_batches = schedule, False
        """Whether one stage may have any number of micro-batches."""
        self.links = [array.stage_link(stage, count) for stage in range(count - 1)]
        self._least: dict[tuple[int, int, int], Fraction] = {}
        self._instances: dict[tuple[int, int], Instance] = {}
        self._excesses: dict[tuple[int, int, int], Fraction] = {}
        self._messages: dict[tuple[int, BisectionLink, int], tuple[Fraction, Fraction]] = {}
        self._sums: dict[tuple[int, tuple[int, ...]], Fraction] = {}

    def summed(self, places: Sequence[tuple[int, int]]) -> Fraction:
        """Return the seconds in which stages of given units sum gradients of shared weights."""
        assert self._whole.array is not None
        array, total = self._whole.array.description, Fraction()
        for size, units in zip(self._gradients, self.units.shared.values(), strict=True):
            parts = tuple(
                part
                for part, (first, end) in enumerate(places)
                if any(first <= unit < end for unit in units)
            )
            if (size, parts) not in self._sums:
                self._sums[size, parts] = seconds_of_sum(array, self.count, parts, size)
            total += self._sums[size, parts]
        return total

    @cached_property
    def _gradients(self) -> list[int]:
        """The bytes of the gradients of each weight that units share."""
        layers = workload_of(self.units.network, 1).layers if self.units.shared else ()
        sizes = {layer.name: prod(layer.weight) for layer in layers}
        return [sizes[owner] * reduced_bytes(self._whole) for owner in self.units.shared]

    def instance(
        self, stage: int, units: tuple[int, int], count: int, in_flight: tuple[int, ...]
    ) -> Instance:
        """Return the problem of some units with a number of micro-batches."""
        network, is_whole = self.units.network, units == (0, self.units.count)
        problem = self._whole
        if not (is_whole and self.any_batches):
            training = problem.training.model_copy(update={"micro_batches": count})
            problem = problem.model_copy(update={"training": training})
        if is_whole:
            return Instance.to_search(network, problem)
        chunks = self.units.chunks(*units)
        instance = stage_instance(network, problem, stage, self.count, chunks, in_flight)
        return self._inside(instance) if self._inside else instance

    @property
    def is_stated(self) -> bool:
        """Whether the choices inside stages are stated."""
        return self._inside is not None

    def staged(self, stages: Stages, plans: Sequence[StagePlan], micro_batches: int) -> StagedPlan:
        """Return the plan of stages in which messages have the sender's layouts."""
        problem = in_stages_of(self._whole, self.count, micro_batches, self.schedule)
        return StagedPlan.of(stages.network, problem, stages, plans)

    def request(self, instance: Instance) -> SearchRequest:
        return replace(self.search.without_progress, instance=instance)

    def lower_bound(self, unit: int, count: int, length: int = 1) -> Fraction:
        """Return a lower bound on the time that units add to any stage, without messages.

        A single unit adds its compute; several units of a run also add their exchanges.
        """
        key = self.units.kinds[unit], count, length
        if key not in self._least:
            instance = self._units_alone(*key)
            seconds = Fraction(least_compute(instance), instance.per_second)
            if length > 1:
                request = self.request(replace(instance, bounded=_without_messages))
                modes = LayerModes(request, count, ample=True)
                with suppress(InfeasibleError, RefusedError):
                    dual = dual_bound(modes, Fraction())
                    seconds = dual.bound
                    self._excesses[key] = dual.excess / modes.first.capacity + 1
            self._least[key] = seconds * _ROUNDED
        return self._least[key]

    def excess(self, count: int) -> Fraction:
        """Return roughly the part of their memory that stages lack for a micro-batch."""
        excesses = [
            excess * len(self.units.runs_by_kind[unit]) / length / self.count
            for (unit, batches, length), excess in self._excesses.items()
            if batches == count
        ]
        return max(sum(excesses, Fraction()) - 2, Fraction())

    def _units_alone(self, unit: int, count: int, length: int = 1) -> Instance:
        key = unit, length
        if key not in self._instances:
            units = unit, unit + length
            in_flight = (1,) * len(self.units.chunks(*units))
            self._instances[key] = self.instance(min(unit, 1), units, count, in_flight)
        instance = self._instances[key]
        training = instance.problem.training
        if training.micro_batches == count:
            return instance
        return instance.trained(training.model_copy(update={"micro_batches": count}))

    def message_extremes(
        self, unit: int, link: BisectionLink, count: int
    ) -> tuple[Fraction, Fraction]:
        """Return the least and the most that messages before a unit take over a link."""
        unit = self.units.kinds[unit]
        key = unit, link, count
        if key not in self._messages:
            cost = self._units_alone(unit, count).cost
            assert cost.time is not None
            assert cost.time.stage_messages is not None
            # A layer of the network may have the plain name of a message.
            received = next(
                link_name
                for link_name in cost.time.stage_messages.links
                if link_name.startswith(RECEIVED)
            )
            messages = replace(cost.time.stage_messages, links={received: link})
            self._messages[key] = messages.extremes(cost.time.per_unit)
        return self._messages[key]

    def splits_evenly(self, count: int) -> bool:
        """Return whether stages split a number of micro-batches evenly."""
        return self._units_alone(0, count).splits_evenly(count)


def check_pins_of(instance: Instance, count: int) -> None:
    """Check that pins and shards are at levels of a plan with a number of stages."""
    assert instance.problem.array is not None
    part: Array = instance.problem.array.description.part(count)
    check_pins(instance, 1 + part.levels)
    check_shards(instance.problem, part.hierarchy())


def _without_messages(cost: CostModel, workload: Workload) -> CostModel:
    """Return a cost without messages, and without latencies that other units may share."""
    time: TimeCost = cost.time
    none = LatencyShares(np.zeros((1, 2, len(workload.nodes)), np.int64), {})
    return replace(time, stage_messages=None, latencies=time.latencies and none)
