"""A number of pipeline stages and of micro-batches: the best cuts, and a bound on all cuts.

The time of a stage is bounded by the sum of its units' bounds, or by the time of a stage of some of
them plus the others' bounds. The stages of the cuts of least bound are solved, until all of their
times are known; of equal stages one is solved.

Each stage is solved as if it received its inputs in the layouts that suit it. In the plan they
arrive in the layouts that the stage before stores; if that takes longer, one layout at all borders
is tried, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, combinations, pairwise
from operator import le
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.errors import (
    InfeasibleError,
    NoAnswerError,
    RefusedError,
)
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pins import Pin
from hypar_opt.instance.pricing import tensors_of, total_cost
from hypar_opt.instance.stage import BY_LAYER
from hypar_opt.instance.staged import StagePlan, charge_of
from hypar_opt.plan.stages import Stages
from hypar_opt.search.cuts import IMPOSSIBLE, least_cuts_sharing
from hypar_opt.search.joint import joint
from hypar_opt.search.memory.incumbent import (
    NEVER,
    NothingFasterError,
    NothingFitsError,
    configuration_that_fits,
    uniform_plan,
)
from hypar_opt.search.memory.micro_batches import ModesByMicroBatches
from hypar_opt.search.memory.modes import TrainingMode
from hypar_opt.search.memory.relaxation import DualBound, LayerModes, dual_bound
from hypar_opt.search.memory.search import within_memory
from hypar_opt.simulator.pipeline_order import in_flight, orders
from hypar_opt.workload.patterns import compact, words_by_layer
from hypar_opt.workload.stages import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.plan.training import Training
    from hypar_opt.search.result import SearchRequest, SearchResult
    from hypar_opt.search.stage_units import PartsOfArray
    from hypar_opt.workload.patterns import Words

_A_SECOND = 10**15
"""The unit in which cuts are compared: parts of a second, unless sums would be too large."""

_LONGEST_RUN = 24
"""The longest run of equal units for which a joint bound is computed."""


def _renamed(solved: Instance, target: Instance) -> Training:
    """Return the training settings of a problem, renamed for an equal problem."""
    names, target_names = ([layer.name for layer in one.network.layers] for one in (solved, target))

    def renamed(stated: Words | None, key: str) -> Words | None:
        if not isinstance(stated, Mapping):
            return stated
        words = words_by_layer(stated, names, key)
        return compact([word or BY_LAYER[key] for word in words], target_names)

    training = solved.problem.training
    update = {key: renamed(getattr(training, key), key) for key in BY_LAYER}
    return training.model_copy(update=update)


@dataclass
class _Stage:
    """The knowledge about a stage, and about all stages that equal it.

    Parameters
    ----------
    units
        Where it begins and ends; the first of equal stages.
    links
        The links of its messages to the stages before and behind it.
    value
        A bound on its time; once settled the time of its plan, `NEVER` if nothing fits.
    proved
        A bound on its time, once it is settled.
    low
        Its bound in any memory; None if it has not been computed.
    """

    number: int
    units: tuple[int, int]
    links: tuple[BisectionLink | None, BisectionLink | None]
    in_flight: tuple[int, ...]
    search: SearchRequest
    value: Fraction = Fraction()
    proved: Fraction = Fraction()
    low: DualBound | None = None
    is_settled: bool = False
    found: tuple[SearchRequest, SearchResult] | None = None
    error: NothingFitsError | None = None

    @property
    def excess(self) -> Fraction:
        """The part of its memory that its fastest plan lacks; 0 if it fits or is unbounded."""
        if self.low is None or self.low.excess <= 0:
            return Fraction()
        return self.low.excess / TrainingMode(self.search).capacity

    def needs_no_more_in_flight(self, in_flight: tuple[int, ...]) -> bool:
        """Return whether each chunk has at most as many in flight as another stage's."""
        return all(map(le, self.in_flight, in_flight))


class PairPlan(NamedTuple):
    """A plan of a pair's numbers of stages and micro-batches; fields as of `StagesFound`."""

    seconds: Fraction
    stages: Stages
    plans: tuple[StagePlan, ...]
    results: tuple[SearchResult, ...]


