"""Solves many tables of two choices at once: the last axis of arrays is the problem's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.deadline import NEVER
from hypar_opt.solvers.elimination import rounds

if TYPE_CHECKING:
    from hypar_opt.solvers.elimination.graph import PairGraph

Int64 = NDArray[np.int64]
Bits = NDArray[np.unsignedinteger[Any]]
"""A layer's choices at all levels: bit h is that of level h, 0 for H1."""


@dataclass(frozen=True, eq=False)
class GraphPairs:
    """The pair charges of many tables on one graph, as terms of 0-1 variables.

    Parameters
    ----------
    constant : (problems,)
    linear : (layers, problems)
    quadratic : (pairs, problems)
        None positive, so that ties need no further search.
    """

    graph: PairGraph
    constant: Int64
    linear: Int64
    quadratic: Int64

    def solve(self, data: Int64, model: Int64) -> tuple[Int64, NDArray[np.bool_]]:
        """Return the least cost of each table, and its canonical assignment: `solve_chains`."""
        schedule = self.graph.schedule
        remainder = rounds.eliminate(
            schedule,
            self.constant + data.sum(axis=0),
            self.linear + model - data,
            self.quadratic,
            NEVER,
            ties=False,
        )
        core, _ = rounds.cheapest_few(schedule, remainder)
        values, _ = rounds.traced_back(schedule, remainder, core)
        return remainder.constant, values


def solve_chains(
    data: Int64, model: Int64, pairs: list[list[Int64 | int]]
) -> tuple[Int64, NDArray[np.bool_]]:
    """Return the least cost of each of many chains, and its canonical assignment.

    As `hypar_opt.solvers.dynamic_programming.ChainDP`, ties included.

    Parameters
    ----------
    data, model : (layers, problems)
    pairs
        For each layer but the first, the charges of the edge into it, ``(problems,)`` or 0.

    Returns
    -------
    costs : (problems,)
    answers : (layers, problems)
        True for model parallelism.
    """
    to_data, gap = data[0].copy(), model[0] - data[0]
    before_data, before_model = np.empty((2, *data.shape), bool)
    for layer in range(1, len(data)):
        dd, dm, md, mm = pairs[layer - 1]
        into_data, into_model = gap + md, gap + mm
        # Strictly less: of equal paths the one from data, the first choice, is canonical.
        np.less(into_data, dd, out=before_data[layer])
        np.less(into_model, dm, out=before_model[layer])
        into_data = np.minimum(into_data, dd)
        into_data += data[layer]
        to_data += into_data
        gap = np.minimum(into_model, dm)
        gap += model[layer]
        gap -= into_data
    answers = np.empty(data.shape, bool)
    np.less(gap, 0, out=answers[-1])
    to_data += np.minimum(gap, 0)
    for layer in range(len(data) - 1, 0, -1):
        answers[layer - 1] = np.where(answers[layer], before_model[layer], before_data[layer])
    return to_data, answers
