"""Layer-wise dynamic programming: exact on a chain, linear in layers."""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, ClassVar

from hypar_opt.solvers.base import SolveResult, Status

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable

_BLOCK = 512
"""Layers turned into Python integers at a time, so that they stay in the cache."""


class DynamicProgramming:
    """Extend, layer by layer, the cheapest way to end in each choice.

    Source: Algorithm 1.
    """

    summary: ClassVar[str] = "layer-wise dynamic programming; exact on a chain, linear in layers"

    def accepts(self, table: CostTable) -> str | None:
        if not table.is_chain:
            return "takes a chain of layers, and this graph is not one"
        return None

    def solve(self, table: CostTable) -> SolveResult:
        choices = range(table.choices)
        cheapest: list[int] = table.node[0].tolist()
        # came_from[l * choices + c]: layer l's choice on the cheapest way to c at layer l + 1.
        came_from = bytearray()
        for start in range(1, table.layers, _BLOCK):
            stop = start + _BLOCK
            nodes = table.node[start:stop].tolist()
            arrivals = table.edge[start - 1 : stop - 1].transpose(0, 2, 1).tolist()
            for node, arrival in zip(nodes, arrivals, strict=True):
                extended = []
                for choice in choices:
                    ways = list(map(add, cheapest, arrival[choice]))
                    least = min(ways)
                    came_from.append(ways.index(least))  # the first of equals
                    extended.append(least + node[choice])
                cheapest = extended

        objective = min(cheapest)
        last = cheapest.index(objective)
        assignment = bytearray([last])
        for layer in range(table.layers - 2, -1, -1):
            last = came_from[layer * table.choices + last]
            assignment.append(last)
        assignment.reverse()
        return SolveResult(tuple(assignment), objective, Status.OPTIMAL, bound=objective)
