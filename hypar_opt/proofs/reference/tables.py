"""The tables that prove a plan: one per level, one per threshold, or one over all states."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import CostTable, Integers, exact_dtype
from hypar_opt.errors import RefusedError, argument
from hypar_opt.proofs.reference.bytes_moved import Bytes
from hypar_opt.proofs.reference.restrictions import Restrictions, one_more
from hypar_opt.proofs.reference.rows import charges_of, graph_of, nodes_rows, states

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.reference.charges import Charges
    from hypar_opt.proofs.reference.exchanges import Counts, Matrix, State
    from hypar_opt.proofs.reference.nodes import PlanGraph

MAX_PAIRS = 2**20
MAX_ENTRIES = 2**27
"""The largest numbers of pairs of states, and of entries in a table: 1 GiB of int64."""


def tables_of(plan: Plan) -> list[CostTable]:
    """Return the tables on which a plan's optimality within its scope rests.

    With scope ``level`` there is one for each level, given the plan's own choices above; a
    choice is allowed if choices below complete it, and its load is the least of those.
    With scope ``joint`` there is one: where bytes cost the same at every level, of two choices
    and nothing restricted, a chain for each threshold t = 1..H, "model parallelism at t levels
    or more", side by side; else one choice for each state of a layer, in the order of `states`.

    Raises
    ------
    RefusedError
        If there are more states than memory allows, or no single level has a table.
    """
    if not plan.levels:
        return []
    charges, graph = charges_of(plan), graph_of(plan)
    restrictions = Restrictions(plan, graph)
    # Scope level: proven is each table given the levels above, never the plan over all levels.
    if plan.solver.scope == "level":
        return _level_tables(plan, charges, graph, restrictions)
    if isinstance(charges, Bytes) and _has_thresholds(plan, charges, restrictions):
        return [_threshold_table(plan, charges, graph)]
    return [_states_table(plan, charges, graph, restrictions)]


def allowed_states(plan: Plan) -> tuple[list[int], NDArray[np.intp]] | None:
    """Return the number of states that each node may have, and the ends of edges.

    None where no table has states, see `tables_of`.

    Raises
    ------
    RefusedError
        As `tables_of`.
    """
    charges, graph = charges_of(plan), graph_of(plan)
    restrictions = Restrictions(plan, graph)
    thresholds = isinstance(charges, Bytes) and _has_thresholds(plan, charges, restrictions)
    if not plan.levels or plan.solver.scope == "level" or thresholds:
        return None
    _check_states(plan, graph)
    columns = states(plan.levels, len(plan.choices))
    counts = [len(columns)] * len(graph.nodes)
    if restrictions.any:
        loads = [[_load(restrictions, n, state) for state in columns] for n in range(len(counts))]
        counts = [len(row) - row.count(None) for row in loads]
    return counts, _ends(graph)


def _has_thresholds(plan: Plan, charges: Bytes, restrictions: Restrictions) -> bool:
    return (
        len(plan.choices) == 2
        and len(set(plan.level_weights)) <= 1
        and not restrictions.any
        and charges.exchanges.has_thresholds
    )


def _level_tables(
    plan: Plan, charges: Charges, graph: PlanGraph, restrictions: Restrictions
) -> list[CostTable]:
    # A ring's time depends on all levels at which the layer reduces.
    if charges.joins_levels:
        raise RefusedError(
            "a ring joins levels, so no table of one level charges it: a proof needs"
            f" {argument('search', 'joint')}"
        )
    tables = []
    above: list[State] = [() for _ in graph.nodes]
    for level, (counts, row) in enumerate(nodes_rows(plan, charges, graph)):
        node = [charges.node(level, n, counted) for n, counted in enumerate(counts)]
        edge = [
            _appended(charges, n, above[edge.source], above[edge.target], len(plan.choices))
            if charges.together(n)
            else charges.edge(level, n, counts[edge.source], counts[edge.target])
            for n, edge in enumerate(graph.edges)
        ]

        # Defaults bind the values of this level: a closure would see those of the last.
        def load(layer: int, choice: int, level: int = level, counts: Any = counts) -> int | None:
            if not restrictions.allows(level, layer, counts[layer], choice):
                return None
            return restrictions.least(level + 1, layer, one_more(counts[layer], choice))

        columns = states(1, len(plan.choices))
        table = _table(
            charges, np.array(node, object), _objects(edge, len(plan.choices)), graph, columns
        )
        tables.append(_restricted(table, restrictions, load))
        above = [(*prefix, choice) for prefix, choice in zip(above, row, strict=True)]
    return tables


def _appended(
    charges: Charges, boundary: int, source: State, target: State, choices: int
) -> Integers:
    """Return what each pair of choices at a level adds to an edge's charges above it."""
    sources, targets = (
        [(*above, choice) for choice in range(choices)] for above in (source, target)
    )
    above = charges.pairs(boundary, [source], [target])
    added: Integers = charges.pairs(boundary, sources, targets) - above
    return added


