"""Search over the levels of the hierarchy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

from hypar_opt.costs.base import CostModel, Splits
from hypar_opt.errors import RefusedError, WrongClaimError
from hypar_opt.solvers.base import SolveResult, Status
from hypar_opt.verify import price_level

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable
    from hypar_opt.shapes import Shapes
    from hypar_opt.solvers.base import Solver

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Partition:
    """An assignment for every level, H1 first, and what is known of it.

    Parameters
    ----------
    assignments : levels x layers
        Columns of the cost tables.
    status
        Optimal where every level's table was solved to optimality, given those above.
    bound
        The level tables' bounds added up, in the cost's unit, where all have one.
    """

    assignments: tuple[tuple[int, ...], ...]
    status: Status
    bound: Fraction | None


def levelwise(
    shapes: Shapes,
    cost: CostModel,
    solver: Solver,
    levels: int,
    progress: Progress = lambda done, of: None,
) -> Partition:
    """Solve level by level, H1 first, each given the choices above it.

    The total is the levels' sum, since a table charges all groups of its level
    (Algorithm 2 adds one group's charge, times the number of groups).

    Raises
    ------
    RefusedError
        If the solver does not take a level's table.
    WrongClaimError
        If the solver's objective or bound is not what its assignment costs.

    Source: Algorithm 2.
    """
    splits = Splits.none(len(shapes.layers))
    assignments: list[tuple[int, ...]] = []
    status = Status.OPTIMAL
    bound: Fraction | None = Fraction()
    for level in range(levels):
        progress(level, levels)
        table = cost.table(shapes, splits)
        result = solve_checked(solver, table)
        assignments.append(result.assignment)
        if result.status is not Status.OPTIMAL:
            status = Status.FEASIBLE
        if bound is not None:
            bound = None if result.bound is None else bound + table.in_units(result.bound)
        splits = splits.after(result.assignment)
    progress(levels, levels)
    return Partition(tuple(assignments), status, bound)


def solve_checked(solver: Solver, table: CostTable) -> SolveResult:
    """Solve one table and hold the solver's claims against the table itself."""
    refusal = solver.accepts(table)
    if refusal:
        raise RefusedError(refusal)
    result = solver.solve(table)
    if len(result.assignment) != table.layers:
        raise WrongClaimError(f"assigned {len(result.assignment)} of {table.layers} layers")
    if not all(0 <= choice < table.choices for choice in result.assignment):
        raise WrongClaimError(f"assigned a choice outside the table's {table.choices}")
    costs = price_level(table, result.assignment)
    if result.objective not in (None, costs):
        raise WrongClaimError(f"claims {result.objective}, its assignment costs {costs}")
    if result.bound is not None and result.bound > costs:
        raise WrongClaimError(f"claims the bound {result.bound}, above its assignment's {costs}")
    if result.status is Status.OPTIMAL and result.bound != costs:
        raise WrongClaimError(f"claims an optimum of {costs} with the bound {result.bound}")
    return result


SEARCHES = MappingProxyType({"levelwise": levelwise})
