"""All levels by counts: a bound, and a plan, where the states of all levels are too many.

Where every level costs the same, what a layer or a boundary charges does not depend on the order
of the levels. A layer's counts, how many levels make each of its choices, then decide its own
charge, and a boundary's is at least that of the best alignment of its two ends' levels. The
optimum over counts is a bound on all plans; it is one of them where all boundaries can have their
best alignment at once, as on a tree.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.shared_nodes import rows_with_shared
from hypar_opt.costs.states import added_up
from hypar_opt.costs.table import CostTable, exact_dtype
from hypar_opt.costs.weights import unlike
from hypar_opt.search.check_result import assignment_of
from hypar_opt.search.level_order import levels_alike
from hypar_opt.search.levelwise import levelwise
from hypar_opt.search.result import silent
from hypar_opt.sharding.layouts import kind_of_boundary
from hypar_opt.sharding.weights import replicated

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.table import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.search.result import SearchRequest
    from hypar_opt.search.table_solver import TableSolver

State = tuple[int, ...]

MAX_STATES = 2**13
"""Up to this many states of a layer are compared at once; beyond, those with its counts."""
MAX_LEVELS = 10
"""Beyond this many levels there are too many orders of a layer's choices to compare."""

MAX_IMPROVEMENT_ROUNDS = 20
"""Local search stops earlier if no single layer can improve."""


def few_levels_alike(problem: Problem) -> bool:
    """Return whether no level differs from another in what it costs or allows, and they are few."""
    few = problem.levels <= MAX_LEVELS and problem.constraints.memory is None
    return few and levels_alike(problem)


def by_counts(search: SearchRequest, tables: TableSolver) -> tuple[list[tuple[int, ...]], bool]:
    """Return a plan, ``(levels, nodes)``, and whether it attains the bound of counts.

    Raises
    ------
    RefusedError
        If the solver does not accept the table of counts.
    """
    problem = CountsProblem(search)
    table = search.instance.constraints.states(problem.table(), problem.states, search.deadline)
    result = tables.solve(table)
    chosen = assignment_of(result)
    allowed = np.ones(table.node.shape, bool) if table.allowed is None else table.allowed
    plans = [problem.aligned(chosen), problem.level_by_level()]
    best = min((problem.improved(plan, allowed) for plan in plans), key=problem.total)
    return list(zip(*best, strict=True)), problem.total(best) == result.bound


