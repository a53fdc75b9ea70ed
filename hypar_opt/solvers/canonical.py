"""Settle ties for a solver that returns any optimum: from the last layer back, first choice."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.solvers.base import SolveResult, Status

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable

Minimise = Callable[["CostTable", float | None], SolveResult]
"""Solve a table within seconds (None: no limit); its answer may be any optimum."""


def canonical(table: CostTable, minimise: Minimise, time_limit: float | None) -> SolveResult:
    """Return the optimum that every exact solver returns.

    Each question is put to the solver itself: with the layers behind as they are, can this
    layer take an earlier choice at the same cost? So a tie is settled by the same model that
    found the optimum, and shared with no other solver. It takes about one more solve for
    each layer that is not at its first choice.

    A limit that comes while ties are settled leaves an optimum that may not be the canonical
    one: the result says ``time limit``.
    """
    end = None if time_limit is None else time.monotonic() + time_limit
    found = minimise(table, time_limit)
    if found.status is not Status.OPTIMAL or found.assignment is None:
        return found
    assignment = list(found.assignment)
    may = np.ones(table.node.shape, bool) if table.allowed is None else table.allowed.copy()
    for layer in range(table.layers - 1, -1, -1):
        earlier = may[layer].copy()
        earlier[assignment[layer] :] = False
        while earlier.any():
            remaining = None if end is None else end - time.monotonic()
            if remaining is not None and remaining <= 0:
                return replace(found, assignment=tuple(assignment), stopped_by="time limit")
            may[layer] = earlier
            again = minimise(replace(table, allowed=may), remaining)
            if again.stopped_by == "time limit":
                return replace(found, assignment=tuple(assignment), stopped_by="time limit")
            if again.assignment is None or again.objective != found.objective:
                break
            assignment = list(again.assignment)
            earlier[assignment[layer] :] = False
        may[layer] = False
        may[layer, assignment[layer]] = True
    return replace(found, assignment=tuple(assignment))
