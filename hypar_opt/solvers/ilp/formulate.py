"""A cost table as a 0-1 program whose linear relaxation is as tight as the table allows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.solvers.ilp.knapsack import with_capacity
from hypar_opt.solvers.ilp.zero_one import LinearConstraint, ZeroOneProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.table import CostTable


def formulate(table: CostTable, deadline: Deadline = NEVER) -> ZeroOneProgram:
    """Return the tightest program known of a table that is not `trivially_infeasible`.

    On two choices, wherever all edges can be made to charge equal choices less than unequal
    ones: difference constraints, whose relaxation is integral on any graph. Else the path form,
    whose relaxation is integral on a chain.

    Raises
    ------
    NoAnswerError
        If the deadline passes.
    """
    ones = _submodular_columns(table)
    program = _path_form(table, deadline) if ones is None else _threshold_form(table, ones)
    # Fixed by its bounds a column costs the backend nothing; a constraint would be a row.
    if table.allowed is not None:
        forbidden = zip(*(~table.allowed).nonzero(), strict=True)
        literals = [program.literals[layer][choice] for layer, choice in forbidden]
        program = replace(program, fixed={column: 1 - value for column, value in literals})
    return with_capacity(program, table)


def _submodular_columns(table: CostTable) -> list[int] | None:
    """Return the choice for which a layer's column is 1, so that all edges are submodular.

    What an edge charges beyond its two ends' own charges, ``dd + mm - dm - md``, must not be
    positive. Where it is, one end's column has to stand for the other choice. That is to
    2-colour the graph, edges of positive interaction joining unlike layers: on a forest it
    always exists; None if a cycle forbids it, or there are not two choices.

    Source: Boros and Hammer, "Pseudo-Boolean optimization", Discrete Applied Mathematics 123,
    2002.
    """
    if table.choices != 2:
        return None
    neighbours: defaultdict[int, list[tuple[int, bool]]] = defaultdict(list)
    for (u, v), ((dd, dm), (md, mm)) in zip(table.ends.tolist(), table.edge.tolist(), strict=True):
        # Without interaction the edge is separable, and submodular either way.
        interaction = dd + mm - dm - md
        if interaction:
            neighbours[u].append((v, interaction > 0))
            neighbours[v].append((u, interaction > 0))
    ones: dict[int, int] = {}
    # Depth first from a root per component; its own choice is free.
    for root in range(table.layers):
        stack = [] if root in ones else [root]
        ones.setdefault(root, 1)
        while stack:
            layer = stack.pop()
            for neighbour, unlike in neighbours[layer]:
                required = ones[layer] ^ unlike
                if neighbour not in ones:
                    ones[neighbour] = required
                    stack.append(neighbour)
                elif ones[neighbour] != required:
                    # A cycle with an odd number of positive interactions.
                    return None
    return [ones[layer] for layer in range(table.layers)]


def _threshold_form(table: CostTable, ones: Sequence[int]) -> ZeroOneProgram:
    """Return the program of a binary per layer, and a column per edge no less than its ends'.

    Difference constraints are totally unimodular, so the relaxation is integral.

    Parameters
    ----------
    ones
        For every layer, the choice for which its column is 1.
    """
    x = [f"x_{layer}_{choice}" for layer, choice in enumerate(ones)]
    literals = [
        [(column, int(choice == one)) for choice in range(2)]
        for column, one in zip(x, ones, strict=True)
    ]
    costs: dict[str, int] = {}
    constant = 0
    constraints: list[LinearConstraint] = []
    for column, one, charges in zip(x, ones, table.node.tolist(), strict=True):
        constant += charges[1 - one]
        costs[column] = charges[one] - charges[1 - one]
    edges = zip(table.ends.tolist(), table.edge.tolist(), strict=True)
    for index, ((u, v), charges) in enumerate(edges):
        by_u = charges if ones[u] else charges[::-1]
        (a, b), (c, d) = by_u if ones[v] else (pair[::-1] for pair in by_u)
        # a + (d-b) x_u + (d-c) x_v + (b+c-a-d) max(x_u, x_v), at all four corners
        constant += a
        costs[x[u]] += d - b
        costs[x[v]] += d - c
        if b + c > a + d:
            # The cost is positive, so minimising holds the column down to the maximum, and bounds
            # from below are enough. It need not be binary: with x it is integral.
            z = f"z_{index}"
            costs[z] = b + c - a - d
            constraints += [
                LinearConstraint(f"over_{index}_{end}", {z: 1, x[end]: -1}, ">=", 0)
                for end in (u, v)
            ]
    return ZeroOneProgram(literals, costs, constant, tuple(constraints))


def _path_form(table: CostTable, deadline: Deadline) -> ZeroOneProgram:
    """Return the program of a binary per choice and a flow per edge and pair of choices.

    The flows of an edge add up, at both ends, to the binaries of the choices.

    The relaxation is the local marginal polytope: Wainwright and Jordan, "Graphical models,
    exponential families, and variational inference", 2008.

    The cheapest entry of a layer or an edge goes into the constant, which leaves the other
    costs fewer digits.
    """
    choices = range(table.choices)
    literals = [[(f"x_{layer}_{c}", 1) for c in choices] for layer in range(table.layers)]
    costs: dict[str, int] = {}
    constant = 0
    constraints: list[LinearConstraint] = []
    for layer, charges in enumerate(table.node.tolist()):
        cheapest = min(charges)
        constant += cheapest
        costs |= {f"x_{layer}_{c}": charge - cheapest for c, charge in enumerate(charges)}
        terms = {f"x_{layer}_{c}": 1 for c in choices}
        constraints.append(LinearConstraint(f"one_{layer}", terms, "=", 1))
    edges = zip(table.ends.tolist(), table.edge.tolist(), strict=True)
    for index, ((u, v), charges) in enumerate(edges):
        deadline.check()
        cheapest = min(map(min, charges))
        constant += cheapest
        y = [[f"y_{index}_{c}_{d}" for d in choices] for c in choices]
        for c in choices:
            costs |= {y[c][d]: charges[c][d] - cheapest for d in choices}
            leaving = {y[c][d]: 1 for d in choices} | {f"x_{u}_{c}": -1}
            entering = {y[d][c]: 1 for d in choices} | {f"x_{v}_{c}": -1}
            constraints.append(LinearConstraint(f"out_{index}_{c}", leaving, "=", 0))
            constraints.append(LinearConstraint(f"into_{index}_{c}", entering, "=", 0))
    return ZeroOneProgram(literals, costs, constant, tuple(constraints))
