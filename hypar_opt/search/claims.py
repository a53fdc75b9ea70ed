"""A solver's claims, checked against the table itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.errors import WrongClaimError
from hypar_opt.search.pricing import price_table
from hypar_opt.solvers.base import SolveResult, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.table import CostTable


def check_claim(table: CostTable, result: SolveResult) -> None:
    """Check a solver's claims against the table itself.

    Raises
    ------
    WrongClaimError
        Naming the claim and what holds instead.
    """
    assignment = assigned(result)
    if len(assignment) != table.layers:
        raise WrongClaimError(f"assigned {len(assignment)} of {table.layers} layers")
    claims = (*assignment, result.objective or 0, result.bound or 0)
    # numpy's integers wrap around on overflow, and a float rounds: neither compares exactly.
    if not all(issubclass(kind, int) for kind in set(map(type, claims))):
        raise WrongClaimError("claims should be Python's whole numbers")
    if assignment and not 0 <= min(assignment) <= max(assignment) < table.choices:
        raise WrongClaimError(f"assigned a choice outside the table's {table.choices}")
    layers = range(table.layers)
    if table.allowed is not None and not table.allowed[layers, assignment].all():
        raise WrongClaimError("assigned a choice that is not allowed")
    if table.load is not None and table.capacity is not None:
        load = int(table.load[layers, assignment].sum())
        if load > table.capacity:
            raise WrongClaimError(f"assigned {load}, more than the capacity {table.capacity}")
    # A solver's own objective may be rounded, or of a relaxation: the table decides.
    costs = price_table(table, assignment)
    if result.objective not in (None, costs):
        raise WrongClaimError(f"claims {result.objective}, its assignment costs {costs}")
    if result.bound is not None and result.bound > costs:
        raise WrongClaimError(f"claims the bound {result.bound}, above its assignment's {costs}")
    # A proof of optimality is a bound that equals the cost.
    if result.status is Status.OPTIMAL and result.bound != costs:
        raise WrongClaimError(f"claims an optimum of {costs} with the bound {result.bound}")


def keeps_to(table: CostTable, assignment: Sequence[int]) -> bool:
    """Return whether a table allows an assignment, and it fits the capacity."""
    layers = range(table.layers)
    if table.allowed is not None and not table.allowed[layers, assignment].all():
        return False
    if table.load is None or table.capacity is None:
        return True
    return int(table.load[layers, assignment].sum()) <= table.capacity


def assigned(result: SolveResult) -> tuple[int, ...]:
    """Return the assignment of a result that has one; callers have checked its status."""
    assert result.assignment is not None
    return result.assignment
