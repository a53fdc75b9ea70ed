"""Break ties for a solver that returns any optimum: from the last layer back, first choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from hypar_opt.deadline import TIME_LIMIT
from hypar_opt.solvers.feasibility import allowed_choices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from hypar_opt.costs.table import CostTable
    from hypar_opt.deadline import Deadline
    from hypar_opt.solvers.base import SolveResult

Choices = Sequence[tuple[int, int]]
"""Pairs of a layer and one of its choices."""

Minimise = Callable[["CostTable", Choices], "SolveResult"]
"""Solve a table, requiring at least one of some choices if any are given; any optimum will do."""


def canonical(
    table: CostTable, optimum: SolveResult, minimise: Minimise, deadline: Deadline
) -> SolveResult:
    """Return, of the assignments that tie with an optimum, the one every exact solver returns.

    From the last layer back, the solver itself decides: with the later layers fixed, can this layer
    have an earlier choice at the same cost? So ties are broken by the model that proved the
    optimum, and the plan depends on no other solver. Several layers are tested at once, more of
    them after each success: can any of them have an earlier choice, or, after one that could, can
    all of them have their first?

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
    # Those above `layer` are fixed: the canonical order compares later layers first.
    layer, together, moving = table.layers - 1, 1, False
    while layer >= 0:
        group = list(islice(_not_first(assignment, first, layer), together))
        if not group:
            break
        lowest = group[-1]
        tried, one_of = allowed.copy(), []
        _fix(tried, range(group[0] + 1, layer + 1), first)  # they are at their first choice
        if moving or len(group) == 1:
            _fix(tried, range(lowest, group[0] + 1), first)
        if len(group) == 1:
            tried[lowest] = allowed[lowest]
            tried[lowest, assignment[lowest] :] = False
        elif not moving:
            one_of = [(n, c) for n in group for c in range(assignment[n]) if allowed[n, c]]
        tied = None if deadline.passed() else minimise(replace(table, allowed=tried), one_of)
        if tied is None or tied.stopped_by == TIME_LIMIT:
            return replace(optimum, assignment=tuple(assignment), stopped_by=TIME_LIMIT)
        ties = tied.assignment is not None and tied.objective == optimum.objective
        if ties and (moving or len(group) == 1):
            # It may differ in all layers not fixed yet.
            assignment = list(tied.assignment or ())
            if assignment[lowest] != first[lowest]:
                continue  # an even earlier choice of this layer may tie, too
            together, moving = 2 * len(group), True
        elif ties or (moving and len(group) > 1):
            together = len(group) // 2
            continue
        else:
            together, moving = 1 if moving else 2 * len(group), False
        _fix(allowed, range(lowest, layer + 1), assignment)
        layer = lowest - 1
    return replace(optimum, assignment=tuple(assignment))


def _not_first(assignment: Sequence[int], first: NDArray[np.intp], layer: int) -> Iterator[int]:
    """Yield the layers, from this one down, that are not at their first choice."""
    return (n for n in range(layer, -1, -1) if assignment[n] != first[n])


def _fix(
    allowed: NDArray[np.bool_], layers: Iterable[int], choices: Sequence[int] | NDArray[np.intp]
) -> None:
    """Allow only the given choices at some layers."""
    for layer in layers:
        allowed[layer] = False
        allowed[layer, choices[layer]] = True
