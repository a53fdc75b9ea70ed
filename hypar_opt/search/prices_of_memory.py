"""A bound on the plans within a memory, which prices of its bytes raise, on classes of states.

The bound is concave in the price, and what its layouts hold beyond the capacity is its slope. So
where it lies at two prices tells from which one on it may reach a goal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from hypar_opt.solvers.elimination.classes import bound_by_classes

if TYPE_CHECKING:
    from hypar_opt.search.left_columns import Chosen
    from hypar_opt.search.way_of_training import Counted
    from hypar_opt.search.ways_by_layer import WaysByLayer

_BEYOND = Fraction(5, 2)
"""How far beyond the least price that may prove anything the next one is."""

_FARTHEST = 8
"""How many times the price of a bound that rises the next one may be."""

_MOST = 8
"""The most prices that are tried."""


@dataclass(frozen=True)
class BoundAtPrice:
    """A bound on what plans that fit cost, with a byte of a device at a price.

    Parameters
    ----------
    excess
        The bytes of a device by which the layouts that attain it exceed the capacity.
    """

    price: Fraction
    bound: Fraction
    excess: Fraction

    def at(self, price: Fraction) -> Fraction:
        """Return what the bound is at most at another price."""
        return self.bound + (price - self.price) * self.excess

    def reaching(self, goal: Fraction) -> Fraction:
        """Return the price at which it would reach a goal if it rose, or fell, as here."""
        return self.price + (goal - self.bound) / self.excess


def bound_at(ways: WaysByLayer, price: Fraction) -> BoundAtPrice:
    """Return the bound of classes of states at a price."""
    table = ways.table(price, again=bool(price and ways.open.blocks))
    least, states = bound_by_classes(table, ways.search.deadline)
    accelerators = ways.search.instance.problem.accelerators
    amount = (least - ways.charges(price) * ways.capacity) / ways.per_unit
    picked = enumerate(ways.picked(states, price))
    sides = [(node, ways.sides[side], way, state) for node, (side, way, state) in picked]
    held = sum(int(own.loads[way, own.kinds[node], state]) for node, own, way, state in sides)
    return BoundAtPrice(price, amount, Fraction(held - ways.capacity, accelerators))


@dataclass(frozen=True)
class PlanAtPrice:
    """The plan of least cost with bytes at a price, and a bound on those that fit."""

    price: Fraction
    chosen: Chosen
    counted: Counted
    bound: Fraction


@dataclass
class Around:
    """The last bounds that rise with the price, and that fall."""

    low: BoundAtPrice | None = None
    high: BoundAtPrice | None = None

    def add(self, found: BoundAtPrice) -> None:
        if found.excess > 0:
            self.low = found
        else:
            self.high = found

    def next(self, goal: Fraction, natural: Fraction) -> Fraction | None:
        """Return the price to try next; None if no bound may reach a goal.

        Parameters
        ----------
        natural
            The price from which memory may outweigh time.
        """
        low, high = self.low, self.high
        assert low is not None
        least = low.reaching(goal)
        if high is None and low.price:
            # The bound rises ever less.
            return least * _BEYOND if least < _FARTHEST * low.price else None
        if high is None:
            return least * _BEYOND if least < natural else natural
        if high.at(self.cross) < goal:
            return None
        return (least + high.reaching(goal)) / 2 if high.excess else self.cross

    @property
    def cross(self) -> Fraction:
        """The price at which both bounds would be the same: around there is the best one."""
        low, high = self.low, self.high
        assert low is not None
        if high is None:
            return low.price
        return low.price + (high.at(low.price) - low.bound) / (low.excess - high.excess)


def raised(ways: WaysByLayer, around: Around, goal: Fraction) -> Iterator[BoundAtPrice]:
    """Yield bounds at prices that may reach a goal, until one does or none can.

    Parameters
    ----------
    around
        A bound that rises with the price; those that are found are added.
    """
    assert around.low is not None
    held = Fraction(ways.capacity, ways.search.instance.problem.accelerators) + around.low.excess
    natural = around.low.bound / held / 2
    for _ in range(_MOST):
        price = around.next(goal, natural)
        if price is None:
            return
        found = bound_at(ways, price)
        around.add(found)
        yield found
        if found.bound >= goal:
            return


def bound_by_prices(ways: WaysByLayer, goal: Fraction) -> Fraction:
    """Return the best bound of a few prices, none and those that may reach a goal."""
    around, low = Around(), bound_at(ways.ample, Fraction())
    if low.excess <= 0:
        return low.bound
    around.add(low)
    return max(found.bound for found in (low, *raised(ways, around, goal)))
