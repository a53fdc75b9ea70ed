"""The plans that a price of memory leaves, in the order of their charges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.solvers.within_load import cheapest_within

if TYPE_CHECKING:
    from hypar_opt.integers import Integers
    from hypar_opt.search.left_columns import LeftColumn, LeftColumns, Picked
    from hypar_opt.search.ways_by_layer import WaysByLayer

_THRESHOLDS = 16
"""The most thresholds of what a plan holds for a moment."""

_MOST = 2**62
"""Charges above those of all plans."""


@dataclass(frozen=True)
class OrderOfCharges:
    """The plans of so many micro-batches that may fit, with bytes of a device at a price.

    Raises
    ------
    RefusedError, NoAnswerError
        In its methods: if there are too many plans, or a deadline passes.
    """

    ways: WaysByLayer
    price: Fraction

    def most_charged(self, goal: Fraction) -> int:
        """Return the most that plans up to a goal are charged, with bytes at the price."""
        ways = self.ways
        most = goal * ways.per_unit + ways.charges(self.price) * ways.capacity
        return min(int(most) + 1, _MOST)

    def columns(self, goal: Fraction) -> LeftColumns | None:
        """Return what nodes may be in a plan up to a goal; None if there is no such plan."""
        ways = self.ways
        table = ways.table(self.price, again=bool(ways.open.blocks))
        return ways.graph(table, self.price, self.most_charged(goal), ways.search.deadline)

    def cheapest(
        self, columns: LeftColumns, goal: Fraction, margin: int = 0
    ) -> Iterator[tuple[int, list[Picked]]]:
        """Yield plans that may fit with their charges, in the order of these.

        What a plan holds for a moment is a maximum, and not a sum: for each threshold, the plans
        below it have what is left of the capacity.

        Parameters
        ----------
        margin
            Bytes of a device that are to be left.
        """
        ways, deadline = self.ways, self.ways.search.deadline
        whole = ways.whole_capacity - margin * ways.search.instance.problem.accelerators
        most, price = min(int(goal * ways.per_unit), _MOST), ways.charges(self.price)
        groups = np.array_split(columns.thresholds, min(_THRESHOLDS, len(columns.thresholds)))

        def within(group: Integers) -> Iterator[tuple[int, tuple[LeftColumn, ...]]]:
            graph, kept = columns.graph(int(group[-1]))
            capacity = whole - int(group[0])
            for charges, numbers in cheapest_within(graph, capacity, most, deadline, price):
                yield charges, tuple(own[n] for own, n in zip(kept, numbers, strict=True))

        last = None
        for charges, picked in merge(*map(within, groups), key=itemgetter(0)):
            if picked != last:
                by_node = sorted(zip(columns.order, picked, strict=True))
                yield charges, [own.picked for _, own in by_node]
            last = picked
