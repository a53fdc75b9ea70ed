"""The tables that prove a plan: one per level, one per threshold, or one over all states."""

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
"""The largest numbers of pairs of states, and of entries in a table: 1 GiB of int64."""

State = tuple[int, ...]


def price_of(plan: Plan) -> Fraction:
    """Return the cost of a plan's own choices, in its cost's unit.

    Raises
    ------
    CheckFailedError
        If the plan violates its own constraints, or its cost is none of its problem's.
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

    With scope ``level`` there is one for each level, given the plan's own choices above; a
    choice is allowed if choices below complete it, and its load is the least of those.
    With scope ``joint`` there is one: where bytes cost the same at every level, of two choices
    and nothing restricted, a chain for each question "model at t levels or more?", t = 1..H,
    side by side; else one choice for each state of a layer, in the order of `states`.

    Raises
    ------
    RefusedError
        If there are more states than memory allows, or no single level has a table.
    """
    charges, restrictions = _charges_of(plan), _restrictions_of(plan)
    if not plan.levels:
        return []
    # Scope level: proven is each table given the levels above, never the plan over all levels.
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
    """Return the states of a layer, its choices at all levels, in a certificate's order.

    Fewest levels not in data parallelism first, then fewest in output parallelism, then those
    that leave data parallelism topmost.
    """
    unordered = itertools.product(range(choices), repeat=levels)
    return sorted(unordered, key=lambda s: (levels - s.count(0), s.count(2), [-c for c in s]))


def _charges_of(plan: Plan) -> Charges:
    return built_in(plan) or OwnCost(plan)


def _restrictions_of(plan: Plan) -> Restrictions:
    return Restrictions(plan, layers_of(plan))


def _counts_above(plan: Plan) -> list[list[Counts]]:
    """Return, for each level and layer, how often the plan makes each choice above it."""
    counts: list[Counts] = [(0,) * len(plan.choices) for _ in plan.layers]
    counts_by_level = []
    for row in plan.assignments():
        counts_by_level.append(counts)
        counts = [
            one_more(*counts_and_choice) for counts_and_choice in zip(counts, row, strict=True)
        ]
    return counts_by_level


def _level_tables(plan: Plan, charges: Charges, restrictions: Restrictions) -> list[CostTable]:
    # A ring's time depends on all levels at which the layer reduces.
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

        # Defaults bind the values of this level: a closure would see those of the last.
        def load(layer: int, choice: int, level: int = level, counts: Any = counts) -> int | None:
            if not restrictions.allows(level, layer, counts[layer], choice):
                return None
            return restrictions.least(level + 1, layer, one_more(counts[layer], choice))

        table = _table(charges, np.array(node, object), _objects(edge, len(plan.choices)))
        tables.append(_restricted(table, restrictions, load))
    return tables


def _threshold_table(plan: Plan, charges: Bytes) -> CostTable:
    """Return H independent chains, t = 1..H: "model at t levels or more?" for each layer.

    Over all levels a layer with model parallelism at m of them is charged 2^(t-1) times its
    output for each t up to m, and 2^(H-t) times its weights for each t above. A boundary is
    charged the same at each level whose pair of choices exchanges; such levels are fewest where
    the levels of one layer contain the other's, and then as many as there are t at which the
    two answers exchange.

    Source: docs/decisions/0005-joint-optimum.md.
    """
    layers, levels = len(plan.layers), plan.levels
    unsplit = (0, 0)
    node = [
        charges.node(0, n, (levels - t, t - 1)) for t in range(1, levels + 1) for n in range(layers)
    ]
    # A boundary tensor is split by either choice, so its charge is the same at every level.
    edge = [charges.edge(0, n, unsplit, unsplit) for n in range(layers - 1)]
    ends = [chain_ends(layers) + t * layers for t in range(levels)]
    return _table(charges, np.array(node, object), _objects(edge * levels, 2), np.concatenate(ends))


