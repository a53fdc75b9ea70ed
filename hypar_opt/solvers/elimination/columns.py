"""The remaining columns of a table, states or classes of states, eliminated."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import RefusedError
from hypar_opt.integers import Integers
from hypar_opt.solvers.elimination.buckets import (
    Buckets,
    PairwiseCharges,
    eliminate,
    traced_back,
)
from hypar_opt.solvers.elimination.graph import graph_of
from hypar_opt.solvers.elimination.optima import canonical_optimum, rows_within
from hypar_opt.solvers.elimination.solve import of_pairs, order_of_graph

if TYPE_CHECKING:
    from hypar_opt.costs.state_classes import ClassTable
    from hypar_opt.deadline import Deadline

Columns = Sequence[NDArray[np.intp]]
"""By node, the remaining columns of a table: states or classes."""

PairsOf = Callable[[int, NDArray[np.intp], NDArray[np.intp]], Integers]
"""Returns the charges of a kind of boundary for columns of its source and of its target."""


@dataclass(frozen=True, eq=False)
class Restricted:
    """The remaining columns of a table, eliminated.

    Parameters
    ----------
    columns
        By node.
    free
        The nodes with several columns. The others are fixed, and their charges are part of the free
        nodes' and of the constant.
    """

    columns: Columns
    free: Sequence[int]
    constant: int
    buckets: Buckets

    @cached_property
    def objective(self) -> int:
        return self.constant + self.buckets.minimum(0)

    def optimum(self, deadline: Deadline, *, canonical: bool) -> tuple[int, ...]:
        """Return the column of each node in an optimum, or in the canonical one."""
        chosen, tied = traced_back(self.buckets, 0)
        if canonical and tied:
            sizes = [len(self.columns[node]) for node in self.free]
            chosen = canonical_optimum(self.buckets, sizes, 0, deadline)
        places = [0] * len(self.columns)
        for node, choice in zip(self.free, chosen, strict=True):
            places[node] = choice
        return tuple(int(column[n]) for column, n in zip(self.columns, places, strict=True))

    def costed(
        self, threshold: int, deadline: Deadline, most_rows: int | None
    ) -> list[tuple[NDArray[np.intp], Integers]]:
        """Return the columns of each node that occur in an assignment of at most a cost.

        Beside each is the least cost of such an assignment. `most_rows` as `rows_within`.
        """
        sizes = [len(self.columns[node]) for node in self.free]
        rows = rows_within(threshold - self.constant, self.buckets, sizes, 0, deadline, most_rows)
        optimum = np.array([self.objective], object)
        columns = [(column, optimum) for column in self.columns]
        # Buckets of one kind share their rows.
        cache: dict[tuple[int, int], tuple[NDArray[np.intp], Integers]] = {}
        for node, costed in zip(self.free, rows, strict=True):
            key = id(costed), id(self.columns[node])
            if key not in cache:
                occurring, number = np.unique(costed.choices[0], return_inverse=True)
                lowest = np.full(len(occurring), costed.minima.max(), costed.minima.dtype)
                np.minimum.at(lowest, number, costed.minima)
                cache[key] = self.columns[node][occurring], lowest.astype(object) + self.constant
            columns[node] = cache[key]
        return columns


def eliminated(
    table: ClassTable,
    node: Integers,
    columns: Columns,
    pairs: PairsOf,
    deadline: Deadline,
    max_entries: int | None = None,
) -> Restricted:
    """Eliminate the remaining columns of a table.

    Parameters
    ----------
    max_entries
        The most entries of a table; by default what memory allows.

    Raises
    ------
    RefusedError, NoAnswerError
    """
    sizes = np.array(list(map(len, columns)))
    numbers: dict[bytes, int] = {}
    keys = [numbers.setdefault(column.tobytes(), len(numbers)) for column in columns]
    kinds = [*zip(table.node_kinds.tolist(), keys, strict=True)]
    of_edges = [
        (kind, keys[source], keys[target], source < target)
        for kind, (source, target) in zip(
            table.boundary_kinds.tolist(), table.ends.tolist(), strict=True
        )
    ]
    cache: dict[tuple[int, ...], Integers] = {}

    def charge(boundary: int) -> Integers:
        key = of_edges[boundary]
        if key not in cache:
            cache[key] = pairs(key[0], *(columns[end] for end in table.ends[boundary]))
        return cache[key]

    free = np.flatnonzero(sizes > 1)
    between = np.flatnonzero((sizes[table.ends] > 1).all(axis=1))
    graph = graph_of(len(free), np.searchsorted(free, table.ends[between]))
    order = order_of_graph(tuple(sizes[free].tolist()), graph)
    if max_entries is not None and order.largest > max_entries:
        raise RefusedError(f"needs a table of {order.largest:,} entries")
    alone = {
        kind: node[kind[0], column]
        for kind, column in dict(zip(kinds, columns, strict=True)).items()
    }
    nodes = [alone[kind] for kind in kinds]
    for boundary in np.setdiff1d(np.arange(len(table.ends)), between).tolist():
        source, target = table.ends[boundary].tolist()
        if sizes[source] > 1:
            beside, charges = source, charge(boundary)[:, 0]
        else:
            beside, charges = target, charge(boundary)[0]
        nodes[beside] = nodes[beside] + charges
        kinds[beside] = -1, beside  # it is no longer one of its kind
    constant = sum(int(nodes[n][0]) for n in np.flatnonzero(sizes == 1))
    of_pair: list[tuple[Hashable, ...]] = [()] * len(graph.pairs)
    for edge, pair in zip(between.tolist(), graph.pair_of.tolist(), strict=True):
        of_pair[pair] += (of_edges[edge],)
    pairwise = PairwiseCharges(
        [nodes[n][None] for n in free],
        graph.pairs,
        of_pairs(graph, lambda edge: charge(between[edge])),
        [kinds[n] for n in free],
        of_pair,
    )
    return Restricted(columns, free.tolist(), constant, eliminate(pairwise, order, deadline))
