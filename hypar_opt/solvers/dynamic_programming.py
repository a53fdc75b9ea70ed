"""Layer-wise dynamic programming: exact on a chain, linear in layers."""

from __future__ import annotations

from itertools import repeat
from operator import lshift
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hypar_opt.deadline import TIME_LIMIT, Deadline
from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.solvers.base import SolveResult, SolverOptions, Status
from hypar_opt.solvers.product_states import cheapest_states

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.base import Thresholds
    from hypar_opt.costs.product import FactoredTable
    from hypar_opt.costs.table import CostTable, Integers

_BLOCK = 512
"""Layers turned into Python integers at a time, so that they stay in the cache."""

_LARGEST_SORT = 2**20
"""Ways that are sorted at once: about a fifth of a second, between two looks at the clock."""

MOST_LABELS = 20_000_000
"""Partial plans kept under a capacity, over all layers."""

Row = tuple[int, int, int, int, int, int]


class DynamicProgramming:
    """Extend, layer by layer, the cheapest way to end in each choice.

    Source: Algorithm 1.
    """

    summary: ClassVar[str] = "layer-wise dynamic programming; exact on a chain, linear in layers"
    searches: ClassVar[bool] = True
    supported_options: ClassVar[frozenset[str]] = frozenset({"time_limit"})
    most_columns: ClassVar[int | None] = None

    def accepts(self, table: CostTable) -> str | None:
        if not table.is_chain:
            return "takes chains of layers, and this graph is none"
        return None

    def solve(self, table: CostTable, options: SolverOptions) -> SolveResult:
        deadline = Deadline.after(options.time_limit)
        free, price = table.with_penalty()
        try:
            if table.capacity is not None:
                objective, assignment = _within_capacity(table, deadline)
            elif table.choices == 2:
                ways = _Ways()
                ways.extend(_rows(free, deadline))
                objective, answers = ways.best()
                assignment = tuple(answers)
            else:
                objective, assignment = _any_choices(free, deadline)
        except NoAnswerError:
            return SolveResult(None, None, Status.NO_ANSWER, stopped_by=TIME_LIMIT)
        if objective is None or objective >= price:
            return SolveResult(None, None, Status.INFEASIBLE)
        return SolveResult(assignment, objective, Status.OPTIMAL, bound=objective)

    def solve_thresholds(
        self, thresholds: Thresholds, levels: int, options: SolverOptions
    ) -> SolveResult:
        """Solve all levels together as independent chains, without making their tables.

        The assignment answers the questions of t = 1, then of t = 2, and so on.
        """
        if any(target != source + 1 for source, target in thresholds.ends):
            raise RefusedError("takes chains of layers, and this graph is none")
        deadline = Deadline.after(options.time_limit)
        pairs: Sequence[Sequence[int]] = thresholds.pairs
        if len(thresholds.ends) < len(thresholds.data) - 1:  # several chains
            pairs = _with_gaps(thresholds)
        columns = [thresholds.data, thresholds.model, *([0, *column] for column in pairs)]
        ways = [_Ways() for _ in range(levels)]
        try:
            for start in range(0, len(thresholds.data), _BLOCK):
                deadline.check()
                data, model, *charges = (column[start : start + _BLOCK] for column in columns)
                for t, way in enumerate(ways, 1):
                    halved = map(lshift, data, repeat(levels - t))
                    doubled = map(lshift, model, repeat(t - 1))
                    way.extend(zip(halved, doubled, *charges, strict=True))
        except NoAnswerError:
            return SolveResult(None, None, Status.NO_ANSWER, stopped_by=TIME_LIMIT)
        objective, assignment = 0, bytearray()
        for way in ways:
            cost, answers = way.best()
            objective += cost
            assignment += answers
        return SolveResult(tuple(assignment), objective, Status.OPTIMAL, bound=objective)

    def solve_factored(
        self,
        table: FactoredTable,
        columns: NDArray[np.intp],
        price: int,
        options: SolverOptions,
    ) -> SolveResult:
        """Solve all levels together, without the table of all pairs of states.

        Parameters
        ----------
        table
            A chain.
        columns
            The table's column of each state in canonical order; the result's assignment
            counts in that order.
        price
            What costs as much takes a forbidden state.
        """
        deadline = Deadline.after(options.time_limit)
        rank = np.argsort(columns)
        try:
            objective, states = cheapest_states(table, rank, deadline)
        except NoAnswerError:
            return SolveResult(None, None, Status.NO_ANSWER, stopped_by=TIME_LIMIT)
        if objective >= price:
            return SolveResult(None, None, Status.INFEASIBLE)
        assignment = tuple(int(rank[state]) for state in states)
        return SolveResult(assignment, objective, Status.OPTIMAL, bound=objective)


def _with_gaps(thresholds: Thresholds) -> list[list[int]]:
    """Return the pairs with zeros where a layer begins another chain."""
    targets = [target - 1 for _, target in thresholds.ends]
    columns = [[0] * (len(thresholds.data) - 1) for _ in thresholds.pairs]
    for column, charges in zip(columns, thresholds.pairs, strict=True):
        for place, charge in zip(targets, charges, strict=True):
            column[place] = charge
    return columns


