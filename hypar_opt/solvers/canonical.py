"""Settle ties for a solver that returns any optimum: from the last layer back, first choice."""

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
    table: CostTable, found: SolveResult, minimise: Minimise, deadline: Deadline
) -> SolveResult:
    """Return, for an optimum, the one of its ties that every exact solver returns.

    Each question is put to the solver itself: with the layers behind as they are, can this
    layer take an earlier choice at the same cost? So a tie is settled by the same model that
    found the optimum, and shared with no other solver. It takes about one more solve for
    each layer that is not at its first choice.

    A limit that comes while ties are settled leaves an optimum that may not be the canonical
    one: the result says ``time limit``.
    """
    assert found.assignment is not None
    assignment = list(found.assignment)
    may = allowed_choices(table).copy()
    for layer in range(table.layers - 1, -1, -1):
        earlier = may[layer].copy()
        earlier[assignment[layer] :] = False
        while earlier.any():
            if deadline.passed():
                return replace(found, assignment=tuple(assignment), stopped_by=TIME_LIMIT)
            may[layer] = earlier
            again = minimise(replace(table, allowed=may))
            if again.stopped_by == TIME_LIMIT:
                return replace(found, assignment=tuple(assignment), stopped_by=TIME_LIMIT)
            if again.assignment is None or again.objective != found.objective:
                break
            assignment = list(again.assignment)
            earlier[assignment[layer] :] = False
        may[layer] = False
        may[layer, assignment[layer]] = True
    return replace(found, assignment=tuple(assignment))
