"""Layer-wise dynamic programming: exact on a chain, linear in layers."""

from __future__ import annotations

from itertools import repeat
from operator import mul
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hypar_opt.costs.state_classes import ClassTable
from hypar_opt.costs.state_table import FactoredTable
from hypar_opt.costs.table import CostTable
from hypar_opt.costs.thresholds import ThresholdTable, as_list
from hypar_opt.deadline import TIME_LIMIT, Deadline
from hypar_opt.errors import NoAnswerError
from hypar_opt.solvers.base import (
    MEMORY,
    Solver,
    SolveResult,
    SolverOptions,
    Status,
    Table,
)
from hypar_opt.solvers.product_states import cheapest_by_bounds, cheapest_states

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_BLOCK = 512
"""Layers turned into Python integers at a time, so that they stay in the cache."""

EliminatedTable = CostTable | ThresholdTable | FactoredTable | ClassTable

Charges = tuple[int, int, int, int, int, int]
"""A layer's charges: data and model at its node; dp-dp, dp-mp, mp-dp and mp-mp on the edge into
it."""


class DynamicProgramming(Solver):
    """Eliminate the layers one by one; on a chain, extend the cheapest paths (Viterbi).

    Source: the HyPar paper, Algorithm 1; `hypar_opt.solvers.elimination`.
    """

    summary: ClassVar[str] = (
        "layer-wise dynamic programming; exact on a chain, linear in layers, and on graphs by"
        " variable elimination"
    )
    supported_options: ClassVar[frozenset[str]] = frozenset({"time_limit"})
    accepted_tables: ClassVar[frozenset[type[Table]]] = frozenset(
        {CostTable, ThresholdTable, FactoredTable, ClassTable}
    )

    def accepts(self, table: EliminatedTable) -> str | None:
        if isinstance(table, FactoredTable | ClassTable) or table.is_chain:
            return None
        # Imported late, as below: a chain is solved without it.
        from hypar_opt.solvers.elimination.solve import refusal

        return refusal(table)

    def solve(self, table: EliminatedTable, options: SolverOptions) -> SolveResult:
        deadline = Deadline.after(options.time_limit)
        try:
            if isinstance(table, ClassTable) or (isinstance(table, CostTable) and table.limits):
                from hypar_opt.solvers.elimination.limited import classes_of, solve_limited

                classes = table if isinstance(table, ClassTable) else classes_of(table)
                return solve_limited(classes, deadline)
            if not isinstance(table, FactoredTable) and not table.is_chain:
                from hypar_opt.solvers.elimination.solve import solve

                return solve(table, deadline)
            match table:
                case ThresholdTable():
                    objective, assignment = _by_thresholds(table, deadline)
                    return SolveResult(assignment, objective, Status.OPTIMAL, bound=objective)
                case FactoredTable():
                    return _factored(table, deadline)
                case CostTable():
                    return _table(table, deadline)
        except NoAnswerError:
            return SolveResult(None, None, Status.NO_ANSWER, stopped_by=TIME_LIMIT)


def _table(table: CostTable, deadline: Deadline) -> SolveResult:
    """Solve a plain table: of one level, or of all levels with a column per state."""
    unconstrained, penalty = table.with_penalty()
    if table.choices == 2:
        data, model = unconstrained.node.T
        pairs = unconstrained.edge.reshape(-1, 4).T
        alone = ThresholdTable(data, model, table.ends, tuple(pairs), levels=1)
        objective, assignment = _by_thresholds(alone, deadline)
    else:
        objective, assignment = _any_choices(unconstrained, deadline)
    if objective >= penalty:
        return SolveResult(None, None, Status.INFEASIBLE)
    return SolveResult(assignment, objective, Status.OPTIMAL, bound=objective)


