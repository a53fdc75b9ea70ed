"""Search over the levels of the hierarchy: level by level, or jointly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import CostModel, SplitCounts, Thresholds, level_table
from hypar_opt.costs.product import (
    canonical_states,
    check_states,
    expanded,
    factored,
    in_mixed_radix,
)
from hypar_opt.costs.table import CostTable, Integers, exact_dtype, side_by_side
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import (
    InfeasibleError,
    NoAnswerError,
    RefusedError,
    WrongClaimError,
)
from hypar_opt.search.constraints import Limits
from hypar_opt.search.pricing import price_levels, price_table
from hypar_opt.solvers.base import SolveResult, SolverOptions, Status, flags, too_large
from hypar_opt.solvers.feasibility import trivially_infeasible
from hypar_opt.solvers.fixed import BASELINES

if TYPE_CHECKING:
    from hypar_opt.solvers.base import Solver
    from hypar_opt.workload.tensors import Workload

Progress = Callable[[int, int], None]
Assignments = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Search:
    """What a search is given.

    Parameters
    ----------
    start
        A plan to start from, levels x layers, for solvers that take one.
    progress
        Called with the number of tables solved, and of tables.
    deadline
        When to end; the time limit among the options counts from the call, and this from none.
    """

    workload: Workload
    cost: CostModel
    levels: int
    limits: Limits
    solver: Solver
    options: SolverOptions = field(default_factory=SolverOptions)
    start: Assignments | None = None
    progress: Progress = lambda done, of: None
    deadline: Deadline = NEVER


@dataclass(frozen=True)
class Partition:
    """An assignment for every level, H1 first, and what is known of it.

    Parameters
    ----------
    assignments : levels x layers
        Columns of the level tables.
    status
        Optimal where every table was solved to optimality.
    scope
        ``level``: each level's table, given those above it; ``joint``: all plans.
    bound
        The tables' bounds added up, in the cost's unit, where all have one. With scope
        ``joint`` no plan costs less.
    stopped_by
        What ended a table's search before a proof.
    found_by
        Whose plan it is, if a limit came and the search's own was no better: a baseline's, as
        ``Data Parallelism``; level by level perhaps only ``Data Parallelism from H3``.
    statistics
        Of each model built, in order.
    versions
        Of what was used.
    """

    assignments: Assignments
    status: Status
    scope: str
    bound: Fraction | None
    stopped_by: str | None = None
    found_by: str | None = None
    statistics: tuple[Mapping[str, float], ...] = ()
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def levelwise(search: Search) -> Partition:
    """Solve level by level, H1 first, each given the choices above it.

    The total is the levels' sum, since a table charges all groups of its level
    (Algorithm 2 adds one group's charge, times the number of groups).

    Raises
    ------
    RefusedError
        If the solver does not take a table or an option, or a charge is not one of a level.
    NoAnswerError
        If a limit left a table without an assignment.
    WrongClaimError
        If the solver's objective or bound is not what its assignment costs.

    Source: Algorithm 2.
    """
    if search.limits.couple_layers and search.cost.communication_only() is not None:
        raise RefusedError("--memory depends on the final shards: it needs --search joint")
    tables = _Tables(search, search.levels)
    splits = SplitCounts.none(len(search.workload.layers), search.cost.choices)
    rows: list[tuple[int, ...]] = []
    try:
        for level in range(search.levels):
            search.deadline.check()
            table = level_table(search.cost, search.workload, splits)
            table = search.limits.level(table, splits)
            start = search.start[level] if search.start else None
            rows.append(_assigned(tables.solve(table, start, f"-H{level + 1}")))
            splits = splits.after(rows[-1])
    except NoAnswerError as error:
        return _partition(search, "level", rows, tables, error.stopped_by)
    charged = search.cost.beyond_levels(search.workload, splits)
    if charged is not None and search.solver.searches:
        raise RefusedError(f"{charged}: it needs --search joint")
    return _partition(search, "level", rows, tables)


def joint(search: Search) -> Partition:
    """Find the cheapest plan over all levels together.

    Where the levels are alike and nothing couples them, a layer's charges telescope and the
    problem comes apart into one two-choice chain for each t = 1..H, "does this layer take
    model parallelism at t levels or more?", which is the table of a level below t - 1 model
    and H - t data choices of every layer. Model parallelism at the topmost levels is then
    best, given how many. Else a layer's choice is what it takes at all levels together.

    Raises
    ------
    RefusedError, NoAnswerError, WrongClaimError
        As `levelwise`.

    Source: docs/decisions/0005-joint-optimum.md.
    """
    if search.levels == 0 or not search.solver.searches:
        return replace(levelwise(search), scope="joint")
    tables = _Tables(search, 1)
    thresholds = search.cost.thresholds(search.workload)
    try:
        search.deadline.check()
        if thresholds is not None and not search.limits.any:
            rows = _thresholds(search, thresholds, tables)
        else:
            rows = _product_states(search, tables)
    except NoAnswerError as error:
        return _partition(search, "joint", [], tables, error.stopped_by)
    return _partition(search, "joint", rows, tables)


def threshold_tables(thresholds: Thresholds, levels: int, cost: CostModel) -> list[CostTable]:
    """Return the table of each question "model parallelism at t levels or more?", t = 1..H.

    Parameters
    ----------
    cost
        Whose thresholds they are: charges count its parts of its unit.
    """
    largest = sum(thresholds.data) + sum(thresholds.model) + sum(map(sum, thresholds.pairs))
    number = exact_dtype(largest << levels)
    node = np.array([thresholds.data, thresholds.model], number).T
    ends = np.array(thresholds.ends, np.intp).reshape(-1, 2)
    edge: Integers = np.array(thresholds.pairs, number).T.reshape(-1, 2, 2)
    tables = []
    for t in range(1, levels + 1):
        shifted: Integers = np.left_shift(node, np.array([levels - t, t - 1]).astype(number))
        table = CostTable(shifted, edge, ends, unit=cost.unit, resolution=cost.resolution)
        tables.append(table)
    return tables


def _thresholds(search: Search, thresholds: Thresholds, tables: _Tables) -> list[tuple[int, ...]]:
    levels = search.levels
    if hasattr(search.solver, "solve_thresholds"):
        result = tables.checked(
            search.solver.solve_thresholds(thresholds, levels, tables.options())
        )
    else:
        start = None
        if search.start:
            model = np.sum(search.start, axis=0)
            start = tuple(int(m >= t) for t in range(1, levels + 1) for m in model)
        kinds = tuple(layer.kind for layer in search.workload.layers)
        table = side_by_side(threshold_tables(thresholds, levels, search.cost))
        result = tables.solve(replace(table, kinds=kinds * levels), start)
    # In an optimum "t levels or more" implies "t - 1 or more"; if a limit left an assignment
    # in which it does not, the number of levels is still a plan, and priced as such.
    answers = np.reshape(_assigned(result), (levels, -1))
    return [tuple(int(level < count) for count in answers.sum(axis=0)) for level in range(levels)]


def _product_states(search: Search, tables: _Tables) -> list[tuple[int, ...]]:
    choices, levels, deadline = search.cost.choices, search.levels, search.deadline
    layers, edges = len(search.workload.layers), len(search.workload.ends)
    check_states(layers, choices, levels)
    most = getattr(search.solver, "most_columns", None)  # a third party's may not say
    refusal = too_large(most, layers, edges, choices**levels)
    if refusal:
        raise RefusedError(refusal)
    states = canonical_states(levels, choices, deadline)
    result = None
    if hasattr(search.solver, "solve_factored") and not search.limits.couple_layers:
        table = factored(search.cost, search.workload, levels, deadline)
        if table is not None:
            tables.least = least_cost(table.node, *table.pairs)
            columns = in_mixed_radix(states, choices)
            table, price = search.limits.factored(table, states, columns, deadline)
            answer = search.solver.solve_factored(table, columns, price, tables.options())
            result = tables.checked(answer)
    if result is None:
        plain = expanded(search.cost, search.workload, levels, deadline)
        start = None
        if search.start:
            start = tuple(map(states.index, zip(*search.start, strict=True)))
        result = tables.solve(search.limits.states(plain, states, deadline), start)
    return list(zip(*(states[column] for column in _assigned(result)), strict=True))


def least_cost(node: Integers, *pairs: Integers) -> int:
    """Return what no assignment costs less than: each layer and each pair at its cheapest."""
    parts = [part.reshape(len(part), -1) for part in (node, *pairs) if part.size]
    return max(0, sum(int(part.min(axis=1).sum()) for part in parts))


class _Tables:
    """Solves a search's tables one after the other.

    Attributes
    ----------
    results
        The answers, in order.
    least
        A bound of the table at work, without its solver; None where none is known.
    """

    def __init__(self, search: Search, count: int) -> None:
        self._search = search
        self._count = count
        self.results: list[SolveResult] = []
        self.least: int | None = None
        refused = search.options.given() - search.solver.supported_options
        if search.start is not None and "warm_start" not in search.solver.supported_options:
            refused.add("warm_start")
        if refused:
            raise RefusedError(f"takes no {', '.join(flags(refused))}")
        search.progress(0, count)

    def options(self, start: tuple[int, ...] | None = None, suffix: str = "") -> SolverOptions:
        options = self._search.options
        options = replace(options, time_limit=self._search.deadline.left())
        if options.export is not None and self._count > 1:
            export = options.export.with_stem(options.export.stem + suffix)
            options = replace(options, export=export)
        return replace(options, warm_start=start)

    def solve(
        self, table: CostTable, start: tuple[int, ...] | None = None, suffix: str = ""
    ) -> SolveResult:
        solver, deadline = self._search.solver, self._search.deadline
        refusal = solver.accepts(table)
        if refusal:
            raise RefusedError(refusal)
        self.least = least_cost(table.node, table.edge)
        deadline.check()
        result = solver.solve(table, self.options(start, suffix))
        if result.assignment is not None:
            check_claim(table, result)
        elif (
            result.status is Status.INFEASIBLE
            and solver.searches
            and not trivially_infeasible(table)
        ):
            raise WrongClaimError("claims that there is no assignment, and there is one")
        if result.bound is None and result.stopped_by is not None:
            result = replace(result, bound=self.least)
        return self.checked(result)

    def checked(self, result: SolveResult) -> SolveResult:
        if result.status is Status.INFEASIBLE:
            which = "no assignment keeps" if self._search.solver.searches else "it does not keep"
            raise InfeasibleError(f"{which} to the constraints")
        if result.assignment is None:
            stopped_by = result.stopped_by or "limits"
            raise NoAnswerError(f"no answer within the {stopped_by}", stopped_by)
        self.results.append(result)
        self.least = None
        self._search.progress(len(self.results), self._count)
        return result


def check_claim(table: CostTable, result: SolveResult) -> None:
    """Hold a solver's claims against the table itself.

    Raises
    ------
    WrongClaimError
        Naming what is claimed and what is so.
    """
    assignment = _assigned(result)
    if len(assignment) != table.layers:
        raise WrongClaimError(f"assigned {len(assignment)} of {table.layers} layers")
    claims = (*assignment, result.objective or 0, result.bound or 0)
    if not all(isinstance(number, int) for number in claims):
        raise WrongClaimError("claims should be Python's whole numbers")
    if not all(0 <= choice < table.choices for choice in assignment):
        raise WrongClaimError(f"assigned a choice outside the table's {table.choices}")
    layers = range(table.layers)
    if table.allowed is not None and not table.allowed[layers, assignment].all():
        raise WrongClaimError("assigned a choice that is not allowed")
    if table.load is not None and table.capacity is not None:
        load = int(table.load[layers, assignment].sum())
        if load > table.capacity:
            raise WrongClaimError(f"assigned {load}, more than the capacity {table.capacity}")
    costs = price_table(table, assignment)
    if result.objective not in (None, costs):
        raise WrongClaimError(f"claims {result.objective}, its assignment costs {costs}")
    if result.bound is not None and result.bound > costs:
        raise WrongClaimError(f"claims the bound {result.bound}, above its assignment's {costs}")
    if result.status is Status.OPTIMAL and result.bound != costs:
        raise WrongClaimError(f"claims an optimum of {costs} with the bound {result.bound}")


def _assigned(result: SolveResult) -> tuple[int, ...]:
    assert result.assignment is not None
    return result.assignment


def _partition(
    search: Search,
    scope: str,
    rows: Sequence[tuple[int, ...]],
    tables: _Tables,
    stopped_by: str | None = None,
) -> Partition:
    """Say what the levels that were solved come to; those that a limit left are a baseline's."""
    results = tables.results
    stopped_by = stopped_by or next((r.stopped_by for r in results if r.stopped_by), None)
    solved = all(result.status is Status.OPTIMAL for result in results)
    found_by, plan = None, tuple(rows)
    if len(rows) < search.levels or not (solved or stopped_by in (None, "gap")):
        found_by, plan = _best_known(search, rows, stopped_by or "limits")
    bound = _bound(search, scope, tables, plan, found_by)
    total = _total(search, plan)
    if bound is not None and bound > total:
        raise WrongClaimError(f"claims the bound {bound}, above its plan's {total}")
    optimal = solved and found_by is None and bound == total
    return Partition(
        assignments=plan,
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        scope=scope,
        bound=bound,
        stopped_by=stopped_by,
        found_by=found_by,
        statistics=tuple(result.statistics for result in results if result.statistics),
        versions=MappingProxyType({k: v for r in results for k, v in r.versions.items()}),
    )


def _best_known(
    search: Search, rows: Sequence[tuple[int, ...]], stopped_by: str
) -> tuple[str | None, Assignments]:
    """Return the cheapest plan at hand once a limit has come, and whose it is.

    Of equals the search's own; else the one to start from; else the levels that were solved with
    a baseline below; else a baseline.

    Raises
    ------
    NoAnswerError
        If none of them keeps to the constraints.
    """
    solved, levels = len(rows), search.levels
    known: dict[str | None, Assignments] = {None: tuple(rows)} if solved == levels else {}
    if search.start:
        known["the plan to start from"] = search.start
    kinds = [layer.kind for layer in search.workload.layers]
    for first in sorted({solved % levels, 0}, reverse=True):
        for name, baseline in BASELINES.items():
            row = baseline.assignment(kinds)
            if row is not None:
                whose = f"{name} from H{first + 1}" if first else name
                known[whose] = (*rows[:first], *[row] * (levels - first))
    keeping = {whose: plan for whose, plan in known.items() if search.limits.allow(plan)}
    if not keeping:
        raise NoAnswerError(f"no answer within the {stopped_by}", stopped_by)
    return min(keeping.items(), key=lambda item: _total(search, item[1]))


def _bound(
    search: Search, scope: str, tables: _Tables, plan: Assignments, found_by: str | None
) -> Fraction | None:
    """Add up the bounds of the tables that a plan rests on; None where one is not known.

    Once a limit has come what is not known adds nothing, since no charge is negative, and what
    a level's table says counts only as far as the plan is the search's own above it.
    """
    bounds = [result.bound for result in tables.results]
    if found_by is not None:
        rows = [] if scope == "joint" else [result.assignment for result in tables.results]
        parted = next((n for n, row in enumerate(rows) if row != plan[n]), None)
        bounds = [*bounds, tables.least] if parted is None else bounds[: parted + 1]
        bounds = [bound for bound in bounds if bound is not None] or [None]
    if None in bounds:
        return None
    return Fraction(sum(bound for bound in bounds if bound is not None), search.cost.resolution)


def _total(search: Search, plan: Assignments) -> Fraction:
    return sum(price_levels(search.workload, search.cost, plan), Fraction())


SEARCHES = MappingProxyType({"levelwise": levelwise, "joint": joint})
