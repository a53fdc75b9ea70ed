"""The graph of a cost table: its pairs of layers, and how two choices are eliminated on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.solvers.elimination.schedule import EliminationSchedule, schedule_of

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, eq=False)
class PairGraph:
    """The pairs of layers that at least one edge joins.

    Parameters
    ----------
    layers
        The number of layers.
    low, high : (pairs,)
        The earlier and the later layer of every pair, in ascending order.
    ends : (edges, 2)
        The source and target of every edge.
    pair_of : (edges,)
        The pair that each edge joins.
    """

    layers: int
    low: NDArray[np.intp]
    high: NDArray[np.intp]
    ends: NDArray[np.intp]
    pair_of: NDArray[np.intp]

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The pairs as Python's own."""
        return tuple(zip(self.low.tolist(), self.high.tolist(), strict=True))

    @cached_property
    def schedule(self) -> EliminationSchedule:
        """In which rounds layers of at most two neighbours are eliminated."""
        return schedule_of(self.layers, self.low, self.high)


def graph_of(layers: int, ends: Sequence[Sequence[int]] | NDArray[np.intp]) -> PairGraph:
    """Return the graph of a table's edges; the same object for the same edges.

    All levels, all sweeps and all objectives of a network share one graph, and so one order.
    """
    if not isinstance(ends, np.ndarray):
        # Twice as fast as an array from pairs.
        ends = np.array(list(chain.from_iterable(ends)), np.intp)
    return _graph_of(layers, np.ascontiguousarray(ends, np.intp).tobytes())


@lru_cache(maxsize=8)
def _graph_of(layers: int, ends: bytes) -> PairGraph:
    edges = np.frombuffer(ends, np.intp).reshape(-1, 2)
    source, target = edges.T
    code = np.minimum(source, target) * layers + np.maximum(source, target)
    distinct, pair_of = np.unique(code, return_inverse=True)
    return PairGraph(layers, distinct // layers, distinct % layers, edges, pair_of.reshape(-1))
