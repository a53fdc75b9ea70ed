"""The fastest plan in pipeline stages: how many, of which layers, in how many micro-batches.

A step takes the longest stage's time, and a share of all others' by micro-batches, in which they
wait for one another. Gradients of weights that several stages have are summed at the end: which
stages, the cuts say. Numbers of stages and of micro-batches are bounded first, and those of the
least bound are asked more, until no other may have a better plan.

Source: D. Narayanan et al., "Efficient large-scale language model training on GPU clusters using
Megatron-LM", SC 2021; docs/decisions/0049-stages.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import TYPE_CHECKING

from hypar_opt.costs.base import check_reading
from hypar_opt.errors import (
    ARRAY,
    HyparError,
    InfeasibleError,
    NoAnswerError,
    RefusedError,
    argument,
)
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.staged import StagePlan
from hypar_opt.integers import divisors
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.plan.stages import Stages
from hypar_opt.search.memory.incumbent import (
    NEVER,
    NothingFitsError,
)
from hypar_opt.search.stage_pairs import Pair
from hypar_opt.search.stage_units import PartsOfArray, Units, check_pins_of
from hypar_opt.solvers.base import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hypar_opt.plan.problem import Problem
    from hypar_opt.search.result import SearchRequest, SearchResult

MAX_CUTS = 5_000
"""The most cuts whose stages are solved one by one, in all micro-batches."""

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
    request: SearchRequest,
    counts: Sequence[int] | None = None,
    *,
    schedule: str = "1f1b",
    stated: StatedStages | None = None,
    exhaustive: bool = False,
) -> StagesFound:
    """Find the fastest plan in stages.

    Parameters
    ----------
    request
        The problem of time on the whole array, which has no stages.
    counts
        The stages that there may be; None for as many as the array has equal parts of, 1 among
        them. Micro-batches are those that the problem states, or any number of them.
    schedule
        Which says how many micro-batches are in flight.
    stated
        The stages, if these are not searched.
    exhaustive
        Solve the stages of all cuts in all micro-batches, in place of those that bounds leave.

    Raises
    ------
    HyparError
        If the objective is not time, or the array or the network has no so many parts.
    RefusedError
        If there are more than `MAX_CUTS` to try, or the solver refuses a stage.
    NothingFitsError
        If no plan is found that fits.
    InfeasibleError, NoAnswerError
        If no plan keeps to other constraints, or none is found before a limit.
    """
    search = _StageSearch(request, counts, schedule, stated)
    if exhaustive:
        search.solve_all()
    return search.result()


def _check_stages(problem: Problem, counts: Sequence[int] | None) -> None:
    """Refuse what has no such stages, naming what would have."""
    stages = argument("stages")
    if problem.array is None:
        raise HyparError(f"{stages} needs an array: {ARRAY}")
    for count in counts or ():
        if count > 1:
            problem.array.description.part(count)
    if problem.reading not in RUN_READINGS:
        readings = " or ".join(argument("reading", word) for word in RUN_READINGS)
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
        _check_stages(problem, counts)
        check_reading(problem, request.instance.workload)
        self._request, self._problem, self._stated = request, problem, stated
        network, micro_batches = request.instance.network, problem.training.micro_batches
        self._units = Units(network, problem, stated.stages if stated else None)
        self._batches = [micro_batches] if micro_batches else [*divisors(problem.batch)]
        if stated is not None:
            self._batches = [*stated.micro_batches]
        self._pairs: list[Pair] = []
        for parts in self._array_parts(counts, schedule):
            even = [count for count in self._batches if parts.splits_evenly(count)]
            parts.any_batches = parts.count == 1 and even == self._batches and not micro_batches
            last = even[:1] if parts.any_batches else even[-1:]
            for count in sorted({*self._batches} - {*even} | {*last}):
                self._open(parts, count, Fraction())

    def _open(self, parts: PartsOfArray, count: int, bound: Fraction) -> None:
        """Add so many micro-batches, whose plans take a bound at least."""
        fewer = self._batches[0] if parts.splits_evenly(count) else count
        self._pairs.append(Pair(parts, count, fewer, bound))

    def _advance(self, pair: Pair, limit: Fraction) -> None:
        """Ask more of a pair; with fewer micro-batches it takes no less by its first bound."""
        is_first, parts = not pair.is_bounded, pair.parts
        pair.advance(limit)
        if is_first and parts.splits_evenly(pair.micro_batches):
            fewer = [n for n in self._batches if n < pair.micro_batches and parts.splits_evenly(n)]
            for count in fewer[-1:]:
                self._open(parts, count, pair.bound)

    def solve_all(self) -> None:
        """Solve the stages of all cuts in all micro-batches."""
        by_count = {pair.parts.count: pair.parts for pair in self._pairs}
        cuts = len(self._batches) * sum(
            comb(self._units.count - 1, count - 1) for count in by_count
        )
        if cuts > MAX_CUTS:
            raise RefusedError(f"{cuts:,} cuts of stages are more than {MAX_CUTS:,}")
        self._pairs.clear()
        for parts in by_count.values():
            for count in self._batches:
                self._open(parts, count, Fraction())
                self._pairs[-1].solve_all()

    def _array_parts(self, counts: Sequence[int] | None, schedule: str) -> Iterator[PartsOfArray]:
        """Yield the parts that the array may have; a stage has two accelerators or more."""
        assert self._problem.array is not None
        inside, max_count = self._stated.inside if self._stated else None, self._units.count
        if counts is None:
            counts = [n for n in self._problem.array.description.part_counts if n <= max_count]
            counts = [n for n in counts if n == 1 or self._may_pin(n)]
        for count in counts:
            parts = PartsOfArray(self._request, self._units, count, schedule, inside)
            if count > max_count:
                name = self._request.instance.network.name
                raise HyparError(
                    f"{name} can be cut into {max_count} stages at most, fewer than {count}"
                )
            yield parts

    def _may_pin(self, count: int) -> bool:
        """Return whether plans in so many stages may keep to the pins."""
        try:
            check_pins_of(self._request.instance, count)
        except HyparError:
            return False
        return True

    def result(self) -> StagesFound:
        """Return the best plan of all, and the bound on all."""
        request, pairs, stopped_by = self._request, self._pairs, None
        plans = [pair.plan for pair in pairs if pair.plan]
        best = min(plans, key=lambda plan: plan.seconds, default=None)
        seconds = best.seconds if best else NEVER
        request.progress(0, len(pairs))
        try:
            while pair := self._next(seconds):
                request.deadline.check()
                self._advance(pair, seconds)
                if pair.plan and pair.plan.seconds < seconds:
                    best, seconds = pair.plan, pair.plan.seconds
                request.progress(sum(pair.is_done for pair in pairs), len(pairs))
        except NoAnswerError as error:
            stopped_by = error.stopped_by
        if best is None:
            raise self._refusal(stopped_by)
        bound = min(seconds, *(min(pair.bound, pair.unproved) for pair in pairs))
        request.progress(len(pairs), len(pairs))
        return StagesFound(
            best.stages,
            best.plans[0].instance.problem.training.micro_batches or 1,
            best.plans,
            best.results,
            seconds,
            bound,
            Status.OPTIMAL if bound == seconds else Status.FEASIBLE,
            stopped_by,
        )

    def _next(self, limit: Fraction) -> Pair | None:
        """Return what to ask next: first what may fit as it is."""
        pairs = [pair for pair in self._pairs if not pair.is_done and pair.bound < limit]
        if not pairs:
            return None
        if limit < NEVER:
            return min(pairs, key=lambda pair: pair.bound)
        # To compute again takes time.
        return min(pairs, key=lambda pair: pair.bound * (1 + (pair.excess or 0) / _LESS))

    def _refusal(self, stopped_by: str | None) -> HyparError:
        """Return the error that says that there is no plan, or which stage lacks least."""
        errors = [error for pair in self._pairs for error in pair.errors]
        if errors:
            nearest = min(errors, key=lambda error: error.counted.excess)
            proved = not stopped_by and all(pair.unproved == NEVER for pair in self._pairs)
            stopped = stopped_by or nearest.stopped_by or "limits"
            return NothingFitsError(nearest.counted, proved=proved, stopped_by=stopped)
        if stopped_by:
            return NoAnswerError(f"no answer within the {stopped_by}", stopped_by)
        return InfeasibleError("no stages satisfy the constraints")
