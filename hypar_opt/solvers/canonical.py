"""Break ties for a solver that returns any optimum: from the last layer back, first choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from hypar_opt.deadline import TIME_LIMIT
from hypar_opt.solvers.feasibility import allowed_choices

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

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
    the optimum, and the plan depends on no other solver. Several layers at once are tried at
    their first choices, more of them after each success: an optimum that has them so is the
    canonical one there. It needs about one more solve for every layer that is not at its first
    choice in the end.

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
    first = allowed.argmax(axis=1)
    layer, together = table.layers - 1, 1
    while layer >= 0:
        # From this layer down, `together` layers that are not at their first choice, if it is not.
        start, others = layer, int(assignment[layer] != first[layer])
        while others and start and others < together:
            start -= 1
            others += int(assignment[start] != first[start])
        if others == 1:
            start = layer
        if others:
            tried = allowed.copy()
            _fix(tried, range(start, layer + 1), first)
            if others == 1:
                # A single layer may have any earlier choice, the first or another.
                tried[layer] = allowed[layer]
                tried[layer, assignment[layer] :] = False
            tied = None if deadline.passed() else minimise(replace(table, allowed=tried))
            if tied is None or tied.stopped_by == TIME_LIMIT:
                return replace(optimum, assignment=tuple(assignment), stopped_by=TIME_LIMIT)
            # Infeasible, or at a higher cost: not all of them can have an earlier choice.
            if tied.assignment is None or tied.objective != optimum.objective:
                together = max(1, others // 2)
                if others > 1:
                    continue
            else:
                # It may differ in all layers not fixed yet.
                assignment, together = list(tied.assignment), 2 * others
                if assignment[layer] != first[layer]:
                    continue  # an even earlier choice of this layer may tie too
        # Fixed from here on, since the canonical order compares later layers first.
        _fix(allowed, range(start, layer + 1), assignment)
        layer = start - 1
    return replace(optimum, assignment=tuple(assignment))


def _fix(
    allowed: NDArray[np.bool_], layers: Iterable[int], choices: Sequence[int] | NDArray[np.intp]
) -> None:
    """Allow the given choices alone at some layers."""
    for layer in layers:
        allowed[layer] = False
        allowed[layer, choices[layer]] = True
