"""A solver's claims, held against the table itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.errors import WrongClaimError
from hypar_opt.search.pricing import price_table
from hypar_opt.solvers.base import SolveResult, Status

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable


def check_claim(table: CostTable, result: SolveResult) -> None:
    """Hold a solver's claims against the table itself.

    Raises
    ------
    WrongClaimError
        Naming what is claimed and what is so.
    """
    assignment = assigned(result)
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


def assigned(result: SolveResult) -> tuple[int, ...]:
    """Return the assignment of an answer that has one."""
    assert result.assignment is not None
    return result.assignment
