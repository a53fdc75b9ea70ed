"""A table of the states in plans up to a cost: small enough for a 0-1 program."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hypar_opt.costs.row_names import RowNames
    from hypar_opt.costs.state_classes import ClassTable
    from hypar_opt.integers import Integers


@dataclass(frozen=True, eq=False)
class PrunedTable:
    """The cost of every assignment up to a cutoff, and of some above it.

    As a `CostTable` over states of all levels, but each node has columns for a few of them.

    Parameters
    ----------
    states : nodes x (columns,)
        The state behind each column of a node, in canonical order.
    node : nodes x (columns,)
    edge : edges x (columns of the source, columns of the target)
    ends : (edges, 2)
    cutoff
        No assignment of other states costs as little.
    unit, resolution
        As in `CostTable`.
    labels
        The names of its rows and columns.
    """

    states: Sequence[NDArray[np.intp]]
    node: Sequence[Integers]
    edge: Sequence[Integers]
    ends: NDArray[np.intp]
    cutoff: int
    unit: str
    resolution: int
    labels: RowNames

    @classmethod
    def of(
        cls, table: ClassTable, states: Sequence[NDArray[np.intp]], cutoff: int, labels: RowNames
    ) -> PrunedTable:
        """Return the charges of some states of each node."""
        kinds = table.node_kinds.tolist()
        node = [table.node[kind, columns] for kind, columns in zip(kinds, states, strict=True)]
        boundaries = zip(table.boundary_kinds.tolist(), table.ends.tolist(), strict=True)
        edge = [table.pairs(kind, states[u], states[v]) for kind, (u, v) in boundaries]
        names = labels.among(states)
        return cls(states, node, edge, table.ends, cutoff, table.unit, table.resolution, names)

    @cached_property
    def max_total(self) -> int:
        """An upper bound on an assignment's cost: the highest charge of each node and edge."""
        return sum(int(charges.max()) for charges in (*self.node, *self.edge))

    def price(self, columns: Sequence[int]) -> int:
        """Return the cost of a column of each node, as the entries count."""
        total = sum(int(row[column]) for row, column in zip(self.node, columns, strict=True))
        for charges, (u, v) in zip(self.edge, self.ends.tolist(), strict=True):
            total += int(charges[columns[u], columns[v]])
        return total

    def assignment(self, columns: Sequence[int]) -> tuple[int, ...]:
        """Return the state behind a column of each node."""
        return tuple(int(row[column]) for row, column in zip(self.states, columns, strict=True))

    def charging(
        self, node: Sequence[Integers], edge: Sequence[Integers], ends: NDArray[np.intp]
    ) -> PrunedTable:
        """Return the table with other charges, of some of its edges."""
        return replace(self, node=node, edge=edge, ends=ends)

    @property
    def scope(self) -> str:
        """Which plans the table contains, in words."""
        return f"all plans that cost at most {self.cutoff}, and some that cost more"