def _ends(graph: PlanGraph) -> NDArray[np.intp]:
    pairs = [(edge.source, edge.target) for edge in graph.edges]
    return np.array(pairs, np.intp).reshape(-1, 2)


def _threshold_table(plan: Plan, charges: Bytes, graph: PlanGraph) -> CostTable:
    """Return H independent graphs, t = 1..H: "model at t levels or more?" for each node.

    Over all levels a node with model parallelism at m of them is charged 2^(t-1) times its
    output for each t up to m, and 2^(H-t) times its weights for each t above. A boundary is
    charged the same at each level whose pair of choices exchanges; such levels are fewest where
    the levels of one node contain the other's, and then as many as there are t at which the
    two of its choices exchange.

    Source: docs/decisions/0005-joint-optimum.md.
    """
    nodes, levels = len(graph.nodes), plan.levels
    unsplit = (0, 0)
    node = [
        charges.node(0, n, (levels - t, t - 1)) for t in range(1, levels + 1) for n in range(nodes)
    ]
    # A boundary tensor is split by either choice, so its charge is the same at every level.
    edge = [charges.edge(0, n, unsplit, unsplit) for n in range(len(graph.edges))]
    columns = states(1, 2)
    return _table(charges, np.array(node, object), _objects(edge * levels, 2), graph, columns)


def _states_table(
    plan: Plan, charges: Charges, graph: PlanGraph, restrictions: Restrictions
) -> CostTable:
    """Return one table with a choice for each state of a node, in the order of `states`."""
    nodes, levels, choices = len(graph.nodes), plan.levels, len(plan.choices)
    _check_states(plan, graph)
    columns = states(levels, choices)
    node: Integers = np.array(
        [[charges.state(n, s) for s in columns] for n in range(nodes)], object
    )
    # Python's integers first; the width of the large arrays is decided from their maximum.
    steps = [_step(charges, level, columns, graph, choices) for level in range(levels)]
    # An edge's entry is a sum over levels: int64 if no such sum can overflow it.
    largest = sum(int(edge.max(initial=0)) for _, _, edge in steps) * nodes
    dtype = exact_dtype(largest)
    edges: Integers = np.zeros((len(graph.edges), len(columns), len(columns)), dtype)
    for boundary in filter(charges.together, range(len(graph.edges))):
        pairs = charges.pairs(boundary, columns, columns)
        largest += int(pairs.max())
        dtype = exact_dtype(largest)
        edges = edges.astype(dtype, copy=False)
        edges[boundary] = pairs
    for code, charged, edge in steps:
        node = node + charged[:, code]
        for boundary, charge in enumerate(edge.astype(dtype)):
            edges[boundary] += charge[np.ix_(code, code)]

    def load(layer: int, column: int) -> int | None:
        return _load(restrictions, layer, columns[column])

    return _restricted(_table(charges, node, edges, graph, columns), restrictions, load)


