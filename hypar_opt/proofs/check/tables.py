"""The tables that prove a plan: one per level, one per threshold, or one over all states."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import CostTable, Limit, are_chains
from hypar_opt.errors import RefusedError, argument
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.proofs.check.folds import Bytes
from hypar_opt.proofs.check.rows import PlanProblem, nodes_states, states
from hypar_opt.workload.parallelism import choices_below_h1
from hypar_opt.workload.shards import Shards

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.check.nodes import PlanGraph, State
    from hypar_opt.proofs.check.overlap import StatedPrices

MAX_PAIRS = 2**20
MAX_ENTRIES = 2**27
"""The largest numbers of pairs of states, and of entries in a table: 1 GiB of int64."""


@dataclass(frozen=True, eq=False)
class ReferenceTable:
    """The cost of every assignment, as `CostTable`; edges that are charged alike share an array.

    Parameters
    ----------
    node : (layers, columns)
    charges
        The charges of each kind of edges, ``(columns, columns)``, the source's column first.
    kinds : (edges,)
        The kind of each edge.
    ends : (edges, 2)
    resolution
        As in `CostTable`.
    states : (levels, columns)
        The choices of each column at all levels; None if columns are choices of a level.
    allowed, limits
        As in `CostTable`.
    """

    node: Integers
    charges: Sequence[Integers]
    kinds: NDArray[np.intp]
    ends: NDArray[np.intp]
    resolution: int
    states: NDArray[np.intp] | None = None
    allowed: NDArray[np.bool_] | None = None
    limits: tuple[Limit, ...] = ()

    @property
    def columns(self) -> list[NDArray[np.intp]]:
        """The columns that each layer may choose."""
        if self.allowed is None:
            return [np.arange(self.node.shape[1])] * len(self.node)
        return [np.flatnonzero(row) for row in self.allowed]

    @property
    def max_total(self) -> int:
        """An upper bound on an assignment's cost, and on each sum of charges."""
        highest = [int(part.max(initial=0)) for part in self.charges]
        nodes: list[int] = self.node.max(axis=1).tolist()
        edges: list[int] = [highest[kind] for kind in self.kinds]
        return sum(nodes) + sum(edges)

    @property
    def is_chain(self) -> bool:
        return are_chains(self.ends, len(self.node))

    @cached_property
    def by_edge(self) -> CostTable:
        """The table with an array for each edge."""
        edge: Integers = np.empty((len(self.kinds), *self.node.shape[1:] * 2), self.node.dtype)
        for n, kind in enumerate(self.kinds):
            edge[n] = self.charges[kind]
        return CostTable(
            self.node,
            edge,
            self.ends,
            resolution=self.resolution,
            allowed=self.allowed,
            limits=self.limits,
        )

    def in_units(self, cost: int) -> Fraction:
        """Convert a sum of charges to the cost's unit, exactly."""
        return Fraction(cost, self.resolution)


def tables_of(plan: Plan) -> list[ReferenceTable]:
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


