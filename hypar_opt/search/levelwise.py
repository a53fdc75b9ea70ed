"""Algorithm 2: level by level, each level optimised given the choices above it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.costs.level_tables import level_table
from hypar_opt.errors import NoAnswerError
from hypar_opt.search.check_result import assignment_of
from hypar_opt.search.table_solver import TableSolver
from hypar_opt.search.to_result import to_result
from hypar_opt.sharding.weights import with_users

if TYPE_CHECKING:
    from hypar_opt.search.result import SearchRequest, SearchResult


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
    instance = search.instance
    cost, workload = instance.cost, instance.workload
    tables = TableSolver(search, search.levels)
    rows: list[tuple[int, ...]] = []
    try:
        for level, name in enumerate(instance.problem.hierarchy.names):
            search.deadline.check()
            table = level_table(cost, workload, rows)
            limited = instance.constraints.level(table, rows)
            ways = instance.constraints.in_ways(table, rows)
            labels = instance.labels(name)
            start, suffix = search.start_of(level), f"-{name}"
            result = tables.solve(limited, start, suffix, labels, ways=ways)
            # Greedy: the next level splits what this level's choices leave.
            rows.append(with_users(workload, assignment_of(result)))
    except NoAnswerError as error:
        return to_result(search, "level", rows, tables, error.stopped_by)
    return to_result(search, "level", rows, tables)
