"""Joint search: all levels of the hierarchy together."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING

from hypar_opt.costs.pruned_table import PrunedTable
from hypar_opt.costs.state_classes import ClassTable
from hypar_opt.deadline import NEVER
from hypar_opt.errors import InfeasibleError, NoAnswerError, RefusedError, argument
from hypar_opt.instance.pricing import tensors_of
from hypar_opt.plan.stored_layouts import rows_with_stored
from hypar_opt.search.check_result import assignment_of
from hypar_opt.search.levelwise import level_by_level, levelwise
from hypar_opt.search.local_search import improved
from hypar_opt.search.reductions import reduction_of
from hypar_opt.search.result import SearchResult
from hypar_opt.search.table_solver import TableSolver
from hypar_opt.search.to_result import to_result
from hypar_opt.search.two_level_neighbourhood import improved_rows, least_compute
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import MEMORY, SolveResult, Status
from hypar_opt.workload.contiguous import first_gap, maximal_orders
from hypar_opt.workload.splitting import spatial_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypar_opt.costs.shared_nodes import Tensors
    from hypar_opt.search.reductions import TableReduction
    from hypar_opt.search.result import Assignments, Rows, SearchRequest

    LevelwiseRows = Callable[[], list[Rows]]
    """Returns the plan found level by level, if there is one; cached."""


def joint(search: SearchRequest) -> SearchResult:
    """Find the cheapest plan over all levels together, whose parts of images are contiguous.

    Contiguity couples levels (`hypar_opt.workload.contiguous`), which tables cannot express. Mostly
    the cheapest plan is contiguous anyway; if not, plans of each order are compared.
    """
    first, workload = _joint(search), search.instance.workload
    if not spatial_columns(workload):
        return first
    tensors = first.priced or tensors_of(search.instance, first.assignments)
    nodes = rows_with_stored(workload, first.assignments, tensors)
    agrees = first.status is Status.OPTIMAL or first.stopped_by is not None
    if agrees and first_gap(workload, nodes) is None:
        return first
    best: SearchResult | None = None
    bounds: list[Fraction | None] = []
    for orders in maximal_orders(workload, search.levels):
        request = replace(search, instance=search.instance.within(orders), start=None)
        try:
            result = _joint(request)
        except InfeasibleError:
            continue  # pins may need another order
        bounds.append(result.bound)
        if best is None or request.total(*_plan(result)) < request.total(*_plan(best)):
            best = result
        if result.status is Status.OPTIMAL and request.total(*_plan(result)) == first.bound:
            bounds = [first.bound]
            break
    if best is None:
        raise InfeasibleError(
            f"{argument('constraints.fix')}: no plan's parts of images are contiguous: rows that a"
            " layer splits at some levels begin with the first that splits any layer's"
        )
    proved = [bound for bound in bounds if bound is not None]
    bound = min(proved) if len(proved) == len(bounds) else first.bound
    status = Status.OPTIMAL if bound == search.total(*_plan(best)) else Status.FEASIBLE
    return replace(best, status=status, bound=bound)


def _plan(result: SearchResult) -> tuple[Assignments, Tensors | None]:
    return result.assignments, result.priced


def _joint(search: SearchRequest) -> SearchResult:
    """Find the cheapest plan over all levels together.

    There is a single table: of thresholds if that states the problem, or else of states. If a limit
    or the memory ends the search, the plan of a level-by-level search is a candidate, too.

    Raises
    ------
    RefusedError, NoAnswerError, WrongClaimError
        As `levelwise`.

    Source: docs/decisions/0005-joint-optimum.md.
    """
    # A baseline assigns each level by rule, and without levels there is nothing to search.
    if search.levels == 0 or not search.solver.searches:
        return replace(levelwise(search), scope="joint")
    if (only := search.instance.constraints.only_plan) is not None:
        return _only_plan(search, only)
    reduction = reduction_of(search.instance)
    tables = TableSolver(search, 1)
    levelwise_rows = cache(partial(level_by_level, search))
    limited = search.uses_fallback and search.deadline != NEVER
    rows: Rows = []
    stopped_by = None
    try:
        search.deadline.check()
        if limited:  # before the deadline, which would leave no time for it
            levelwise_rows()
        rows = _solved(search, reduction, tables, levelwise_rows)
    except NoAnswerError as error:
        stopped_by = error.stopped_by
        if tables.lower_bound is None:
            tables.lower_bound = least_compute(search.instance) or None
    if stopped_by == MEMORY and not rows:
        rows = _improved_levelwise(search, tables, levelwise_rows)
    levelwise_plans = levelwise_rows() if limited or stopped_by == MEMORY else []
    return to_result(search, "joint", rows, tables, stopped_by, levelwise_plans)


def _only_plan(search: SearchRequest, rows: Assignments) -> SearchResult:
    """Return the only plan that pins leave, which is optimal."""
    plan, tensors = tuple(map(search.layers_of, rows)), search.tensors_of(rows)
    search.instance.constraints.check(plan, rows)
    bound = search.total(plan, tensors)
    return SearchResult(plan, Status.OPTIMAL, "joint", bound, tensors=tensors, priced=tensors)


def _improved_levelwise(
    search: SearchRequest, tables: TableSolver, levelwise_rows: LevelwiseRows
) -> Rows:
    """Improve the levelwise plan, if all states take too much memory; set a bound on all plans."""
    bound = max(tables.lower_bound or 0, least_compute(search.instance))
    if not (plans := levelwise_rows()):
        return []
    tables.results[:] = [SolveResult((), None, Status.FEASIBLE, bound, MEMORY)]
    return improved_rows(search.instance, plans[0], search.deadline)


def _solved(
    search: SearchRequest,
    reduction: TableReduction,
    tables: TableSolver,
    levelwise_rows: LevelwiseRows,
) -> Rows:
    """Solve the table of a reduction, and return the choices of each level.

    Raises
    ------
    RefusedError, InfeasibleError, WrongClaimError
    NoAnswerError
        If a limit comes first, or a compact table is larger than memory allows.
    """
    try:
        compact = reduction.compact(search.solver, search.deadline)
    except RefusedError as error:
        raise NoAnswerError(error.message, MEMORY) from None
    if isinstance(compact, ClassTable):
        return _by_classes(search, reduction, tables, compact, levelwise_rows)
    if compact is not None:
        return reduction.invert(assignment_of(tables.solve_compact(compact)))
    try:
        return _by_plain_table(search, reduction, tables)
    except RefusedError:
        if ClassTable in search.solver.accepted_tables:
            _check_alternatives(reduction)
        raise


def _by_plain_table(search: SearchRequest, reduction: TableReduction, tables: TableSolver) -> Rows:
    if PrunedTable in search.solver.accepted_tables:
        pruned = reduction.pruned(search.solver, search.deadline)
        if pruned is not None:
            return reduction.invert(assignment_of(tables.solve_compact(pruned)))
    reduction.check_size(search.solver)
    table, labels = reduction.apply(search.deadline)
    start = None
    if search.start:
        start = reduction.assigned([search.start_of(level) or () for level in range(search.levels)])
    return reduction.invert(assignment_of(tables.solve(table, start, labels=labels)))


def _by_classes(
    search: SearchRequest,
    reduction: TableReduction,
    tables: TableSolver,
    table: ClassTable,
    levelwise_rows: LevelwiseRows,
) -> Rows:
    """Solve a table of classes of states; if a limit ends the proof, improve known plans."""

    def improved_start() -> tuple[int, ...]:
        starts = [reduction.assigned(rows) for rows in levelwise_rows()] or [table.cheapest_states]
        if not table.limits:  # an improved plan may hold more
            starts = [improved(table, start, search.deadline) for start in starts]
        return min(starts, key=table.price)

    # Before the deadline, which would leave no time for it.
    start = improved_start() if search.uses_fallback and search.deadline != NEVER else None
    try:
        result = tables.solve_compact(table)
    except NoAnswerError as error:
        if start is None and error.stopped_by != MEMORY:
            raise
        result = SolveResult(None, None, Status.FEASIBLE, tables.lower_bound, error.stopped_by)
    if result.stopped_by == MEMORY or (result.stopped_by and start is not None):
        # Mostly the better start.
        if result.assignment and table.max_exact_pairs and not table.limits:
            start = start or improved(table, result.assignment, search.deadline)
        plans = [*filter(table.fits, filter(None, [result.assignment, start or improved_start()]))]
        if not plans:
            raise NoAnswerError("no plan known fits the memory", result.stopped_by or MEMORY)
        result = replace(result, assignment=min(plans, key=table.price), objective=None)
        tables.results[:] = [result]
    return reduction.invert(assignment_of(result))


def _check_alternatives(reduction: TableReduction) -> None:
    """Check that the solvers that a refusal of elimination proposes accept the problem.

    Raises
    ------
    NoAnswerError
        If they do not: then the best known plan is the answer.
    """
    try:
        reduction.check_size(SOLVERS["cpsat"]())
    except RefusedError as error:
        raise NoAnswerError(error.message, MEMORY) from None
