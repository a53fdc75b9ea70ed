"""Joint search: all levels of the hierarchy together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.state_tables import (
    FactoredTable,
    canonical_states,
    check_states,
    factored,
)
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.search.check_result import assignment_of
from hypar_opt.search.joint_table import state_table, threshold_table, thresholds_of
from hypar_opt.search.levelwise import levelwise
from hypar_opt.search.table_solver import TableSolver, least_cost
from hypar_opt.search.to_result import to_result
from hypar_opt.solvers.base import too_large

if TYPE_CHECKING:
    from hypar_opt.search.result import SearchRequest, SearchResult

MAX_STATES_SOLVED_DIRECTLY = 3**4
"""Up to this many states a layer, elimination on a graph is as fast as the bound by counts."""


def joint(search: SearchRequest) -> SearchResult:
    """Find the cheapest plan over all levels together.

    Where the levels are alike and nothing couples them, a layer's charges telescope and the
    thresholds are independent: a two-choice chain for each t = 1..H, "does this layer take model
    parallelism at t levels or more?", which is the table of a level below t - 1 model and
    H - t data choices of every layer. Model parallelism at the topmost levels is then best,
    given how many. Otherwise a layer's choice is a state: its choices at all levels.

    Raises
    ------
    RefusedError, NoAnswerError, WrongClaimError
        As `levelwise`.

    Source: docs/decisions/0005-joint-optimum.md.
    """
    # A baseline assigns each level by rule, and without levels there is nothing to search.
    if search.levels == 0 or not search.solver.searches:
        return replace(levelwise(search), scope="joint")
    instance = search.instance
    tables = TableSolver(search, 1)
    thresholds, stopped_by = thresholds_of(instance), None
    try:
        search.deadline.check()
        if thresholds is not None:
            rows = _from_thresholds(search, thresholds, tables)
        else:
            rows, stopped_by = _from_states_or_counts(search, tables)
    except NoAnswerError as error:
        return to_result(search, "joint", [], tables, error.stopped_by)
    return to_result(search, "joint", rows, tables, stopped_by)


def _from_thresholds(
    search: SearchRequest, thresholds: ThresholdTable, tables: TableSolver
) -> list[tuple[int, ...]]:
    """Solve each threshold, and count those that each node reaches."""
    levels = search.levels
    # A table by thresholds forbids nothing.
    if ThresholdTable in search.solver.accepted_tables and not search.instance.constraints.any:
        result = tables.solve_compact(thresholds)
    else:
        start = None
        if search.start:
            starts = [search.start_of(level) or () for level in range(levels)]
            model = np.sum(starts, axis=0)
            # The warm start says which layers reach each threshold t.
            start = tuple(int(m >= t) for t in range(1, levels + 1) for m in model)
        table, labels = threshold_table(search.instance, thresholds)
        result = tables.solve(table, start, labels=labels)
    # In an optimum "t levels or more" implies "t - 1 or more"; if a limit left an assignment
    # in which it does not, the number of levels is still a plan, and priced as such.
    reached = np.reshape(assignment_of(result), (levels, -1))
    counts = reached.sum(axis=0).tolist()
    return [tuple(int(level < count) for count in counts) for level in range(levels)]


def _from_states_or_counts(
    search: SearchRequest, tables: TableSolver
) -> tuple[list[tuple[int, ...]], str | None]:
    """Solve for states, or for counts where those are many; return what stopped the proof, too.

    Where a plan attains the bound of counts it is optimal. Else states decide, if memory allows.
    """
    # Imported late: most problems have thresholds.
    from hypar_opt.search.bound_by_counts import by_counts, few_levels_alike

    instance = search.instance
    choices = instance.cost.choices
    counts = (
        choices**search.levels > MAX_STATES_SOLVED_DIRECTLY
        and instance.workload.has_replicas(choices)
        and few_levels_alike(instance.problem)
        # A program has a size of its own, up to which elimination ends, too.
        and search.solver.max_columns is None
    )
    if not counts:
        return _from_states(search, tables), None
    by_count = TableSolver(search, 1)
    rows, optimal = by_counts(search, by_count)
    if not optimal:
        try:
            return _from_states(search, tables), None
        except RefusedError:
            pass
    tables.results += by_count.results
    return rows, None if optimal else "memory"


def _from_states(search: SearchRequest, tables: TableSolver) -> list[tuple[int, ...]]:
    """Solve for the state of each node: its choices at all levels together."""
    instance, levels, deadline = search.instance, search.levels, search.deadline
    cost, workload, constraints = instance.cost, instance.workload, instance.constraints
    choices, nodes = cost.choices, len(workload.nodes)
    check_states(nodes, choices, levels)
    boundaries = len(workload.ends)
    # Refused before the table is built, which costs more than the refusal.
    refusal = too_large(search.solver.max_columns, nodes, boundaries, choices**levels)
    if refusal:
        raise RefusedError(refusal)
    states = canonical_states(levels, choices, deadline)
    if workload.has_replicas(choices):
        sizes = constraints.allowed(states, deadline).sum(axis=1).tolist()
        refusal = search.solver.refuses_size(sizes, workload.ends)
        if refusal:
            raise RefusedError(refusal)
    result = None
    # A factored table has no loads, so a memory limit needs the plain table.
    if FactoredTable in search.solver.accepted_tables and not constraints.couple_layers:
        table = factored(cost, workload, levels, deadline)
        if table is not None:
            tables.least = least_cost(table.node, *table.pairs)
            result = tables.solve_compact(constraints.factored(table, states, deadline))
    if result is None:
        plain, labels = state_table(instance, states, deadline)
        start = None
        if search.start:
            rows = [search.start_of(level) or () for level in range(levels)]
            start = tuple(map(states.index, zip(*rows, strict=True)))
        result = tables.solve(plain, start, labels=labels)
    return list(zip(*(states[column] for column in assignment_of(result)), strict=True))