def table_over_modes(plan: Plan, *, is_part: bool = False) -> ReferenceTable | None:
    """Return the table of plans of any training mode, in as many micro-batches as a plan.

    What is sharded of weights is charged by their node alone, which is in its cheapest way. To
    gather weights more often, or to run a pass again, adds to charges; so none is less than where
    nothing is split, or the state, or from some level down gradients, too. None where the plan is
    of no memory of a device, or no single table has all plans.

    Parameters
    ----------
    is_part
        Whether the plan is a part of a pipeline stage, which is charged what it adds at least.

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
    modes = [
        PlanProblem(plan.model_copy(update={"training": mode}), is_part=is_part) for mode in trained
    ]
    return None if modes[0].restrictions.of_images else _states_table(modes[0], modes[1:])


def table_with_overlap(plan: Plan, prices: StatedPrices) -> ReferenceTable:
    """Return the table of all levels at prices of the queue of a step whose exchanges overlap.

    Of plans that train as the plan does, whether or not parts of images are contiguous.

    Raises
    ------
    CheckFailedError, RefusedError
        As `PricedTime`; or if there are more states than memory allows.
    """
    return _states_table(PlanProblem(plan, prices))


def tables_by_order(plan: Plan) -> list[ReferenceTable]:
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


def _tables_by_order(problem: PlanProblem, table: ReferenceTable) -> list[ReferenceTable]:
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
        (*first, last)
        for count in range(problem.plan.levels)
        for first in itertools.combinations(above, count)
    ]
    for chosen in itertools.product(orders, repeat=len(of_images)):
        keeps = [
            all(_begins(state, *pair) for pair in zip(of_images, chosen, strict=True))
            for state in problem.states
        ]
        assert table.allowed is not None
        allowed = table.allowed & np.array(keeps)
        if allowed.any(axis=1).all():
            tables.append(replace(table, allowed=allowed))
    return tables


def _begins(state: State, column: int, order: Sequence[int]) -> bool:
    """Return whether the levels at which a state has a choice are the first of an order."""
    levels = [level for level, choice in enumerate(state) if choice == column]
    return levels == [*order[: len(levels)]]


def _has_thresholds(problem: PlanProblem) -> bool:
    return (
        isinstance(problem.charges, Bytes)
        and len(problem.plan.choices) == 2
        and problem.plan.hierarchy.uniform
        and len(set(problem.plan.level_weights)) <= 1
        and not problem.restrictions.any
        and problem.charges.step.has_thresholds
    )


def _level_tables(problem: PlanProblem) -> list[ReferenceTable]:
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
        loads = (
            [
                restrictions.least_load(n, (*prefix, choice))
                if restrictions.allows(n, (*prefix, choice))
                and restrictions.stays_contiguous(above, n, choice)
                else None
                for (choice,) in columns
            ]
            for n, prefix in enumerate(above)
        )
        tables.append(_table(problem, node, edge, range(len(edge)), columns, loads))
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


def is_chain(graph: PlanGraph) -> bool:
    """Return whether each edge leads to the next node."""
    return are_chains(_ends(graph), len(graph.nodes))


def _threshold_table(problem: PlanProblem) -> ReferenceTable:
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
    edges = [charges for _, edge in parts for charges in edge]
    return _table(problem, node, edges, range(len(edges)), columns, ())


def _states_table(problem: PlanProblem, modes: Sequence[PlanProblem] = ()) -> ReferenceTable:
    """Return one table with a choice for each state of a node, in the order of `states`.

    Parameters
    ----------
    modes
        Other problems, which charge nodes alone otherwise: the least of all counts.
    """
    edges, charges = StateEdges(problem), [mode.charges for mode in (problem, *modes)]
    node = [
        # Those that store no weights shard none.
        [
            min(mode.node(n, state) for mode in charges[: None if layer.stored else 1])
            for state in problem.states
        ]
        for n, layer in enumerate(problem.graph.nodes)
    ]
    return edges.table(np.array(node, object))


class StateEdges:
    """What the edges of a problem are charged for all states of their ends.

    Raises
    ------
    RefusedError
        If there are more states, or more pairs of them, than can be charged.
    """

    def __init__(self, problem: PlanProblem) -> None:
        ends, nodes = _ends(problem.graph), range(len(problem.graph.nodes))
        _check_states(problem, len(ends) if is_chain(problem.graph) else 1)
        self._problem, self._kinds = problem, list[int]()
        self._charges: list[Integers] = []
        size, self._numbers = len(problem.states), {s: n for n, s in enumerate(problem.states)}
        self._allowed = [self._allowed_states(node) for node in nodes]
        # Those of edges that are alike are one array; kept, it is told from others by its identity.
        numbers: dict[int, tuple[int, Integers]] = {}
        for edge, (source, target) in enumerate(ends.tolist()):
            rows, columns = self._allowed[source], self._allowed[target]
            states = ([problem.states[n] for n in end] for end in (rows, columns))
            charged = problem.charges.edge(edge, *states)
            if id(charged) not in numbers:
                numbers[id(charged)] = len(numbers), charged
                _check_states(problem, len(numbers))
                # What is forbidden is in no assignment.
                charges: Integers = np.zeros((size, size), charged.dtype)
                charges[np.ix_(rows, columns)] = charged
                self._charges.append(charges)
            self._kinds.append(numbers[id(charged)][0])

    def _allowed_states(self, node: int) -> list[int]:
        """Return the states that a node may have, by their numbers."""
        problem, restrictions = self._problem, self._problem.restrictions
        if not restrictions.any:
            return [*range(len(problem.states))]
        prefixes: list[State] = [()]
        for _ in range(problem.plan.levels):
            below = ((*s, choice) for s in prefixes for choice in range(len(problem.plan.choices)))
            prefixes = [state for state in below if restrictions.allows(node, state)]
        return sorted(self._numbers[s] for s in prefixes if restrictions.splits(node, s))

    def table(self, node: Integers) -> ReferenceTable:
        """Return the table of nodes' charges, ``(nodes, states)``."""
        problem, states = self._problem, self._problem.states
        loads = (
            [
                problem.restrictions.load(n, state) if number in allowed else None
                for number, state in enumerate(states)
            ]
            for n, allowed in enumerate(map(set, self._allowed))
        )
        table = _table(problem, node, self._charges, self._kinds, states, loads)
        return replace(table, states=np.array(states, np.intp).T)


