"""The tables that prove a plan: one a level, one chain a threshold, or one over all states."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import CostTable, Integers, chain_ends, exact_dtype
from hypar_opt.errors import RefusedError, argument
from hypar_opt.search.proofs.charges import Bytes, Charges, built_in
from hypar_opt.search.proofs.exchanges import Counts, Matrix, layers_of
from hypar_opt.search.proofs.own_cost import OwnCost
from hypar_opt.search.proofs.restrictions import Restrictions, one_more

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan

MOST_PAIRS = 2**20
MOST_ENTRIES = 2**27
"""Of pairs of states of two layers, and of numbers in a table: 1 GiB of int64."""

State = tuple[int, ...]


def price_of(plan: Plan) -> Fraction:
    """Return what a plan's own choices cost, in its cost's unit.

    Raises
    ------
    CheckFailedError
        If the plan does not keep to its own constraints, or its cost is not a cost of its
        problem.
    """
    charges, rows = _charges_of(plan), plan.assignments()
    _restrictions_of(plan).check(rows)
    total = sum(charges.state(n, column) for n, column in enumerate(zip(*rows, strict=True)))
    for level, (row, counts) in enumerate(zip(rows, _counts_above(plan), strict=True)):
        total += sum(charges.node(level, n, counts[n])[choice] for n, choice in enumerate(row))
        for n, (source, target) in enumerate(itertools.pairwise(row)):
            total += charges.edge(level, n, counts[n], counts[n + 1])[source][target]
    return Fraction(total, charges.resolution)


def tables_of(plan: Plan) -> list[CostTable]:
    """Return the tables on which a plan's optimality within its scope rests: chains.

    With scope ``level`` there is one a level, given the plan's own choices above; in each, a
    choice is allowed if some choices below complete it, and loads what they load at the least.
    With scope ``joint`` there is one: where bytes cost the same at every level, of two choices
    and nothing restricted, a chain for each question "model at t levels or more?", t = 1..H,
    side by side; else one choice for each state of a layer, in the order of `states`.

    Raises
    ------
    RefusedError
        If there are more states than memory allows, or no table of a level.
    """
    charges, restrictions = _charges_of(plan), _restrictions_of(plan)
    if not plan.levels:
        return []
    if plan.solver.scope == "level":
        return _level_tables(plan, charges, restrictions)
    if (
        isinstance(charges, Bytes)
        and len(plan.choices) == 2
        and len(set(plan.level_weights)) <= 1
        and not restrictions.any
        and charges.exchanges.separable
    ):
        return [_threshold_table(plan, charges)]
    return [_states_table(plan, charges, restrictions)]


def states(levels: int, choices: int) -> list[State]:
    """Return what a layer may take at all levels, H1 first, in a certificate's order.

    Fewest levels out of data parallelism first, then fewest in output parallelism, then those
    that leave data parallelism topmost.
    """
    every = itertools.product(range(choices), repeat=levels)
    return sorted(every, key=lambda s: (levels - s.count(0), s.count(2), [-c for c in s]))


def _charges_of(plan: Plan) -> Charges:
    return built_in(plan) or OwnCost(plan)


def _restrictions_of(plan: Plan) -> Restrictions:
    return Restrictions(plan, layers_of(plan.network.description, plan.batch))


def _counts_above(plan: Plan) -> list[list[Counts]]:
    """Return, for each level and layer, how often the plan takes each choice above it."""
    counts: list[Counts] = [(0,) * len(plan.choices) for _ in plan.layers]
    found = []
    for row in plan.assignments():
        found.append(counts)
        counts = [one_more(*taken) for taken in zip(counts, row, strict=True)]
    return found


def _level_tables(plan: Plan, charges: Charges, restrictions: Restrictions) -> list[CostTable]:
    if charges.joins_levels:
        raise RefusedError(
            "a ring joins levels, so no table of one level charges it: a proof needs"
            f" {argument('search', 'joint')}"
        )
    tables = []
    for level, counts in enumerate(_counts_above(plan)):
        node = [charges.node(level, n, above) for n, above in enumerate(counts)]
        edge = [
            charges.edge(level, n, source, target)
            for n, (source, target) in enumerate(itertools.pairwise(counts))
        ]

        def load(place: int, choice: int, level: int = level, counts: Any = counts) -> int | None:
            if not restrictions.allows(level, place, counts[place], choice):
                return None
            return restrictions.least(level + 1, place, one_more(counts[place], choice))

        table = _table(charges, np.array(node, object), _objects(edge, len(plan.choices)))
        tables.append(_restricted(table, restrictions, load))
    return tables


def _threshold_table(plan: Plan, charges: Bytes) -> CostTable:
    """Return H chains side by side, t = 1..H: "model at t levels or more?", a layer each.

    Over all levels a layer with model parallelism at m of them is charged 2^(t-1) times its
    output for each t up to m, and 2^(H-t) times its weights for each t above. A boundary is
    charged the same at each level whose pair of choices exchanges; such levels are fewest where
    the levels of one layer contain the other's, and then as many as there are t at which the
    two answers exchange.

    Source: docs/decisions/0005-joint-optimum.md.
    """
    layers, levels = len(plan.layers), plan.levels
    whole = (0, 0)
    node = [
        charges.node(0, n, (levels - t, t - 1)) for t in range(1, levels + 1) for n in range(layers)
    ]
    edge = [charges.edge(0, n, whole, whole) for n in range(layers - 1)]
    ends = [chain_ends(layers) + t * layers for t in range(levels)]
    return _table(charges, np.array(node, object), _objects(edge * levels, 2), np.concatenate(ends))


def _states_table(plan: Plan, charges: Charges, restrictions: Restrictions) -> CostTable:
    layers, levels, choices = len(plan.layers), plan.levels, len(plan.choices)
    pairs = choices ** (2 * levels)
    if pairs > MOST_PAIRS or layers * pairs > MOST_ENTRIES:
        raise RefusedError(
            f"a proof over all levels needs {choices}^{2 * levels} pairs of states a boundary,"
            f" more than memory allows for {layers} layers"
        )
    columns = states(levels, choices)
    node: Integers = np.array(
        [[charges.state(n, s) for s in columns] for n in range(layers)], object
    )
    steps = [_step(charges, level, columns, layers, choices) for level in range(levels)]
    # Int64 where no sum of a table's entries can overflow it.
    largest = sum(int(edge.max(initial=0)) for _, _, edge in steps) * layers
    number = exact_dtype(largest)
    edges: Integers = np.zeros((layers - 1, len(columns), len(columns)), number)
    for code, nodes, edge in steps:
        node = node + nodes[:, code]
        for boundary, charge in enumerate(edge.astype(number)):
            edges[boundary] += charge[np.ix_(code, code)]

    def load(place: int, column: int) -> int | None:
        counts: Counts = (0,) * choices
        for level, choice in enumerate(columns[column]):
            if not restrictions.allows(level, place, counts, choice):
                return None
            counts = one_more(counts, choice)
        return restrictions.load(place, counts)

    return _restricted(_table(charges, node, edges), restrictions, load)


def _step(
    charges: Charges, level: int, columns: Sequence[State], layers: int, choices: int
) -> tuple[NDArray[np.intp], Integers, Integers]:
    """Return what one level charges, by how often each choice is taken above it.

    Returns
    -------
    code : (states,)
        Where each state stands in the two others.
    nodes : (layers, codes)
    edges : (layers - 1, codes, codes)
    """
    taken = [tuple(map(state[:level].count, range(choices))) for state in columns]
    distinct = sorted(set(taken))
    place = {counts: choices * n for n, counts in enumerate(distinct)}
    code = [place[counts] + state[level] for counts, state in zip(taken, columns, strict=True)]
    nodes = [
        [c for above in distinct for c in charges.node(level, n, above)] for n in range(layers)
    ]
    size = len(distinct) * choices
    edges: Integers = np.zeros((layers - 1, size, size), object)
    for boundary, (source, target) in itertools.product(
        range(layers - 1), itertools.product(distinct, repeat=2)
    ):
        rows, into = slice(place[source], place[source] + choices), place[target]
        edges[boundary, rows, into : into + choices] = charges.edge(level, boundary, source, target)
    return np.array(code, np.intp), np.array(nodes, object), edges


def _objects(edge: Sequence[Matrix], choices: int) -> Integers:
    return np.array(edge, object).reshape(-1, choices, choices)


def _table(
    charges: Charges, node: Integers, edge: Integers, ends: NDArray[np.intp] | None = None
) -> CostTable:
    """Return a table of charges, of Python's integers or, where no sum overflows, of int64."""
    ends = chain_ends(len(node)) if ends is None else ends
    largest = sum(node.max(axis=1).tolist()) + sum(edge.max(axis=(1, 2), initial=0).tolist())
    number = exact_dtype(largest)
    return CostTable(node.astype(number), edge.astype(number), ends, resolution=charges.resolution)


def _restricted(
    table: CostTable, restrictions: Restrictions, load: Callable[[int, int], int | None]
) -> CostTable:
    """Return a table in which the choices of a layer without a load are not allowed."""
    if not restrictions.any:
        return table
    loads = [[load(n, choice) for choice in range(table.choices)] for n in range(table.layers)]
    allowed = np.array([[each is not None for each in row] for row in loads])
    if restrictions.capacity is None:
        return replace(table, allowed=allowed)
    whole: Integers = np.array([[each or 0 for each in row] for row in loads], object)
    return replace(table, allowed=allowed, load=whole, capacity=restrictions.capacity)
