"""A cost table as a 0-1 program whose linear relaxation is as tight as the table allows."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from hypar_opt.costs.pruned_table import PrunedTable
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.solvers.ilp.knapsack import MAX_CAPACITY, with_capacity
from hypar_opt.solvers.ilp.zero_one import LinearConstraint, ZeroOneProgram

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable


def formulate(
    table: CostTable | PrunedTable,
    deadline: Deadline = NEVER,
    largest_load: int = MAX_CAPACITY,
) -> ZeroOneProgram:
    """Return the tightest program known of a table that is not `trivially_infeasible`.

    Parameters
    ----------
    largest_load
        A larger capacity is divided into digits: see `with_capacity`.

    Raises
    ------
    NoAnswerError
        If the deadline passes.
    """
    if isinstance(table, PrunedTable):
        return _path_form(table, deadline)
    program = (_two_choices if table.choices == 2 else _path_form)(table, deadline)
    # Fixed by its bounds a column costs the backend nothing; a constraint would be a row.
    if table.allowed is not None:
        forbidden = zip(*(~table.allowed).nonzero(), strict=True)
        literals = [program.literals[layer][choice] for layer, choice in forbidden]
        program = replace(program, fixed={column: 1 - value for column, value in literals})
    return with_capacity(program, table, largest_load)


def _two_choices(table: CostTable, deadline: Deadline) -> ZeroOneProgram:
    """Return the program of a binary per layer, and a column per edge whose choices interact.

    An edge costs ``dd + (md - dd) u + (dm - dd) v + q u v``, q = dd + mm - dm - md, where u and
    v are 1 where its ends have the second choice. The product is linearised by the sign of q: for
    q < 0, u v is u + v - z with a threshold z above u and v; for q > 0, z is above u + v - 1. As z
    has a cost, minimising holds it down; with binary ends it is integral.

    The relaxation is the local marginal polytope, integral on a forest. Without q > 0 its
    difference constraints are totally unimodular, and it is integral on any graph.

    Source: Boros and Hammer, "Pseudo-Boolean optimization", Discrete Applied Mathematics 123,
    2002.
    """
    x = [f"x_{layer}_1" for layer in range(table.layers)]
    first, second = table.node.T.tolist()
    constant = sum(first)
    costs = {column: b - a for column, a, b in zip(x, first, second, strict=True)}
    constraints: list[LinearConstraint] = []
    # Python integers: an interaction may exceed int64 where no cost does.
    edges = zip(table.ends.tolist(), table.edge.tolist(), strict=True)
    for index, ((u, v), ((dd, dm), (md, mm))) in enumerate(edges):
        deadline.check()
        q = dd + mm - dm - md
        constant += dd
        costs[x[u]] += md - dd + min(q, 0)
        costs[x[v]] += dm - dd + min(q, 0)
        # Without interaction the edge is a sum of its ends' charges and needs no column.
        z = f"z_{index}"
        if q:
            costs[z] = abs(q)
        if q < 0:
            constraints += [
                LinearConstraint(f"over_{index}_{end}", {z: 1, x[end]: -1}, ">=", 0)
                for end in (u, v)
            ]
        elif q > 0:
            terms = {z: 1, x[u]: -1, x[v]: -1}
            constraints.append(LinearConstraint(f"both_{index}", terms, ">=", -1))
    literals = [[(column, 0), (column, 1)] for column in x]
    return ZeroOneProgram(literals, costs, constant, tuple(constraints))


def _path_form(table: CostTable | PrunedTable, deadline: Deadline) -> ZeroOneProgram:
    """Return the program of a binary per choice and a flow per edge and pair of choices.

    The flows of an edge add up, at both ends, to the binaries of the choices.

    The relaxation is the local marginal polytope: Wainwright and Jordan, "Graphical models,
    exponential families, and variational inference", 2008.

    The cheapest entry of a layer or an edge goes into the constant, which leaves the other
    costs fewer digits.
    """
    choices = [range(len(row)) for row in table.node]
    literals = [[(f"x_{layer}_{c}", 1) for c in row] for layer, row in enumerate(choices)]
    costs: dict[str, int] = {}
    constant = 0
    constraints: list[LinearConstraint] = []
    for layer, charges in enumerate(row.tolist() for row in table.node):
        cheapest = min(charges)
        constant += cheapest
        costs |= {f"x_{layer}_{c}": charge - cheapest for c, charge in enumerate(charges)}
        terms = {f"x_{layer}_{c}": 1 for c in choices[layer]}
        constraints.append(LinearConstraint(f"one_{layer}", terms, "=", 1))
    for index, ((u, v), entries) in enumerate(zip(table.ends.tolist(), table.edge, strict=True)):
        deadline.check()
        charges = entries.tolist()
        cheapest = min(map(min, charges))
        constant += cheapest
        y = [[f"y_{index}_{c}_{d}" for d in choices[v]] for c in choices[u]]
        leaving, entering = [], []
        for c in choices[u]:
            costs |= {y[c][d]: charges[c][d] - cheapest for d in choices[v]}
            terms = {y[c][d]: 1 for d in choices[v]} | {f"x_{u}_{c}": -1}
            leaving.append(LinearConstraint(f"out_{index}_{c}", terms, "=", 0))
        for d in choices[v]:
            terms = {y[c][d]: 1 for c in choices[u]} | {f"x_{v}_{d}": -1}
            entering.append(LinearConstraint(f"into_{index}_{d}", terms, "=", 0))
        constraints += filter(None, chain.from_iterable(zip_longest(leaving, entering)))
    return ZeroOneProgram(literals, costs, constant, tuple(constraints))
