"""The incumbent of a search within memory: the best plan that fits, counted tensor by tensor."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING

from hypar_opt.costs.state_classes import ClassTable
from hypar_opt.deadline import TIME_LIMIT
from hypar_opt.errors import NoAnswerError
from hypar_opt.plan.configuration import HYBRID, training_of, trains_as
from hypar_opt.plan.problem import ArrayRecord
from hypar_opt.search.check_result import assignment_of
from hypar_opt.search.free_modes import with_searched
from hypar_opt.search.joint import joint
from hypar_opt.search.memory.modes import CountedPlan, TrainingMode
from hypar_opt.search.memory.relaxation import PlanAtPrice
from hypar_opt.search.result import SearchResult, silent
from hypar_opt.search.table_solver import TableSolver
from hypar_opt.search.two_level_neighbourhood import least_compute
from hypar_opt.solvers.base import Status
from hypar_opt.solvers.elimination.classes import solve_classes

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.plan.configuration import Configuration
    from hypar_opt.plan.training import Training
    from hypar_opt.search.memory.micro_batches import ModesByMicroBatches
    from hypar_opt.search.memory.relaxation import LayerModes, Selection
    from hypar_opt.search.result import Search, SearchRequest

NEVER = Fraction(2**62)
"""The cost of a mode in which no plan fits."""


class NothingFitsError(NoAnswerError):
    """No plan was found that fits the memory of a device.

    Parameters
    ----------
    counted
        The plan that lacks least of those found.
    proved
        Whether it is proved that none fits: of all micro-batches, modes to train and layouts that
        the problem leaves open.
    at_any_share
        Whether the proof holds for all shares of groups of accelerators, too.
    """

    def __init__(
        self,
        counted: CountedPlan,
        *,
        proved: bool,
        at_any_share: bool = False,
        stopped_by: str,
    ) -> None:
        super().__init__("no plan was found that fits the memory of a device", stopped_by)
        self.counted, self.proved, self.at_any_share = counted, proved, at_any_share


class NothingFasterError(NoAnswerError):
    """No plan that fits is faster than the limit of a search: that is proved."""

    def __init__(self, message: str = "no plan takes less than what is of interest") -> None:
        super().__init__(message)


@dataclass
class Incumbent:
    """The best plan so far that fits, of a search that leaves training open, and its counting.

    Parameters
    ----------
    solve
        What finds plans that train in one mode.
    plan
        None where no plan is known that fits.
    nearest
        The counted plan with the least excess over the memory, below 0 if it fits.
    uniform_that_fit
        The modes, one for all layers, in which plans fit, where modes by layer are not searched.
    cutoff
        The cost from which plans are of no interest, even if none is known.
    """

    search: SearchRequest
    solve: Search
    plan: CountedPlan | None = None
    nearest: CountedPlan | None = None
    uniform_that_fit: set[tuple[str, str]] = field(default_factory=set)
    cutoff: Fraction = NEVER
    _modes: dict[Training, TrainingMode] = field(default_factory=dict)
    _cache: dict[tuple[Training, tuple[tuple[int, ...], ...]], CountedPlan] = field(
        default_factory=dict
    )

    @property
    def limit(self) -> Fraction:
        """The cost from which a plan is of no interest."""
        return min(self.plan.amount, self.cutoff) if self.plan else self.cutoff

    @property
    def proves(self) -> bool:
        """Whether the search bounds all plans: by classes of states, over all levels at once."""
        return ClassTable in self.search.solver.accepted_tables and self.solve is joint

    def keep(self, selection: Selection) -> CountedPlan:
        """Count what a plan takes and holds, and keep it if it is the best that fits."""
        key = selection.training, selection.rows
        if key not in self._cache:
            self._cache[key] = self._counted(selection)
        counted = self._cache[key]
        self._update(counted)
        return counted

    def _update(self, counted: CountedPlan) -> None:
        if self.nearest is None or counted.excess < self.nearest.excess:
            self.nearest = counted
        if counted.fits and counted.amount < self.limit:
            self.plan = counted

    def _counted(self, selection: Selection) -> CountedPlan:
        if selection.training not in self._modes:
            self._modes[selection.training] = TrainingMode.of(self.search, selection.training)
        return counted_plan(self.search, self._modes[selection.training], selection.rows)

    def try_uniform_modes(self, modes: LayerModes, layouts: SearchResult) -> None:
        """Keep the best plan of given layouts whose layers all have one mode, if it fits."""
        free = replace(modes.free, begins=[0])
        for words in product((*free.of_layers, *free.of_blocks), free.shards):
            if words in self.uniform_that_fit:  # in more micro-batches it takes no less
                continue
            mode = TrainingMode.of(self.search, free.uniform(*words))
            if mode.instance.constraints.allow(layouts.assignments):
                counted = mode.counted(layouts)
                if counted.fits:
                    self.uniform_that_fit.add(words)
                self._update(counted)

    def solve_at_price(self, modes: LayerModes, price: Fraction) -> PlanAtPrice:
        """Return the plan of least cost and price, and a bound on all plans that fit."""
        search = replace(self.search, progress=silent)
        answer = solve_classes(modes.table(price), search.deadline, canonical=not price)
        result = TableSolver(search, 1).checked(answer)
        selection = modes.selection(modes.picks(assignment_of(result), price))
        bound = (result.bound or 0) - modes.charges(price) * modes.capacity
        return PlanAtPrice(price, selection, self.keep(selection), bound / modes.per_unit)

    def result(self, bound: Fraction) -> tuple[SearchRequest, SearchResult]:
        assert self.plan is not None
        plan, mode = self.plan, self.plan.mode
        search = replace(self.search, instance=mode.instance)
        charges = min(bound, plan.amount) * mode.per_unit // 1
        units: Fraction | None = Fraction(charges, mode.cost.resolution)
        proved = charges == plan.amount * mode.per_unit
        scope = "joint" if self.solve is joint else "level"
        # Of the layouts that a solver found there is no bound on all plans; nor where none ended.
        if not self.proves or (plan.amount and not bound):
            units, proved = None, False
        limit = TIME_LIMIT if self.search.deadline.passed() and not proved else None
        result = replace(
            plan.result,
            status=Status.OPTIMAL if proved else Status.FEASIBLE,
            scope=scope,
            bound=units,
            stopped_by=plan.result.stopped_by or limit,
        )
        return search, with_searched(result, self.search.instance, mode.instance)


def fastest_in_one_batch(search: SearchRequest, solve: Search) -> SearchResult:
    """Return the fastest plan of the batch at once, whether it fits or not."""
    # Of a bound any plan that attains it will do.
    if search.instance.bounded is not None and (plan := _exchanges_nothing(search)):
        return plan
    without_progress = replace(search, progress=silent)  # what is counted is the modes
    if search.deadline.left() is not None:
        # Mostly found in less time than what it would fall back on, in case a limit came first.
        try:
            return solve(
                replace(without_progress, deadline=search.deadline.part(1 / 2), uses_fallback=False)
            )
        except NoAnswerError:
            pass
    return solve(without_progress)


def _exchanges_nothing(search: SearchRequest) -> SearchResult | None:
    """Return data parallelism where it takes what all plans compute at least; else None."""
    instance, workload = search.instance, search.instance.workload
    rows = (workload.baselines["data"],) * search.levels
    plan, tensors = tuple(map(search.layers_of, rows)), search.chosen_tensors(rows)
    if workload.forbidden[:, 0].any() or not instance.constraints.allow(plan):
        return None
    total = search.total(plan, tensors)
    if total * instance.cost.resolution > least_compute(instance):
        return None
    return SearchResult(plan, Status.OPTIMAL, "joint", total, tensors=tensors, priced=tensors)


def configuration_that_fits(search: SearchRequest) -> CountedPlan | None:
    """Return the fastest configuration that fits, of those that a problem leaves open.

    It is soon found. None if there is none.
    """
    # Imported late: it needs the simulator.
    from hypar_opt.search.degrees import rows_by_mesh, search_degrees

    instance = search.instance
    network, problem, workload = instance.network, instance.problem, instance.workload
    has_some = network.repeats and not problem.groups and workload is instance.executed_workload
    if not has_some or problem.cost != "time":
        return None
    assert problem.array is not None
    array, rows = problem.array.description, rows_by_mesh(instance)

    def allowed(configuration: Configuration) -> bool:
        # Of the modes that are searched, so that their bound holds.
        if configuration.zero == HYBRID:
            return False
        if rows(configuration) is None:
            return False
        return trains_as(configuration, network, problem.hierarchy, problem.training)

    # Ranked as the search's cost is.
    described = array.description() | {"overlap": "none"}
    without = ArrayRecord.of(type(array).model_validate(described))

    def counted(configuration: Configuration) -> CountedPlan | None:
        training = training_of(configuration, network, problem.hierarchy, problem.training)
        mode = TrainingMode.of(search, training)
        # In micro-batches other choices may be there.
        choices = rows_by_mesh(mode.instance)(configuration)
        return None if choices is None else counted_plan(search, mode, choices)

    def accepted(configuration: Configuration) -> bool:
        plan = counted(configuration)
        return plan is not None and plan.fits

    searched = search_degrees(
        network,
        problem.model_copy(update={"array": without}),
        count=1,
        allowed=allowed,
        accepted=accepted,
        deadline=search.deadline.part(1 / 2),
    )
    return counted(searched.best[0].configuration) if searched.best else None


def counted_plan(search: SearchRequest, mode: TrainingMode, nodes: Rows) -> CountedPlan:
    """Return the plan of some choices of all nodes with what it takes and holds."""
    rows, tensors = tuple(map(search.layers_of, nodes)), mode.search.chosen_tensors(nodes)
    result = SearchResult(rows, Status.FEASIBLE, "joint", None, tensors=tensors, priced=tensors)
    return mode.counted(result)


def uniform_plan(search: SearchRequest, modes: ModesByMicroBatches) -> CountedPlan | None:
    """Return data parallelism that fits with all layers trained alike, which takes no search.

    Its micro-batches are the fewest with which it fits, or the next more, whichever is faster: more
    of them hold less, so that less is recomputed or sharded. None if it does not fit, or the
    constraints forbid it.
    """
    instance = search.instance
    row = search.layers_of(instance.workload.baselines["data"])
    rows = (row,) * search.levels
    plan = SearchResult(rows, Status.FEASIBLE, "joint", None, found_by="Data Parallelism")
    problem = instance.problem
    # With more of them some accelerators would have nothing to compute.
    counts = [*modes.counts]
    limit = max(problem.batch // problem.accelerators, *counts[:1], 1)
    counts = [count for count in counts if count <= limit]
    while counts and not modes.of(counts[-1]).first.instance.constraints.allow(rows):
        counts.pop()
    if not counts:
        return None
    free = modes.of(counts[0]).free
    again = *free.of_layers, *free.of_blocks

    def counted(count: int, recompute: str, shard: str) -> CountedPlan:
        training = modes.of(count).free.uniform(recompute, shard)
        return TrainingMode.of(search, training, modes.part).counted(plan)

    best = counted(counts[-1], again[-1], free.shards[-1])
    if not best.fits:
        return None

    def fits(count: int, recompute: str, shard: str) -> bool:
        nonlocal best
        if search.deadline.passed():
            return True
        candidate = counted(count, recompute, shard)
        if candidate.fits:
            best = min(best, candidate, key=attrgetter("amount"))
        return candidate.fits

    fewest = bisect_left(counts, True, key=lambda count: fits(count, again[-1], free.shards[-1]))
    for count in counts[fewest : fewest + 2]:
        for recompute in again:
            # More that is sharded holds less and takes longer: the first that fits is the fastest.
            bisect_left(free.shards, True, key=partial(fits, count, recompute))
    return best
