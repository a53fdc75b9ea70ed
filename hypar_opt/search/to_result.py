"""From solved tables to a result: a plan, its bound, and the baseline that may replace it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from hypar_opt.costs.level_tables import joins_levels
from hypar_opt.errors import NoAnswerError, RefusedError, WrongClaimError, argument
from hypar_opt.frozen import FrozenDict
from hypar_opt.instance.pricing import charged_beside_baselines, tensors_of
from hypar_opt.search.check_result import assignment_of
from hypar_opt.search.result import Assignments, SearchRequest, SearchResult
from hypar_opt.solvers.base import MEMORY, Status
from hypar_opt.solvers.baselines import BASELINES

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Tensors
    from hypar_opt.instance.pricing import Charged
    from hypar_opt.search.table_solver import TableSolver


def to_result(
    search: SearchRequest,
    scope: str,
    nodes: Sequence[tuple[int, ...]],
    tables: TableSolver,
    stopped_by: str | None = None,
    levelwise_rows: Sequence[Sequence[tuple[int, ...]]] = (),
) -> SearchResult:
    """Return the result of the solved tables; unsolved levels get a baseline's choices.

    Parameters
    ----------
    nodes : (levels, nodes)
        The choices found, including those of shared nodes.
    levelwise_rows
        The choices found level by level, if any, beside a search of all levels.

    Raises
    ------
    NoAnswerError
        If a limit left no feasible plan.
    RefusedError
        If a charge joins several levels, and the search was level by level.
    WrongClaimError
        If the bound is above the plan's cost.
    """
    results = tables.results
    stopped_by = stopped_by or next((r.stopped_by for r in results if r.stopped_by), None)
    solved = all(result.status is Status.OPTIMAL for result in results)
    rows = [search.layers_of(row) for row in nodes]
    found_by, plan = None, tuple(rows)
    # A gap is a limit set on purpose: a plan within it is kept.
    unproved = not (solved or stopped_by in (None, "gap"))
    if len(rows) < search.levels or unproved or not _fits(search, plan):
        found_by, plan = _best_fallback(search, rows, stopped_by or "limits", levelwise_rows)
    if scope == "level":
        price = search.total(plan, search.chosen_tensors(nodes)) if found_by is None else None
        _check_levels_add_up(search, tables, price)
    # Another plan gets its own cheapest layouts.
    tensors = search.tensors_of(tuple(nodes)) if found_by is None else None
    priced = tensors
    if priced is None and search.instance.workload is search.instance.executed_workload:
        priced = tensors_of(search.instance, plan)
    # The bound is compared with the plan's own price, not with the solver's objective.
    bound = _bound(search, scope, tables, plan, found_by)
    total, charged = _total(search, plan, priced)
    if bound is not None and bound > total:
        raise WrongClaimError(f"claims the bound {bound}, above its plan's {total}")
    # Also after optimal tables: a levelwise sum of optima has to equal the price.
    optimal = solved and found_by is None and bound == total
    return SearchResult(
        assignments=plan,
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        scope=scope,
        bound=bound,
        stopped_by=stopped_by,
        found_by=found_by,
        statistics=tuple(result.statistics for result in results if result.statistics),
        versions=FrozenDict({k: v for r in results for k, v in r.versions.items()}),
        tensors=tensors,
        priced=priced,
        charged=charged,
    )


def _total(
    search: SearchRequest, plan: Assignments, tensors: Tensors | None
) -> tuple[Fraction, Charged | None]:
    """Return what tables charge a plan, and what it costs, if that is the same."""
    if not search.instance.cost.is_additive:
        return search.total(plan, tensors), None
    charged = charged_beside_baselines(search.instance, plan, tensors)
    return charged.plan.total, charged


def _check_levels_add_up(
    search: SearchRequest, tables: TableSolver, total: Fraction | None
) -> None:
    """Refuse a plan of levels whose tables lack a charge of several levels together.

    Parameters
    ----------
    total
        What tables charge their plan, with the layouts that their solver chose; None for another.

    Raises
    ------
    RefusedError
        Unless the solver is a baseline, whose choices do not depend on it.
    """
    cost = search.instance.cost
    if total is None:
        joined = joins_levels(cost, search.instance.workload, search.levels)
    else:
        joined = total != Fraction(tables.charged, cost.resolution)
    if joined and search.solver.searches:
        joint = argument("search", "joint")
        raise RefusedError(f"a reduction joins several levels, as around a ring: it needs {joint}")


def _fits(search: SearchRequest, plan: Assignments) -> bool:
    """Return whether a plan fits the memory: within a wide gap, weights may be mismatched."""
    constraints = search.instance.constraints
    return not constraints.couple_layers or constraints.allow(plan)


def _best_fallback(
    search: SearchRequest,
    rows: Sequence[tuple[int, ...]],
    stopped_by: str,
    levelwise: Sequence[Sequence[tuple[int, ...]]],
) -> tuple[str | None, Assignments]:
    """Return the cheapest known feasible plan once a limit was reached, and its origin.

    Ties go to the search's own plan, then to the warm start, then to the plan found level by
    level, then to the solved levels with a baseline below, then to a baseline.

    Raises
    ------
    NoAnswerError
        If none of them satisfies the constraints.
    """
    solved, levels = len(rows), search.levels
    plans: dict[str | None, Assignments] = {None: tuple(rows)} if solved == levels else {}
    if search.start:
        plans["the plan to start from"] = search.start
    if search.incumbent:
        plans["the best of the search of shares"] = search.incumbent
    for nodes in levelwise:
        plans["the levelwise plan"] = tuple(map(search.layers_of, nodes))
    baselines = search.instance.workload.baselines
    # Keep the solved levels above if there are any, and try the baseline from H1 as well.
    for first in sorted({solved % levels, 0}, reverse=True):
        for name, key in BASELINES.items():
            row = search.layers_of(baselines[key])
            origin = f"{name} from H{first + 1}" if first else name
            plans[origin] = (*rows[:first], *[row] * (levels - first))
    feasible = {
        origin: plan for origin, plan in plans.items() if search.instance.constraints.allow(plan)
    }
    if not feasible:
        problem = f"no answer within the {stopped_by}"
        if stopped_by == MEMORY:  # of this machine, where the constraint is an accelerator's
            limit = argument("constraints.memory")
            problem = f"no plan within {limit} is known, and comparing all takes too much memory"
        raise NoAnswerError(problem, stopped_by)
    # min() returns the first of equals, and dicts keep the order of insertion.
    return min(feasible.items(), key=lambda item: search.total(item[1]))


def _bound(
    search: SearchRequest, scope: str, tables: TableSolver, plan: Assignments, found_by: str | None
) -> Fraction | None:
    """Add up the bounds of the tables that a plan rests on; None if one is unknown.

    After a limit an unknown bound counts as 0, since no charge is negative. The bound of a
    level's table holds only if the plan has the search's own choices at all levels above.
    """
    bounds = [result.bound for result in tables.results]
    if found_by is not None and scope == "joint":  # its one table's, or less that is known of it
        proved = [bound for bound in (*bounds, tables.lower_bound) if bound is not None]
        bounds = [max(proved, default=None)]
    elif found_by is not None:
        rows = [search.layers_of(assignment_of(result)) for result in tables.results]
        first_difference = next(
            (level for level, row in enumerate(rows) if row != plan[level]), None
        )
        bounds = (
            [*bounds, tables.lower_bound]
            if first_difference is None
            else bounds[: first_difference + 1]
        )
        bounds = [bound for bound in bounds if bound is not None] or [None]
    if None in bounds:
        return None
    return Fraction(
        sum(bound for bound in bounds if bound is not None), search.instance.cost.resolution
    )
