"""What prices of memory leave of the ways and states of nodes: columns of a graph with loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.integers import exact_dtype
from hypar_opt.solvers.loaded_graph import LoadedGraph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.integers import Integers
    from hypar_opt.plan.training import Training
    from hypar_opt.workload.tensors import Workload

Picked = tuple[int, int, int]
"""The side, the way and the state of a node."""


class LeftColumn(NamedTuple):
    """One way and state of a node.

    Parameters
    ----------
    column
        Of the table that `WaysByLayer.table` returns.
    charge, load, moment
        Charges; and bytes of all accelerators together, all the time and at least for a moment.
    least
        A lower bound on the charges of a plan that has it, with bytes at a price.
    """

    column: int
    picked: Picked
    charge: int
    load: int
    moment: int
    least: int


@dataclass(frozen=True, eq=False)
class LeftColumns:
    """What is left of the columns of all nodes, and their charges.

    Parameters
    ----------
    order
        The nodes in the order in which they are decided; all else follows it.
    of_nodes
        At least one each.
    ports
        Numbers of the states and sides that columns have.
    edges
        Of ports, by places in ``order``.
    """

    order: Sequence[int]
    of_nodes: Sequence[Sequence[LeftColumn]]
    ports: Sequence[NDArray[np.intp]]
    edges: Mapping[tuple[int, int], Integers]

    def upto(self, most: int) -> LeftColumns | None:
        """Return what may be in a plan that is charged so much, with bytes at the price.

        None if there is no such plan.
        """
        low = [[own.least <= most for own in picks] for picks in self.of_nodes]
        of_nodes = [[*compress(*own)] for own in zip(self.of_nodes, low, strict=True)]
        if not all(of_nodes):
            return None
        own = [ports[kept] for ports, kept in zip(self.ports, low, strict=True)]
        left, ports = zip(*(np.unique(each, return_inverse=True) for each in own), strict=True)
        edges = {
            (one, other): pairs[np.ix_(left[one], left[other])]
            for (one, other), pairs in self.edges.items()
        }
        return LeftColumns(self.order, of_nodes, ports, edges)

    @cached_property
    def thresholds(self) -> list[int]:
        """The moments that a plan may have at most, by what its columns say of themselves."""
        least = max(min(own.moment for own in picks) for picks in self.of_nodes)
        every = {own.moment for picks in self.of_nodes for own in picks}
        return sorted({least, *(moment for moment in every if moment > least)})

    def graph(self, threshold: int) -> tuple[LoadedGraph, list[list[LeftColumn]]]:
        """Return the graph of the columns whose moment is at most a threshold, and these."""
        low = [[own.moment <= threshold for own in picks] for picks in self.of_nodes]
        kept = [[*compress(*own)] for own in zip(self.of_nodes, low, strict=True)]
        costs = [_integers(own.charge for own in picks) for picks in kept]
        loads = [_integers(own.load for own in picks) for picks in kept]
        ports = [ports[own] for ports, own in zip(self.ports, low, strict=True)]
        return LoadedGraph(costs, loads, ports, self.edges), kept


def _integers(values: Iterable[int]) -> Integers:
    every = [*values]
    return np.array(every, exact_dtype(max(every, default=0)))


@dataclass(frozen=True)
class Chosen:
    """States of all nodes, with the way of each.

    Parameters
    ----------
    picked
        By node.
    rows : (levels, nodes)
    training
        Of all layers.
    """

    picked: Sequence[Picked]
    rows: tuple[tuple[int, ...], ...]
    training: Training


def order_of_nodes(workload: Workload) -> list[int]:
    """Return all nodes, shared weights before their first user and tensors behind their writer."""
    before = {min(users): node for node, users in workload.weight_users.items()}
    behind = {writer: node for node, writer in workload.tensor_writers.items()}
    order = []
    for node in range(workload.shared, len(workload.nodes)):
        order += [own for own in (before.get(node), node, behind.get(node)) if own is not None]
    return order
