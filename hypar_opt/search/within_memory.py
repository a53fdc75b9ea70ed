"""The plan of least cost within the memory of a device: layouts, micro-batches, ways to train.

Micro-batches are tried in turn, those of the least bound first. What more of them take is never
less, plan by plan, so that a bound holds for all multiples. For as many micro-batches the capacity
is relaxed: bytes are charged at a price, whose least sum bounds all plans that fit. Those that this
leaves are compared in the order of their charges, each counted tensor by tensor.

Source: docs/decisions/0036-ways-by-layer.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING, cast

import numpy as np

from hypar_opt.costs.longest_parts import divides_evenly
from hypar_opt.errors import InfeasibleError, NoAnswerError, RefusedError, argument
from hypar_opt.search.best_fit import NEVER, BestFit
from hypar_opt.search.fused_gradients import in_buckets
from hypar_opt.search.left_columns import Chosen, Column, Columns, Picked
from hypar_opt.search.open_ways import divisors, fastest_training, with_searched
from hypar_opt.search.prices_of_memory import Around, PlanAtPrice, bound_at, raised
from hypar_opt.search.result import SearchResult, silent
from hypar_opt.search.way_of_training import Counted, WayOfTraining, layouts_at_prices
from hypar_opt.search.ways_by_layer import COMPARABLE, WaysByLayer
from hypar_opt.solvers.elimination.limited import PARTS
from hypar_opt.solvers.within_load import cheapest_within
from hypar_opt.units import format_bytes

if TYPE_CHECKING:
    from hypar_opt.costs.table import Integers
    from hypar_opt.search.result import Search, SearchRequest

_PRICES = 8
"""The most prices of memory that are tried for as many micro-batches."""

_THRESHOLDS = 16
"""The most thresholds of what a plan holds for a moment."""

_COMPARED = 20
_NODES = 2**13
"""The most plans that are counted in the order of their charges; and nodes of all of them."""

_MANY = 2**8
"""States of a node from which a bound is sought before a plan."""

_MARGINS = 4
"""How often a plan is sought with more room for what it holds for a moment."""

_MOST = 2**62
"""Charges above those of all plans."""


def within_memory(search: SearchRequest, solve: Search) -> tuple[SearchRequest, SearchResult]:
    """Return the problem with its training settled, and the result of its search.

    Raises
    ------
    InfeasibleError
        If no plan is found that fits a memory that was stated.
    """
    problem = search.instance.problem
    if problem.device_memory is None:
        return search, in_buckets(search, solve)
    first = WayOfTraining.of(search, fastest_training(search.instance))
    at_once = replace(search, instance=first.instance)
    found = solve(replace(at_once, progress=silent))  # what is counted is the ways
    counted = first.counted(found)
    if counted.fits:
        found = in_buckets(at_once, solve, found)
        counted = first.counted(found)
    ways = _WaysSearched(search, solve, counted.part if problem.groups else None)
    if counted.fits:
        return ways.best_but(counted, first)
    try:
        return ways.best()
    except InfeasibleError:
        if problem.constraints.memory is not None:
            raise
    # The array's memory is no constraint that was stated: what exceeds it is said with the plan.
    found = in_buckets(at_once, solve, found)
    return at_once, with_searched(found, search.instance, at_once.instance)


class _WaysSearched:
    """The search of all ways of training that a problem leaves open, and the best plan known."""

    def __init__(self, search: SearchRequest, solve: Search, part: int | None) -> None:
        self._search, self._solve, self._part = search, solve, part
        self._best = BestFit(search, solve)
        self._known: dict[int, WaysByLayer] = {}
        self._unlimited: dict[int, Fraction] = {}
        """By micro-batches: a bound on all plans, whether they fit or not."""
        self._excess: dict[int, int] = {}
        """By micro-batches: what their fastest plan exceeds the capacity by, in bytes."""
        self._price = Fraction()
        """That of the best bound of the micro-batches that were searched last."""

    def best_but(self, counted: Counted, way: WayOfTraining) -> tuple[SearchRequest, SearchResult]:
        """Return the fastest plan of the batch at once, which fits, or a better one.

        In micro-batches of even parts none is. At once none is that splits more of its weights,
        unless parts of a ring's all-reduce have faster links than all of it.
        """
        found, instance, asked = counted.found, way.instance, self._search.instance
        stated = asked.problem.training.micro_batches
        counts = [n for n in divisors(asked.problem.batch) if n > 1 and not self._even(n)]
        counts = [] if stated else [n for n in counts if self._may_fit(n)]
        if not WaysByLayer(self._search, stated or 1, ample=True).first_takes_least:
            counts.append(stated or 1)
        if found.scope == "joint" and found.bound is not None and counts:
            self._best.found = counted, way
            bounds = {count: self._bound_of_any(count) for count in counts}
            left = [count for count, bound in bounds.items() if 0 < bound < self._best.limit]
            known = found.bound * way.cost.resolution / way.per_unit
            if left or 0 in bounds.values() or self._best.found[0] is not counted:
                return self.best(left, min(known, *bounds.values()))
        return replace(self._search, instance=instance), with_searched(found, asked, instance)

    def _bound_of_any(self, count: int) -> Fraction:
        """Return a bound on the plans of so many micro-batches, whether they fit or not; or 0."""
        try:
            ways = WaysByLayer(self._search, count, ample=True)
            return self._best.at_price(ways, Fraction()).bound
        except InfeasibleError:
            return NEVER
        except (NoAnswerError, RefusedError):  # a limit, or more than memory allows
            return Fraction()

    def best(
        self, counts: Sequence[int] | None = None, bound: Fraction = NEVER
    ) -> tuple[SearchRequest, SearchResult]:
        """Return the best plan of all ways, and the bound on all of them.

        The micro-batches of the least bound are searched on, until none can have a better plan.

        Parameters
        ----------
        counts
            The micro-batches that are searched; by default all by which a plan may fit.
        bound
            That on plans of other ones.

        Raises
        ------
        InfeasibleError
            If there is no plan that fits.
        """
        bounds = dict.fromkeys(self._counts() if counts is None else counts, Fraction())
        searches = {count: self._bounds_of(count) for count in bounds}
        ended: set[int] = set()

        def advance(count: int) -> None:
            further = next(searches[count], None)
            bounds[count] = max(bounds[count], further or Fraction())
            if further is None:  # nothing tells more
                ended.add(count)
            self._search.progress(len(ended), len(bounds))
            for other, own in bounds.items():
                # Of even parts, more micro-batches take no less, plan by plan.
                known = (least for n, least in self._unlimited.items() if other % n == 0)
                bounds[other] = max([own, *known]) if self._even(other) else own

        def next_one() -> int | None:
            left = [count for count in bounds if count not in ended]
            promising = [count for count in left if bounds[count] < self._best.limit]
            over = not promising or self._search.deadline.passed()
            return None if over else min(promising, key=lambda count: (bounds[count], count))

        self._search.progress(0, len(bounds))
        for count in bounds:  # as if all plans fitted
            if bounds[count] < self._best.limit and not self._search.deadline.passed():
                advance(count)
        # First those whose fastest plan nearly fits, whose best one tells which others are slower.
        for near in sorted(self._excess, key=self._excess.__getitem__)[:1]:
            while near not in ended and not self._search.deadline.passed():
                advance(near)
        while (best := next_one()) is not None:
            advance(best)
        if self._best.found is None:
            self._refuse()
        return self._best.result(min([bound, *bounds.values()]))

    def _ways(self, count: int) -> WaysByLayer:
        if count not in self._known:
            self._known[count] = WaysByLayer(self._search, count, part=self._part)
        return self._known[count]

    def _even(self, count: int) -> bool:
        """Return whether all parts of so many micro-batches are equal."""
        instance = self._search.instance
        images = instance.problem.batch // count
        return divides_evenly(images, instance.problem.hierarchy, instance.rule)

    def _counts(self) -> Sequence[int]:
        """Return the micro-batches by which a plan may fit: more of them hold no more."""
        problem = self._search.instance.problem
        if problem.training.micro_batches:
            return [problem.training.micro_batches]
        counts = divisors(problem.batch)
        return counts[bisect_left(counts, True, key=self._may_fit) :]

    def _may_fit(self, count: int) -> bool:
        ways = self._ways(count)
        return ways.least_load <= ways.first.whole_capacity

    def _bounds_of(self, count: int) -> Iterator[Fraction]:
        """Search the plans of so many micro-batches; yield bounds."""
        try:
            if self._best.proves:
                yield from self._within(self._ways(count))
            else:
                yield from self._of_found_layouts(count)
        except InfeasibleError:
            yield NEVER
        except NoAnswerError:  # a limit
            return
        except RefusedError:
            if self._best.found is None:
                raise

    def _within(self, ways: WaysByLayer) -> Iterator[Fraction]:
        """Search by prices of memory, and then among what these leave; yield bounds."""
        around = Around()
        if len(ways.states) >= _MANY and (yield from self._by_classes(ways, around)):
            return
        low, high, best = cast("list[PlanAtPrice | None]", [None] * 3)
        price = self._price if around.low else Fraction()
        for number in range(_PRICES):
            own = self._best.at_price(ways, price)
            if not price:
                self._unlimited.setdefault(ways.micro_batches, own.bound)
            if not (price or own.counted.fits):
                self._excess[ways.micro_batches] = own.counted.bytes - own.counted.capacity
            best = max(best or own, own, key=lambda each: each.bound)
            self._price = best.price or self._price
            yield best.bound
            stays = own.counted.bytes in {each.counted.bytes for each in (low, high) if each}
            if own.counted.fits:
                high = own
            else:
                low = own
            if best.bound >= self._best.limit or (high and not high.price):
                break
            if low is None:
                price = around.low.price if around.low and around.low.price < price else Fraction()
            elif high is None:
                if number > _PRICES // 2:
                    break
                # Seconds of a byte, up to where memory outweighs time.
                each_byte = low.counted.amount / low.counted.bytes / 4
                price = (64 if stays else 8) * price or self._price or each_byte
            elif stays or high.counted.bytes >= low.counted.bytes:
                break
            else:
                fast, small = low.counted, high.counted
                price = max((small.amount - fast.amount) / (fast.bytes - small.bytes), Fraction())
        assert best is not None
        if low and high and best.bound < self._best.limit:
            self._join(ways, low.chosen, high.chosen)
        # In buckets a plan takes more than it is charged, and another may take less.
        if (
            len(best.chosen.picked) * len(ways.states) <= COMPARABLE
            and best.bound < self._best.limit
        ):
            for part in PARTS if self._best.found else [1]:
                goal = best.bound + (self._best.limit - best.bound) / part
                yield (bound := self._compared(ways, best, goal))
                if bound < min(goal, self._best.limit):  # too many
                    break

    def _join(self, ways: WaysByLayer, low: Chosen, high: Chosen) -> None:
        """Keep plans that begin as one plan and end as another, by bisection.

        Parameters
        ----------
        low, high
            A plan that does not fit, and one that does.
        """
        cuts = ways.cuts
        for first, then in ((low, high), (high, low)):
            fits, does_not = (0, len(cuts) - 1) if first is low else (len(cuts) - 1, 0)
            while abs(fits - does_not) > 1:
                upto = (fits + does_not) // 2
                mixed = self._best.keep(ways.joined(first, then, cuts[upto]))
                fits, does_not = (upto, does_not) if mixed.fits else (fits, upto)

    def _by_classes(self, ways: WaysByLayer, around: Around) -> Generator[Fraction, None, bool]:
        """Yield bounds by classes of states; return whether these prove that no plan is better."""
        low = best = bound_at(ways, Fraction())
        self._unlimited.setdefault(ways.micro_batches, low.bound)
        if low.excess <= 0:  # the fastest plan may fit
            return False
        around.add(low)
        self._excess[ways.micro_batches] = math.ceil(low.excess)
        yield low.bound
        if low.bound < self._best.limit:
            for found in raised(ways, around, self._best.limit):
                best = max(best, found, key=lambda own: own.bound)
                yield best.bound
            self._price = best.price
        return best.bound >= self._best.limit

    def _compared(self, ways: WaysByLayer, step: PlanAtPrice, goal: Fraction) -> Fraction:
        """Compare the plans that may cost less than the best and a goal, in order of their charges.

        Returns
        -------
        Fraction
            A bound on all plans: the best one's cost or the goal, unless there are too many.
        """
        most, price, bound = _MOST, step.price, step.bound
        if self._best.found is not None:
            most = int(goal * ways.per_unit + ways.charges(price) * ways.capacity) + 1
        try:
            table = ways.table(price, again=bool(ways.open.blocks))
            columns = ways.graph(table, price, most, self._search.deadline)
            if columns is None:
                return min(goal, self._best.limit)
            # What all that a plan holds for a moment exceeds its bound by is known with the plan.
            margin = 0
            for _ in range(_MARGINS):
                chosen = next(self._cheapest(ways, columns, goal, margin), None)
                counted = chosen and self._best.keep(ways.of_columns(chosen[1]))
                if counted is None or counted.fits:
                    break
                margin += counted.bytes - counted.capacity
            count = max(_COMPARED, _NODES // len(columns.order))
            for number, (charges, picked) in enumerate(self._cheapest(ways, columns, goal)):
                charged = Fraction(charges, ways.per_unit)
                bound = max(bound, min(charged, self._best.limit))
                if charged >= self._best.limit or number == count:
                    return bound
                self._best.keep(ways.of_columns(picked))
        except RefusedError:
            return bound
        return min(goal, self._best.limit)

    def _cheapest(
        self, ways: WaysByLayer, columns: Columns, goal: Fraction, margin: int = 0
    ) -> Iterator[tuple[int, list[Picked]]]:
        """Yield plans that may fit with their charges, in the order of these.

        What a plan holds for a moment is a maximum, and not a sum: for each threshold, the plans
        below it have what is left of the capacity.

        Parameters
        ----------
        margin
            Bytes of a device that are to be left.
        """
        accelerators = self._search.instance.problem.accelerators
        whole = ways.whole_capacity - margin * accelerators
        most = (
            _MOST if self._best.found is None else int(min(goal, self._best.limit) * ways.per_unit)
        )
        groups = np.array_split(columns.thresholds, min(_THRESHOLDS, len(columns.thresholds)))

        def within(group: Integers) -> Iterator[tuple[int, tuple[Column, ...]]]:
            graph, kept = columns.graph(int(group[-1]))
            capacity = whole - int(group[0])
            for charges, numbers in cheapest_within(graph, capacity, most, self._search.deadline):
                yield charges, tuple(own[n] for own, n in zip(kept, numbers, strict=True))

        last = None
        for charges, picked in merge(*map(within, groups), key=itemgetter(0)):
            if picked != last:
                by_node = sorted(zip(columns.order, picked, strict=True))
                yield charges, [own.picked for _, own in by_node]
            last = picked

    def _of_found_layouts(self, count: int) -> Iterator[Fraction]:
        """Train the plans that a solver finds in the best ways: no bound on others is known."""
        for layouts in layouts_at_prices(self._ways(count).first, self._solve):
            for _ in self._within(WaysByLayer(self._search, count, layouts, self._part)):
                yield Fraction()
        yield NEVER

    def _refuse(self) -> None:
        memory = format_bytes(self._search.instance.problem.device_memory or 0)
        raise InfeasibleError(
            f"{argument('constraints.memory')}: no plan that was found fits {memory} of a device,"
            " by any micro-batches, recomputation and shards that are left open"
        )
