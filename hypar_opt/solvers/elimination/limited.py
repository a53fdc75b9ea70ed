"""The optimum of a graph within a capacity: its loads at a price, then labels of what that leaves.

At any price of a unit of load, the least sum of costs and prices is a bound on all assignments that
fit: a Lagrangian relaxation. Where it lies highest, columns of layers whose least sum exceeds that
of the best known assignment at the capacity are left out. The others are compared by labels.

Source: docs/algorithms.md; Fisher, "The Lagrangian relaxation
method for solving integer programming problems", Management Science 27, 1981.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.device_load import at_price
from hypar_opt.costs.state_classes import ClassTable, Partition
from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.integers import exact_dtype
from hypar_opt.solvers.base import MEMORY, SolveResult, Status
from hypar_opt.solvers.elimination.classes import columns_at_most, solve_classes
from hypar_opt.solvers.feasibility import allowed_choices
from hypar_opt.solvers.loaded_graph import LoadedGraph, edges_between, narrow_order
from hypar_opt.solvers.within_load import LabelledGraph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.table import CostTable
    from hypar_opt.deadline import Deadline
    from hypar_opt.integers import Integers

_PRICES = 32
"""The most prices that are tried."""

_PARTS_OF_GAP = (16, 4, 1)
"""Labels are first of a sixteenth of the gap above the bound, then of a fourth, then of all."""


def classes_of(table: CostTable) -> ClassTable:
    """Return a table whose classes are the columns of another one."""
    columns = np.arange(table.choices)
    return ClassTable(
        states=columns[None],
        partitions=[Partition(columns, table.edge)],
        node=table.node,
        allowed=allowed_choices(table),
        node_kinds=np.arange(table.layers),
        pairs=lambda kind, sources, targets: table.edge[kind][np.ix_(sources, targets)],
        boundary_kinds=np.arange(len(table.ends)),
        highest=table.edge.max(axis=(1, 2), initial=0),
        ends=table.ends,
        unit=table.unit,
        resolution=table.resolution,
        load=table.load,
        capacity=table.capacity,
    )


def solve_limited(table: ClassTable, deadline: Deadline) -> SolveResult:
    """Return the canonical optimum within a table's capacity; or the best found, with a bound."""
    if table.load is None or table.capacity is None:
        return solve_classes(table, deadline)
    if not table.allowed.any(axis=1).all():
        return SolveResult(None, None, Status.INFEASIBLE)
    search = _Limited(table, table.load, table.capacity, deadline)
    try:
        free = search.at(Fraction())
        if free.load > table.capacity:
            search.by_prices(free)
            search.by_labels()
    except RefusedError:
        return search.result(MEMORY)
    except NoAnswerError as error:
        return search.result(error.stopped_by)
    return search.result()


class _AtPrice(NamedTuple):
    """An assignment that is found with loads at a price, with its cost and load without.

    Parameters
    ----------
    bound
        On the cost of all assignments with loads at that price.
    """

    bound: int
    assignment: tuple[int, ...]
    cost: int
    load: int


@dataclass(frozen=True, eq=False)
class _Leftover:
    """What is left of a table where sums of costs and loads at a price are at most so much.

    Parameters
    ----------
    capacity
        Of the labels.
    columns
        By layer.
    order
        In which labels decide layers.
    unit
        That of the labels' costs.
    labels
        None if nothing is left.
    """

    most: int
    capacity: int
    columns: Sequence[NDArray[np.intp]]
    order: Sequence[int]
    unit: int
    labels: LabelledGraph | None