def _by_thresholds(table: ThresholdTable, deadline: Deadline) -> tuple[int, tuple[int, ...]]:
    """Solve all levels together as independent chains, without building their tables.

    Chain t decides for every layer whether at least t of its levels are model parallel. The
    chains' canonical optima are nested, so together they are a plan.

    Source: docs/decisions/0005-joint-optimum.md.
    """
    # Python's integers: exact at any size, and faster than array entries one by one.
    pairs = list(map(as_list, table.pairs))
    if len(table.ends) < len(table.data) - 1:
        pairs = _with_gaps(table, pairs)
    columns = [as_list(table.data), as_list(table.model), *([0, *column] for column in pairs)]
    chains = [ChainDP() for _ in range(table.levels)]
    for start in range(0, len(table.data), _BLOCK):
        deadline.check()
        data, model, *charges = (column[start : start + _BLOCK] for column in columns)
        for (of_data, of_model), chain in zip(table.copies, chains, strict=True):
            data_costs = map(mul, data, repeat(of_data))
            model_costs = map(mul, model, repeat(of_model))
            chain.extend(zip(data_costs, model_costs, *charges, strict=True))
    objective, assignment = 0, bytearray()
    for chain in chains:
        cost, answers = chain.best()
        objective += cost
        assignment += answers
    return objective, tuple(assignment)


def _factored(table: FactoredTable, deadline: Deadline) -> SolveResult:
    """Solve all levels together, without the table of all pairs of states."""
    # The inverse of the permutation `columns`: from a state to its canonical rank.
    rank = np.argsort(table.columns)
    if table.exact is None:
        objective, states = cheapest_states(table, rank, deadline)
        bound = objective
    else:
        objective, bound, states = cheapest_by_bounds(table, rank, deadline)
    if not states:
        return SolveResult(None, None, Status.INFEASIBLE)
    assignment = tuple(int(rank[state]) for state in states)
    if bound < objective:
        return SolveResult(assignment, objective, Status.FEASIBLE, bound, MEMORY)
    return SolveResult(assignment, objective, Status.OPTIMAL, bound=objective)


def _with_gaps(table: ThresholdTable, pairs: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the pairs' charges, with zeros where a layer begins another chain."""
    # A pair's column starts with the second layer, hence the shift by one.
    targets = [target - 1 for _, target in table.ends]
    columns = [[0] * (len(table.data) - 1) for _ in pairs]
    for column, charges in zip(columns, pairs, strict=True):
        for layer, charge in zip(targets, charges, strict=True):
            column[layer] = charge
    return columns


class ChainDP:
    """The cheapest paths along a chain of two choices, layer by layer.

    ``gap`` is the cost of the cheapest path that ends in model parallelism, minus that of the
    cheapest that ends in data parallelism: all decisions depend only on this difference.
    """

    def __init__(self) -> None:
        self._to_data = self._gap = 0
        self._predecessors = bytearray()  # bit 0: model before data; bit 1: model before model

    def extend(self, rows: Iterable[Charges]) -> None:
        """Extend both paths by a layer per row; a chain's first layer has no edge: zeros."""
        to_data, gap, predecessors = self._to_data, self._gap, self._predecessors
        for data, model, dd, dm, md, mm in rows:
            before_data, before_model = dd, dm
            bits = 0
            # Strictly less: ties go to the path from data, the first choice.
            if gap + md < before_data:
                before_data, bits = gap + md, 1
            if gap + mm < before_model:
                before_model, bits = gap + mm, bits + 2
            to_data += before_data + data
            gap = before_model + model - before_data - data
            predecessors.append(bits)
        self._to_data, self._gap = to_data, gap

    def best(self) -> tuple[int, bytes]:
        """Return the least cost, and the canonical assignment of that cost."""
        # Ties go to data parallelism: the first choice.
        choice = 1 if self._gap < 0 else 0
        objective = self._to_data + (self._gap if choice else 0)
        assignment = bytearray([choice])
        for bits in reversed(self._predecessors[1:]):
            choice = bits >> choice & 1
            assignment.append(choice)
        assignment.reverse()
        return objective, bytes(assignment)


def _any_choices(table: CostTable, deadline: Deadline) -> tuple[int, tuple[int, ...]]:
    """Return the least cost of a chain, and the canonical assignment of that cost."""
    cheapest, edges = table.node[0], table.chain_edges()
    predecessors = np.zeros((table.layers - 1, table.choices), np.intp)
    for layer in range(1, table.layers):
        deadline.check()
        paths = cheapest[:, None] + edges[layer - 1]
        predecessors[layer - 1] = paths.argmin(axis=0)  # the first of equals: canonical
        cheapest = paths.min(axis=0) + table.node[layer]
    choice = int(cheapest.argmin())
    assignment = [choice]
    for sources in predecessors[::-1]:
        choice = int(sources[choice])
        assignment.append(choice)
    return int(cheapest.min()), tuple(reversed(assignment))
