"""The one thing a solver sees: what each choice costs, alone and beside its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[Any]
"""int64, or Python integers in an array of dtype object."""


@dataclass(frozen=True, eq=False)
class CostTable:
    """The cost of every assignment of one hierarchy level, as a sum over nodes and edges.

    An assignment takes one choice ``c[l]`` for each layer and costs
    ``sum(node[l, c[l]]) + sum(edge[e, c[u], c[v]])`` over layers l and edges e = (u, v).
    Every entry is a whole number, so that a sum is exact and two solvers agree or differ:
    int64 where no sum can overflow it, Python integers (dtype object) beyond.

    Parameters
    ----------
    node : (layers, choices)
        What a choice costs by itself: intra-layer communication.
    edge : (edges, choices, choices)
        What a pair costs, the source's choice first: inter-layer communication.
    ends : (edges, 2)
        The positions of an edge's source and target, source before target.
    kinds
        Each layer's kind, ``conv`` or ``fc``, for rules that go by it; may be empty.
    unit
        What the costs count, ``bytes``.
    per_unit
        The entries count this fraction of the unit: 2 for halves of a byte.
    """

    node: Integers
    edge: Integers
    ends: NDArray[np.intp]
    kinds: tuple[str, ...] = ()
    unit: str = "bytes"
    per_unit: int = 1

    @property
    def layers(self) -> int:
        return int(self.node.shape[0])

    @property
    def choices(self) -> int:
        return int(self.node.shape[1])

    @property
    def is_chain(self) -> bool:
        """Whether the edges are exactly those from each layer to the next."""
        count = self.layers - 1
        return len(self.ends) == count and bool(
            (self.ends[:, 0] == np.arange(count)).all()
            and (self.ends[:, 1] == np.arange(1, count + 1)).all()
        )

    def in_units(self, cost: int) -> Fraction:
        """Turn a sum of entries into the table's unit."""
        return Fraction(cost, self.per_unit)


def chain_ends(layers: int) -> NDArray[np.intp]:
    """Return the ends of a chain's edges, ``(layers - 1, 2)``."""
    return np.stack([np.arange(layers - 1), np.arange(1, layers)], axis=1)