def _states_table(plan: Plan, charges: Charges, restrictions: Restrictions) -> CostTable:
    """Return one table with a choice for each state of a layer, in the order of `states`."""
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
    # Python's integers first; the width of the large arrays is decided from their maximum.
    steps = [_step(charges, level, columns, layers, choices) for level in range(levels)]
    # An edge's entry is a sum over levels: int64 if no such sum can overflow it.
    largest = sum(int(edge.max(initial=0)) for _, _, edge in steps) * layers
    dtype = exact_dtype(largest)
    edges: Integers = np.zeros((layers - 1, len(columns), len(columns)), dtype)
    for code, nodes, edge in steps:
        node = node + nodes[:, code]
        for boundary, charge in enumerate(edge.astype(dtype)):
            edges[boundary] += charge[np.ix_(code, code)]

    def load(layer: int, column: int) -> int | None:
        counts: Counts = (0,) * choices
        for level, choice in enumerate(columns[column]):
            if not restrictions.allows(level, layer, counts, choice):
                return None
            counts = one_more(counts, choice)
        return restrictions.load(layer, counts)

    return _restricted(_table(charges, node, edges), restrictions, load)


def _step(
    charges: Charges, level: int, columns: Sequence[State], layers: int, choices: int
) -> tuple[NDArray[np.intp], Integers, Integers]:
    """Return one level's charges, by how often each choice is made above it.

    Charges depend on these counts, which are far fewer than the states.

    Returns
    -------
    code : (states,)
        The index of each state in ``nodes`` and ``edges``.
    nodes : (layers, codes)
    edges : (layers - 1, codes, codes)
    """
    counts_above = [tuple(map(state[:level].count, range(choices))) for state in columns]
    distinct = sorted(set(counts_above))
    offset = {counts: choices * n for n, counts in enumerate(distinct)}
    code = [
        offset[counts] + state[level] for counts, state in zip(counts_above, columns, strict=True)
    ]
    nodes = [
        [c for above in distinct for c in charges.node(level, n, above)] for n in range(layers)
    ]
    size = len(distinct) * choices
    edges: Integers = np.zeros((layers - 1, size, size), object)
    for boundary, (source, target) in itertools.product(
        range(layers - 1), itertools.product(distinct, repeat=2)
    ):
        rows, into = slice(offset[source], offset[source] + choices), offset[target]
        edges[boundary, rows, into : into + choices] = charges.edge(level, boundary, source, target)
    return np.array(code, np.intp), np.array(nodes, object), edges


def _objects(edge: Sequence[Matrix], choices: int) -> Integers:
    return np.array(edge, object).reshape(-1, choices, choices)


def _table(
    charges: Charges, node: Integers, edge: Integers, ends: NDArray[np.intp] | None = None
) -> CostTable:
    """Return a table of charges: int64 if no sum overflows, else Python's integers."""
    ends = chain_ends(len(node)) if ends is None else ends
    # Each node and each edge at its highest charge bounds every assignment.
    largest = sum(node.max(axis=1).tolist()) + sum(edge.max(axis=(1, 2), initial=0).tolist())
    dtype = exact_dtype(largest)
    return CostTable(node.astype(dtype), edge.astype(dtype), ends, resolution=charges.resolution)


def _restricted(
    table: CostTable, restrictions: Restrictions, load: Callable[[int, int], int | None]
) -> CostTable:
    """Return a table in which choices without a load are forbidden."""
    if not restrictions.any:
        return table
    loads = [[load(n, choice) for choice in range(table.choices)] for n in range(table.layers)]
    allowed = np.array([[entry is not None for entry in row] for row in loads])
    if restrictions.capacity is None:
        return replace(table, allowed=allowed)
    # A forbidden choice is in no assignment: its load does not matter, but has to be a number.
    dense: Integers = np.array([[entry or 0 for entry in row] for row in loads], object)
    return replace(table, allowed=allowed, load=dense, capacity=restrictions.capacity)
