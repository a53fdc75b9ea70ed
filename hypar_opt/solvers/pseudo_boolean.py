"""Tables of two choices as functions of 0-1 variables: 1 where a layer has its second choice."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import CostTable
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.integers import Integers
from hypar_opt.solvers.elimination.graph import PairGraph, graph_of

_MAX_COST = 2**56
"""A cost up to this leaves room in int64 for the sums of 32 of its size that elimination makes."""


@dataclass(frozen=True, eq=False)
class PseudoBoolean:
    """Functions ``constant + sum(linear * x) + sum(quadratic * x_u * x_v)`` on one graph.

    One function for a single level, or one per threshold of a `ThresholdTable`; these differ only
    in their linear terms.

    Parameters
    ----------
    graph
        The pairs (u, v).
    constant
        One per function.
    linear : (layers, functions)
    quadratic : (pairs,)
        What a pair charges beyond its layers' own charges: not positive if it is submodular.
    fixed : (layers,) int8
        0 or 1 if only this choice is allowed, which the other terms already include; else -1.
        None if no layer is fixed.

    Source: Boros and Hammer, "Pseudo-Boolean optimization", Discrete Applied Mathematics 123,
    2002.
    """

    graph: PairGraph
    constant: tuple[int, ...]
    linear: Integers
    quadratic: Integers
    fixed: NDArray[np.int8] | None = None

    @classmethod
    def of(cls, table: CostTable | ThresholdTable) -> PseudoBoolean:
        """Return the function of a table of two choices in which every layer is allowed one."""
        if isinstance(table, ThresholdTable):
            return cls._threshold_functions(table)
        dtype = np.int64 if table.max_total < _MAX_COST else np.object_
        first, second = table.node.T.astype(dtype)
        graph = graph_of(table.layers, table.ends)
        pairs = table.edge.reshape(-1, 4).T.astype(dtype)
        constant, linear, quadratic = _expanded(graph, pairs)
        whole = cls(
            graph,
            (constant + sum(first.tolist()),),
            (linear + second - first)[:, None],
            quadratic,
        )
        return whole if table.allowed is None else whole._with_allowed(table.allowed)

    @classmethod
    def _threshold_functions(cls, table: ThresholdTable) -> PseudoBoolean:
        beyond = max(table.max_total, table.parts**table.levels) >= _MAX_COST
        dtype = np.object_ if beyond else np.int64
        data, model = (np.asarray(column, dtype)[:, None] for column in (table.data, table.model))
        graph = graph_of(len(table.data), table.ends)
        constant, linear, quadratic = _expanded(graph, np.asarray(table.pairs, dtype))
        of_data, of_model = np.array(table.copies, dtype).T
        all_data = sum(data[:, 0].tolist())
        return cls(
            graph,
            tuple(constant + all_data * copies for copies, _ in table.copies),
            model * of_model - data * of_data + linear[:, None],
            quadratic,
        )

    def _with_allowed(self, allowed: NDArray[np.bool_]) -> PseudoBoolean:
        """Return the function of the layers that are allowed both choices."""
        fixed = np.where(allowed.all(axis=1), -1, allowed[:, 1].astype(np.int8)).astype(np.int8)
        low, high = fixed[self.graph.low], fixed[self.graph.high]
        linear, quadratic = self.linear.copy(), self.quadratic
        # A pair with a layer that is fixed at 1 is a charge of the other layer.
        for value, other in ((low, self.graph.high), (high, self.graph.low)):
            np.add.at(linear[:, 0], other[value == 1], quadratic[value == 1])
        constant = sum(linear[fixed == 1, 0].tolist())
        # Both of these pairs' layers were charged for it.
        constant -= sum(quadratic[(low == 1) & (high == 1)].tolist())
        linear[fixed >= 0] = 0
        free = (low < 0) & (high < 0)
        return replace(
            self,
            constant=(self.constant[0] + constant,),
            linear=linear,
            quadratic=np.where(free, quadratic, 0).astype(quadratic.dtype),
            fixed=fixed,
        )

    @property
    def submodular(self) -> bool:
        """Whether no pair charges unlike choices less in total than like ones."""
        return not (self.quadratic > 0).any()

    def assignment(self, values: NDArray[np.bool_]) -> tuple[int, ...]:
        """Return all layers' choices for the first function, then for the second, and so on.

        Parameters
        ----------
        values : (layers, functions)
            Values of the variables that are not fixed.
        """
        choices = values.T.astype(np.int8)
        if self.fixed is not None:
            choices = np.where(self.fixed >= 0, self.fixed, choices)
        return tuple(choices.tobytes())


def _expanded(graph: PairGraph, pairs: Integers) -> tuple[int, Integers, Integers]:
    """Return the constant, linear and quadratic terms of all edges' charges.

    Parameters
    ----------
    pairs : (4, edges)
        Charges of first-first, first-second, second-first and second-second.
    """
    both_first, target, source, both_second = pairs
    linear: Integers = np.zeros(graph.layers, pairs.dtype)
    quadratic: Integers = np.zeros(len(graph.low), pairs.dtype)
    np.add.at(linear, graph.ends[:, 0], source - both_first)
    np.add.at(linear, graph.ends[:, 1], target - both_first)
    np.add.at(quadratic, graph.pair_of, both_first + both_second - target - source)
    return sum(both_first.tolist()), linear, quadratic
