"""Algorithm 2: level by level, each level optimised given the choices above it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.costs.level_tables import level_table
from hypar_opt.errors import InfeasibleError, NoAnswerError, RefusedError, argument
from hypar_opt.search.check_result import assignment_of
from hypar_opt.search.reductions import ByThresholds
from hypar_opt.search.result import Rows, SearchRequest
from hypar_opt.search.table_solver import TableSolver
from hypar_opt.search.to_result import to_result
from hypar_opt.sharding.weights import with_users
from hypar_opt.solvers.dynamic_programming import DynamicProgramming

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypar_opt.search.result import SearchResult


def levelwise(search: SearchRequest) -> SearchResult:
    """Solve level by level, H1 first, each given the choices above it.

    The total is the levels' sum, since a table charges all groups of its level
    (Algorithm 2 adds one group's charge, times the number of groups).

    Raises
    ------
    RefusedError
        If the solver does not accept a table or an option, or a charge joins several levels.
    NoAnswerError
        If a limit left a table without an assignment.
    WrongClaimError
        If the solver's objective or bound is not what its assignment costs.

    Source: Algorithm 2.
    """
    if search.instance.problem.joins_levels and search.solver.searches and search.levels > 1:
        joined, joint = argument("reading", "joined"), argument("search", "joint")
        raise RefusedError(f"an all-to-all of {joined} crosses several levels: it needs {joint}")
    tables = TableSolver(search, search.levels)
    rows: Rows = []
    try:
        rows.extend(_solved(search, tables))  # the levels solved before a limit
    except NoAnswerError as error:
        return to_result(search, "level", rows, tables, error.stopped_by)
    return to_result(search, "level", rows, tables)


def level_by_level(search: SearchRequest) -> list[Rows]:
    """Return the plan that elimination finds level by level; empty if it finds none in time.

    The table of a single level lacks charges that join several levels, but its choices are a plan.
    """
    request = SearchRequest(search.instance, DynamicProgramming(), deadline=search.deadline)
    try:
        return [list(_solved(request, TableSolver(request, request.levels)))]
    except (NoAnswerError, InfeasibleError, RefusedError):
        return []


def _solved(search: SearchRequest, tables: TableSolver) -> Iterator[tuple[int, ...]]:
    """Yield all nodes' choices at each level, H1 first."""
    instance = search.instance
    cost, workload = instance.cost, instance.workload
    rows: Rows = []
    by_thresholds = ByThresholds.accepts(instance)
    thresholds = by_thresholds and by_thresholds.compact(search.solver)
    for level, name in enumerate(instance.problem.hierarchy.names):
        search.deadline.check()
        if thresholds:
            table = None
            result = tables.solve_compact(thresholds.below(rows))
        else:
            table = level_table(cost, workload, rows)
            limited = instance.constraints.level(table, rows)
            ways = instance.constraints.by_weight_layout(table, rows)
            labels = instance.labels(name)
            start, suffix = search.start_of(level), f"-{name}"
            result = tables.solve(limited, start, suffix, labels, ways=ways)
        # Greedy: the next level splits what this level's choices leave.
        rows.append(with_users(workload, assignment_of(result)))
        tables.take(result, rows[-1], table)
        yield rows[-1]