class CountsProblem:
    """A problem over counts: its table, and plans of states with given counts."""

    def __init__(self, search: SearchRequest) -> None:
        instance = search.instance
        self._search, self._cost, self._workload = search, instance.cost, instance.workload
        self._levels, self._choices = search.levels, len(instance.workload.choices)
        counts = itertools.product(range(self._levels + 1), repeat=self._choices)
        self._kinds = sorted((kind for kind in counts if sum(kind) == self._levels), reverse=True)
        self._column = {kind: column for column, kind in enumerate(self._kinds)}
        self.states = [_in_order(kind) for kind in self._kinds]
        self._node = self._nodes()

    def table(self) -> CostTable:
        """Return the table of counts: of a boundary, what its cheapest alignment charges."""
        workload, choices = self._workload, self._choices
        # How many levels make each pair of choices: a state's levels in order, and its counts.
        kinds = range(choices**2)
        pairs = itertools.combinations_with_replacement(kinds, self._levels)
        states = np.array(list(pairs), np.intp).T
        alignments = np.array([(states == kind).sum(axis=0) for kind in kinds])
        alignments = alignments.T.reshape(-1, choices, choices)
        sources, targets = states // choices, states % choices
        rows, columns = (
            [self._column[tuple(kind)] for kind in alignments.sum(axis=axis).tolist()]
            for axis in (2, 1)
        )
        known: dict[Hashable, Integers] = {}
        edges = []
        for boundary in range(len(workload.ends)):
            self._search.deadline.check()
            kind = kind_of_boundary(workload, boundary)
            if kind not in known:
                charges = self._charges(boundary, sources, targets)
                shape = (len(self._kinds), len(self._kinds))
                known[kind] = np.full(shape, charges.max(), charges.dtype)
                np.minimum.at(known[kind], (rows, columns), charges)
            edges.append(known[kind])
        largest = sum(self._node.max(axis=1).tolist()) + sum(int(edge.max()) for edge in edges)
        dtype = exact_dtype(largest)
        edge = np.array(edges, dtype).reshape(-1, len(self._kinds), len(self._kinds))
        unit, resolution = self._cost.unit, self._cost.resolution
        return CostTable(
            self._node.astype(dtype), edge, workload.ends, unit=unit, resolution=resolution
        )

    def aligned(self, chosen: Sequence[int]) -> list[State]:
        """Return a plan of states with the counts that are chosen, aligned one after the other."""
        plan: dict[int, State] = {}
        for node in self._connected():
            plan[node] = self._cheapest(node, _orders(self._kinds[chosen[node]]), plan)
        return [plan[node] for node in range(len(plan))]

    def level_by_level(self) -> list[State]:
        """Return the plan of a levelwise search."""
        search = self._search
        options = replace(search.options, export=None, warm_start=None)
        found = levelwise(replace(search, options=options, start=None, progress=silent))
        rows = rows_with_shared(self._workload, self._cost, found.assignments, found.tensors)
        return [tuple(state) for state in zip(*rows, strict=True)]

    def total(self, plan: Sequence[State]) -> int:
        """Return what a plan of all nodes' states costs, as the table's entries count."""
        total = sum(int(self._node[n, self._column_of(state)]) for n, state in enumerate(plan))
        for boundary, (source, target) in enumerate(self._workload.ends.tolist()):
            ends = (np.array(plan[end], np.intp)[:, None] for end in (source, target))
            total += int(self._charges(boundary, *ends)[0])
        return total

    def improved(self, start: Sequence[State], allowed: NDArray[np.bool_]) -> list[State]:
        """Return a plan in which no node alone has a cheaper state, from another plan."""
        nodes = range(len(start))
        plan = dict(enumerate(start))
        every = self._choices**self._levels <= MAX_STATES
        for _ in range(MAX_IMPROVEMENT_ROUNDS):
            before = dict(plan)
            for node in nodes:
                kinds = np.flatnonzero(allowed[node]) if every else [self._column_of(plan[node])]
                states = np.hstack([_orders(self._kinds[kind]) for kind in kinds])
                plan[node] = self._cheapest(node, states, plan)
            if plan == before:
                break
        return [plan[node] for node in nodes]

    def _cheapest(self, node: int, states: NDArray[np.intp], plan: Mapping[int, State]) -> State:
        """Return the cheapest of states, ``(levels, n)``, beside the neighbours' in a plan.

        A node's own state in the plan stays unless another is cheaper.
        """
        self._search.deadline.check()
        if node in plan:
            states = np.hstack([np.array(plan[node], np.intp)[:, None], states])
        columns = [self._column_of(state) for state in states.T.tolist()]
        total: Integers = self._node[node, columns].astype(object)
        for boundary in self._around[node]:
            ends = self._workload.ends[boundary].tolist()
            if all(end == node or end in plan for end in ends):
                both = (
                    states if end == node else np.tile(np.array([plan[end]]).T, states.shape[1])
                    for end in ends
                )
                total += self._charges(boundary, *both)
        best: list[int] = states[:, total.argmin()].tolist()
        return tuple(best)

    def _charges(
        self, boundary: int, sources: NDArray[np.intp], targets: NDArray[np.intp]
    ) -> Integers:
        """Return a boundary's charges for pairs of states, each ``(levels, n)``: ``(n,)``."""
        if self._workload.boundaries[boundary].weights:
            stored = self._workload.ends[boundary, 0]
            penalty = 1 + self._node[stored].max()
            whole = replicated(self._workload, stored)
            differ = unlike(sources, targets, whole).any(axis=0)
            charge: Integers = penalty * differ.astype(self._node.dtype)
            return charge
        charges = self._cost.edge(self._workload, np.array([boundary]), [sources], [targets])
        total: Integers = np.broadcast_to(added_up(charges), sources.shape[1:])
        return total

    def _nodes(self) -> Integers:
        """Return each node's charge by counts: ``(nodes, kinds)``."""
        nodes = np.arange(len(self._workload.nodes))[:, None]
        states = np.array(self.states, np.intp).reshape(len(self.states), -1).T[:, None]
        total = added_up(self._cost.node(self._workload, nodes, [states]))
        charges: Integers = np.broadcast_to(total, (len(nodes), len(self.states))).astype(object)
        return charges

    def _connected(self) -> Iterator[int]:
        """Yield the nodes, each after a neighbour where it has one before it."""
        waiting, seen = deque(range(len(self._workload.nodes))), set()
        while waiting:
            node = waiting.popleft()
            if node not in seen:
                seen.add(node)
                yield node
                around = self._workload.ends[self._around[node]].reshape(-1).tolist()
                waiting.extendleft(reversed(around))

    @cached_property
    def _around(self) -> list[list[int]]:
        """Each node's boundaries."""
        around: list[list[int]] = [[] for _ in self._workload.nodes]
        for boundary, ends in enumerate(self._workload.ends.tolist()):
            for end in ends:
                around[end].append(boundary)
        return around

    def _column_of(self, state: Sequence[int]) -> int:
        return self._column[tuple(state.count(choice) for choice in range(self._choices))]


def _in_order(counts: Sequence[int]) -> tuple[int, ...]:
    """Return the state that makes each choice so often, the first choice at the topmost levels."""
    return tuple(choice for choice, count in enumerate(counts) for _ in range(count))


@lru_cache(maxsize=1024)
def _orders(counts: tuple[int, ...]) -> NDArray[np.intp]:
    """Return all states with these counts: ``(levels, n)``."""
    if sum(counts) == 0:
        return np.zeros((0, 1), np.intp)
    orders = []
    for choice, count in enumerate(counts):
        if count:
            below = _orders((*counts[:choice], count - 1, *counts[choice + 1 :]))
            here = np.full((1, below.shape[1]), choice, np.intp)
            orders.append(np.vstack([here, below]))
    return np.hstack(orders)
