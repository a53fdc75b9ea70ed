"""Tables whose costs have more digits than backends tell apart, solved in a coarser unit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypar_opt.solvers.base import SolveResult, Status
from hypar_opt.solvers.ilp.formulate import formulate
from hypar_opt.solvers.ilp.minimise import MAX_COST, Session, minimise

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable


def in_coarse_units(table: CostTable) -> tuple[CostTable, int]:
    """Return the table in a unit in which its costs have 12 digits, rounded down, and that unit.

    Returns
    -------
    coarse
        The table itself if its costs are short enough.
    unit
        A power of ten, in the table's own units.
    """
    unit, coarse = 1, table
    # In no form of the program is a coefficient larger.
    if 2 * table.max_total < MAX_COST:
        return coarse, unit
    while True:
        # Constraints change no cost, and without them the program is soon made.
        program = formulate(replace(coarse, allowed=None, limits=()))
        if program.largest_cost // program.factor < MAX_COST:
            return coarse, unit
        unit *= 10
        coarse = replace(table, node=table.node // unit, edge=table.edge // unit)


def solve_in_coarse_units(
    session: Session, table: CostTable, coarse: CostTable, unit: int
) -> SolveResult:
    """Return the canonical optimum of a table whose costs have too many digits.

    Rounded down, the costs bound an assignment's from below. So assignments are enumerated
    in the order of their rounded cost, each excluded from then on, until the lower bound of
    those left exceeds the best cost: by then the optimum and all its ties are known.

    Parameters
    ----------
    coarse, unit
        As `in_coarse_units` returns them.
    """
    best: tuple[int, tuple[int, ...]] | None = None
    excluded: list[tuple[int, ...]] = []
    first_result: SolveResult | None = None
    while True:
        result = minimise(session, coarse, excluded=excluded)
        # Statistics are those of the first program, before assignments were excluded.
        first_result = first_result or result
        session = session.with_options(warm_start=None)  # which is excluded by now
        if result.assignment is not None:
            excluded.append(result.assignment)
            # From the last layer back, so that the minimum of equal costs is the canonical one.
            candidate = table.price(result.assignment), result.assignment[::-1]
            best = candidate if best is None else min(best, candidate)
        if best is None:
            return result
        best_cost, backwards = best
        answer = replace(
            first_result,
            assignment=backwards[::-1],
            objective=best_cost,
            statistics=_in_units(first_result, unit),
        )
        # Rounding down made no cost larger, so the bound holds for the table as well.
        bound = None if result.bound is None else result.bound * unit
        if result.status is Status.INFEASIBLE or (bound is not None and bound > best_cost):
            return replace(answer, status=Status.OPTIMAL, bound=best_cost, stopped_by=None)
        if result.status is not Status.OPTIMAL:
            return replace(
                answer,
                status=Status.FEASIBLE,
                bound=None if bound is None else min(bound, best_cost),
                stopped_by=result.stopped_by,
            )


def _in_units(result: SolveResult, unit: int) -> dict[str, float]:
    """Return the program's statistics with its bound in the table's own unit."""
    statistics = dict(result.statistics)
    if "root_bound" in statistics:
        statistics["root_bound"] *= unit
    return statistics