class _Ways:
    """The cheapest ways along a chain of two choices, layer by layer.

    Only the difference between the two ways to end has to be carried along: ``gap`` is the
    cost of the cheapest way to model parallelism, less that to data parallelism.
    """

    def __init__(self) -> None:
        self._to_data = self._gap = 0
        self._came_from = bytearray()  # bit 0: model before data; bit 1: model before model

    def extend(self, rows: Iterable[Row]) -> None:
        """Go on by a row a layer.

        A row has its node's costs of data and model, then of the edge before it dp-dp,
        dp-mp, mp-dp and mp-mp: zeros where a chain begins.
        """
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


def _rows(table: CostTable, deadline: Deadline) -> Iterator[Row]:
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
        ways = cheapest[:, None] + edges[layer - 1]
        came_from[layer - 1] = ways.argmin(axis=0)  # the first of equals
        cheapest = ways.min(axis=0) + table.node[layer]
    choice = int(cheapest.argmin())
    assignment = [choice]
    for came in came_from[::-1]:
        choice = int(came[choice])
        assignment.append(choice)
    return int(cheapest.min()), tuple(reversed(assignment))


def _within_capacity(table: CostTable, deadline: Deadline) -> tuple[int | None, tuple[int, ...]]:
    """Carry along, for each choice, all ways to it that no other beats in cost and load.

    ``ways[l][c]`` is (costs, loads), loads rising and costs falling.
    """
    assert table.load is not None
    assert table.capacity is not None
    allowed = np.ones(table.node.shape, bool) if table.allowed is None else table.allowed
    number = np.result_type(table.node, table.edge, table.load)
    node, edge, load = (
        part.astype(number) for part in (table.node, table.chain_edges(), table.load)
    )
    # What the layers behind take at the least: a way that cannot be finished is dropped.
    lightest = [
        min((int(w) for w, ok in zip(row, may, strict=True) if ok), default=table.capacity + 1)
        for row, may in zip(load.tolist(), allowed.tolist(), strict=True)
    ]
    behind = [0] * table.layers
    for layer in range(table.layers - 2, -1, -1):
        behind[layer] = behind[layer + 1] + lightest[layer + 1]

    ways: list[list[tuple[Integers, Integers]]] = []
    kept = 0
    nothing = np.zeros(0, number)
    for layer in range(table.layers):
        here: list[tuple[Integers, Integers]] = []
        for choice in range(table.choices):
            deadline.check()
            costs = loads = nothing
            if allowed[layer, choice]:
                if layer == 0:
                    costs = loads = np.zeros(1, number)
                else:
                    before = ways[-1]
                    steps = edge[layer - 1, :, choice]
                    costs, loads = _together(
                        [(c + step, w) for (c, w), step in zip(before, steps, strict=True)],
                        deadline,
                    )
                costs, loads = costs + node[layer, choice], loads + load[layer, choice]
                fits = loads <= table.capacity - behind[layer]
                costs, loads = _pareto_front(costs[fits], loads[fits])
            here.append((costs, loads))
            kept += len(costs)
        if kept > MOST_LABELS:
            raise RefusedError(
                f"a capacity leaves more than {MOST_LABELS:,} partial plans to compare; try cpsat"
            )
        ways.append(here)

    # From the last layer back: the first choice from which the least cost can be had.
    remaining = min((int(c.min()) for c, _ in ways[-1] if len(c)), default=None)
    if remaining is None:
        return None, ()
    objective, room = remaining, table.capacity
    assignment: list[int] = []
    for layer in range(table.layers - 1, -1, -1):
        for choice, (costs, loads) in enumerate(ways[layer]):
            step = int(edge[layer, choice, assignment[-1]]) if assignment else 0
            if ((costs == remaining - step) & (loads <= room)).any():
                assignment.append(choice)
                remaining -= step + int(node[layer, choice])
                room -= int(load[layer, choice])
                break
    return objective, tuple(reversed(assignment))


def _together(
    ways: list[tuple[Integers, Integers]], deadline: Deadline
) -> tuple[Integers, Integers]:
    """Return several sets of ways as one; large ones with those dropped that another beats."""
    while len(ways) > 1 and sum(len(costs) for costs, _ in ways) > _LARGEST_SORT:
        merged = []
        for start in range(0, len(ways), 2):
            deadline.check()
            costs, loads = (
                np.concatenate(part) for part in zip(*ways[start : start + 2], strict=True)
            )
            merged.append(_pareto_front(costs, loads))
        ways = merged
    costs, loads = (np.concatenate(part) for part in zip(*ways, strict=True))
    return costs, loads


def _pareto_front(costs: Integers, loads: Integers) -> tuple[Integers, Integers]:
    """Drop each way that another matches in load and in cost, keeping one of equals."""
    if len(costs) == 0:
        return costs, loads
    order = np.lexsort((costs, loads))
    costs, loads = costs[order], loads[order]
    least = np.minimum.accumulate(costs)
    keep = np.ones(len(costs), bool)
    keep[1:] = costs[1:] < least[:-1]
    return costs[keep], loads[keep]
