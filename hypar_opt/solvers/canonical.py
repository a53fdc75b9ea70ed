"""Break ties for a solver that returns any optimum: from the last layer back, first choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from hypar_opt.deadline import TIME_LIMIT
from hypar_opt.solvers.feasibility import allowed_choices

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable
    from hypar_opt.deadline import Deadline
    from hypar_opt.solvers.base import SolveResult

Minimise = Callable[["CostTable"], "SolveResult"]
"""Solve a table; the answer may be any optimum."""


def canonical(
    table: CostTable, optimum: SolveResult, minimise: Minimise, deadline: Deadline
) -> SolveResult:
    """Return, of the assignments that tie with an optimum, the one every exact solver returns.

    From the last layer back, the solver itself decides: with the later layers fixed, can this
    layer have an earlier choice at the same cost? So ties are broken by the model that proved
    the optimum, and the plan depends on no other solver. It needs about one more solve for
    every layer that is not at its first choice.

    A limit that comes while ties are broken leaves an optimum that may not be the canonical
    one: ``stopped_by`` then is ``time limit``.

    Parameters
    ----------
    optimum
        An optimal result, with an assignment.
    """
    assert optimum.assignment is not None
    assignment = list(optimum.assignment)
    allowed = allowed_choices(table).copy()
    for layer in range(table.layers - 1, -1, -1):
        earlier = allowed[layer].copy()
        earlier[assignment[layer] :] = False
        while earlier.any():
            if deadline.passed():
                return replace(optimum, assignment=tuple(assignment), stopped_by=TIME_LIMIT)
            allowed[layer] = earlier
            tied = minimise(replace(table, allowed=allowed))
            if tied.stopped_by == TIME_LIMIT:
                return replace(optimum, assignment=tuple(assignment), stopped_by=TIME_LIMIT)
            # Infeasible, or at a higher cost: the present choice is the first that is optimal.
            if tied.assignment is None or tied.objective != optimum.objective:
                break
            # It may differ in all layers not fixed yet; the next iteration asks for an even
            # earlier choice of this layer.
            assignment = list(tied.assignment)
            earlier[assignment[layer] :] = False
        # Fixed from here on, since the canonical order compares later layers first.
        allowed[layer] = False
        allowed[layer, assignment[layer]] = True
    return replace(optimum, assignment=tuple(assignment))