def _check_states(plan: Plan, graph: PlanGraph) -> None:
    nodes, levels, choices = len(graph.nodes), plan.levels, len(plan.choices)
    pairs = choices ** (2 * levels)
    if pairs > MAX_PAIRS or max(nodes, len(graph.edges)) * pairs > MAX_ENTRIES:
        raise RefusedError(
            f"a proof over all levels needs {choices}^{2 * levels} pairs of states a boundary,"
            f" more than memory allows for {nodes - graph.shared} layers"
        )


def _load(restrictions: Restrictions, layer: int, state: State) -> int | None:
    """Return the load of a node in a state; None where it may not be in it."""
    counts: Counts = (0,) * restrictions.choices
    for level, choice in enumerate(state):
        if not restrictions.allows(level, layer, counts, choice):
            return None
        counts = one_more(counts, choice)
    return restrictions.load(layer, counts) if restrictions.even(layer, counts) else None


def _step(
    charges: Charges, level: int, columns: Sequence[State], graph: PlanGraph, choices: int
) -> tuple[NDArray[np.intp], Integers, Integers]:
    """Return one level's charges, by how often each choice is made above it.

    Charges depend on these counts, which are far fewer than the states.

    Returns
    -------
    code : (states,)
        The index of each state in ``nodes`` and ``edges``.
    nodes : (nodes, codes)
    edges : (edges, codes, codes)
    """
    counts_above = [tuple(map(state[:level].count, range(choices))) for state in columns]
    distinct = sorted(set(counts_above))
    offset = {counts: choices * n for n, counts in enumerate(distinct)}
    code = [
        offset[counts] + state[level] for counts, state in zip(counts_above, columns, strict=True)
    ]
    nodes = [
        [c for above in distinct for c in charges.node(level, n, above)]
        for n in range(len(graph.nodes))
    ]
    size = len(distinct) * choices
    edges: Integers = np.zeros((len(graph.edges), size, size), object)
    boundaries = [n for n in range(len(graph.edges)) if not charges.together(n)]
    for boundary, (source, target) in itertools.product(
        boundaries, itertools.product(distinct, repeat=2)
    ):
        rows, into = slice(offset[source], offset[source] + choices), offset[target]
        edges[boundary, rows, into : into + choices] = charges.edge(level, boundary, source, target)
    return np.array(code, np.intp), np.array(nodes, object), edges


def _objects(edge: Sequence[Matrix | Integers], choices: int) -> Integers:
    return np.array(edge, object).reshape(-1, choices, choices)


def _table(
    charges: Charges, node: Integers, edge: Integers, graph: PlanGraph, columns: Sequence[State]
) -> CostTable:
    """Return a table of charges: int64 if no sum overflows, else Python's integers.

    A plan stores weights whole, or as every layer that uses them splits them. What is no plan is
    charged more than it saves, which is less than all that the weights' node may be charged.

    Parameters
    ----------
    node : (graphs * nodes, columns)
        Of one or more copies of the graph.
    columns
        The choices of each column.
    """
    graphs, nodes = len(node) // len(graph.nodes), len(graph.nodes)
    ends = np.concatenate([_ends(graph) + copy * nodes for copy in range(graphs)])
    weights = np.flatnonzero([edge.weights for edge in graph.edges] * graphs)
    penalty: Integers = 1 + node.astype(object)[ends[weights, 0]].max(axis=1, initial=0)
    # Each node and each edge at its highest charge bounds every assignment.
    largest = sum(node.max(axis=1).tolist()) + sum(edge.max(axis=(1, 2), initial=0).tolist())
    dtype = exact_dtype(largest + sum(penalty.tolist()))
    edge = edge.astype(dtype, copy=False)
    stored = np.array(columns, np.intp).reshape(len(columns), 1, -1)
    split_unlike = ((stored != 0) & (stored != stored.transpose(1, 0, 2))).any(axis=2)
    edge[weights] += penalty.astype(dtype)[:, None, None] * split_unlike
    return CostTable(node.astype(dtype), edge, ends, resolution=charges.resolution)


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
