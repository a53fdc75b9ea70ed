"""A cost table in 0-1 variables and clauses, so tight that on a tree its relaxation is exact."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.solvers.feasibility import allowed_choices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.table import CostTable

Literal = int
"""A variable's index, or ``~index`` for its negation, as in CP-SAT's own files."""


@dataclass(frozen=True)
class ClauseModel:
    """Minimise ``constant + unit * sum(weights * variables)`` over 0-1 variables.

    Parameters
    ----------
    weights
        Every variable's coefficient in the objective.
    choice_literals : layers x choices
        The literal that is true if the layer has the choice; None if it is forbidden.
    at_least_one, exactly_one
        Sets of literals, at least or exactly one of which is true.
    loads, capacity
        ``sum(loads * variables) <= capacity``; no loads without a capacity.
    """

    weights: Sequence[int]
    constant: int = 0
    unit: int = 1
    choice_literals: Sequence[Sequence[Literal | None]] = ()
    at_least_one: Sequence[Sequence[Literal]] = ()
    exactly_one: Sequence[Sequence[Literal]] = ()
    loads: Sequence[int] = ()
    capacity: int = 0

    def statistics(self) -> dict[str, float]:
        sets = [*self.at_least_one, *self.exactly_one]
        nonzeros = sum(map(len, sets)) + sum(load != 0 for load in self.loads)
        rows = len(sets) + bool(self.loads)
        return {"rows": rows, "columns": len(self.weights), "nonzeros": nonzeros}


def clause_model(table: CostTable, deadline: Deadline = NEVER) -> ClauseModel:
    """Return a table's model, in the largest unit that leaves its weights integers.

    Raises
    ------
    NoAnswerError
        If the deadline passes.
    """
    allowed = allowed_choices(table)
    if not allowed.any(axis=1).all():
        return _contradicted(ClauseModel([]))
    form = _two_choices if table.choices == 2 else _any_choices
    model = _with_capacity(form(table, allowed, deadline), table)
    # The smaller the weights, the more fits into 64 bits: costs, and ties below them.
    unit = gcd(*model.weights) or 1
    return replace(model, weights=[weight // unit for weight in model.weights], unit=unit)


def _contradicted(model: ClauseModel) -> ClauseModel:
    """Return an infeasible model: with a variable that has to be both true and false."""
    x = len(model.weights)
    return replace(
        model, weights=[*model.weights, 0], at_least_one=[*model.at_least_one, [x], [~x]]
    )


def _two_choices(table: CostTable, allowed: NDArray[np.bool_], deadline: Deadline) -> ClauseModel:
    """Return a variable per layer, and another per edge on which the choices interact.

    An edge costs ``dd + (md - dd) u + (dm - dd) v + q u v``, q = dd + mm - dm - md, where
    u and v are 1 where its ends have the second choice. The product is linearised by the sign
    of q: for q < 0, u v is u + v - z with a threshold z above u and v, held down by its
    weight; for q > 0, z is above u + v - 1.
    """
    first, second = table.node.T.tolist()
    constant = sum(first)
    weights = [with_x - without for without, with_x in zip(first, second, strict=True)]
    choice_literals: list[list[Literal | None]] = [[~x, x] for x in range(table.layers)]
    clauses: list[list[Literal]] = []
    # Python integers: an interaction may exceed int64 where no cost does.
    for (u, v), edge in zip(table.ends.tolist(), table.edge.tolist(), strict=True):
        deadline.check()
        (dd, dm), (md, mm) = edge
        q = dd + mm - dm - md
        constant += dd
        weights[u] += md - dd + min(q, 0)
        weights[v] += dm - dd + min(q, 0)
        # Without interaction the edge is a sum of its ends' charges and needs no variable.
        if q:
            z = _add_variable(weights, abs(q))
            clauses += [[~u, z], [~v, z]] if q < 0 else [[~u, ~v, z]]
    # A clause of one literal fixes it.
    for layer, choice in np.argwhere(~allowed).tolist():
        clauses.append([layer if choice == 0 else ~layer])
        choice_literals[layer][choice] = None
    return ClauseModel(weights, constant, choice_literals=choice_literals, at_least_one=clauses)


def _any_choices(table: CostTable, allowed: NDArray[np.bool_], deadline: Deadline) -> ClauseModel:
    """Return a variable per layer and choice, and another per transition on an edge.

    Exactly one transition leaves the choice of an edge's source and enters that of its
    target. The common charge of a choice's transitions is moved to the choice.
    The relaxation is the local marginal polytope, which is integral on a tree.
    """
    columns = [np.flatnonzero(row) for row in allowed]
    node, interactions = _common_charges_moved(table, columns)
    weights: list[int] = []
    constant = 0
    choice_literals: list[list[Literal | None]] = []
    chosen: list[list[Literal]] = []
    for costs, choices in zip(node, columns, strict=True):
        # Exactly one choice is charged, so the cheapest may be charged to the constant.
        cheapest = int(costs[choices].min())
        constant += cheapest
        variables = {
            choice: _add_variable(weights, int(costs[choice]) - cheapest)
            for choice in choices.tolist()
        }
        choice_literals.append([variables.get(choice) for choice in range(table.choices)])
        chosen.append(list(variables.values()))
    exactly_one = list(chosen)
    for u, v, charges in interactions:
        deadline.check()
        leaving = [[_add_variable(weights, charge) for charge in row] for row in charges]
        entering = zip(*leaving, strict=True)
        for layer, transitions in ((u, leaving), (v, entering)):
            # Either the choice is not made, or exactly one of its transitions is.
            pairs = zip(chosen[layer], transitions, strict=True)
            exactly_one += [[~choice, *of_choice] for choice, of_choice in pairs]
    return ClauseModel(weights, constant, choice_literals=choice_literals, exactly_one=exactly_one)


def _common_charges_moved(
    table: CostTable, columns: Sequence[NDArray[np.intp]]
) -> tuple[NDArray[np.generic], list[tuple[int, int, list[list[int]]]]]:
    """Move the common charge of a choice's transitions on an edge to the choice itself.

    Many edges then charge nothing, and need no variables.

    Parameters
    ----------
    columns
        The choices that every layer is allowed.

    Returns
    -------
    node : (layers, choices)
    interactions
        Source, target and remaining charges of the edges that are not separable.
    """
    node = table.node.copy()
    interactions = []
    for (u, v), edge in zip(table.ends.tolist(), table.edge, strict=True):
        remaining = edge[np.ix_(columns[u], columns[v])]
        # No assignment costs more or less for it: exactly one transition of the choice is charged.
        for layer, axis in ((u, 1), (v, 0)):
            common = remaining.min(axis=axis, keepdims=True)
            node[layer, columns[layer]] += common.ravel()
            remaining = remaining - common
        if remaining.any():
            interactions.append((u, v, remaining.tolist()))
    return node, interactions


def _add_variable(weights: list[int], weight: int) -> Literal:
    weights.append(weight)
    return len(weights) - 1


def _with_capacity(model: ClauseModel, table: CostTable) -> ClauseModel:
    """Return the model with the table's capacity, unless nothing can exceed it."""
    if table.load is None or table.capacity is None:
        return model
    capacity, loads = table.capacity, [0] * len(model.weights)
    for literals, amounts in zip(model.choice_literals, table.load.tolist(), strict=True):
        for x, amount in zip(literals, amounts, strict=True):
            if x is not None and x >= 0:
                loads[x] += amount
            elif x is not None:
                # The opposite of a variable loads amount * (1 - variable).
                loads[~x] -= amount
                capacity -= amount
    # The least and the greatest load of any values of the variables, allowed or not.
    if capacity < sum(load for load in loads if load < 0):
        return _contradicted(model)
    if capacity < sum(load for load in loads if load > 0):
        return replace(model, loads=loads, capacity=capacity)
    return model
