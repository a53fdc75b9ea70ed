"""The fastest plan in pipeline stages: how many, of which layers, in how many micro-batches.

A step takes the longest stage's time, and a share of all others' by micro-batches, in which they
wait for one another. What a stage takes is the fastest plan of its own problem within memory, with
its messages, and with what it saves of the micro-batches in flight. Of stages that are alike one is
solved. Before it is, a stage takes at least the sum of what its units take by themselves, with no
messages and no latencies of gradients that others may share; or what a stage of some of its units
takes, and the others by themselves. The cuts that cost least by these bounds are asked what they
take, until all of them are known.

Each stage is solved as if it received what it reads as suits it. A plan takes what it does where
that is received as the stage before stores it; if more, with one layout at all borders, perhaps.

Gradients of weights that several stages have are summed at the end: which stages, the cuts say.

Source: D. Narayanan et al., "Efficient large-scale language model training on GPU clusters using
Megatron-LM", SC 2021; docs/decisions/0036-ways-by-layer.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod
from operator import le
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.buckets import LatencyShares
from hypar_opt.costs.hops import seconds_of_sum
from hypar_opt.errors import (
    ARRAY,
    HyparError,
    InfeasibleError,
    NoAnswerError,
    RefusedError,
    argument,
)
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pins import Pin
from hypar_opt.instance.pricing import tensors_of, total_cost
from hypar_opt.instance.stage import BY_LAYER, check_pins, stage_instance
from hypar_opt.instance.staged import StagedPlan, StagePlan, charge_of, in_stages_of, reduced_bytes
from hypar_opt.integers import divisors
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.plan.stages import Stages
from hypar_opt.search.best_fit import (
    NEVER,
    NothingFasterError,
    NothingFitsError,
    configuration_that_fits,
    uniform_plan,
)
from hypar_opt.search.cuts import IMPOSSIBLE, least_cuts_sharing
from hypar_opt.search.joint import joint
from hypar_opt.search.pairs_of_levels import least_compute
from hypar_opt.search.prices_of_memory import BoundAtPrice, bound_at
from hypar_opt.search.way_of_training import WayOfTraining
from hypar_opt.search.ways_by_count import WaysByCount
from hypar_opt.search.ways_by_layer import WaysByLayer
from hypar_opt.search.within_memory import within_memory
from hypar_opt.simulator.pipeline_order import in_flight, orders
from hypar_opt.solvers.base import Status
from hypar_opt.step.uneven import divides_evenly
from hypar_opt.workload.patterns import compact, words_by_layer
from hypar_opt.workload.stages import RECEIVED, Message, cuts_between_blocks, kinds_of_layers
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.base import CostModel
    from hypar_opt.costs.time import TimeCost
    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.plan.problem import Problem
    from hypar_opt.plan.training import Training
    from hypar_opt.search.result import SearchRequest, SearchResult
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.patterns import Words
    from hypar_opt.workload.tensors import Workload

_A_SECOND = 10**15
"""The parts of a second in which cuts are compared, where these are not too many."""

_ROUNDED = 1 - Fraction(1, 2**20)
"""What is left of sums of charges that may be rounded otherwise than those of a whole stage."""

_LONGEST_RUN = 24
"""The most units that are alike of which it is asked what they take together at least."""

_LESS = 8
"""The share of a step that a plan is taken to need more if its stages need twice their memory."""


@dataclass(frozen=True)
class StagesFound:
    """The fastest plan in stages; of one stage, that of the whole network.

    Parameters
    ----------
    stages
        Of which layers.
    plans
        What each stage does inside, with its training settled.
    results
        What the search of each stage's own problem said.
    seconds
        Of a step: the longest stage, and a share of the others'.
    bound
        On the plans of all stages, cuts and micro-batches that were asked for.
    """

    stages: Stages
    micro_batches: int
    plans: tuple[StagePlan, ...]
    results: tuple[SearchResult, ...]
    seconds: Fraction
    bound: Fraction
    status: Status
    stopped_by: str | None = None


@dataclass(frozen=True)
class StatedStages:
    """Stages that are stated, of which it is searched how they train.

    Parameters
    ----------
    micro_batches
        The numbers of micro-batches that there may be.
    inside
        Returns the problem of what a stage does inside, given that of all that it might do.
    """

    stages: Stages
    micro_batches: Sequence[int]
    inside: Callable[[Instance], Instance]


def in_stages(
    asked: SearchRequest,
    counts: Sequence[int] | None = None,
    *,
    schedule: str = "1f1b",
    stated: StatedStages | None = None,
) -> StagesFound:
    """Find the fastest plan in stages.

    Parameters
    ----------
    asked
        The problem of time on the whole array, which has no stages.
    counts
        The stages that there may be; None for as many as the array has equal parts of, 1 among
        them. Micro-batches are those that the problem states, or any number of them.
    schedule
        Which says how many micro-batches are in flight.
    stated
        The stages, if these are not searched.

    Raises
    ------
    HyparError
        If the objective is not time, or the array or the network has no so many parts.
    NothingFitsError
        If no plan is found that fits.
    InfeasibleError, NoAnswerError
        If no plan keeps to other constraints, or none is found before a limit.
    """
    return _StageSearch(asked, counts, schedule, stated).result()


class _Units:
    """What a network may be cut into, and which of that is alike."""

    def __init__(self, network: Network, problem: Problem, stages: Stages | None = None) -> None:
        borders = [0, *cuts_between_blocks(network), len(network.layers)]
        self._units: list[tuple[range, ...]] = [(range(*own),) for own in pairwise(borders)]
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
        """Units that share weights, each with the next that does."""
        self.kinds = self._kinds(problem)

    def _kinds(self, problem: Problem) -> list[int]:
        """Return the first unit that is like each one; the first of all is like no other."""
        words = problem.training.recompute, problem.training.shard, problem.training.gather
        kinds = [*range(self.count)]
        if problem.constraints.fix or any(isinstance(own, Mapping) for own in words):
            return kinds
        unlike = {0, *(unit for pair in self.tied for unit in pair)}
        of_layers = kinds_of_layers(self.network)
        first: dict[Hashable, int] = {}
        for unit, chunks in enumerate(self._units):
            if unit not in unlike:
                layers = tuple(of_layers[own.start : own.stop] for own in chunks)
                kinds[unit] = first.setdefault(layers, unit)
        return kinds

    @property
    def runs(self) -> list[range]:
        """Units that follow one another and are alike."""
        starts = [n for n, kind in enumerate(self.kinds) if n == 0 or self.kinds[n - 1] != kind]
        return [range(*own) for own in pairwise([*starts, self.count])]

    @property
    def runs_by_kind(self) -> dict[int, range]:
        return {self.kinds[run.start]: run for run in self.runs}

    def chunks(self, first: int, end: int) -> tuple[range, ...]:
        """Return the chunks of a stage of some units: of several units they follow one another."""
        if end == first + 1:
            return self._units[first]
        (begin,), (last,) = self._units[first], self._units[end - 1]
        return (range(begin.start, last.stop),)

    def alike(self, first: int, end: int) -> tuple[list[int], list[int]]:
        """Return where units that are like some begin and end."""
        own = self.kinds[first:end]
        starts = [
            start
            for start in range(self.count - len(own) + 1)
            if self.kinds[start : start + len(own)] == own
        ]
        return starts, [start + len(own) for start in starts]


class _PartsOfArray:
    """The array in so many parts: the problems of its stages, and what units take at least."""

    def __init__(
        self,
        asked: SearchRequest,
        units: _Units,
        count: int,
        schedule: str,
        inside: Callable[[Instance], Instance] | None,
    ) -> None:
        problem = asked.instance.problem
        assert problem.array is not None
        array = problem.array.description
        if count > 1:
            _check_pins(asked.instance, count)
        self._whole, self.asked, self.units, self.count = problem, asked, units, count
        self._inside = inside
        self.schedule, self.any_batches = schedule, False
        """Whether one stage may have any number of micro-batches."""
        self.links = [array.hop(stage, count) for stage in range(count - 1)]
        self._least: dict[tuple[int, int, int], Fraction] = {}
        self._instances: dict[tuple[int, int], Instance] = {}
        self._held: dict[tuple[int, int, int], Fraction] = {}
        self._hops: dict[tuple[int, BisectionLink, int], tuple[Fraction, Fraction]] = {}
        self._sums: dict[tuple[int, tuple[int, ...]], Fraction] = {}

    def summed(self, places: Sequence[tuple[int, int]]) -> Fraction:
        """Return the seconds in which stages of some units each sum gradients."""
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
        sizes = {own.name: prod(own.weight) for own in layers}
        return [sizes[owner] * reduced_bytes(self._whole) for owner in self.units.shared]

    def instance(
        self, stage: int, units: tuple[int, int], count: int, held: tuple[int, ...]
    ) -> Instance:
        """Return the problem of some units in so many micro-batches."""
        network, is_whole = self.units.network, units == (0, self.units.count)
        problem = self._whole
        if not (is_whole and self.any_batches):
            training = problem.training.model_copy(update={"micro_batches": count})
            problem = problem.model_copy(update={"training": training})
        if is_whole:
            return Instance.to_search(network, problem)
        chunks = self.units.chunks(*units)
        instance = stage_instance(network, problem, stage, self.count, chunks, held)
        return self._inside(instance) if self._inside else instance

    @property
    def is_stated(self) -> bool:
        """Whether it is stated what stages do inside."""
        return self._inside is not None

    def staged(self, stages: Stages, plans: Sequence[StagePlan], micro_batches: int) -> StagedPlan:
        """Return the plan of stages each of which receives what the one before stores."""
        problem = in_stages_of(self._whole, self.count, micro_batches, self.schedule)
        return StagedPlan.of(stages.network, problem, stages, plans)

    def request(self, instance: Instance) -> SearchRequest:
        return replace(self.asked.quiet, instance=instance)

    def least(self, unit: int, count: int, length: int = 1) -> Fraction:
        """Return what units add at least to what any stage takes, without its messages.

        One by itself adds what it computes; more of a run, what they exchange, too.
        """
        key = self.units.kinds[unit], count, length
        if key not in self._least:
            instance = self._by_itself(*key)
            found = Fraction(least_compute(instance), instance.per_second)
            if length > 1:
                request = self.request(replace(instance, bounded=_alone))
                ways = WaysByLayer(request, count, ample=True)
                with suppress(InfeasibleError, RefusedError):
                    own = bound_at(ways, Fraction())
                    found = own.bound
                    self._held[key] = own.excess / ways.first.capacity + 1
            self._least[key] = found * _ROUNDED
        return self._least[key]

    def excess(self, count: int) -> Fraction:
        """Return roughly what of its memory runs of units need more, for a micro-batch."""
        held = [
            own * len(self.units.runs_by_kind[unit]) / length / self.count
            for (unit, batches, length), own in self._held.items()
            if batches == count
        ]
        return max(sum(held, Fraction()) - 2, Fraction())

    def _by_itself(self, unit: int, count: int, length: int = 1) -> Instance:
        key = unit, length
        if key not in self._instances:
            units = unit, unit + length
            held = (1,) * len(self.units.chunks(*units))
            self._instances[key] = self.instance(min(unit, 1), units, count, held)
        instance = self._instances[key]
        training = instance.problem.training
        if training.micro_batches == count:
            return instance
        return instance.trained(training.model_copy(update={"micro_batches": count}))

    def hop(self, unit: int, link: BisectionLink, count: int) -> tuple[Fraction, Fraction]:
        """Return the least and the most that messages before a unit take over a link."""
        unit = self.units.kinds[unit]
        key = unit, link, count
        if key not in self._hops:
            cost = self._by_itself(unit, count).cost
            assert cost.time is not None
            assert cost.time.hops is not None
            # A layer of the network may have the message's plain name.
            received = next(own for own in cost.time.hops.links if own.startswith(RECEIVED))
            hops = replace(cost.time.hops, links={received: link})
            self._hops[key] = hops.extremes(cost.time.per_unit)
        return self._hops[key]

    def even(self, count: int) -> bool:
        """Return whether all parts of so many micro-batches are equal."""
        instance = self._by_itself(0, count)
        images = instance.problem.batch // count
        return divides_evenly(images, instance.problem.hierarchy, instance.rule)


def _check_pins(instance: Instance, count: int) -> None:
    """Check that pins are of levels that a plan in so many stages has."""
    assert instance.problem.array is not None
    part: Array = instance.problem.array.description.part(count)
    check_pins(instance, 1 + part.levels)


def _renamed(solved: Instance, alike: Instance) -> Training:
    """Return how a problem trains, with the names of the layers of one that is alike."""
    names, others = ([layer.name for layer in one.network.layers] for one in (solved, alike))

    def renamed(stated: Words | None, key: str) -> Words | None:
        if not isinstance(stated, Mapping):
            return stated
        words = words_by_layer(stated, names, key)
        return compact([word or BY_LAYER[key] for word in words], others)

    training = solved.problem.training
    update = {key: renamed(getattr(training, key), key) for key in BY_LAYER}
    return training.model_copy(update=update)


def _alone(cost: CostModel, workload: Workload) -> CostModel:
    """Return a cost without messages, or latencies of gradients that others may share."""
    time: TimeCost = cost.time
    none = LatencyShares(np.zeros((1, 2, len(workload.nodes)), np.int64), {})
    return replace(time, hops=None, latencies=time.latencies and none)


@dataclass
class _Stage:
    """What is known of a stage, and of those that are alike.

    Parameters
    ----------
    units
        Where it begins and ends, as it was asked first.
    links
        Those of its messages before and behind it.
    value
        A bound on what it takes; once it is settled what its plan takes, `NEVER` if nothing fits.
    proved
        A bound on what it takes once it is settled.
    low
        Its bound in any memory; None unless that was asked.
    """

    number: int
    units: tuple[int, int]
    links: tuple[BisectionLink | None, BisectionLink | None]
    in_flight: tuple[int, ...]
    search: SearchRequest
    value: Fraction = Fraction()
    proved: Fraction = Fraction()
    low: BoundAtPrice | None = None
    is_settled: bool = False
    found: tuple[SearchRequest, SearchResult] | None = None
    error: NothingFitsError | None = None

    @property
    def excess(self) -> Fraction:
        """What of its memory its fastest plan needs more; 0 where it fits, or nothing is known."""
        if self.low is None or self.low.excess <= 0:
            return Fraction()
        return self.low.excess / WayOfTraining(self.search).capacity

    def holds_at_most(self, in_flight: tuple[int, ...]) -> bool:
        """Return whether no chunk has more in flight than one of another stage."""
        return all(map(le, self.in_flight, in_flight))


class _PairPlan(NamedTuple):
    """A plan of so many stages in so many micro-batches; fields as of `StagesFound`."""

    seconds: Fraction
    stages: Stages
    plans: tuple[StagePlan, ...]
    results: tuple[SearchResult, ...]


class _Pair:
    """So many stages in so many micro-batches: their cuts, and a bound on all of these.

    Parameters
    ----------
    fewer
        Micro-batches of which units take no more, by which they are bounded first.
    """

    def __init__(self, parts: _PartsOfArray, count: int, fewer: int, bound: Fraction) -> None:
        self.parts, self._bounded_by = parts, fewer
        self.micro_batches = count
        self._chunks = len(parts.units.chunks(0, 1))
        self._turns = count * self._chunks
        self._limited = parts.asked.instance.problem.device_memory is not None
        self._stages: dict[Hashable, _Stage] = {}
        self._pinned: dict[tuple[int, tuple[str, ...]], _Stage | None] = {}
        self.unproved, self.bound = NEVER, bound
        """Bounds on plans with a stage of which no better plan is known, and on all others."""
        self.is_done = self.is_bounded = False
        self.excess: Fraction | None = None
        """What of its memory a stage needs more if nothing is computed again, roughly."""
        self.plan: _PairPlan | None = None

    @property
    def errors(self) -> list[NothingFitsError]:
        """Of stages of which no plan is known that fits."""
        return [own.error for own in self._stages.values() if own.error]

    @cached_property
    def _in_flight(self) -> list[tuple[int, ...]]:
        """Of each chunk of each stage; 1 where nothing limits what it holds."""
        count = self.parts.count
        if not self._limited or count == 1:
            return [(1,) * self._chunks] * count
        passes = orders(self.parts.schedule, count, self.micro_batches, self._chunks)
        units = (self.parts.units.chunks(n, n + 1) for n in range(count))
        return [
            in_flight(order, [len(chunk) for chunk in chunks])
            for order, chunks in zip(passes, units, strict=True)
        ]

    @cached_property
    def _links(self) -> list[tuple[BisectionLink | None, BisectionLink | None]]:
        return [*pairwise([None, *self.parts.links, None])]

    @property
    def _per_second(self) -> int:
        """The parts of a second in which cuts are compared: few enough for sums of any stages."""
        units, parts = range(self.parts.units.count), _A_SECOND
        every = sum(self.parts.least(unit, self._bounded_by) for unit in units)
        while every * parts * 64 * self.parts.count >= IMPOSSIBLE:
            parts //= 10
        return parts

    def _table(self, per_second: int) -> NDArray[np.int64]:
        """Return a bound on each stage from one unit to before another."""

        def scaled(seconds: Fraction) -> int:
            return min(int(seconds * per_second), IMPOSSIBLE)

        units, parts, fewer = self.parts.units, self.parts, self._bounded_by
        each = [scaled(parts.least(n, fewer)) for n in range(units.count)]
        sums = np.array([0, *accumulate(each)])
        least = sums - sums[:, None]
        more_of_runs = self._more_of_runs(scaled, each)
        for own, other in units.tied:  # weights that both have are charged once
            least[: own + 1, other + 1 :] -= each[other]
        hops: dict[BisectionLink | None, NDArray[np.int64]] = {}
        hops[None] = np.zeros((2, units.count + 1), np.int64)
        for link in parts.links:
            of_borders = [parts.hop(n, link, fewer) for n in range(1, units.count)]
            rows = [(0, 0), *(tuple(map(scaled, own)) for own in of_borders), (0, 0)]
            hops[link] = np.array(rows).T
        asked = [(own, *units.alike(*own.units)) for own in self._stages.values()]
        table = np.full((parts.count, *least.shape), IMPOSSIBLE)
        for number, (before, behind) in enumerate(self._links):
            # What a stage of some of its units takes, and the others.
            more = np.zeros_like(least)
            there = [own for own in asked if own[0].holds_at_most(self._in_flight[number])]
            for stage, starts, ends in there:
                messages = hops[stage.links[0]][1, starts] + hops[stage.links[1]][1, ends]
                further = scaled(stage.value) - messages - least[starts, ends]
                more[starts, ends] = np.maximum(more[starts, ends], further)
            more = np.maximum.accumulate(more, axis=1)
            more = np.maximum.accumulate(more[::-1], axis=0)[::-1]
            bound = (
                least + np.maximum(more, more_of_runs) + hops[before][0][:, None] + hops[behind][0]
            )
            for stage, starts, ends in there:
                if stage.links == (before, behind):
                    same = stage.is_settled and stage.in_flight == self._in_flight[number]
                    value = scaled(stage.value)
                    bound[starts, ends] = value if same else np.maximum(bound[starts, ends], value)
            table[number] = np.minimum(bound, IMPOSSIBLE)
        table[:, *np.tril_indices(len(least))] = IMPOSSIBLE
        return table

    def _more_of_runs(
        self, scaled: Callable[[Fraction], int], each: Sequence[int]
    ) -> NDArray[np.int64]:
        """Return what runs of units that are alike take more at least than one by one."""
        units, more = self.parts.units, np.zeros((len(each) + 1,) * 2, np.int64)
        for run in units.runs:
            of_each = -(-len(run) // self.parts.count)
            length = of_each // -(-of_each // _LONGEST_RUN)
            if length > 1:
                own = scaled(self.parts.least(run.start, self._bounded_by, length))
                there = np.clip(np.arange(len(each) + 1), run.start, run.stop)
                times = np.maximum(there - there[:, None], 0) // length
                more += times * max(own - length * each[run.start], 0)
        return more

    def advance(self, limit: Fraction) -> None:
        """Find the best cuts by what is known, and ask more of one of their stages.

        Parameters
        ----------
        limit
            What is of no interest any more.

        Raises
        ------
        NoAnswerError
            If the deadline passes.
        """
        per_second = self._per_second
        found = least_cuts_sharing(
            self._table(per_second),
            self._turns,
            [*self.parts.units.shared.values()],
            lambda places: self.parts.summed(places) * per_second,
        )
        self.is_bounded = True
        before, self.bound = self.bound, found.cost / per_second if found else NEVER
        is_new = self._limited and self.excess is None
        if is_new and self._bounded_by == self.micro_batches:
            self.excess = self.parts.excess(self._bounded_by)
        if found is None or self.bound > before or self._bounded_by != self.micro_batches:
            # Others may be less now.
            self._bounded_by = self.micro_batches
            return
        if is_new:
            return
        places = [*pairwise((0, *found.ends))]
        summed = self.parts.summed(places)
        stages = [self._stage(number, *own) for number, own in enumerate(places)]
        left = [own for own in stages if not own.is_settled]
        if not left:
            self._keep(self._consistent(stages, places))
            self.is_done = True
            return
        if self.plan is None and limit == NEVER and self.parts.asked.deadline.left() is not None:
            self._plan_at_once(stages, places)
        unasked = [own for own in left if own.low is None]
        if unasked and self._limited and self.parts.count > 1:
            for own in unasked:
                self._ask_in_any_memory(own)
            self.excess = max(own.excess for own in left)
            return
        for own in left:
            self._learn(own)
        if any(own.is_settled for own in left):
            return
        # Of those that fit the one that holds least tells what others take at least.
        fewest = min((own for own in left), key=lambda own: (own.excess, sum(own.in_flight)))
        own = fewest if not fewest.excess else max(left, key=lambda own: own.excess)
        others = [other.value for other in stages if other is not own]
        self._settle(own, others, limit - summed)

    def found(self, bound: Fraction, status: Status, stopped_by: str | None) -> StagesFound:
        """Return the plan, and what is proved of it."""
        assert self.plan is not None
        seconds, stages, plans, results = self.plan
        return StagesFound(
            stages,
            plans[0].instance.problem.training.micro_batches or 1,
            plans,
            results,
            seconds,
            bound,
            status,
            stopped_by,
        )

    def _keep(self, plan: _PairPlan) -> None:
        if self.plan is None or plan.seconds < self.plan.seconds:
            self.plan = plan

    def _consistent(self, stages: Sequence[_Stage], places: Sequence[tuple[int, int]]) -> _PairPlan:
        """Return the plan of solved stages, or a better one with one layout at all borders.

        Each stage was solved as if it received what it reads in the layout that suits it.
        """
        best = self._planned(stages, places)
        alone = charge_of([stage.value for stage in stages], self._turns)
        if best.seconds == alone + self.parts.summed(places):
            return best
        for words in dict.fromkeys(words for plan in best.plans for words in plan.messages_stored):
            pinned = [self._with_messages(stage, words) for stage in stages]
            solved = [stage for stage in pinned if stage is not None]
            if len(solved) == len(stages):
                best = min(best, self._planned(solved, places), key=lambda plan: plan.seconds)
        return best

    def _with_messages(self, stage: _Stage, words: tuple[str, ...]) -> _Stage | None:
        """Return a stage solved with a layout of its messages, by level; None if none fits."""
        key = id(stage), words
        if key not in self._pinned:
            instance = stage.search.instance
            names = [layer.name for layer in instance.network.layers if isinstance(layer, Message)]
            pins = [
                str(Pin(name, level, word)) for name in names for level, word in enumerate(words, 1)
            ]
            constraints = instance.problem.constraints
            pinned = constraints.model_copy(update={"fix": (*constraints.fix, *pins)})
            problem = instance.problem.model_copy(update={"constraints": pinned})
            request = self.parts.request(Instance.to_search(instance.network, problem))
            self._pinned[key] = None
            with suppress(NoAnswerError, InfeasibleError, RefusedError):
                self._pinned[key] = replace(stage, found=within_memory(request, joint))
        return self._pinned[key]

    def _plan_at_once(self, stages: Sequence[_Stage], places: Sequence[tuple[int, int]]) -> None:
        """Keep a plan of stages that are configurations, if these fit: they are soon found."""
        fitting = []
        for stage in stages:
            ways = WaysByCount(stage.search, None)
            plan = configuration_that_fits(stage.search) or uniform_plan(stage.search, ways)
            if plan is None or not plan.fits:
                return
            found = replace(stage.search, instance=plan.way.instance), plan.found
            fitting.append(replace(stage, found=found))
        self._keep(self._planned(fitting, places))

    def _planned(self, stages: Sequence[_Stage], places: Sequence[tuple[int, int]]) -> _PairPlan:
        """Return the plan of solved stages, with what it takes as each receives what is sent."""
        units, parts = self.parts.units, self.parts
        ends = tuple(units.chunks(*place)[-1].stop for place in places)
        cut = units.stages or Stages(units.network, parts.count, ends)
        solved = enumerate(zip(stages, places, strict=True))
        plans = tuple(self._plan_of(number, *stage) for number, stage in solved)
        results = tuple(stage.found[1] for stage in stages if stage.found)
        if parts.count == 1 or parts.is_stated:  # what is stated says how tensors are stored
            alone = charge_of([plan.seconds for plan in plans], self._turns)
            seconds = alone + parts.summed(places)
        else:
            seconds = parts.staged(cut, plans, self.micro_batches).seconds
        return _PairPlan(seconds, cut, plans, results)

    def _plan_of(self, number: int, solved: _Stage, units: tuple[int, int]) -> StagePlan:
        """Return what a stage does as one that is alike, and was solved."""
        assert solved.found is not None
        search, result = solved.found
        instance = search.instance
        if units != solved.units:
            in_flight = self._in_flight[number]
            alike = self.parts.instance(number, units, self.micro_batches, in_flight)
            instance = alike.trained(_renamed(instance, alike))
        tensors = result.priced or tensors_of(instance, result.assignments)
        return StagePlan(instance, result.assignments, tensors)

    def _stage(self, number: int, first: int, end: int) -> _Stage:
        links, count = self._links[number], self._in_flight[number]
        key = links, count, tuple(self.parts.units.kinds[first:end])
        if key not in self._stages:
            units = first, end
            instance = self.parts.instance(number, units, self.micro_batches, count)
            request = self.parts.request(instance)
            self._stages[key] = _Stage(number, units, links, count, request)
        return self._stages[key]

    def _learn(self, own: _Stage) -> None:
        """Bound a stage by those that hold less, and settle it by one that holds more."""
        kinds = self._kinds(own)
        alike = [
            other
            for other in self._stages.values()
            if other.is_settled and other.links == own.links and self._kinds(other) == kinds
        ]
        less = [other.proved for other in alike if other.holds_at_most(own.in_flight)]
        own.value = max([own.value, *less])
        for other in alike:
            if own.holds_at_most(other.in_flight) and other.value <= own.value and other.found:
                own.value = own.proved = other.value
                own.is_settled, own.found, own.units = True, other.found, other.units

    def _kinds(self, own: _Stage) -> list[int]:
        return self.parts.units.kinds[slice(*own.units)]

    def _ways(self, own: _Stage) -> WaysByLayer:
        return WaysByLayer(own.search, self.micro_batches)

    def _ask_in_any_memory(self, own: _Stage) -> None:
        try:
            own.low = bound_at(self._ways(own).ample, Fraction())
        except InfeasibleError:
            own.value, own.is_settled = NEVER, True
        except RefusedError:  # more than memory allows
            own.low = BoundAtPrice(Fraction(), own.value, Fraction())
        else:
            own.value = max(own.value, own.low.bound)

    def _settle(self, own: _Stage, others: Sequence[Fraction], limit: Fraction) -> None:
        """Find what a stage takes, if with what others take at least a step takes less."""
        rest, longest = sum(others, Fraction()), max(others, default=Fraction())
        goal = limit - rest / self._turns
        if goal < longest:
            goal = self._turns * (limit - longest) - rest + longest
        # A little more, since cuts are compared in whole parts of a second.
        more = Fraction(self.parts.count * self._turns, self._per_second)
        goal = min(goal + more, NEVER)
        try:
            search, found = own.found = within_memory(own.search, joint, below=goal)
        except NothingFasterError:
            own.value = max(own.value, goal)
            return
        except NothingFitsError as error:
            own.proved = NEVER if error.proved else own.value
            own.value, own.error = NEVER, error
        except InfeasibleError:
            own.proved = own.value = NEVER
        except (NoAnswerError, RefusedError):
            own.search.deadline.check()
            own.proved, own.value = own.value, NEVER  # more than memory allows
        else:
            way = WayOfTraining(search)
            own.proved = own.value if found.bound is None else way.amount_of(found.bound)
            charged = total_cost(way.instance, found.assignments, found.priced)
            own.value = way.amount_of(charged)
        own.is_settled = True
        if own.proved < own.value:
            self.unproved = min(self.unproved, self.bound)


def _check_is_of_stages(problem: Problem, counts: Sequence[int] | None) -> None:
    """Refuse what has no such stages, naming what would have."""
    stages = argument("stages")
    if problem.array is None:
        raise HyparError(f"{stages} needs an array: {ARRAY}")
    for count in counts or ():
        if count > 1:
            problem.array.description.part(count)
    if problem.reading not in RUN_READINGS:
        readings = " or ".join(argument("reading", own) for own in RUN_READINGS)
        raise HyparError(f"{stages} needs {readings}, got {problem.reading}")
    if problem.cost != "time":
        raise HyparError(f"{stages} needs {argument('cost', 'time')}, got {problem.cost}")
    if problem.inference:
        raise HyparError(f"{argument('inference')} is not supported with pipeline stages")


class _StageSearch:
    """The search of all stages and micro-batches, the least bound first."""

    def __init__(
        self,
        request: SearchRequest,
        counts: Sequence[int] | None,
        schedule: str,
        stated: StatedStages | None,
    ) -> None:
        problem = request.instance.problem
        _check_is_of_stages(problem, counts)
        self._request, self._problem, self._stated = request, problem, stated
        network, micro_batches = request.instance.network, problem.training.micro_batches
        self._units = _Units(network, problem, stated.stages if stated else None)
        self._batches = [micro_batches] if micro_batches else [*divisors(problem.batch)]
        if stated is not None:
            self._batches = [*stated.micro_batches]
        self._pairs: list[_Pair] = []
        for parts in self._each_parts(counts, schedule):
            even = [count for count in self._batches if parts.even(count)]
            parts.any_batches = parts.count == 1 and even == self._batches and not micro_batches
            last = even[:1] if parts.any_batches else even[-1:]
            for count in sorted({*self._batches} - {*even} | {*last}):
                self._open(parts, count, Fraction())

    def _open(self, parts: _PartsOfArray, count: int, bound: Fraction) -> None:
        """Add so many micro-batches, whose plans take a bound at least."""
        fewer = self._batches[0] if parts.even(count) else count
        self._pairs.append(_Pair(parts, count, fewer, bound))

    def _advance(self, pair: _Pair, limit: Fraction) -> None:
        """Ask more of a pair; with fewer micro-batches it takes no less by its first bound."""
        is_first, parts = not pair.is_bounded, pair.parts
        pair.advance(limit)
        if is_first and parts.even(pair.micro_batches):
            fewer = [n for n in self._batches if n < pair.micro_batches and parts.even(n)]
            for count in fewer[-1:]:
                self._open(parts, count, pair.bound)

    def _each_parts(self, counts: Sequence[int] | None, schedule: str) -> Iterator[_PartsOfArray]:
        """Yield the parts that the array may have; a stage has two accelerators or more."""
        assert self._problem.array is not None
        inside, most = self._stated.inside if self._stated else None, self._units.count
        if counts is None:
            counts = [n for n in self._problem.array.description.part_counts if n <= most]
            counts = [n for n in counts if n == 1 or self._may_pin(n)]
        for count in counts:
            parts = _PartsOfArray(self._request, self._units, count, schedule, inside)
            if count > most:
                raise HyparError(
                    f"{self._request.instance.network.name} has {most} parts between which it may"
                    f" be cut, fewer than {count} stages"
                )
            yield parts

    def _may_pin(self, count: int) -> bool:
        """Return whether plans in so many stages may keep to the pins."""
        try:
            _check_pins(self._request.instance, count)
        except HyparError:
            return False
        return True

    def result(self) -> StagesFound:
        """Return the best plan of all, and the bound on all."""
        request, every, stopped_by = self._request, self._pairs, None
        best: _Pair | None = None
        request.progress(0, len(every))
        try:
            while pair := self._next(NEVER if best is None else _seconds(best)):
                request.deadline.check()
                self._advance(pair, NEVER if best is None else _seconds(best))
                if pair.plan and (best is None or _seconds(pair) < _seconds(best)):
                    best = pair
                request.progress(sum(pair.is_done for pair in every), len(every))
        except NoAnswerError as error:
            stopped_by = error.stopped_by
        if best is None:
            raise self._refusal(stopped_by)
        seconds = _seconds(best)
        bound = min(seconds, *(min(pair.bound, pair.unproved) for pair in every))
        status = Status.OPTIMAL if bound == seconds else Status.FEASIBLE
        assert best.plan is not None
        request.progress(len(every), len(every))
        return best.found(bound, status, stopped_by)

    def _next(self, limit: Fraction) -> _Pair | None:
        """Return what to ask next: first what may fit as it is."""
        left = [pair for pair in self._pairs if not pair.is_done and pair.bound < limit]
        if not left:
            return None
        if limit < NEVER:
            return min(left, key=lambda pair: pair.bound)
        # To compute again takes time.
        return min(left, key=lambda pair: pair.bound * (1 + (pair.excess or 0) / _LESS))

    def _refusal(self, stopped_by: str | None) -> HyparError:
        """Return the error that says that there is no plan, or which stage lacks least."""
        errors = [error for pair in self._pairs for error in pair.errors]
        if errors:
            least = min(errors, key=lambda error: error.counted.excess)
            proved = not stopped_by and all(pair.unproved == NEVER for pair in self._pairs)
            stopped = stopped_by or least.stopped_by or "limits"
            return NothingFitsError(least.counted, proved=proved, stopped_by=stopped)
        if stopped_by:
            return NoAnswerError(f"no answer within the {stopped_by}", stopped_by)
        return InfeasibleError("no stages keep to the constraints")


def _seconds(pair: _Pair) -> Fraction:
    assert pair.plan is not None
    return pair.plan.seconds
