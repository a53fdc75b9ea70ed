"""The cost table, which is all that a solver sees: charges of choices and pairs of choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import RefusedError
from hypar_opt.frozen import FrozenDict
from hypar_opt.integers import Integers, exact_dtype

Limit = tuple[Integers, int]
"""The loads of columns, and a capacity: an upper bound on their sum in an assignment."""


@dataclass(frozen=True, eq=False)
class CostTable:
    """The cost of every assignment of a level, or of a plan, as a sum over nodes and edges.

    An assignment has one choice ``c[l]`` for each layer and costs
    ``sum(node[l, c[l]]) + sum(edge[e, c[u], c[v]])`` over layers l and edges e = (u, v).
    Entries are integers, so that sums are exact and two solvers' optima are equal or not:
    int64 where no sum can overflow it, Python integers (dtype object) beyond.

    Source: docs/decisions/0004-whole-number-tables.md.

    Parameters
    ----------
    node : (layers, choices)
        The charge of a choice by itself: intra-layer communication. Not negative.
    edge : (edges, choices, choices)
        The charge of a pair, the source's choice first: inter-layer communication. Not
        negative.
    ends : (edges, 2)
        The positions of an edge's source and target, in either order.
    baselines
        Each layer's choice under the paper's baselines, by their names; may be empty.
    unit
        The unit of the costs, such as ``bytes``.
    resolution
        Entries per unit: 2 if an entry of 1 is half a byte.
    allowed : (layers, choices) bool
        Which choices are feasible; None for all.
    limits
        Loads of choices, ``(layers, choices)``, each with its capacity: the upper bound on an
        assignment's sum of them. There are several where groups of accelerators differ.

    Raises
    ------
    ValueError
        If shapes or dtypes do not match, an entry is negative, or a sum may overflow.
    """

    node: Integers
    edge: Integers
    ends: NDArray[np.intp]
    baselines: Mapping[str, tuple[int, ...]] = FrozenDict()
    unit: str = "bytes"
    resolution: int = 1
    allowed: NDArray[np.bool_] | None = None
    limits: tuple[Limit, ...] = ()

    def __post_init__(self) -> None:
        choices = self.node.shape[1]
        edges = len(self.ends)
        if self.edge.shape != (edges, choices, choices) or self.ends.shape != (edges, 2):
            raise ValueError(f"edge {self.edge.shape} and ends {self.ends.shape} do not fit node")
        arrays = [self.node, self.edge, *(load for load, _ in self.limits)]
        if any(part.dtype not in (np.int64, np.object_) for part in arrays):
            raise ValueError("a cost should be a whole number: int64, or Python's own")
        if any(part.size and part.min() < 0 for part in arrays):
            raise ValueError("a cost should not be negative")
        if (self.ends[:, 0] == self.ends[:, 1]).any():
            raise ValueError("an edge should lead from a layer to another one")
        if self.node.dtype != self.edge.dtype:
            raise ValueError("node and edge should be of one type")
        if self.node.dtype == np.int64 and self.max_total >= 2**63:
            raise ValueError("a sum of costs may not fit int64; make them Python's integers")

    def exceeded(self, assignment: Sequence[int]) -> tuple[int, int] | None:
        """Return the load of an assignment and the capacity that it exceeds, if any."""
        for load, capacity in self.limits:
            total = sum(load[range(self.layers), list(assignment)].tolist())
            if total > capacity:
                return total, capacity
        return None

    @cached_property
    def max_total(self) -> int:
        """An upper bound on an assignment's cost: the highest charge of each layer and edge."""
        highest = self.node.max(axis=1, initial=0), self.edge.max(axis=(1, 2), initial=0)
        # Added up as Python's integers: this sum decides whether int64 is wide enough.
        return sum(sum(part.tolist()) for part in highest)

    @property
    def layers(self) -> int:
        return int(self.node.shape[0])

    @property
    def choices(self) -> int:
        return int(self.node.shape[1])

    @cached_property
    def is_chain(self) -> bool:
        """Whether each edge leads to the next layer: one chain, or several independent ones."""
        return are_chains(self.ends, self.layers)

    def chain_edges(self) -> Integers:
        """Return a chain's edges with zeros between chains, ``(layers - 1, choices, choices)``.

        Raises
        ------
        RefusedError
            If the table is not a chain.
        """
        if not self.is_chain:
            raise RefusedError("solves chains only; this graph is not a chain")
        if len(self.ends) == self.layers - 1:
            return self.edge
        shape = (self.layers - 1, self.choices, self.choices)
        edges: Integers = np.zeros(shape, self.edge.dtype)
        edges[self.ends[:, 0]] = self.edge
        return edges

    def price(self, assignment: Sequence[int]) -> int:
        """Return an assignment's cost, as the entries count."""
        choice = np.asarray(assignment, np.intp)
        source, target = self.ends.T
        # Lists of Python's integers, so that the sums cannot overflow.
        nodes: list[int] = self.node[np.arange(self.layers), choice].tolist()
        edges: list[int] = self.edge[
            np.arange(len(self.ends)), choice[source], choice[target]
        ].tolist()
        return sum(nodes) + sum(edges)

    def charging(
        self, node: Sequence[Integers], edge: Sequence[Integers], ends: NDArray[np.intp]
    ) -> CostTable:
        """Return the table with other charges, of some of its edges."""
        rows = np.array(node)
        edges = np.array(edge, rows.dtype).reshape(len(ends), self.choices, self.choices)
        return replace(self, node=rows, edge=edges, ends=ends)

    def in_units(self, cost: int) -> Fraction:
        """Convert a sum of entries to the table's unit, exactly."""
        return Fraction(cost, self.resolution)

    def with_penalty(self) -> tuple[CostTable, int]:
        """Return the table with forbidden choices allowed at a penalty (big-M), and the penalty.

        An assignment costs less than the penalty if and only if it has no forbidden choice.
        """
        # The least penalty above every feasible cost: a larger one would only need a wider dtype.
        penalty = 1 + self.max_total
        if self.allowed is None:
            return self, penalty
        # All layers may have a forbidden choice at once, on top of their charges.
        dtype = exact_dtype(penalty * (self.layers + 1))
        forbidden: Integers = (~self.allowed).astype(dtype)
        node = self.node.astype(dtype) + penalty * forbidden
        return replace(self, node=node, edge=self.edge.astype(dtype), allowed=None), penalty


def side_by_side(tables: Sequence[CostTable]) -> CostTable:
    """Return independent tables of the same choices as one: their layers one after another."""
    first = tables[0]
    starts = np.cumsum([0] + [table.layers for table in tables[:-1]])
    return replace(
        first,
        node=np.concatenate([table.node for table in tables]),
        edge=np.concatenate([table.edge for table in tables]),
        ends=np.concatenate([t.ends + start for t, start in zip(tables, starts, strict=True)]),
        baselines={
            name: tuple(choice for table in tables for choice in table.baselines[name])
            for name in first.baselines
        },
    )


def are_chains(ends: Sequence[tuple[int, int]] | NDArray[np.intp], nodes: int) -> bool:
    """Return whether edges make one chain of nodes in their order, or several independent ones."""
    if not len(ends) < nodes:
        return False
    sources, targets = np.reshape(ends, (-1, 2)).T
    return bool((targets == sources + 1).all() and (sources[1:] > sources[:-1]).all())


def chain_ends(layers: int) -> NDArray[np.intp]:
    """Return the ends of a chain's edges, ``(layers - 1, 2)``."""
    return np.stack([np.arange(layers - 1), np.arange(1, layers)], axis=1)
