"""The tables that prove a plan: one per level, one per threshold, or one over all states."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import CostTable, Integers, exact_dtype
from hypar_opt.errors import RefusedError, argument
from hypar_opt.proofs.check.folds import Bytes
from hypar_opt.proofs.check.rows import PlanProblem, nodes_states, states
from hypar_opt.workload.parallelism import SIDES
from hypar_opt.workload.shards import Shards

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.check.nodes import PlanGraph, State
    from hypar_opt.proofs.check.restrictions import Restrictions

MAX_PAIRS = 2**20
MAX_ENTRIES = 2**27
"""The largest numbers of pairs of states, and of entries in a table: 1 GiB of int64."""


def tables_of(plan: Plan) -> list[CostTable]:
    """Return the tables on which a plan's optimality within its scope rests.

    With scope ``level`` there is one for each level, given the plan's own choices above; a
    choice is allowed if choices below complete it, and its load is the least of those.
    With scope ``joint`` there is one: where all levels have as many parts and bytes cost the same,
    of two choices and nothing restricted, a chain for each threshold t = 1..H, "model parallelism
    at t levels or more", side by side; else one choice for each state of a layer, in the order of
    `states`. Parts of images are contiguous in all of its plans only where pins leave a single
    order of their levels; see `tables_by_order`.

    Raises
    ------
    RefusedError
        If there are more states than memory allows, or no single level has a table.
    """
    if not plan.levels:
        return []
    problem = PlanProblem(plan)
    # Scope level: proven is each table given the levels above, never the plan over all levels.
    if plan.solver.scope == "level":
        return _level_tables(problem)
    if _has_thresholds(problem):
        return [_threshold_table(problem)]
    table = _states_table(problem)
    by_order = _tables_by_order(problem, table)
    return by_order if len(by_order) == 1 else [table]


def table_of_ways(plan: Plan) -> CostTable | None:
    """Return the table of plans that train in any way, in as many micro-batches as a plan.

    What is sharded of weights is charged by their node alone, which is in its cheapest way. To
    gather weights more often, or to run a pass again, adds to charges; so none is less than where
    nothing is split, or the state, or from some level down gradients, too. None where the plan is
    of no memory of a device, or no single table has all plans.

    Raises
    ------
    RefusedError
        As `tables_of`.
    """
    if plan.problem.device_memory is None or plan.solver.scope == "level" or not plan.levels:
        return None
    begins = None, *range(plan.levels)
    words = "none", *(Shards(0, first).word(plan.levels) for first in begins)
    trained = (plan.training.model_copy(update={"recompute": "none", "shard": w}) for w in words)
    ways = [PlanProblem(plan.model_copy(update={"training": own})) for own in trained]
    return None if ways[0].restrictions.of_images else _states_table(ways[0], ways[1:])


def tables_by_order(plan: Plan) -> list[CostTable]:
    """Return tables over all states, in one of which is every plan of contiguous parts of images.

    None where `tables_of` has a plan's only one.

    Raises
    ------
    RefusedError
        As `tables_of`.
    """
    problem = PlanProblem(plan)
    if not problem.restrictions.of_images or plan.solver.scope == "level":
        return []
    tables = _tables_by_order(problem, _states_table(problem))
    return tables if len(tables) > 1 else []


def _tables_by_order(problem: PlanProblem, table: CostTable) -> list[CostTable]:
    """Return a table for each order of the levels that split images, which forbids other states.

    Parts of images are contiguous if every node splits rows at the first of some levels, and
    columns at the first of some others. What is first of some levels is first of these with any
    below, so that all orders have the last. Orders that leave a node no state have no table.
    """
    of_images, tables = problem.restrictions.of_images, []
    if not of_images:
        return []
    *above, last = range(problem.plan.levels)
    orders = [
        (*some, last)
        for count in range(problem.plan.levels)
        for some in itertools.combinations(above, count)
    ]
    for chosen in itertools.product(orders, repeat=len(of_images)):
        keeps = [
            all(map(_begins, [state] * len(of_images), of_images, chosen))
            for state in problem.states
        ]
        assert table.allowed is not None
        allowed = table.allowed & np.array(keeps)
        if allowed.any(axis=1).all():
            tables.append(replace(table, allowed=allowed))
    return tables


def _begins(state: State, column: int, order: Sequence[int]) -> bool:
    """Return whether the levels at which a state has a choice are the first of an order."""
    own = tuple(level for level, choice in enumerate(state) if choice == column)
    return own == tuple(order[: len(own)])


def allowed_states(plan: Plan) -> tuple[list[int], NDArray[np.intp]] | None:
    """Return the number of states that each node may have, and the ends of edges.

    None where no table has states, see `tables_of`.

    Raises
    ------
    RefusedError
        As `tables_of`.
    """
    problem = PlanProblem(plan)
    if not plan.levels or plan.solver.scope == "level" or _has_thresholds(problem):
        return None
    return [*map(len, _columns(problem))], _ends(problem.graph)


def _columns(problem: PlanProblem) -> list[list[int]]:
    """Return the states that each node may have, by their numbers.

    Raises
    ------
    RefusedError
        If there are more, or more pairs of them, than can be charged.
    """
    _check_states(problem)
    nodes, numbers = range(len(problem.graph.nodes)), range(len(problem.states))
    allowed = [[*numbers] for _ in nodes]
    if problem.restrictions.any:
        load = problem.restrictions.load_if_allowed
        allowed = [
            [n for n in numbers if load(node, problem.states[n]) is not None] for node in nodes
        ]
    return allowed


def _has_thresholds(problem: PlanProblem) -> bool:
    return (
        isinstance(problem.charges, Bytes)
        and len(problem.plan.choices) == 2
        and problem.plan.hierarchy.uniform
        and len(set(problem.plan.level_weights)) <= 1
        and not problem.restrictions.any
        and problem.charges.has_thresholds
    )


def _level_tables(problem: PlanProblem) -> list[CostTable]:
    chosen = nodes_states(problem)
    columns = [(choice,) for choice in range(len(problem.plan.choices))]
    joined = any(problem.charges.joins_levels(n, state) for n, state in enumerate(chosen))
    restrictions = problem.restrictions
    tables = []
    for level in range(problem.plan.levels):
        above = [state[:level] for state in chosen]
        node, edge = _added(problem, above, columns)
        if joined or min(int(part.min()) for part in (node, *edge)) < 0:
            raise RefusedError(
                "a reduction joins several levels, as around a ring: a proof needs"
                f" {argument('search', 'joint')}"
            )

        # Defaults bind the values of this level: a closure would see those of the last.
        def load(layer: int, column: int, above: Sequence[State] = above) -> int | None:
            state = (*above[layer], column)
            may = restrictions.allows(layer, state) and restrictions.goes_on(above, layer, column)
            return restrictions.least(layer, state) if may else None

        tables.append(_restricted(_table(problem, node, edge, columns), restrictions, load))
    return tables


def _added(
    problem: PlanProblem, above: Sequence[State], columns: Sequence[State]
) -> tuple[Integers, list[Integers]]:
    """Return what the columns' choices add to the charges of the states above them.

    Returns
    -------
    node : (nodes, columns)
    edge
        For each edge, ``(columns, columns)``.
    """
    charges = problem.charges
    below = [[prefix + column for column in columns] for prefix in above]
    node = [
        [charges.node(n, state) - charges.node(n, above[n]) for state in states]
        for n, states in enumerate(below)
    ]
    edge = [
        charges.edge(n, below[source], below[target])
        - charges.edge(n, [above[source]], [above[target]])
        for n, (source, target, *_) in enumerate(problem.graph.edges)
    ]
    return np.array(node, object), edge


def _ends(graph: PlanGraph) -> NDArray[np.intp]:
    pairs = [(edge.source, edge.target) for edge in graph.edges]
    return np.array(pairs, np.intp).reshape(-1, 2)


def _threshold_table(problem: PlanProblem) -> CostTable:
    """Return H independent graphs, t = 1..H: "model at t levels or more?" for each node.

    That of t is a level's, below H - t levels of data and t - 1 of model parallelism:
    over all levels, of n parts each, a node with model parallelism at m of them is charged for its
    output n^(t-1) times what a level alone is, for each t up to m, and n^(H-t) times for its
    weights, for each t above. A boundary is charged the same at each level whose pair of choices
    exchanges; such levels are fewest where the levels of one node contain the other's, and then as
    many as there are t at which the two of its choices exchange.

    Source: docs/decisions/0005-joint-optimum.md.
    """
    columns, levels = states(1, 2), problem.plan.levels
    above = [(0,) * (levels - t) + (1,) * (t - 1) for t in range(1, levels + 1)]
    parts = [_added(problem, [state] * len(problem.graph.nodes), columns) for state in above]
    node = np.concatenate([node for node, _ in parts])
    return _table(problem, node, [each for _, edge in parts for each in edge], columns)


def _states_table(problem: PlanProblem, ways: Sequence[PlanProblem] = ()) -> CostTable:
    """Return one table with a choice for each state of a node, in the order of `states`.

    Parameters
    ----------
    ways
        Other problems, which charge nodes alone otherwise: the least of all counts.
    """
    every = [own.charges for own in (problem, *ways)]
    node = [
        [min(own.node(n, state) for own in every) for state in problem.states]
        for n in range(len(problem.graph.nodes))
    ]
    return table_over_states(problem, np.array(node, object), edges_over_states(problem))


def edges_over_states(problem: PlanProblem) -> list[Integers]:
    """Return the charges of each edge, ``(states, states)``, where its ends are allowed."""
    allowed = _columns(problem)
    charges, graph, columns = problem.charges, problem.graph, problem.states
    # What is forbidden is in no assignment.
    edge: list[Integers] = []
    for n, (source, target, *_) in enumerate(graph.edges):
        ends = [[columns[number] for number in allowed[end]] for end in (source, target)]
        edge.append(np.zeros((len(columns), len(columns)), object))
        edge[n][np.ix_(allowed[source], allowed[target])] = charges.edge(n, *ends)
    return edge


def table_over_states(problem: PlanProblem, node: Integers, edge: Sequence[Integers]) -> CostTable:
    columns = problem.states

    def load(layer: int, column: int) -> int | None:
        return problem.restrictions.load_if_allowed(layer, columns[column])

    table = _table(problem, node, edge, columns)
    return _restricted(table, problem.restrictions, load)


def _check_states(problem: PlanProblem) -> None:
    graph, levels, every = problem.graph, problem.plan.levels, problem.plan.choices
    below = len(every) - len(set(every) & set(SIDES))
    pairs, layers = (len(every) * below ** (levels - 1)) ** 2, len(graph.nodes)
    if pairs > MAX_PAIRS or max(layers, len(graph.edges)) * pairs > MAX_ENTRIES:
        counted = f"{below}^{2 * levels}" if below == len(every) else f"{pairs:,}"
        raise RefusedError(
            f"a proof over all levels needs {counted} pairs of states a boundary, more than memory"
            f" allows for {layers - graph.shared} layers"
        )


def _table(
    problem: PlanProblem, node: Integers, edge: Sequence[Integers], columns: Sequence[State]
) -> CostTable:
    """Return a table of charges: int64 if no sum overflows, else Python's integers.

    A plan stores weights whole, or as every layer that uses them splits them. What is not a plan is
    charged more than it saves, which is less than all that the weights' node may be charged.

    Parameters
    ----------
    node : (graphs * nodes, columns)
        Of one or more copies of the graph.
    edge
        For each edge of each copy, ``(columns, columns)``.
    columns
        The choices of each column.
    """
    graph = problem.graph
    graphs, nodes = len(node) // len(graph.nodes), len(graph.nodes)
    ends = np.concatenate([_ends(graph) + copy * nodes for copy in range(graphs)])
    weights = np.flatnonzero([edge.weights for edge in graph.edges] * graphs)
    penalty: Integers = 1 + node[ends[weights, 0]].max(axis=1, initial=0)
    # Each node and each edge at its highest charge bounds every assignment.
    largest = sum(node.max(axis=1).tolist()) + sum(int(part.max()) for part in edge)
    dtype = exact_dtype(largest + sum(penalty.tolist()))
    edges: Integers = np.empty((len(edge), len(columns), len(columns)), dtype)
    for n, part in enumerate(edge):
        edges[n] = part
    stored = np.array(columns, np.intp).reshape(len(columns), 1, -1)
    split_unlike = ((stored != 0) & (stored != stored.transpose(1, 0, 2))).any(axis=2)
    edges[weights] += penalty.astype(dtype)[:, None, None] * split_unlike
    return CostTable(node.astype(dtype), edges, ends, resolution=problem.charges.resolution)


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
