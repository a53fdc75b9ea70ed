"""The optimum of a graph within capacities: Lagrangian bounds, then labels.

At any price of a unit of load, the least sum of costs and prices is a bound on all assignments that
fit: a Lagrangian relaxation. At the best price, columns of layers whose least sum exceeds that of
the best known assignment at the capacity are excluded. The others are compared by labels. With
several limits, the sum of all loads within the sum of all capacities is an additional limit, to
which the price belongs; labels have all limits.

Source: docs/algorithms.md; Fisher, "The Lagrangian relaxation
method for solving integer programming problems", Management Science 27, 1981.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from operator import lt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.device_load import at_price
from hypar_opt.costs.state_classes import ClassTable, Partition
from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.integers import exact_dtype
from hypar_opt.solvers.base import FIRST_STEP, MEMORY, SolveResult, Status
from hypar_opt.solvers.elimination.classes import columns_within, solve_classes
from hypar_opt.solvers.feasibility import allowed_choices
from hypar_opt.solvers.loaded_graph import LoadedGraph, edges_between, narrow_order
from hypar_opt.solvers.within_load import LabelledGraph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.table import CostTable, Limit
    from hypar_opt.deadline import Deadline
    from hypar_opt.integers import Integers

_PRICES = 32
"""The most prices that are tried."""

_FIRST_PART = 16
"""Labels first cover this part of the gap above the bound, then four times as much each time."""


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
        limits=table.limits,
    )


def solve_limited(table: ClassTable, deadline: Deadline) -> SolveResult:
    """Return the canonical optimum within a table's capacities; or the best known, with a bound."""
    if not table.limits:
        return solve_classes(table, deadline)
    if _is_infeasible(table):
        return SolveResult(None, None, Status.INFEASIBLE)
    return _Limited(table, deadline).solved()


def _is_infeasible(table: ClassTable) -> bool:
    """Whether a layer has no allowed choice, or the lightest ones exceed a capacity."""
    if not table.allowed.any(axis=1).all():
        return True
    return any(
        sum(np.where(table.allowed, load, load.max()).min(axis=1)[table.node_kinds].tolist())
        > capacity
        for load, capacity in _limits(table)
    )


def _limits(table: ClassTable) -> Sequence[Limit]:
    """Return a table's loads with their capacities; if there are several, their sum first."""
    if len(table.limits) == 1:
        return table.limits
    loads, capacities = zip(*table.limits, strict=True)
    total: Integers = np.sum([load.astype(object) for load in loads], axis=0)
    dtype = exact_dtype(sum(total.max(axis=1)[table.node_kinds].tolist()))
    return [(total.astype(dtype), sum(capacities)), *table.limits]


class _AtPrice(NamedTuple):
    """An optimal assignment with loads at a price, with its cost and load without the price.

    Parameters
    ----------
    bound
        A lower bound on the cost of all assignments with loads at that price.
    """

    bound: int
    assignment: tuple[int, ...]
    cost: int
    load: int


@dataclass(frozen=True, eq=False)
class _Leftover:
    """The part of a table with sums of costs and priced loads up to a cutoff.

    Parameters
    ----------
    capacities
        Of the labels.
    columns
        By layer.
    order
        The order in which labels decide layers.
    labels
        None if nothing is left.
    """

    most: int
    capacities: Sequence[int]
    columns: Sequence[NDArray[np.intp]]
    order: Sequence[int]
    labels: LabelledGraph | None


