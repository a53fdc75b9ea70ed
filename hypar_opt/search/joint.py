"""Joint search: all levels of the hierarchy together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.search.check_result import assignment_of
from hypar_opt.search.levelwise import levelwise
from hypar_opt.search.reductions import ByStates, reduction_of
from hypar_opt.search.table_solver import TableSolver
from hypar_opt.search.to_result import to_result

if TYPE_CHECKING:
    from hypar_opt.search.reductions import TableReduction
    from hypar_opt.search.result import SearchRequest, SearchResult

MAX_STATES_SOLVED_DIRECTLY = 3**4
"""Up to this many states per layer, elimination on a graph is as fast as the bound by counts."""


def joint(search: SearchRequest) -> SearchResult:
    """Find the cheapest plan over all levels together.

    They are one table: of thresholds if these can state the problem, else of states.

    Raises
    ------
    RefusedError, NoAnswerError, WrongClaimError
        As `levelwise`.

    Source: docs/decisions/0005-joint-optimum.md.
    """
    # A baseline assigns each level by rule, and without levels there is nothing to search.
    if search.levels == 0 or not search.solver.searches:
        return replace(levelwise(search), scope="joint")
    reduction = reduction_of(search.instance)
    tables = TableSolver(search, 1)
    try:
        search.deadline.check()
        if isinstance(reduction, ByStates) and _has_bound_by_counts(search):
            rows, stopped_by = _from_counts(search, reduction, tables)
        else:
            rows, stopped_by = _solved(search, reduction, tables), None
    except NoAnswerError as error:
        return to_result(search, "joint", [], tables, error.stopped_by)
    return to_result(search, "joint", rows, tables, stopped_by)


def _solved(
    search: SearchRequest, reduction: TableReduction, tables: TableSolver
) -> list[tuple[int, ...]]:
    """Solve the table of a reduction, and return the choices of each level."""
    reduction.check_size(search.solver, search.deadline)
    compact = reduction.compact(search.solver, search.deadline)
    if compact is not None:
        result = tables.solve_compact(compact)
    else:
        table, labels = reduction.apply(search.deadline)
        start = None
        if search.start:
            start = reduction.assigned(
                [search.start_of(level) or () for level in range(search.levels)]
            )
        result = tables.solve(table, start, labels=labels)
    return reduction.invert(assignment_of(result))


def _has_bound_by_counts(search: SearchRequest) -> bool:
    """Return whether states are many and have a bound by counts that may be attained."""
    # Imported late: most problems have thresholds.
    from hypar_opt.search.bound_by_counts import few_levels_alike

    instance = search.instance
    choices = len(instance.workload.choices)
    return (
        choices**search.levels > MAX_STATES_SOLVED_DIRECTLY
        and instance.workload.has_replicas
        and few_levels_alike(instance.problem)
        # A program has a size of its own, up to which elimination ends, too.
        and search.solver.max_columns is None
    )


def _from_counts(
    search: SearchRequest, states: ByStates, tables: TableSolver
) -> tuple[list[tuple[int, ...]], str | None]:
    """Solve for counts, and also return what stopped the proof.

    A plan that attains the bound of counts is optimal. Else states decide, if memory allows.
    """
    from hypar_opt.search.bound_by_counts import by_counts

    by_count = TableSolver(search, 1)
    rows, optimal = by_counts(search, by_count)
    if not optimal:
        try:
            return _solved(search, states, tables), None
        except RefusedError:
            pass
    tables.results += by_count.results
    return rows, None if optimal else "memory"
