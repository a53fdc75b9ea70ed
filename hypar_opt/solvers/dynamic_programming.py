"""Layer-wise dynamic programming: exact on a chain, linear in layers."""

from __future__ import annotations

from itertools import repeat
from operator import lshift
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hypar_opt.costs.product import FactoredTable
from hypar_opt.costs.separable import SeparableTable
from hypar_opt.costs.table import CostTable, chain_ends
from hypar_opt.deadline import TIME_LIMIT, Deadline
from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.solvers.base import NO_CHAIN, Solver, SolveResult, SolverOptions, Status, Table
from hypar_opt.solvers.capacity import within_capacity
from hypar_opt.solvers.product_states import cheapest_states

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_BLOCK = 512
"""Layers turned into Python integers at a time, so that they stay in the cache."""

Charges = tuple[int, int, int, int, int, int]
"""A layer's: its node's of data and model; of the edge before it dp-dp, dp-mp, mp-dp, mp-mp."""


class DynamicProgramming(Solver):
    """Extend, layer by layer, the cheapest path that ends in each choice.

    Source: Algorithm 1.
    """

    summary: ClassVar[str] = "layer-wise dynamic programming; exact on a chain, linear in layers"
    supported_options: ClassVar[frozenset[str]] = frozenset({"time_limit"})
    accepted_tables: ClassVar[frozenset[type[Table]]] = frozenset(
        {CostTable, SeparableTable, FactoredTable}
    )

    def accepts(self, table: Table) -> str | None:
        match table:
            case SeparableTable():
                is_chain = all(target == source + 1 for source, target in table.ends)
            case FactoredTable():
                is_chain = np.array_equal(table.ends, chain_ends(len(table.node)))
            case CostTable():
                is_chain = table.is_chain
        return None if is_chain else NO_CHAIN

    def solve(self, table: Table, options: SolverOptions) -> SolveResult:
        deadline = Deadline.after(options.time_limit)
        refusal = self.accepts(table)
        if refusal:
            raise RefusedError(refusal)
        try:
            match table:
                case SeparableTable():
                    return _separable(table, deadline)
                case FactoredTable():
                    return _factored(table, deadline)
                case CostTable():
                    return _table(table, deadline)
        except NoAnswerError:
            return SolveResult(None, None, Status.NO_ANSWER, stopped_by=TIME_LIMIT)


def _table(table: CostTable, deadline: Deadline) -> SolveResult:
    """Solve one table: of a level, or of all levels with a choice a state."""
    free, penalty = table.with_penalty()
    if table.capacity is not None:
        objective, assignment = within_capacity(table, deadline)
    elif table.choices == 2:
        path = ChainDP()
        path.extend(_rows(free, deadline))
        objective, answers = path.best()
        assignment = tuple(answers)
    else:
        objective, assignment = _any_choices(free, deadline)
    if objective is None or objective >= penalty:
        return SolveResult(None, None, Status.INFEASIBLE)
    return SolveResult(assignment, objective, Status.OPTIMAL, bound=objective)


def _separable(table: SeparableTable, deadline: Deadline) -> SolveResult:
    """Solve all levels together as independent chains, without making their tables."""
    several_chains = len(table.ends) < len(table.data) - 1
    pairs: Sequence[Sequence[int]] = _with_gaps(table) if several_chains else table.pairs
    columns = [table.data, table.model, *([0, *column] for column in pairs)]
    chains = [ChainDP() for _ in range(table.levels)]
    for start in range(0, len(table.data), _BLOCK):
        deadline.check()
        data, model, *charges = (column[start : start + _BLOCK] for column in columns)
        for t, chain in enumerate(chains, 1):
            halved = map(lshift, data, repeat(table.levels - t))
            doubled = map(lshift, model, repeat(t - 1))
            chain.extend(zip(halved, doubled, *charges, strict=True))
    objective, assignment = 0, bytearray()
    for chain in chains:
        cost, answers = chain.best()
        objective += cost
        assignment += answers
    return SolveResult(tuple(assignment), objective, Status.OPTIMAL, bound=objective)


def _factored(table: FactoredTable, deadline: Deadline) -> SolveResult:
    """Solve all levels together, without the table of all pairs of states."""
    rank = np.argsort(table.columns)
    objective, states = cheapest_states(table, rank, deadline)
    if table.penalty is not None and objective >= table.penalty:
        return SolveResult(None, None, Status.INFEASIBLE)
    assignment = tuple(int(rank[state]) for state in states)
    return SolveResult(assignment, objective, Status.OPTIMAL, bound=objective)


def _with_gaps(table: SeparableTable) -> list[list[int]]:
    """Return the pairs with zeros where a layer begins another chain."""
    targets = [target - 1 for _, target in table.ends]
    columns = [[0] * (len(table.data) - 1) for _ in table.pairs]
    for column, charges in zip(columns, table.pairs, strict=True):
        for layer, charge in zip(targets, charges, strict=True):
            column[layer] = charge
    return columns


class ChainDP:
    """The cheapest paths along a chain of two choices, layer by layer.

    Only the difference between the two has to be carried along: ``gap`` is the cost of the
    cheapest path that ends in model parallelism, less that of the one that ends in data.
    """

    def __init__(self) -> None:
        self._to_data = self._gap = 0
        self._came_from = bytearray()  # bit 0: model before data; bit 1: model before model

    def extend(self, rows: Iterable[Charges]) -> None:
        """Extend both paths by the charges of a layer each, zeros before the first of a chain."""
        to_data, gap, came_from = self._to_data, self._gap, self._came_from
        for data, model, dd, dm, md, mm in rows:
            before_data, before_model = dd, dm
            came = 0
            if gap + md < before_data:
                before_data, came = gap + md, 1
            if gap + mm < before_model:
                before_model, came = gap + mm, came + 2
            to_data += before_data + data
            gap = before_model + model - before_data - data
            came_from.append(came)
        self._to_data, self._gap = to_data, gap

    def best(self) -> tuple[int, bytes]:
        """Return the least cost, and the canonical assignment that has it."""
        choice = 1 if self._gap < 0 else 0
        objective = self._to_data + (self._gap if choice else 0)
        assignment = bytearray([choice])
        for came in reversed(self._came_from[1:]):
            choice = came >> choice & 1
            assignment.append(choice)
        assignment.reverse()
        return objective, bytes(assignment)


def _rows(table: CostTable, deadline: Deadline) -> Iterator[Charges]:
    edges = table.chain_edges()
    yield (*table.node[0].tolist(), 0, 0, 0, 0)
    for start in range(1, table.layers, _BLOCK):
        deadline.check()
        stop = min(start + _BLOCK, table.layers)
        edge = edges[start - 1 : stop - 1].reshape(-1, 4)
        columns = np.concatenate([table.node[start:stop], edge], axis=1).T
        yield from zip(*(column.tolist() for column in columns), strict=True)


def _any_choices(table: CostTable, deadline: Deadline) -> tuple[int, tuple[int, ...]]:
    cheapest, edges = table.node[0], table.chain_edges()
    came_from = np.zeros((table.layers - 1, table.choices), np.intp)
    for layer in range(1, table.layers):
        deadline.check()
        paths = cheapest[:, None] + edges[layer - 1]
        came_from[layer - 1] = paths.argmin(axis=0)  # the first of equals
        cheapest = paths.min(axis=0) + table.node[layer]
    choice = int(cheapest.argmin())
    assignment = [choice]
    for came in came_from[::-1]:
        choice = int(came[choice])
        assignment.append(choice)
    return int(cheapest.min()), tuple(reversed(assignment))
