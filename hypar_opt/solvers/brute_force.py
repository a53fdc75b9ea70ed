"""Every assignment of one table: the oracle that the other solvers are tested against."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hypar_opt.costs.table import CostTable
from hypar_opt.deadline import TIME_LIMIT, Deadline
from hypar_opt.errors import NoAnswerError
from hypar_opt.solvers.base import Solver, SolveResult, SolverOptions, Status

if TYPE_CHECKING:
    from hypar_opt.costs.table import Integers

LIMIT = 2**24


class BruteForce(Solver):
    """Price all assignments at once, as one array with an axis a layer."""

    summary: ClassVar[str] = f"every assignment, on any graph; at most {LIMIT:,} of them a table"
    supported_options: ClassVar[frozenset[str]] = frozenset({"time_limit"})

    def accepts(self, table: CostTable) -> str | None:
        count = table.choices**table.layers
        if count > LIMIT:
            shown = f"{count:,}" if table.layers <= 64 else f"{table.choices}^{table.layers}"
            return f"takes at most {LIMIT:,} assignments a table, and there are {shown}"
        return None

    def solve(self, table: CostTable, options: SolverOptions) -> SolveResult:
        try:
            totals, price = self._totals(table, Deadline.after(options.time_limit))
        except NoAnswerError:
            return SolveResult(None, None, Status.NO_ANSWER, stopped_by=TIME_LIMIT)
        first = int(totals.argmin())
        objective = int(totals.flat[first])
        if objective >= price:
            return SolveResult(None, None, Status.INFEASIBLE)
        assignment = np.unravel_index(first, totals.shape)[::-1]
        return SolveResult(tuple(map(int, assignment)), objective, Status.OPTIMAL, bound=objective)

    def _totals(self, table: CostTable, deadline: Deadline) -> tuple[Integers, int]:
        """Return what each assignment costs, and the price of what is not allowed."""
        free, price = table.with_penalty()
        totals = self._sums(table, free.node, deadline)
        for (source, target), edge in zip(free.ends, free.edge, strict=True):
            deadline.check()
            # The source comes before the target, so the target's axis is the earlier one.
            totals += edge.T.reshape(self._shape(table, source, target))
        if table.load is not None:
            totals[self._sums(table, table.load, deadline) > table.capacity] = price
        return totals, price

    def _sums(self, table: CostTable, entries: Integers, deadline: Deadline) -> Integers:
        """Return each assignment's sum over layers, the last layer's axis first.

        So the first of equal minima in memory order is the canonical one.
        """
        sums: Integers = np.zeros((table.choices,) * table.layers, entries.dtype)
        for layer, row in enumerate(entries):
            deadline.check()
            sums += row.reshape(self._shape(table, layer))
        return sums

    @staticmethod
    def _shape(table: CostTable, *layers: int) -> list[int]:
        shape = [1] * table.layers
        for layer in layers:
            shape[table.layers - 1 - layer] = table.choices
        return shape