def _check_states(problem: PlanProblem, kinds: int) -> None:
    """Refuse more pairs of states than can be charged, of so many kinds of edges."""
    choices, levels = problem.plan.choices, problem.plan.levels
    below = len(choices_below_h1(choices))
    pairs = (len(choices) * below ** (levels - 1)) ** 2
    if pairs > MAX_PAIRS or kinds * pairs > MAX_ENTRIES:
        counted = f"{below}^{2 * levels}" if below == len(choices) else f"{pairs:,}"
        raise RefusedError(
            f"a proof over all levels needs {counted} pairs of states a boundary, more than memory"
            f" allows for {len(problem.plan.layers)} layers"
        )


def _table(
    problem: PlanProblem,
    node: Integers,
    charges: Sequence[Integers],
    kinds: Sequence[int],
    columns: Sequence[State],
    loads: Iterable[Sequence[int | None]],
) -> ReferenceTable:
    """Return a table of charges: int64 if no sum overflows, else Python's integers.

    A plan stores weights whole, or as every layer that uses them splits them. What is not a plan is
    charged more than it saves, which is less than all that the weights' node may be charged.

    Parameters
    ----------
    node : (graphs * nodes, columns)
        Of one or more copies of the graph.
    charges
        Of each kind of edges, ``(columns, columns)``.
    kinds
        Of each edge of each copy.
    columns
        The choices of each column.
    loads
        Of each node's columns, None of those that it may not choose; read if any may not be.
    """
    graph, restrictions = problem.graph, problem.restrictions
    graphs, nodes = len(node) // len(graph.nodes), len(graph.nodes)
    ends = np.concatenate([_ends(graph) + copy * nodes for copy in range(graphs)])
    stored = np.array(columns, np.intp).reshape(len(columns), 1, -1)
    split_unlike = ((stored != 0) & (stored != stored.transpose(1, 0, 2))).any(axis=2)
    penalties = dict.fromkeys(range(len(kinds)), 0) | {
        n: 1 + node[ends[n, 0]].max()
        for n in np.flatnonzero([edge.weights for edge in graph.edges] * graphs).tolist()
    }
    charged = [*zip(kinds, penalties.values(), strict=True)]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(charged))}
    # Each node and each edge at its highest charge bounds every assignment.
    highest = {(kind, more): int(charges[kind].max(initial=0)) + more for kind, more in numbers}
    dtype = exact_dtype(sum(node.max(axis=1).tolist()) + sum(map(highest.__getitem__, charged)))
    table = ReferenceTable(
        node.astype(dtype),
        [
            charges[kind].astype(dtype, copy=False)
            + (more * split_unlike.astype(dtype) if more else 0)
            for kind, more in numbers
        ],
        np.array([numbers[key] for key in charged], np.intp),
        ends,
        problem.charges.resolution,
    )
    if not restrictions.any:
        return table
    load: Integers = np.array([*loads], object)
    allowed = np.array([[entry is not None for entry in row] for row in load])
    if restrictions.capacity is None:
        return replace(table, allowed=allowed)
    # A forbidden choice is in no assignment: its load does not matter, but has to be a number.
    load[~allowed] = 0
    return replace(table, allowed=allowed, limits=((load, restrictions.capacity),))
