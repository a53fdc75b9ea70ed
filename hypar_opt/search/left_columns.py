"""What prices of memory leave of the ways and states of nodes: columns of a graph with loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.table import exact_dtype
from hypar_opt.solvers.within_load import LoadedGraph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.table import Integers


class Column(NamedTuple):
    """One way and state of a node.

    Parameters
    ----------
    column
        Of the table that `WaysByLayer.table` returns.
    charge, load, moment
        Charges; and bytes of all accelerators together, all the time and at least for a moment.
    """

    column: int
    side: int
    way: int
    state: int
    charge: int
    load: int
    moment: int

    def is_dominated(self, others: Sequence[Column], own: int) -> bool:
        """Return whether another way of the same state takes and holds no more, or an equal before.

        Parameters
        ----------
        own
            The number of this one among the others.
        """
        return any(
            other[4:] != self[4:] or n < own
            for n, other in enumerate(others)
            if n != own and all(a <= b for a, b in zip(other[4:], self[4:], strict=True))
        )


@dataclass(frozen=True, eq=False)
class Columns:
    """What is left of the columns of all nodes, and their charges.

    Parameters
    ----------
    order
        The nodes in the order in which they are decided.
    of_nodes
        By node.
    ports
        Numbers of the states and sides that columns have, by node.
    edges
        Of ports, by places in ``order``.
    """

    order: Sequence[int]
    of_nodes: Sequence[Sequence[Column]]
    ports: Sequence[NDArray[np.intp]]
    edges: Mapping[tuple[int, int], Integers]

    @property
    def is_empty(self) -> bool:
        """Whether some node has none."""
        return not all(self.of_nodes)

    @cached_property
    def thresholds(self) -> list[int]:
        """The moments that a plan may have at most, by what its columns say of themselves."""
        least = max(min(own.moment for own in picks) for picks in self.of_nodes)
        every = {own.moment for picks in self.of_nodes for own in picks}
        return sorted({least, *(moment for moment in every if moment > least)})

    def graph(self, threshold: int) -> tuple[LoadedGraph, list[list[Column]]]:
        """Return the graph of the columns whose moment is at most a threshold, and these."""
        picks = [[*self.of_nodes[node]] for node in self.order]
        numbers = [
            np.array([n for n, own in enumerate(each) if own.moment <= threshold], np.intp)
            for each in picks
        ]
        kept = [[each[n] for n in some] for each, some in zip(picks, numbers, strict=True)]
        costs, loads = (
            [_integers(own[field] for own in each) for each in picks] for field in (4, 5)
        )
        whole = LoadedGraph(costs, loads, [self.ports[node] for node in self.order], self.edges)
        return whole.restricted(numbers), kept


def _integers(values: Iterable[int]) -> Integers:
    every = [*values]
    return np.array(every, exact_dtype(max(every, default=0)))