@dataclass
class _Limited:
    """The state of a search within one or several capacities.

    Parameters
    ----------
    bound
        A lower bound on the cost of all assignments that fit.
    best
        The cheapest known assignment that fits.
    price
        The price of the bound.
    stopped_by
        The limit that ended a search at a price.
    """

    table: ClassTable
    deadline: Deadline
    bound: int = 0
    best: _AtPrice | None = None
    price: Fraction = Fraction()
    stopped_by: str | None = None

    @cached_property
    def limits(self) -> Sequence[Limit]:
        """Loads with their capacities, those at a price first."""
        return _limits(self.table)

    @property
    def capacity(self) -> int:
        """The capacity of the priced load."""
        return self.limits[0][1]

    def solved(self) -> SolveResult:
        """Return the canonical optimum; or the best known, with a bound."""
        try:
            free = self.at(Fraction())
            if free is not self.best:
                self.by_prices(free)
                self.by_labels()
        except RefusedError:
            return self.result(MEMORY)
        except NoAnswerError as error:
            return self.result(error.stopped_by)
        return self.result()

    def at(self, price: Fraction) -> _AtPrice:
        """Return the optimum with loads at a price.

        Raises
        ------
        NoAnswerError
            If a limit comes first.
        """
        optimum: _AtPrice | None = self.table.cache.get(price)
        if optimum is None:
            result = solve_classes(self._priced(price), self.deadline)
            self.stopped_by = result.stopped_by or self.stopped_by
            if result.assignment is None or result.bound is None:
                raise NoAnswerError("no assignment at a price", self.stopped_by or MEMORY)
            assignment, load = result.assignment, self._load_of(result.assignment)
            optimum = _AtPrice(result.bound, assignment, self.table.price(assignment), load)
            self.table.cache[price] = optimum
        bound = optimum.bound - int(price * self.capacity)
        if bound > self.bound or not price:
            self.bound, self.price = bound, price
        cheaper = self.best is None or optimum.cost < self.best.cost
        if cheaper and self.table.fits(optimum.assignment):
            self.best = optimum
        return optimum

    def _load_of(self, assignment: Sequence[int]) -> int:
        loads = self.limits[0][0][self.table.node_kinds, list(assignment)]
        return sum(map(int, loads.tolist()))

    def _priced(self, price: Fraction) -> ClassTable:
        """Return the table with loads at a price, rounded down, and without the capacities."""
        node = self.table.node.astype(object) + at_price(self.limits[0][0], price)
        priced = replace(self.table, node=node, limits=())
        priced = replace(priced, node=node.astype(exact_dtype(priced.max_total)))
        return priced.with_big_m(self.table.hard_kinds, 1 + priced.max_total)

    def by_prices(self, free: _AtPrice) -> None:
        """Raise the bound, by the prices at which two known assignments cost the same.

        Parameters
        ----------
        free
            The optimum without a price.

        Raises
        ------
        NoAnswerError
        """
        if free.load <= self.capacity:
            return
        low, high = free, self._least_loaded()
        for optimum in [
            value for value in self.table.cache.values() if isinstance(value, _AtPrice)
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

    def _least_loaded(self) -> _AtPrice:
        """Return the assignment that fits at the lowest price that was tried.

        Raises
        ------
        NoAnswerError
        """
        highest = Fraction(self.table.max_total + 1)  # no cost outweighs a unit of load
        price = Fraction(1, 2**10)
        while (optimum := self.at(price)).load > self.capacity:
            if price == highest:
                raise NoAnswerError("nothing that fits at a price", self.stopped_by or MEMORY)
            price = min(2**6 * price, highest)
        return optimum

    def by_labels(self) -> None:
        """Compare assignments up to the cost of the best known one, in growing parts of the gap.

        If none is known, in growing steps above the bound.

        Raises
        ------
        RefusedError, NoAnswerError
        """
        lowest, highest = self.bound, self.table.max_total
        step = lowest // FIRST_STEP + 1
        if self.best is not None:
            highest = self.best.cost
            step = -(-(highest - lowest) // _FIRST_PART)
        while self.bound <= highest:
            limit = min(lowest + step, highest)
            optimum = self._cheapest(limit)
            if optimum is not None:
                self.best, self.bound = optimum, optimum.cost
                return
            self.bound, step = limit + 1, 4 * step

    def _cheapest(self, cutoff: int) -> _AtPrice | None:
        """Return the canonical optimum, if it is within a cutoff."""
        key = "labels", self.price
        at_capacity, lowest = int(self.price * self.capacity), self.table.cache[self.price].bound
        capacities = [capacity for _, capacity in self.limits]
        leftover: _Leftover | None = self.table.cache.get(key)
        if (
            leftover is None
            or any(map(lt, leftover.capacities, capacities))
            or leftover.most < cutoff + at_capacity
        ):
            # For a larger capacity more remains at this price, and so it will for the next one.
            twice = 0 if leftover is None else 2 * leftover.most - lowest
            leftover = self.table.cache[key] = self._left(
                max(cutoff + at_capacity, twice), capacities
            )
        if leftover.labels is None:
            return None
        optimum = leftover.labels.first_of_cheapest(
            capacities, cutoff, leftover.order, self.deadline
        )
        if optimum is None:
            return None
        cost, chosen = optimum
        of_layers = zip(leftover.columns, chosen, strict=True)
        assignment = tuple([int(columns[number]) for columns, number in of_layers])
        return _AtPrice(lowest, assignment, cost, self._load_of(assignment))

    def _left(self, cutoff: int, capacities: Sequence[int]) -> _Leftover:
        """Return the part of the table with sums up to a cutoff, with loads at the price.

        Raises
        ------
        RefusedError, NoAnswerError
        """
        table, kinds = self.table, self.table.node_kinds
        columns = [
            column for column, _ in columns_within(self._priced(self.price), cutoff, self.deadline)
        ]
        if not all(map(len, columns)):
            return _Leftover(cutoff, capacities, columns, (), None)
        # From the last layer back, as assignments are compared.
        last = len(columns) - 1
        order = [last - n for n in narrow_order([*map(len, columns[::-1])], last - table.ends)]
        graph = LoadedGraph(
            costs=[table.node[kinds[n], columns[n]] for n in order],
            loads=[
                np.stack([load[kinds[n], columns[n]] for load, _ in self.limits], axis=1)
                for n in order
            ],
            ports=[np.arange(len(columns[n])) for n in order],
            edges=edges_between(table, columns, order),
        )
        labels = LabelledGraph.of(graph, capacities, cutoff, self.deadline, self.price)
        return _Leftover(cutoff, capacities, columns, order, labels)

    def result(self, stopped_by: str | None = None) -> SolveResult:
        """Return the best known assignment, with the bound."""
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
