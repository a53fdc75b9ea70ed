"""The best plan known of those that fit a memory: what is better is kept, others are counted."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from hypar_opt.costs.state_classes import ClassTable
from hypar_opt.deadline import TIME_LIMIT
from hypar_opt.errors import NoAnswerError
from hypar_opt.plan.configuration import HYBRID, training_of, trains_as
from hypar_opt.plan.problem import ArrayRecord
from hypar_opt.search.check_result import assignment_of
from hypar_opt.search.joint import joint
from hypar_opt.search.open_ways import with_searched
from hypar_opt.search.pairs_of_levels import least_compute
from hypar_opt.search.prices_of_memory import PlanAtPrice
from hypar_opt.search.result import SearchResult, silent
from hypar_opt.search.table_solver import TableSolver
from hypar_opt.search.way_of_training import Counted, WayOfTraining
from hypar_opt.solvers.base import Status
from hypar_opt.solvers.elimination.classes import solve_classes

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.plan.configuration import Configuration
    from hypar_opt.plan.training import Training
    from hypar_opt.search.left_columns import Chosen
    from hypar_opt.search.result import Search, SearchRequest
    from hypar_opt.search.ways_by_count import WaysByCount
    from hypar_opt.search.ways_by_layer import WaysByLayer

NEVER = Fraction(2**62)
"""The cost of a way of which no plan fits."""


class NothingFitsError(NoAnswerError):
    """No plan was found that fits the memory of a device.

    Parameters
    ----------
    counted
        The plan that lacks least of those found.
    proved
        Whether it is proved that none fits: of all micro-batches, ways to train and layouts that
        the problem leaves open.
    at_any_share
        Whether the proof holds for all shares of groups of accelerators, too.
    """

    def __init__(
        self,
        counted: Counted,
        *,
        proved: bool = False,
        at_any_share: bool = False,
        stopped_by: str = "limits",
    ) -> None:
        super().__init__("no plan was found that fits the memory of a device", stopped_by)
        self.counted, self.proved, self.at_any_share = counted, proved, at_any_share


class NothingFasterError(NoAnswerError):
    """No plan that fits takes less than what is of interest: that is proved."""

    def __init__(self, message: str = "no plan takes less than what is of interest") -> None:
        super().__init__(message)


@dataclass
class BestFit:
    """The best plan known of a search whose training is left open.

    Parameters
    ----------
    solve
        What finds plans that train in one way.
    found
        What it takes and holds; None where no plan is known that fits.
    least
        The plan that exceeds the memory by least, of those counted, or leaves most of it.
    alike
        The ways in which plans fit whose layers all train alike, where no others are searched.
    below
        What is of no interest, whether a plan is known or not.
    """

    search: SearchRequest
    solve: Search
    found: Counted | None = None
    least: Counted | None = None
    alike: set[tuple[str, str]] = field(default_factory=set)
    below: Fraction = NEVER
    _ways: dict[Training, WayOfTraining] = field(default_factory=dict)
    _known: dict[tuple[Training, tuple[tuple[int, ...], ...]], Counted] = field(
        default_factory=dict
    )

    @property
    def limit(self) -> Fraction:
        """The cost from which a plan is of no interest."""
        return min(self.found.amount, self.below) if self.found else self.below

    @property
    def proves(self) -> bool:
        return ClassTable in self.search.solver.accepted_tables and self.solve is joint

    def keep(self, chosen: Chosen) -> Counted:
        """Count what a plan takes and holds, and keep it if it is the best that fits."""
        key = chosen.training, chosen.rows
        if key not in self._known:
            self._known[key] = self._counted(chosen)
        counted = self._known[key]
        self._take(counted)
        return counted

    def _take(self, counted: Counted) -> None:
        if self.least is None or counted.excess < self.least.excess:
            self.least = counted
        if counted.fits and counted.amount < self.limit:
            self.found = counted

    def _counted(self, chosen: Chosen) -> Counted:
        if chosen.training not in self._ways:
            self._ways[chosen.training] = WayOfTraining.of(self.search, chosen.training)
        return counted_plan(self.search, self._ways[chosen.training], chosen.rows)

    def keep_alike(self, ways: WaysByLayer, layouts: SearchResult) -> None:
        """Keep the best plan of given layouts whose layers all train in one way, if it fits."""
        opened = replace(ways.open, begins=[0])
        for words in product((*opened.apart, *opened.together), opened.sharded):
            if words in self.alike:  # in more micro-batches it takes no less
                continue
            way = WayOfTraining.of(self.search, opened.uniform(*words))
            if way.instance.constraints.allow(layouts.assignments):
                counted = way.counted(layouts)
                if counted.fits:
                    self.alike.add(words)
                self._take(counted)

    def at_price(self, ways: WaysByLayer, price: Fraction) -> PlanAtPrice:
        """Return the plan of least cost and price, and a bound on all plans that fit."""
        # Without a price no block is computed again.
        again = bool(price and ways.open.blocks)
        search = replace(self.search, progress=silent)
        found = solve_classes(ways.table(price, again=again), search.deadline, canonical=not price)
        result = TableSolver(search, 1).checked(found)
        chosen = ways.chosen(assignment_of(result), price)
        least = (result.bound or 0) - ways.charges(price) * ways.capacity
        return PlanAtPrice(price, chosen, self.keep(chosen), least / ways.per_unit)

    def result(self, bound: Fraction) -> tuple[SearchRequest, SearchResult]:
        assert self.found is not None
        best, way = self.found, self.found.way
        search = replace(self.search, instance=way.instance)
        charges = min(bound, best.amount) * way.per_unit // 1
        units: Fraction | None = Fraction(charges, way.cost.resolution)
        proved = charges == best.amount * way.per_unit
        scope = "joint" if self.solve is joint else "level"
        # Of the layouts that a solver found there is no bound on all plans; nor where none ended.
        if not self.proves or (best.amount and not bound):
            units, proved = None, False
        limit = TIME_LIMIT if self.search.deadline.passed() and not proved else None
        found = replace(
            best.found,
            status=Status.OPTIMAL if proved else Status.FEASIBLE,
            scope=scope,
            bound=units,
            stopped_by=best.found.stopped_by or limit,
        )
        return search, with_searched(found, self.search.instance, way.instance)


def fastest_at_once(search: SearchRequest, solve: Search) -> SearchResult:
    """Return the fastest plan of the batch at once, whether it fits or not."""
    # Of a bound any plan that attains it will do.
    if search.instance.bounded is not None and (plan := _exchanges_nothing(search)):
        return plan
    quiet = replace(search, progress=silent)  # what is counted is the ways
    if search.deadline.left() is not None:
        # Mostly found in less time than what it would fall back on, in case a limit came first.
        try:
            return solve(replace(quiet, deadline=search.deadline.part(1 / 2), falls_back=False))
        except NoAnswerError:
            pass
    return solve(quiet)


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


def configuration_that_fits(search: SearchRequest) -> Counted | None:
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
        # Of the ways that are searched, so that their bound holds.
        if configuration.zero == HYBRID:
            return False
        if rows(configuration) is None:
            return False
        return trains_as(configuration, network, problem.hierarchy, problem.training)

    # Ranked as the search's cost is.
    described = array.description() | {"overlap": "none"}
    without = ArrayRecord.of(type(array).model_validate(described))

    def counted(configuration: Configuration) -> Counted | None:
        training = training_of(configuration, network, problem.hierarchy, problem.training)
        way = WayOfTraining.of(search, training)
        # In micro-batches other choices may be there.
        choices = rows_by_mesh(way.instance)(configuration)
        return None if choices is None else counted_plan(search, way, choices)

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


def counted_plan(search: SearchRequest, way: WayOfTraining, nodes: Rows) -> Counted:
    """Return the plan of some choices of all nodes with what it takes and holds."""
    rows, tensors = tuple(map(search.layers_of, nodes)), way.search.chosen_tensors(nodes)
    result = SearchResult(rows, Status.FEASIBLE, "joint", None, tensors=tensors, priced=tensors)
    return way.counted(result)


def uniform_plan(search: SearchRequest, ways: WaysByCount) -> Counted | None:
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
    counts = [*ways.counts]
    limit = max(problem.batch // problem.accelerators, *counts[:1], 1)
    counts = [count for count in counts if count <= limit]
    while counts and not ways.of(counts[-1]).first.instance.constraints.allow(rows):
        counts.pop()
    if not counts:
        return None
    opened = ways.of(counts[0]).open
    again = *opened.apart, *opened.together

    def counted(count: int, recompute: str, shard: str) -> Counted:
        training = ways.of(count).open.uniform(recompute, shard)
        return WayOfTraining.of(search, training, ways.part).counted(plan)

    best = counted(counts[-1], again[-1], opened.sharded[-1])
    if not best.fits:
        return None

    def fits(count: int, recompute: str, shard: str) -> bool:
        nonlocal best
        if search.deadline.passed():
            return True
        own = counted(count, recompute, shard)
        best = min(best, own, key=lambda each: each.amount) if own.fits else best
        return own.fits

    fewest = bisect_left(counts, True, key=lambda count: fits(count, again[-1], opened.sharded[-1]))
    for count in counts[fewest : fewest + 2]:
        for recompute in again:
            # More that is sharded holds less and takes longer: the first that fits is the fastest.
            bisect_left(opened.sharded, True, key=partial(fits, count, recompute))
    return best
