"""The plan of least cost within the memory of a device: layouts, micro-batches, ways to train.

Micro-batches are tried in turn, first the fewest whose fastest plan fits, then those of the least
bound. What more of them take is never less, plan by plan, so that a bound holds for all multiples.
For as many micro-batches the capacity is relaxed: bytes are charged at a price, whose least sum
bounds all plans that fit. Those that this leaves are compared in the order of their charges, each
counted tensor by tensor.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, cast

from hypar_opt.deadline import TIME_LIMIT
from hypar_opt.errors import InfeasibleError, NoAnswerError, RefusedError
from hypar_opt.instance.pricing import nodes_of
from hypar_opt.integers import divisors
from hypar_opt.search.any_way import bounded_in_any_way, is_too_large, none_takes_less
from hypar_opt.search.best_fit import (
    NEVER,
    BestFit,
    NothingFasterError,
    NothingFitsError,
    configuration_that_fits,
    fastest_at_once,
    uniform_plan,
)
from hypar_opt.search.fused_gradients import in_buckets
from hypar_opt.search.left_columns import Chosen, LeftColumns
from hypar_opt.search.micro_batches import MicroBatches
from hypar_opt.search.open_ways import fastest_training, with_searched
from hypar_opt.search.order_of_charges import OrderOfCharges
from hypar_opt.search.prices_of_memory import Around, PlanAtPrice, bound_at, bound_by_prices, raised
from hypar_opt.search.result import SearchResult
from hypar_opt.search.way_of_training import (
    Counted,
    WayOfTraining,
    first_takes_least,
    layouts_at_prices,
)
from hypar_opt.search.ways_by_count import WaysByCount
from hypar_opt.search.ways_by_layer import WaysByLayer

if TYPE_CHECKING:
    from hypar_opt.search.result import Search, SearchRequest

_PRICES = 8
"""The most prices of memory that are tried for as many micro-batches."""

_PARTS_OF_GAP = (16, 8, 4), (2, 1)
"""The parts of the gap above a bound in which plans are sought in turn; of some together."""

_COMPARED = 20
_NODES = 2**13
"""The most plans that are counted in the order of their charges; and nodes of all of them."""

_MANY = 2**8
"""States of a node from which a bound is sought before a plan."""

_OUTWEIGHS = 64
"""How much more bytes cost than time where the plan that holds least is sought."""

_MARGINS = 4
"""How often a plan is sought with more room for what it holds for a moment."""


def within_memory(
    search: SearchRequest, solve: Search, *, bounds: bool = True, below: Fraction = NEVER
) -> tuple[SearchRequest, SearchResult]:
    """Return the problem with its training settled, and the result of its search.

    Without ``bounds`` plans that fit are not compared until none can be better. Those that take
    ``below`` or more are of no interest.

    Raises
    ------
    NothingFasterError
        If none that fits takes less than ``below``.
    NothingFitsError
        If no plan is found that fits.
    InfeasibleError, NoAnswerError
        If no plan keeps to the other constraints, or none is found before a limit.
    """
    problem = search.instance.problem
    if problem.device_memory is None:
        return search, in_buckets(search, solve)
    first = WayOfTraining.of(search, fastest_training(search.instance))
    at_once = replace(search, instance=first.instance)
    incumbent = None
    # Before the search, which may leave no time for it; a bound needs no plan.
    if search.deadline.left() is not None and search.instance.bounded is None:
        incumbent = configuration_that_fits(search) or uniform_plan(
            search, WaysByCount(search, None)
        )
    found = fastest_at_once(at_once, solve)
    counted = first.counted(found)
    if counted.fits:
        found = in_buckets(at_once, solve, found)
        counted = first.counted(found)
    part, best = (
        counted.part if problem.groups else None,
        BestFit(search, solve, least=counted, below=below),
    )
    ways = _WaysSearched(best, counted, part, incumbent, compares=bounds or counted.fits)
    return ways.best_but(counted) if counted.fits else ways.best()


class _WaysSearched:
    """The search of all ways of training that a problem leaves open, and the best plan known."""

    def __init__(
        self,
        best: BestFit,
        fastest: Counted,
        part: int | None,
        known: Counted | None,
        *,
        compares: bool,
    ) -> None:
        self._search, self._solve, self._best = best.search, best.solve, best
        self._part, self._compares = part, compares
        self._fastest, self._known_to_fit = fastest, known
        if known is not None:
            best.found = known
        self._ways = WaysByCount(best.search, part)
        self._known = MicroBatches({}, self._ways.even)
        self._price = Fraction()  # of the best bound of the micro-batches that were searched last
        self._fits_at_once = False
        """Whether the fastest plan of the batch at once, whose weights are whole, fits."""

    def best_but(self, counted: Counted) -> tuple[SearchRequest, SearchResult]:
        """Return the fastest plan of the batch at once, which fits, or a better one.

        In micro-batches of even parts none is. At once none is that splits more of its weights,
        unless parts of a ring's all-reduce have faster links than all of it.
        """
        found, way, asked = counted.found, counted.way, self._search.instance
        stated = asked.problem.training.micro_batches
        counts = [] if stated else divisors(asked.problem.batch)[1:]
        counts = [n for n in counts if not self._ways.even(n) and self._ways.may_fit(n)]
        ways = WaysByLayer(self._search, stated or 1, ample=True)
        if is_too_large(way, found):
            found = bounded_in_any_way(way, found)
        elif not none_takes_less(way, found) and not first_takes_least(ways.each[0], ways.per_unit):
            counts.append(stated or 1)
        if found.scope == "joint" and found.bound is not None and counts:
            self._best.found, self._fits_at_once = counted, True
            bounds = {count: self._bound_of_any(count) for count in counts}
            left = [count for count, bound in bounds.items() if 0 < bound < self._best.limit]
            if left or 0 in bounds.values() or self._best.found is not counted:
                return self.best(left, min(way.amount_of(found.bound), *bounds.values()))
        settled = replace(self._search, instance=way.instance)
        return settled, with_searched(found, asked, way.instance)

    def _bound_of_any(self, count: int) -> Fraction:
        """Return a bound on the plans of so many micro-batches, whether they fit or not; or 0."""
        try:
            for bound in (self._ways.compute, self._ways.over_equal_links):
                if (least := bound(count)) >= self._best.limit:
                    return least
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
        NothingFitsError
            If no plan is found that fits.
        """
        passed, best = self._search.deadline.passed, self._best
        if counts is None:  # which of them may fit takes time, too
            counts = self._ways.every_count if passed() else self._ways.counts
        known = self._known = MicroBatches(dict.fromkeys(counts, Fraction()), self._ways.even)
        searches = {count: self._bounds_of(count) for count in counts}

        def advance(count: int) -> None:
            further = next(searches[count], None)
            if further is None:
                known.ended.add(count)
            self._search.progress(len(known.ended), len(searches))
            known.raise_to(further or Fraction(), [count])

        self._search.progress(0, len(searches))
        if self._search.deadline.left() is not None:
            # Before the search, which may leave no time for it.
            self._raise_by_compute(counts)
        for count in known.in_turn():
            if known.bounds[count] < best.limit and not passed():
                advance(count)
        # First those whose fastest plan nearly fits, whose best one tells which others are slower.
        while (near := known.nearest) and near not in known.priced | known.ended and not passed():
            advance(near)
        while (left := known.promising(best.limit)) and not passed():
            advance(left[0])
        self._raise_by_compute(counts)
        bound = min([bound, *known.bounds.values()])
        if bound < best.limit:  # no other is proved to be no better
            uniform = self._known_to_fit or uniform_plan(self._search, self._ways)
            if uniform and uniform.amount < best.limit:
                best.found = uniform
        if best.found is None and best.below <= bound < NEVER:
            raise NothingFasterError
        if best.found is None:
            raise self._refusal()
        return best.result(bound)

    def _raise_by_compute(self, counts: Sequence[int]) -> None:
        """Bound the plans of micro-batches that have no bound by what they compute.

        Of even parts it is no less than in fewer micro-batches.
        """
        known = self._known
        for number, count in enumerate(counts):
            if known.bounds[count] or (number and self._search.deadline.passed()):
                continue
            more = (n for n in counts if n % count == 0 and self._ways.even(n))
            known.raise_to(self._ways.compute(count), {count, *more})

    def _bounds_of(self, count: int) -> Iterator[Fraction]:
        """Search the plans of so many micro-batches; yield bounds."""
        try:
            if self._best.proves:
                yield from self._within(self._ways.of(count))
            else:
                yield from self._of_found_layouts(count)
        except InfeasibleError:
            yield NEVER
        except NoAnswerError:  # a limit
            return
        except RefusedError:
            if self._best.found and not self._best.alike:
                return
            # More than memory allows: of the fastest layouts at once, and all layers alike.
            self._best.keep_alike(self._ways.of(count), self._fastest.found)
            yield self._of_any_way if self._ways.even(count) else self._ways.compute(count)

    @cached_property
    def _of_any_way(self) -> Fraction:
        """A bound on the plans of even micro-batches, whether they fit or not."""
        way = self._fastest.way
        return way.amount_of(bounded_in_any_way(way, self._fastest.found).bound or Fraction())

    def _within(self, ways: WaysByLayer) -> Iterator[Fraction]:
        """Search by prices of memory, and then among what these leave; yield bounds."""
        around, count = Around(), ways.micro_batches
        if len(ways.states) >= _MANY and (yield from self._by_classes(ways, around)):
            return
        low, high, best = cast("list[PlanAtPrice | None]", [None] * 3)
        price = around.cross if around.low else Fraction()
        for number in range(_PRICES):
            own = self._best.at_price(ways if price else ways.ample, price)
            if not price:
                self._known.unlimited.setdefault(count, own.bound)
                self._known.excess[count] = Fraction(own.counted.bytes - own.counted.capacity)
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
            elif high is None and around.high and around.high.price > price:
                price = around.high.price
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
            self._join(ways, low, high)
        # In buckets plans take more than they are charged. Of many states others are not counted
        # where one is known that fits: they seldom lift the bound.
        few = self._compares and (not self._fits_at_once or len(ways.states) < _MANY)
        if best.bound < self._best.limit and few:
            self._known.priced.add(count)
            yield best.bound
            yield from self._compared(ways, best)

    def _join(self, ways: WaysByLayer, low: PlanAtPrice, high: PlanAtPrice) -> None:
        """Keep plans that begin as one plan and end as another, by regula falsi and bisection.

        Parameters
        ----------
        low, high
            A plan that does not fit, and one that does.
        """
        cuts = ways.cuts
        for first, then in ((low, high), (high, low)):
            known = {first.counted.fits: (len(cuts) - 1, first.counted)}
            known[then.counted.fits] = 0, then.counted
            for number in range(len(cuts)):
                (fits, less), (does_not, more) = known[True], known[False]
                between = abs(fits - does_not)
                if between == 1:
                    break
                # Blocks that are alike hold as much: all but every third time by what they hold.
                excess = more.bytes - more.capacity
                steps = -(between * -excess // (more.bytes - less.bytes))
                if number % 3 == 2:
                    steps = between // 2
                upto = does_not + max(1, min(steps, between - 1)) * (1 if fits > does_not else -1)
                mixed = self._best.keep(ways.joined(first.chosen, then.chosen, cuts[upto]))
                known[mixed.fits] = upto, mixed

    def _by_classes(self, ways: WaysByLayer, around: Around) -> Generator[Fraction, None, bool]:
        """Yield bounds by classes of states; return whether these prove that no plan is better."""
        count, low = ways.micro_batches, bound_at(ways.ample, Fraction())
        self._known.unlimited.setdefault(count, low.bound)
        self._known.excess[count] = low.excess
        yield low.bound
        if low.excess <= 0:  # the fastest plan may fit
            return False
        around.add(low)
        best, goal = low, self._best.limit
        if low.bound < goal:
            # With the memory of more micro-batches the times of these bound the plans of both.
            more = self._known.multiple(count, goal) if goal < NEVER else None
            both = bound_by_prices(ways.holding(more), goal) if more else Fraction()
            if more and both >= goal:
                self._known.raise_to(both, [count, more])
                return True
            for found in raised(ways, around, goal):
                best = max(best, found, key=lambda own: own.bound)
                yield best.bound
            self._price = best.price
        return best.bound >= self._best.limit

    def _compared(self, ways: WaysByLayer, step: PlanAtPrice) -> Iterator[Fraction]:
        """Compare plans that may cost less than the best, in order of their charges; yield bounds.

        First those that cost a part of the gap more than the bound of a price.
        """
        order, gap = OrderOfCharges(ways, step.price), self._best.limit - step.bound
        with suppress(RefusedError):
            for parts in _PARTS_OF_GAP if self._best.limit < NEVER else [(1,)]:
                goals = [step.bound + gap / part for part in parts]
                columns = order.columns(goals[-1])
                for goal in goals:
                    bound = self._best_of(order, columns, goal, step.bound)
                    yield bound
                    if bound != goal:  # too many, or no plan is better than the best
                        return

    def _best_of(
        self, order: OrderOfCharges, columns: LeftColumns | None, goal: Fraction, bound: Fraction
    ) -> Fraction:
        """Compare plans of some columns that cost at most a goal; return a bound on all plans.

        It is the best plan's cost or the goal, unless there are too many plans.

        Raises
        ------
        RefusedError
        """
        ways, left = order.ways, columns and columns.upto(order.most_charged(goal))
        if left is None:
            return min(goal, self._best.limit)

        def cheapest(margin: int = 0) -> Iterator[tuple[Fraction, Chosen]]:
            for charges, picked in order.cheapest(left, min(goal, self._best.limit), margin):
                yield Fraction(charges, ways.per_unit), ways.of_columns(picked)

        # Of parts between groups less is known of a moment: more plans are seldom worth counting.
        count = max(_COMPARED, _NODES // len(left.order) if self._part is None else 0)
        for number, (charged, plan) in enumerate(cheapest()):
            bound = max(bound, min(charged, self._best.limit))
            if charged >= self._best.limit or number == count:
                return bound
            counted, margin = self._best.keep(plan), 0
            # What all that a plan holds for a moment exceeds its bound by is known with the plan.
            for _ in range(_MARGINS if number == 0 else 0):
                margin += max(0, counted.bytes - counted.capacity)
                other = None if counted.fits else next(cheapest(margin), None)
                if other is None:
                    break
                counted = self._best.keep(other[1])
        return min(goal, self._best.limit)

    def _of_found_layouts(self, count: int) -> Iterator[Fraction]:
        """Train the plans that a solver finds in the best ways: no bound on others is known."""
        for layouts in layouts_at_prices(self._ways.of(count).first, self._solve):
            for _ in self._within(WaysByLayer(self._search, count, layouts, self._part)):
                yield Fraction()
        yield NEVER

    def _refusal(self) -> NothingFitsError:
        """Return the error that says which plan lacks least, and whether it is proved."""
        passed = self._search.deadline.passed()
        every = self._ways.every_count
        if not passed:
            self._keep_smallest(every)
        assert self._best.least is not None
        # What no layouts hold is the same at all shares.
        by_load = not any(map(self._ways.may_fit, every))
        return NothingFitsError(
            self._best.least,
            proved=by_load or (not passed and all(map(self._is_proved_too_large, every))),
            at_any_share=by_load,
            stopped_by=TIME_LIMIT if passed else "limits",
        )

    def _keep_smallest(self, counts: Sequence[int]) -> None:
        """Count plans whose bytes outweigh what they cost, of micro-batches that may hold less."""
        fast, accelerators = self._fastest, self._search.instance.problem.accelerators
        price = _OUTWEIGHS * fast.amount / fast.bytes
        for ways in sorted(map(self._ways.of, counts), key=lambda ways: ways.least_load):
            assert self._best.least is not None
            if ways.least_load >= self._best.least.bytes * accelerators:
                return
            with suppress(InfeasibleError, NoAnswerError):
                try:
                    if self._best.proves:
                        self._best.at_price(ways, price)
                        continue
                except RefusedError:  # more than memory allows
                    pass
                self._best.keep_alike(ways, fast.found)

    def _is_proved_too_large(self, count: int) -> bool:
        """Return whether no plan of so many micro-batches fits, whatever else is left open."""
        ways = self._ways.of(count)
        if ways.least_load > ways.whole_capacity:
            return True
        if self._best.proves and self._known.bounds.get(count, 0) >= NEVER:
            return True
        if not self._search.solver.searches:  # it has one plan
            fast = self._fastest
            asked = fast.way.instance.workload, fast.way.cost, fast.found.assignments
            rows = nodes_of(*asked, fast.found.priced, rule=fast.way.instance.rule)
            layouts = tuple(map(tuple, rows))
            ways = WaysByLayer(self._search, count, layouts, self._part)
        try:
            return ways.least_held > ways.whole_capacity
        except (NoAnswerError, RefusedError):  # a limit, or more than memory allows
            return False
