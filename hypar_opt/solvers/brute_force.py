"""Every assignment of one table: the oracle that the other solvers are tested against."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hypar_opt.solvers.base import SolveResult, Status

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable, Integers

LIMIT = 2**24


class BruteForce:
    """Price all assignments at once, as one array with an axis a layer."""

    summary: ClassVar[str] = f"every assignment, on any graph; at most {LIMIT:,} of them a level"

    def accepts(self, table: CostTable) -> str | None:
        count = table.choices**table.layers
        if count > LIMIT:
            shown = f"{count:,}" if table.layers <= 64 else f"{table.choices}^{table.layers}"
            return f"takes at most {LIMIT:,} assignments a level, and there are {shown}"
        return None

    def solve(self, table: CostTable) -> SolveResult:
        # The last layer's axis comes first, so that the first of equal minima in memory
        # order is the canonical one.
        axis = [table.layers - 1 - layer for layer in range(table.layers)]
        totals: Integers = np.zeros((table.choices,) * table.layers, table.node.dtype)
        for layer, node in enumerate(table.node):
            shape = [1] * table.layers
            shape[axis[layer]] = table.choices
            totals += node.reshape(shape)
        for (source, target), edge in zip(table.ends, table.edge, strict=True):
            shape = [1] * table.layers
            shape[axis[source]] = shape[axis[target]] = table.choices
            totals += edge.T.reshape(shape)  # source before target: the target's axis is earlier
        first = int(totals.argmin())
        assignment = np.unravel_index(first, totals.shape)[::-1]
        objective = int(totals.flat[first])
        return SolveResult(tuple(map(int, assignment)), objective, Status.OPTIMAL, bound=objective)
