"""Exhaustive search: the oracle that the other solvers are tested against."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hypar_opt.costs.table import CostTable
from hypar_opt.deadline import TIME_LIMIT, Deadline
from hypar_opt.errors import NoAnswerError
from hypar_opt.solvers.base import Solver, SolveResult, SolverOptions, Status

if TYPE_CHECKING:
    from hypar_opt.integers import Integers

MAX_ASSIGNMENTS = 2**24
"""Their costs, 8 bytes each, fill 128 MB."""


class BruteForce(Solver):
    """Price all assignments at once, in one array with an axis per layer."""

    summary: ClassVar[str] = (
        f"every assignment, on any graph; at most {MAX_ASSIGNMENTS:,} of them per table"
    )
    supported_options: ClassVar[frozenset[str]] = frozenset({"time_limit"})

    def accepts(self, table: CostTable) -> str | None:
        count = table.choices**table.layers
        if count > MAX_ASSIGNMENTS:
            # A power that Python would take long to write out, and nobody could read.
            shown = f"{count:,}" if table.layers <= 64 else f"{table.choices}^{table.layers}"
            return f"enumerates at most {MAX_ASSIGNMENTS:,} assignments, and there are {shown}"
        return None

    def solve(self, table: CostTable, options: SolverOptions) -> SolveResult:
        try:
            costs, penalty = _all_costs(table, Deadline.after(options.time_limit))
        except NoAnswerError:
            return SolveResult(None, None, Status.NO_ANSWER, stopped_by=TIME_LIMIT)
        # The first of equal minima in memory order, which is the canonical one.
        optimum = int(costs.argmin())
        objective = int(costs.flat[optimum])
        # Only an assignment with a forbidden choice, or over the capacity, costs the penalty.
        if objective >= penalty:
            return SolveResult(None, None, Status.INFEASIBLE)
        # The axes are in reverse order of the layers.
        assignment = np.unravel_index(optimum, costs.shape)[::-1]
        return SolveResult(tuple(map(int, assignment)), objective, Status.OPTIMAL, bound=objective)


def _all_costs(table: CostTable, deadline: Deadline) -> tuple[Integers, int]:
    """Return all assignments' costs, and the penalty: a lower bound on those not allowed.

    Returns
    -------
    costs : (choices,) * layers
        The last layer's axis first, so that memory order is the canonical order.
    penalty
    """
    # A penalty instead of a mask: the sums below stay plain additions of whole axes.
    unconstrained, penalty = table.with_penalty()
    costs = _sums(table, unconstrained.node, deadline)
    for (source, target), edge in zip(unconstrained.ends, unconstrained.edge, strict=True):
        deadline.check()
        # Axes are in reverse order of the layers: the later layer's is the earlier one.
        by_later = edge.T if source < target else edge
        costs += by_later.reshape(_broadcast_shape(table, source, target))
    for load, capacity in table.limits:
        costs[_sums(table, load, deadline) > capacity] = penalty
    return costs, penalty


def _sums(table: CostTable, entries: Integers, deadline: Deadline) -> Integers:
    """Return all assignments' sums of their layers' entries, ``(choices,) * layers``."""
    sums: Integers = np.zeros((table.choices,) * table.layers, entries.dtype)
    for layer, row in enumerate(entries):
        deadline.check()
        sums += row.reshape(_broadcast_shape(table, layer))
    return sums


def _broadcast_shape(table: CostTable, *layers: int) -> list[int]:
    """Return the shape of an array that varies along these layers' axes alone."""
    shape = [1] * table.layers
    for layer in layers:
        shape[table.layers - 1 - layer] = table.choices
    return shape