class Pair:
    """A number of stages and of micro-batches: the cuts, and a bound on all of these.

    Parameters
    ----------
    fewer
        A number of micro-batches with which units take no longer, for first bounds.
    """

    def __init__(self, parts: PartsOfArray, count: int, fewer: int, bound: Fraction) -> None:
        self.parts, self._bounded_by = parts, fewer
        self.micro_batches = count
        self._chunks = len(parts.units.chunks(0, 1))
        self._turns = count * self._chunks
        self._limited = parts.search.instance.problem.device_memory is not None
        self._stages: dict[Hashable, _Stage] = {}
        self._pinned: dict[tuple[int, tuple[str, ...]], _Stage | None] = {}
        self.unproved, self.bound = NEVER, bound
        """Bounds on plans with a stage that was not solved to optimality, and on all others."""
        self.is_done = self.is_bounded = False
        self.excess: Fraction | None = None
        """The memory that a stage lacks without recomputation, roughly, relative to its memory."""
        self.plan: PairPlan | None = None

    @property
    def errors(self) -> list[NothingFitsError]:
        """Why some stages have no plan that fits."""
        return [stage.error for stage in self._stages.values() if stage.error]

    @cached_property
    def _in_flight(self) -> list[tuple[int, ...]]:
        """The micro-batches in flight of each chunk of each stage; 1 if memory is not limited."""
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
        """The unit for comparing cuts, in parts of a second: coarse enough for all sums."""
        units, parts = range(self.parts.units.count), _A_SECOND
        total = sum(self.parts.lower_bound(unit, self._bounded_by) for unit in units)
        while total * parts * 64 * self.parts.count >= IMPOSSIBLE:
            parts //= 10
        return parts

    def _table(self, per_second: int) -> NDArray[np.int64]:
        """Return a bound on each stage from one unit to before another."""

        def scaled(seconds: Fraction) -> int:
            return min(int(seconds * per_second), IMPOSSIBLE)

        units, parts, fewer = self.parts.units, self.parts, self._bounded_by
        charges = [scaled(parts.lower_bound(n, fewer)) for n in range(units.count)]
        sums = np.array([0, *accumulate(charges)])
        shortest = sums - sums[:, None]
        more_of_runs = self._more_of_runs(scaled, charges)
        for owner, other in units.tied:  # weights that both hold are charged once
            shortest[: owner + 1, other + 1 :] -= charges[other]
        extremes: dict[BisectionLink | None, NDArray[np.int64]] = {}
        extremes[None] = np.zeros((2, units.count + 1), np.int64)
        for link in parts.links:
            of_borders = [parts.message_extremes(n, link, fewer) for n in range(1, units.count)]
            rows = [(0, 0), *(tuple(map(scaled, border)) for border in of_borders), (0, 0)]
            extremes[link] = np.array(rows).T
        searched = [(stage, *units.repetitions(*stage.units)) for stage in self._stages.values()]
        table = np.full((parts.count, *shortest.shape), IMPOSSIBLE)
        for number, (before, behind) in enumerate(self._links):
            # The time of a stage of some of its units, and the other units' bounds.
            more = np.zeros_like(shortest)
            fitting = [
                entry
                for entry in searched
                if entry[0].needs_no_more_in_flight(self._in_flight[number])
            ]
            for stage, starts, ends in fitting:
                messages = extremes[stage.links[0]][1, starts] + extremes[stage.links[1]][1, ends]
                further = scaled(stage.value) - messages - shortest[starts, ends]
                more[starts, ends] = np.maximum(more[starts, ends], further)
            more = np.maximum.accumulate(more, axis=1)
            more = np.maximum.accumulate(more[::-1], axis=0)[::-1]
            bound = (
                shortest
                + np.maximum(more, more_of_runs)
                + extremes[before][0][:, None]
                + extremes[behind][0]
            )
            for stage, starts, ends in fitting:
                if stage.links == (before, behind):
                    same = stage.is_settled and stage.in_flight == self._in_flight[number]
                    value = scaled(stage.value)
                    bound[starts, ends] = value if same else np.maximum(bound[starts, ends], value)
            table[number] = np.minimum(bound, IMPOSSIBLE)
        table[:, *np.tril_indices(len(shortest))] = IMPOSSIBLE
        return table

    def _more_of_runs(
        self, scaled: Callable[[Fraction], int], charges: Sequence[int]
    ) -> NDArray[np.int64]:
        """Return a lower bound on how much longer runs of equal units take than unit by unit."""
        units, more = self.parts.units, np.zeros((len(charges) + 1,) * 2, np.int64)
        for run in units.runs:
            units_per_stage = -(-len(run) // self.parts.count)
            length = units_per_stage // -(-units_per_stage // _LONGEST_RUN)
            if length > 1:
                charge_of_run = scaled(self.parts.lower_bound(run.start, self._bounded_by, length))
                there = np.clip(np.arange(len(charges) + 1), run.start, run.stop)
                times = np.maximum(there - there[:, None], 0) // length
                more += times * max(charge_of_run - length * charges[run.start], 0)
        return more

    def advance(self, limit: Fraction) -> None:
        """Find the best cuts by current bounds, and refine the bound of one of their stages.

        Parameters
        ----------
        limit
            Plans of at least this time are of no interest.

        Raises
        ------
        NoAnswerError
            If the deadline passes.
        """
        per_second = self._per_second
        cuts = least_cuts_sharing(
            self._table(per_second),
            self._turns,
            [*self.parts.units.shared.values()],
            lambda places: self.parts.summed(places) * per_second,
        )
        self.is_bounded = True
        before, self.bound = self.bound, cuts.cost / per_second if cuts else NEVER
        is_new = self._limited and self.excess is None
        if is_new and self._bounded_by == self.micro_batches:
            self.excess = self.parts.excess(self._bounded_by)
        if cuts is None or self.bound > before or self._bounded_by != self.micro_batches:
            # Bounds of others may be lower now.
            self._bounded_by = self.micro_batches
            return
        if is_new:
            return
        places = [*pairwise((0, *cuts.ends))]
        summed = self.parts.summed(places)
        stages = [self._stage(number, *units) for number, units in enumerate(places)]
        unsettled = [stage for stage in stages if not stage.is_settled]
        if not unsettled:
            self._keep(self._consistent(stages, places))
            self.is_done = True
            return
        if self.plan is None and limit == NEVER and self.parts.search.deadline.left() is not None:
            self._plan_at_once(stages, places)
        unbounded = [stage for stage in unsettled if stage.low is None]
        if unbounded and self._limited and self.parts.count > 1:
            for stage in unbounded:
                self._bound_in_any_memory(stage)
            self.excess = max(stage.excess for stage in unsettled)
            return
        for stage in unsettled:
            self._learn(stage)
        if any(stage.is_settled for stage in unsettled):
            return
        # Of stages that fit, the one with least memory gives bounds on the others.
        fewest = min(
            (stage for stage in unsettled), key=lambda stage: (stage.excess, sum(stage.in_flight))
        )
        stage = fewest if not fewest.excess else max(unsettled, key=lambda stage: stage.excess)
        values = [other.value for other in stages if other is not stage]
        self._settle(stage, values, limit - summed)

    def solve_all(self) -> None:
        """Solve the stages of all cuts, without bounds, and keep the best plan.

        Raises
        ------
        RefusedError
            If a solver refuses a stage.
        NoAnswerError
            If the deadline passes.
        """
        last = self.parts.units.count
        lowest, self.bound = NEVER, NEVER
        best: list[tuple[int, int]] = []
        for ends in combinations(range(1, last), self.parts.count - 1):
            places = [*pairwise((0, *ends, last))]
            stages = [self._stage(number, *units) for number, units in enumerate(places)]
            for stage in stages:
                if not stage.is_settled:
                    stage.search.deadline.check()
                    self._solve(stage)
            summed = self.parts.summed(places)
            proved = charge_of([stage.proved for stage in stages], self._turns) + summed
            charge = charge_of([stage.value for stage in stages], self._turns) + summed
            self.bound = min(self.bound, proved)
            if charge < lowest:
                lowest, best = charge, places
        if best:
            stages = [self._stage(number, *units) for number, units in enumerate(best)]
            self._keep(self._consistent(stages, best))
        self.is_done = True

    def _keep(self, plan: PairPlan) -> None:
        if self.plan is None or plan.seconds < self.plan.seconds:
            self.plan = plan

    def _consistent(self, stages: Sequence[_Stage], places: Sequence[tuple[int, int]]) -> PairPlan:
        """Return the plan of solved stages, or a better one with one layout at all borders.

        Each stage was solved as if it received its inputs in the layouts that suit it.
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
            constraints_with_pins = constraints.model_copy(
                update={"fix": (*constraints.fix, *pins)}
            )
            problem = instance.problem.model_copy(update={"constraints": constraints_with_pins})
            request = self.parts.request(Instance.to_search(instance.network, problem))
            self._pinned[key] = None
            with suppress(NoAnswerError, InfeasibleError, RefusedError):
                self._pinned[key] = replace(stage, found=within_memory(request, joint))
        return self._pinned[key]

    def _plan_at_once(self, stages: Sequence[_Stage], places: Sequence[tuple[int, int]]) -> None:
        """Keep a plan whose stages are configurations, if these fit: they are found quickly."""
        fitting = []
        for stage in stages:
            counts = ModesByMicroBatches(stage.search, None)
            plan = configuration_that_fits(stage.search) or uniform_plan(stage.search, counts)
            if plan is None or not plan.fits:
                return
            request_and_result = replace(stage.search, instance=plan.mode.instance), plan.result
            fitting.append(replace(stage, found=request_and_result))
        self._keep(self._planned(fitting, places))

    def _planned(self, stages: Sequence[_Stage], places: Sequence[tuple[int, int]]) -> PairPlan:
        """Return the plan of solved stages, timed with the layouts that are sent."""
        units, parts = self.parts.units, self.parts
        ends = tuple(units.chunks(*place)[-1].stop for place in places)
        cut = units.stages or Stages(units.network, parts.count, ends)
        solved = enumerate(zip(stages, places, strict=True))
        plans = tuple(self._plan_of(number, *stage) for number, stage in solved)
        results = tuple(stage.found[1] for stage in stages if stage.found)
        if parts.count == 1 or parts.is_stated:  # stated degrees determine the stored layouts
            alone = charge_of([plan.seconds for plan in plans], self._turns)
            seconds = alone + parts.summed(places)
        else:
            seconds = parts.staged(cut, plans, self.micro_batches).seconds
        return PairPlan(seconds, cut, plans, results)

    def _plan_of(self, number: int, solved: _Stage, units: tuple[int, int]) -> StagePlan:
        """Return the plan of a stage, given that of an equal stage that was solved."""
        assert solved.found is not None
        search, result = solved.found
        instance = search.instance
        if units != solved.units:
            in_flight = self._in_flight[number]
            instance_of_parts = self.parts.instance(number, units, self.micro_batches, in_flight)
            instance = instance_of_parts.trained(_renamed(instance, instance_of_parts))
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

    def _learn(self, stage: _Stage) -> None:
        """Bound a stage by equal ones that hold less, and settle it by one that holds more."""
        kinds = self._kinds(stage)
        equals = [
            other
            for other in self._stages.values()
            if other.is_settled and other.links == stage.links and self._kinds(other) == kinds
        ]
        less = [other.proved for other in equals if other.needs_no_more_in_flight(stage.in_flight)]
        stage.value = max([stage.value, *less])
        for other in equals:
            if (
                stage.needs_no_more_in_flight(other.in_flight)
                and other.value <= stage.value
                and other.found
            ):
                stage.value = stage.proved = other.value
                stage.is_settled, stage.found, stage.units = True, other.found, other.units

    def _kinds(self, stage: _Stage) -> list[int]:
        return self.parts.units.kinds[slice(*stage.units)]

    def _modes(self, stage: _Stage) -> LayerModes:
        return LayerModes(stage.search, self.micro_batches)

    def _bound_in_any_memory(self, stage: _Stage) -> None:
        try:
            stage.low = dual_bound(self._modes(stage).ample, Fraction())
        except InfeasibleError:
            stage.value, stage.is_settled = NEVER, True
        except RefusedError:  # more than memory allows
            stage.low = DualBound(Fraction(), stage.value, Fraction())
        else:
            stage.value = max(stage.value, stage.low.bound)

    def _settle(self, stage: _Stage, values: Sequence[Fraction], limit: Fraction) -> None:
        """Solve a stage, unless a step is too long with the other stages' bounds."""
        rest, longest = sum(values, Fraction()), max(values, default=Fraction())
        goal = limit - rest / self._turns
        if goal < longest:
            goal = self._turns * (limit - longest) - rest + longest
        # A margin, since cuts are compared in coarse units.
        more = Fraction(self.parts.count * self._turns, self._per_second)
        goal = min(goal + more, NEVER)
        try:
            self._solve(stage, goal)
        except NothingFasterError:
            stage.value = max(stage.value, goal)
            return
        except (NoAnswerError, RefusedError):
            stage.search.deadline.check()
            stage.proved, stage.value = stage.value, NEVER  # more than memory allows
            stage.is_settled = True
        if stage.proved < stage.value:
            self.unproved = min(self.unproved, self.bound)

    def _solve(self, stage: _Stage, cutoff: Fraction = NEVER) -> None:
        """Settle the time of a stage by a solver; raises as `within_memory`."""
        try:
            search, result = stage.found = within_memory(stage.search, joint, cutoff=cutoff)
        except NothingFitsError as error:
            stage.proved = NEVER if error.proved else stage.value
            stage.value, stage.error = NEVER, error
        except InfeasibleError:
            stage.proved = stage.value = NEVER
        else:
            mode = TrainingMode(search)
            stage.proved = stage.value if result.bound is None else mode.amount_of(result.bound)
            charged = total_cost(mode.instance, result.assignments, result.priced)
            stage.value = mode.amount_of(charged)
        stage.is_settled = True
