"""What the tables that were solved come to: a partition, its bound, and whose plan it is."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

from hypar_opt.errors import NoAnswerError, WrongClaimError
from hypar_opt.search.partition import Assignments, Partition, Search
from hypar_opt.solvers.base import Status
from hypar_opt.solvers.fixed import BASELINES

if TYPE_CHECKING:
    from hypar_opt.search.table_solver import TableSolver


def to_partition(
    search: Search,
    scope: str,
    rows: Sequence[tuple[int, ...]],
    tables: TableSolver,
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
    total = search.total(plan)
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
    trick = search.instance.workload.trick
    for first in sorted({solved % levels, 0}, reverse=True):
        for name, baseline in BASELINES.items():
            row = baseline.assignment(trick)
            whose = f"{name} from H{first + 1}" if first else name
            known[whose] = (*rows[:first], *[row] * (levels - first))
    keeping = {
        whose: plan for whose, plan in known.items() if search.instance.constraints.allow(plan)
    }
    if not keeping:
        raise NoAnswerError(f"no answer within the {stopped_by}", stopped_by)
    return min(keeping.items(), key=lambda item: search.total(item[1]))


def _bound(
    search: Search, scope: str, tables: TableSolver, plan: Assignments, found_by: str | None
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
    return Fraction(
        sum(bound for bound in bounds if bound is not None), search.instance.cost.resolution
    )
