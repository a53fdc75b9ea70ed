"""The optimum of a graph within a capacity: its loads at a price, then labels of what that leaves.

At any price of a unit of load, the least sum of costs and prices is a bound on all assignments that
fit: a Lagrangian relaxation. Where it lies highest, columns of layers whose least sum exceeds that
of the best known assignment at the capacity are left out. The others are compared by labels.

Source: docs/decisions/0036-ways-by-layer.md; Fisher, "The Lagrangian relaxation method for solving
integer programming problems", Management Science 27, 1981.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.device_load import at_price
from hypar_opt.costs.state_classes import ClassTable, Partition
from hypar_opt.costs.table import exact_dtype
from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.solvers.base import MEMORY, SolveResult, Status
from hypar_opt.solvers.elimination.classes import columns_at_most, solve_classes
from hypar_opt.solvers.feasibility import allowed_choices
from hypar_opt.solvers.within_load import LoadedGraph, cheapest_within, edges_between, narrow_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.table import CostTable, Integers
    from hypar_opt.deadline import Deadline

_PRICES = 32
"""The most prices that are tried."""

_PARTS = (16, 4, 1)
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
    free = solve_classes(replace(table, load=None, capacity=None), deadline)
    if table.load is None or free.assignment is None:
        return free
    if _load(table, free.assignment) <= _capacity(table):
        return free
    search = _Limited(table, deadline, bound=free.bound or 0)
    try:
        search.by_prices()
        search.by_labels()
    except RefusedError:
        return search.result(MEMORY)
    except NoAnswerError as error:
        return search.result(error.stopped_by)
    return search.result()


def _load(table: ClassTable, assignment: Sequence[int]) -> int:
    assert table.load is not None
    return sum(map(int, table.load[table.node_kinds, list(assignment)].tolist()))


def _capacity(table: ClassTable) -> int:
    assert table.capacity is not None
    return table.capacity


class _Found(NamedTuple):
    """An assignment, with its cost and its load."""

    cost: int
    load: int
    assignment: tuple[int, ...]


@dataclass
class _Limited:
    """What is known of a table with a capacity.

    Parameters
    ----------
    bound
        On all assignments that fit.
    best
        The cheapest assignment known that does.
    price
        That of the bound.
    """

    table: ClassTable
    deadline: Deadline
    bound: int
    best: _Found | None = None
    price: Fraction = Fraction()

    def by_prices(self) -> None:
        """Raise the bound, by the prices at which two known assignments cost the same.

        Raises
        ------
        NoAnswerError
        """
        low, high = self._at(Fraction()), self._least_loaded()
        for _ in range(_PRICES):
            if high is None or self.bound >= high.cost:
                return
            price = Fraction(high.cost - low.cost, low.load - high.load)
            found = self._at(price)
            if not high.load < found.load < low.load:
                return
            if found.load > _capacity(self.table):
                low = found
            else:
                high = found

    def _least_loaded(self) -> _Found | None:
        """Return what fits at the lowest price that was tried; None if nothing fits."""
        highest = self.table.largest + 1  # no cost outweighs a unit of load
        price = Fraction(1, 1024)
        while True:
            found = self._at(price)
            if found.load <= _capacity(self.table):
                return found
            if price >= highest:
                return None
            price = min(64 * price, Fraction(highest))

    def _at(self, price: Fraction) -> _Found:
        priced = self._priced(price)
        result = solve_classes(priced, self.deadline)
        if result.bound is not None:
            bound = result.bound - int(price * _capacity(self.table))
            if bound > self.bound:
                self.bound, self.price = bound, price
        if result.assignment is None:
            raise NoAnswerError("no assignment at a price", result.stopped_by or MEMORY)
        own = result.assignment
        return self._kept(_Found(self.table.price(own), _load(self.table, own), own))

    def _kept(self, found: _Found) -> _Found:
        fits = found.load <= _capacity(self.table)
        if fits and (self.best is None or found.cost < self.best.cost):
            self.best = found
        return found

    def _priced(self, price: Fraction) -> ClassTable:
        """Return the table with loads at a price, rounded down, and without the capacity."""
        table, load = self.table, self.table.load
        assert load is not None
        node = table.node.astype(object) + at_price(load, price)
        priced = replace(table, node=node, load=None, capacity=None)
        return replace(priced, node=node.astype(exact_dtype(priced.largest)))

    def by_labels(self) -> None:
        """Compare what may cost no more than the best assignment known, first a part of it.

        Raises
        ------
        RefusedError, NoAnswerError
        """
        if self.best is None:
            return
        least, gap = self.bound, self.best.cost - self.bound
        for part in _PARTS:
            most = least + -(-gap // part)
            found = self._cheapest(most)
            if found is not None:
                self.best, self.bound = found, found.cost
                return
            self.bound = most + 1

    def _cheapest(self, most: int) -> _Found | None:
        """Return the canonical optimum, if it costs at most so much."""
        capacity, deadline = _capacity(self.table), self.deadline
        at_capacity = int(self.price * capacity)
        costed = columns_at_most(self._priced(self.price), most + at_capacity, deadline)
        if not all(len(own) for own, _ in costed):
            return None
        left = _Left.of(self.table, [own for own, _ in costed])
        first = next(cheapest_within(left.graph, capacity, most, deadline), None)
        if first is None:
            return None
        cost = first[0]
        kept = [own[(least <= cost + at_capacity).astype(bool)] for own, least in costed]
        left = _Left.of(self.table, kept)
        ranked, unit = left.ranked
        last = (cost + 1) * unit - 1
        assignment = left.assignment(next(cheapest_within(ranked, capacity, last, deadline))[1])
        return _Found(cost, _load(self.table, assignment), assignment)

    def result(self, stopped_by: str | None = None) -> SolveResult:
        if self.best is None:
            status = Status.INFEASIBLE if stopped_by is None else Status.NO_ANSWER
            return SolveResult(None, None, status, self.bound, stopped_by)
        status = Status.OPTIMAL if self.bound == self.best.cost else Status.FEASIBLE
        return SolveResult(
            self.best.assignment, self.best.cost, status, self.bound, stopped_by
        )


@dataclass(frozen=True, eq=False)
class _Left:
    """What is left of the columns of each layer, and the order in which labels decide layers."""

    columns: Sequence[NDArray[np.intp]]
    order: Sequence[int]
    graph: LoadedGraph

    @classmethod
    def of(cls, table: ClassTable, columns: Sequence[NDArray[np.intp]]) -> _Left:
        assert table.load is not None
        order = narrow_order([*map(len, columns)], table.ends)
        kinds = table.node_kinds
        costs, loads = (
            [amounts[kinds[n], columns[n]] for n in order] for amounts in (table.node, table.load)
        )
        ports = [np.arange(len(columns[n])) for n in order]
        edges = edges_between(table, columns, order)
        return cls(columns, order, LoadedGraph(costs, loads, ports, edges))

    def assignment(self, chosen: Sequence[int]) -> tuple[int, ...]:
        """Return an assignment of columns, given their numbers by place in the order."""
        by_layer = sorted(zip(self.order, chosen, strict=True))
        return tuple(int(self.columns[layer][number]) for layer, number in by_layer)

    @property
    def ranked(self) -> tuple[LoadedGraph, int]:
        """The graph with costs multiplied by a unit, and less than that for the rank of ties.

        The canonical assignment is the first one, compared from the last layer back.
        """
        radix = [1]
        for own in self.columns:
            radix.append(radix[-1] * len(own))
        *weights, unit = radix
        costs = [
            own.astype(object) * unit + weights[layer] * np.arange(len(own), dtype=object)
            for layer, own in zip(self.order, self.graph.costs, strict=True)
        ]
        edges = {pair: own.astype(object) * unit for pair, own in self.graph.edges.items()}
        return replace(self.graph, costs=costs, edges=edges), unit