@dataclass
class _Limited:
    """What is known of a table within a capacity.

    Parameters
    ----------
    bound
        On the cost of all assignments that fit.
    best
        The cheapest assignment known that does.
    price
        That of the bound.
    stopped_by
        The limit that ended a search at a price.
    """

    table: ClassTable
    load: Integers
    capacity: int
    deadline: Deadline
    bound: int = 0
    best: _AtPrice | None = None
    price: Fraction = Fraction()
    stopped_by: str | None = None

    def at(self, price: Fraction) -> _AtPrice:
        """Return what is found with loads at a price.

        Raises
        ------
        NoAnswerError
            If a limit comes first.
        """
        optimum: _AtPrice | None = self.table.found.get(price)
        if optimum is None:
            result = solve_classes(self._priced(price), self.deadline)
            self.stopped_by = result.stopped_by or self.stopped_by
            if result.assignment is None or result.bound is None:
                raise NoAnswerError("no assignment at a price", self.stopped_by or MEMORY)
            assignment, load = result.assignment, self._load_of(result.assignment)
            optimum = _AtPrice(result.bound, assignment, self.table.price(assignment), load)
            self.table.found[price] = optimum
        bound = optimum.bound - int(price * self.capacity)
        if bound > self.bound or not price:
            self.bound, self.price = bound, price
        if optimum.load <= self.capacity and (self.best is None or optimum.cost < self.best.cost):
            self.best = optimum
        return optimum

    def _load_of(self, assignment: Sequence[int]) -> int:
        loads = self.load[self.table.node_kinds, list(assignment)]
        return sum(map(int, loads.tolist()))

    def _priced(self, price: Fraction) -> ClassTable:
        """Return the table with loads at a price, rounded down, and without the capacity."""
        node = self.table.node.astype(object) + at_price(self.load, price)
        priced = replace(self.table, node=node, load=None, capacity=None)
        priced = replace(priced, node=node.astype(exact_dtype(priced.max_total)))
        return priced.with_big_m(self.table.hard_kinds, 1 + priced.max_total)

    def by_prices(self, free: _AtPrice) -> None:
        """Raise the bound, by the prices at which two known assignments cost the same.

        Parameters
        ----------
        free
            What is found without a price.

        Raises
        ------
        NoAnswerError
        """
        low, high = free, self._least_loaded()
        if high is None:
            return
        for optimum in [
            value for value in self.table.found.values() if isinstance(value, _AtPrice)
        ]:
            if self.capacity < optimum.load < low.load:
                low = optimum
            elif high.load < optimum.load <= self.capacity:
                high = optimum
        for _ in range(_PRICES):
            if max(self.bound, low.cost) >= high.cost:
                return
            optimum = self.at(Fraction(high.cost - low.cost, low.load - high.load))
            if not high.load < optimum.load < low.load:
                return
            low, high = (optimum, high) if optimum.load > self.capacity else (low, optimum)

    def _least_loaded(self) -> _AtPrice | None:
        """Return what fits at the lowest price that was tried; None if nothing fits."""
        highest = Fraction(self.table.max_total + 1)  # no cost outweighs a unit of load
        price = Fraction(1, 2**10)
        while (optimum := self.at(price)).load > self.capacity:
            if price == highest:
                return None
            price = min(2**6 * price, highest)
        return optimum

    def by_labels(self) -> None:
        """Compare what may cost no more than the best assignment known, first a part of it.

        Raises
        ------
        RefusedError, NoAnswerError
        """
        if self.best is None:
            return
        lowest, gap = self.bound, self.best.cost - self.bound
        for part in _PARTS_OF_GAP:
            limit = lowest + -(-gap // part)
            optimum = self._cheapest(limit)
            if optimum is not None:
                self.best, self.bound = optimum, optimum.cost
                return
            self.bound = limit + 1

    def _cheapest(self, most: int) -> _AtPrice | None:
        """Return the canonical optimum, if it costs at most so much."""
        cache, key = self.table.found, ("labels", self.price)
        at_capacity, lowest = int(self.price * self.capacity), cache[self.price].bound
        leftover: _Leftover | None = cache.get(key)
        if (
            leftover is None
            or leftover.capacity < self.capacity
            or leftover.most < most + at_capacity
        ):
            # Of a further capacity at this price more is left, and so it will be of the next.
            twice = 0 if leftover is None else 2 * leftover.most - lowest
            leftover = cache[key] = self._left(max(most + at_capacity, twice))
        last = (most + 1) * leftover.unit - 1
        labelled = leftover.labels and leftover.labels.cheapest(self.capacity, last, self.deadline)
        cost, chosen = next(labelled or iter([]), (0, None))
        if chosen is None:
            return None
        by_layer = sorted(zip(leftover.order, chosen, strict=True))
        assignment = tuple(int(leftover.columns[n][column]) for n, column in by_layer)
        return _AtPrice(lowest, assignment, cost // leftover.unit, self._load_of(assignment))

    def _left(self, most: int) -> _Leftover:
        """Return what is left of the table where sums with loads at the price are at most so much.

        Raises
        ------
        RefusedError, NoAnswerError
        """
        costed = columns_at_most(self._priced(self.price), most, self.deadline)
        columns = [column for column, _ in costed]
        if not all(map(len, columns)):
            return _Leftover(most, self.capacity, columns, (), 1, None)
        order = narrow_order([*map(len, columns)], self.table.ends)
        graph, unit = self._ranked(columns, order)
        labels = LabelledGraph.of(
            graph, self.capacity, (most + 1) * unit - 1, self.deadline, self.price * unit
        )
        return _Leftover(most, self.capacity, columns, order, unit, labels)

    def _ranked(
        self, columns: Sequence[NDArray[np.intp]], order: Sequence[int]
    ) -> tuple[LoadedGraph, int]:
        """Return the graph of some columns, and its unit of cost.

        Less than a unit is for the rank of an assignment: the canonical one of several that cost
        the same is the first, compared from the last layer back.
        """
        table, unit, ranks = self.table, 1, []
        for column in columns:
            ranks.append(unit * np.arange(len(column), dtype=object))
            unit *= len(column)
        kinds = table.node_kinds
        costs = [table.node[kinds[n], columns[n]].astype(object) * unit + ranks[n] for n in order]
        loads = [self.load[kinds[n], columns[n]] for n in order]
        ports = [np.arange(len(columns[n])) for n in order]
        edges = edges_between(table, columns, order)
        charged = {pair: charge.astype(object) * unit for pair, charge in edges.items()}
        return LoadedGraph(costs, loads, ports, charged), unit

    def result(self, stopped_by: str | None = None) -> SolveResult:
        """Return the best that is known, with the bound."""
        if self.best is None:
            status = Status.INFEASIBLE if stopped_by is None else Status.NO_ANSWER
            return SolveResult(None, None, status, self.bound, stopped_by)
        proved = self.bound == self.best.cost
        return SolveResult(
            self.best.assignment,
            self.best.cost,
            Status.OPTIMAL if proved else Status.FEASIBLE,
            self.bound,
            None if proved else stopped_by or self.stopped_by,
        )
