"""The plan of least cost within the memory of a device: layouts, micro-batches, training modes.

Numbers of micro-batches are tried in turn, first the fewest whose fastest plan fits, then that of
the least bound. Plan by plan, more micro-batches of even parts take no less, so that a bound holds
for all multiples. For each number the capacity is relaxed (`relaxation`): a price of bytes bounds
all plans that fit. Those that this bound leaves are ranked by their charges (`reduced_costs`), and
each is counted tensor by tensor (`incumbent`).

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
from hypar_opt.search.buckets import in_buckets
from hypar_opt.search.free_modes import fastest_training, with_searched
from hypar_opt.search.memory.incumbent import (
    NEVER,
    Incumbent,
    NothingFasterError,
    NothingFitsError,
    configuration_that_fits,
    fastest_in_one_batch,
    uniform_plan,
)
from hypar_opt.search.memory.micro_batches import MicroBatchBounds, ModesByMicroBatches
from hypar_opt.search.memory.modes import (
    CountedPlan,
    TrainingMode,
    exceeds_state_limit,
    first_takes_least,
    is_optimal_over_modes,
    layouts_at_prices,
    with_mode_free_bound,
)
from hypar_opt.search.memory.reduced_costs import KBest, RemainingColumns
from hypar_opt.search.memory.relaxation import (
    Bracket,
    LayerModes,
    PlanAtPrice,
    Selection,
    best_dual_bound,
    dual_ascent,
    dual_bound,
)
from hypar_opt.search.result import SearchResult

if TYPE_CHECKING:
    from hypar_opt.search.result import Search, SearchRequest

_MOST_PRICES = 8
"""The most prices of memory that are tried for one number of micro-batches."""

_GAP_PARTS = (16, 8, 4), (2, 1)
"""Plans up to a bound and a part of the gap above it are compared, part after part.

For the parts of one tuple, reduced costs fix columns together.
"""

_FEWEST_COMPARED = 20
_COMPARED_NODES = 2**13
"""Plans are compared until they have so many nodes together, but so many plans at least.

Sixteen times as many are where no plan is known that fits: they may prove that there is none.
"""

_MANY_STATES = 2**8
"""With this many states of a node, or more, a bound is computed before a plan."""

_MEMORY_OUTWEIGHS = 64
"""The ratio of the price of a plan's bytes to its time where the smallest plan is sought."""

_MOST_MARGINS = 4
"""How often a plan is sought with more room for its transient bytes."""


def within_memory(
    search: SearchRequest, solve: Search, *, bounds: bool = True, cutoff: Fraction = NEVER
) -> tuple[SearchRequest, SearchResult]:
    """Return the problem with its training settled, and the result of its search.

    Without ``bounds`` the search ends before plans that fit are compared, to prove that none is
    better. Plans that cost ``cutoff`` or more are of no interest.

    Raises
    ------
    NothingFasterError
        If none that fits costs less than ``cutoff``.
    NothingFitsError
        If no plan is found that fits.
    InfeasibleError, NoAnswerError
        If no plan satisfies the other constraints, or none is found before a limit.
    """
    problem = search.instance.problem
    if problem.device_memory is None:
        return search, in_buckets(search, solve)
    first = TrainingMode.of(search, fastest_training(search.instance))
    at_once = replace(search, instance=first.instance)
    early = None
    # Before the search, which may leave no time for it; a bound needs no plan.
    if search.deadline.left() is not None and search.instance.bounded is None:
        counts = ModesByMicroBatches(search, None)
        early = configuration_that_fits(search) or uniform_plan(search, counts)
    result = fastest_in_one_batch(at_once, solve)
    fastest = first.counted(result)
    if fastest.fits:
        fastest = first.counted(in_buckets(at_once, solve, result))
    incumbent = Incumbent(search, solve, nearest=fastest, cutoff=cutoff)
    part = fastest.part if problem.groups else None
    modes = _ModeSearch(incumbent, fastest, part, early, compares=bounds or fastest.fits)
    return modes.fastest_or_better(fastest) if fastest.fits else modes.best()


class _ModeSearch:
    """The search of all training modes that a problem leaves open.

    Parameters
    ----------
    fastest
        The fastest plan of the batch at once, whether it fits or not.
    part
        As in `TrainingMode`.
    early
        A plan that fits, known before the search.
    compares
        Whether plans that fit are compared until none can be better.
    """

    def __init__(
        self,
        incumbent: Incumbent,
        fastest: CountedPlan,
        part: int | None,
        early: CountedPlan | None,
        *,
        compares: bool,
    ) -> None:
        self._search, self._solve = incumbent.search, incumbent.solve
        self._incumbent, self._early = incumbent, early
        self._part, self._compares = part, compares
        self._fastest = fastest
        if early is not None:
            incumbent.plan = early
        self._modes = ModesByMicroBatches(incumbent.search, part)
        self._bounds = MicroBatchBounds({}, self._modes.even)
        self._price = Fraction()  # of the best bound of the micro-batches that were searched last
        self._fits_at_once = False
        """Whether the fastest plan of the batch at once, whose weights are whole, fits."""

    def fastest_or_better(self, fastest: CountedPlan) -> tuple[SearchRequest, SearchResult]:
        """Return the fastest plan of the batch at once, which fits, or a better one.

        In micro-batches of even parts none is. At once none is that splits more of its weights,
        unless parts of a ring's all-reduce have faster links than all of it.
        """
        result, mode, instance = fastest.result, fastest.mode, self._search.instance
        stated = instance.problem.training.micro_batches
        counts = [] if stated else divisors(instance.problem.batch)[1:]
        counts = [n for n in counts if not self._modes.even(n) and self._modes.may_fit(n)]
        modes = LayerModes(self._search, stated or 1, ample=True)
        if exceeds_state_limit(mode, result):
            result = with_mode_free_bound(mode, result)
        elif not (
            is_optimal_over_modes(mode, result) or first_takes_least(modes.modes[0], modes.per_unit)
        ):
            counts.append(stated or 1)
        if result.scope == "joint" and result.bound is not None and counts:
            self._incumbent.plan, self._fits_at_once = fastest, True
            bounds = {count: self._bound_of_any(count) for count in counts}
            limit = self._incumbent.limit
            open_counts = [count for count, bound in bounds.items() if 0 < bound < limit]
            if open_counts or 0 in bounds.values() or self._incumbent.plan is not fastest:
                closed_bounds = [bounds[count] for count in counts if count not in open_counts]
                bound = min([mode.amount_of(result.bound), *closed_bounds])
                return self.best(open_counts, bound)
        settled = replace(self._search, instance=mode.instance)
        return settled, with_searched(result, instance, mode.instance)

    def _bound_of_any(self, count: int) -> Fraction:
        """Return a bound on the plans of so many micro-batches, whether they fit or not; or 0."""
        try:
            for bound_of in (self._modes.compute, self._modes.exchanges):
                if (bound := bound_of(count)) >= self._incumbent.limit:
                    return bound
            modes = LayerModes(self._search, count, ample=True)
            return self._incumbent.solve_at_price(modes, Fraction()).bound
        except InfeasibleError:
            return NEVER
        except (NoAnswerError, RefusedError):  # a limit, or more than memory allows
            return Fraction()

    def best(
        self, counts: Sequence[int] | None = None, bound: Fraction = NEVER
    ) -> tuple[SearchRequest, SearchResult]:
        """Return the best plan of all modes, with a bound on all plans.

        The number of micro-batches of the least bound is searched next, until none can have a
        better plan.

        Parameters
        ----------
        counts
            The numbers of micro-batches that are searched; by default all with which a plan may
            fit.
        bound
            A bound on the plans of all other numbers.

        Raises
        ------
        NothingFitsError
            If no plan is found that fits.
        """
        passed, incumbent = self._search.deadline.passed, self._incumbent
        if counts is None:  # which of them may fit takes time, too
            counts = self._modes.all_counts if passed() else self._modes.counts
        numbers = self._bounds = MicroBatchBounds(
            dict.fromkeys(counts, Fraction()), self._modes.even
        )
        searches = {count: self._search_of(count) for count in counts}

        def advance(count: int) -> None:
            further = next(searches[count], None)
            if further is None:
                numbers.ended.add(count)
            self._search.progress(len(numbers.ended), len(searches))
            numbers.raise_to(further or Fraction(), [count])

        self._search.progress(0, len(searches))
        if self._search.deadline.left() is not None:
            # Before the search, which may leave no time for it.
            self._raise_by_compute(counts)
        for count in numbers.in_turn():
            if numbers.bounds[count] < incumbent.limit and not passed():
                advance(count)
        # First those whose fastest plan nearly fits, whose best one tells which others are slower.
        while (
            (near := numbers.nearest)
            and near not in numbers.priced | numbers.ended
            and not passed()
        ):
            advance(near)
        while (counts_left := numbers.promising(incumbent.limit)) and not passed():
            advance(counts_left[0])
        self._raise_by_compute(counts)
        bound = min([bound, *numbers.bounds.values()])
        if bound < incumbent.limit:  # no other is proved to be no better
            uniform = self._early or uniform_plan(self._search, self._modes)
            if uniform and uniform.amount < incumbent.limit:
                incumbent.plan = uniform
        if incumbent.plan is None and incumbent.cutoff <= bound < NEVER:
            raise NothingFasterError
        if incumbent.plan is None:
            raise self._refusal()
        return incumbent.result(bound)

    def _raise_by_compute(self, counts: Sequence[int]) -> None:
        """Bound by compute the plans of each number of micro-batches that has no bound.

        The bound holds for multiples of the number, too, if their parts are even.
        """
        for number, count in enumerate(counts):
            if self._bounds.bounds[count] or (number and self._search.deadline.passed()):
                continue
            more = (n for n in counts if n % count == 0 and self._modes.even(n))
            self._bounds.raise_to(self._modes.compute(count), {count, *more})

    def _search_of(self, count: int) -> Iterator[Fraction]:
        """Search the plans of so many micro-batches; yield bounds."""
        last = None
        try:
            if self._incumbent.proves:
                yield from self._within(self._modes.of(count))
            else:
                yield from self._in_layouts_of_solver(count)
        except InfeasibleError:
            last = NEVER
        except NoAnswerError:  # a limit
            pass
        except RefusedError:
            last = self._uniform_bound(count)
        # Not in a handler, which would keep the tables of what was refused until all is searched.
        if last is not None:
            yield last

    def _uniform_bound(self, count: int) -> Fraction | None:
        """Try the fastest layouts of the batch at once, all layers in one mode; return a bound.

        None where it is not tried: a plan that fits is known, and no uniform mode is known to fit.
        """
        if self._incumbent.plan and not self._incumbent.uniform_that_fit:
            return None
        self._incumbent.try_uniform_modes(self._modes.of(count), self._fastest.result)
        return self._mode_free_bound if self._modes.even(count) else self._modes.compute(count)

    @cached_property
    def _mode_free_bound(self) -> Fraction:
        """A bound on the plans of even micro-batches, whether they fit or not."""
        mode = self._fastest.mode
        return mode.amount_of(with_mode_free_bound(mode, self._fastest.result).bound or Fraction())

    def _within(self, modes: LayerModes) -> Iterator[Fraction]:
        """Search at prices of memory, then compare the plans that these leave; yield bounds."""
        bracket, count = Bracket(), modes.micro_batches
        if len(modes.states) >= _MANY_STATES and (yield from self._by_classes(modes, bracket)):
            return
        low, high, best = cast("list[PlanAtPrice | None]", [None] * 3)
        price = bracket.crossing_price if bracket.low else Fraction()
        for number in range(_MOST_PRICES):
            plan = self._incumbent.solve_at_price(modes if price else modes.ample, price)
            if not price:
                self._bounds.unlimited.setdefault(count, plan.bound)
                self._bounds.excess[count] = Fraction(plan.counted.bytes - plan.counted.capacity)
            best = max(best or plan, plan, key=lambda priced: priced.bound)
            self._price = best.price or self._price
            yield best.bound
            stays = plan.counted.bytes in {other.counted.bytes for other in (low, high) if other}
            if plan.counted.fits:
                high = plan
            else:
                low = plan
            if best.bound >= self._incumbent.limit or (high and not high.price):
                break
            if low is None:
                price = (
                    bracket.low.price if bracket.low and bracket.low.price < price else Fraction()
                )
            elif high is None and bracket.high and bracket.high.price > price:
                price = bracket.high.price
            elif high is None:
                if number > _MOST_PRICES // 2:
                    break
                # Seconds of a byte, up to where memory outweighs time.
                per_byte = low.counted.amount / low.counted.bytes / 4
                price = (64 if stays else 8) * price or self._price or per_byte
            elif stays or high.counted.bytes >= low.counted.bytes:
                break
            else:
                fast, small = low.counted, high.counted
                price = max((small.amount - fast.amount) / (fast.bytes - small.bytes), Fraction())
        assert best is not None
        if low and high and best.bound < self._incumbent.limit:
            self._join(modes, low, high)
        # In buckets plans take more than they are charged. Of many states others are not counted
        # where one is known that fits: they seldom lift the bound.
        compares = self._compares and (not self._fits_at_once or len(modes.states) < _MANY_STATES)
        if best.bound < self._incumbent.limit and compares:
            self._bounds.priced.add(count)
            yield best.bound
            yield from self._compared(modes, best)

    def _join(self, modes: LayerModes, low: PlanAtPrice, high: PlanAtPrice) -> None:
        """Count plans that begin as one plan and end as another, by regula falsi and bisection.

        Parameters
        ----------
        low, high
            A plan that does not fit, and one that does.
        """
        cuts = modes.cuts
        for first, rest in ((low, high), (high, low)):
            # The closest plans that fit and do not: the number of a cut, and the counted plan.
            ends = {first.counted.fits: (len(cuts) - 1, first.counted)}
            ends[rest.counted.fits] = 0, rest.counted
            for number in range(len(cuts)):
                (fits, less), (exceeds, more) = ends[True], ends[False]
                distance = abs(fits - exceeds)
                if distance == 1:
                    break
                # Equal blocks hold as much: all but every third step is by what they hold.
                steps = -(distance * -more.excess // (more.bytes - less.bytes))
                if number % 3 == 2:
                    steps = distance // 2
                direction = 1 if fits > exceeds else -1
                cut = exceeds + max(1, min(steps, distance - 1)) * direction
                joined = modes.joined(first.selection, rest.selection, cuts[cut])
                counted = self._incumbent.keep(joined)
                ends[counted.fits] = cut, counted

    def _by_classes(self, modes: LayerModes, bracket: Bracket) -> Generator[Fraction, None, bool]:
        """Yield bounds by classes of states; return whether these prove that no plan is better."""
        count, low = modes.micro_batches, dual_bound(modes.ample, Fraction())
        self._bounds.unlimited.setdefault(count, low.bound)
        self._bounds.excess[count] = low.excess
        yield low.bound
        if low.excess <= 0:  # the fastest plan may fit
            return False
        bracket.add(low)
        best, goal = low, self._incumbent.limit
        if low.bound < goal:
            for dual in dual_ascent(modes, bracket, goal):
                best = max(best, dual, key=lambda dual: dual.bound)
                yield best.bound
            # With the memory of more micro-batches, which hold less, these bound the plans of both.
            proved = best.bound >= goal
            more = self._bounds.multiple(count, goal) if proved else None
            if more and (both := best_dual_bound(modes.with_memory_of(more), goal)) >= goal:
                self._bounds.raise_to(both, [more])
            self._price = best.price
        return best.bound >= self._incumbent.limit

    def _compared(self, modes: LayerModes, priced: PlanAtPrice) -> Iterator[Fraction]:
        """Compare plans that may cost less than the best, in order of their charges; yield bounds.

        First those that cost a part of the gap more than the bound of a price.
        """
        ranking, gap = KBest(modes, priced.price), self._incumbent.limit - priced.bound
        with suppress(RefusedError):
            for parts in _GAP_PARTS if self._incumbent.limit < NEVER else [(1,)]:
                goals = [priced.bound + gap / part for part in parts]
                columns = ranking.columns(goals[-1])
                for goal in goals:
                    bound = self._best_of(ranking, columns, goal, priced.bound)
                    yield bound
                    if bound != goal:  # too many, or no plan is better than the best
                        return

    def _best_of(
        self, ranking: KBest, columns: RemainingColumns | None, goal: Fraction, bound: Fraction
    ) -> Fraction:
        """Compare plans of some columns that cost at most a goal; return a bound on all plans.

        It is the best plan's cost or the goal, unless there are too many plans.

        Raises
        ------
        RefusedError
        """
        modes, remaining = (
            ranking.modes,
            columns and columns.fixed_below(ranking.charge_limit(goal)),
        )
        if remaining is None:
            return min(goal, self._incumbent.limit)

        def plans(margin: int = 0) -> Iterator[tuple[Fraction, Selection]]:
            limit = min(goal, self._incumbent.limit)
            for charges, picks in ranking.plans(remaining, limit, margin):
                yield Fraction(charges, modes.per_unit), modes.selection(picks)

        # Between groups the bound of transient bytes is weaker: more plans are seldom worth it.
        count = max(
            _FEWEST_COMPARED, _COMPARED_NODES // len(remaining.order) if self._part is None else 0
        )
        count *= 1 if self._incumbent.limit < NEVER else 16
        for number, (charged, plan) in enumerate(plans()):
            bound = max(bound, min(charged, self._incumbent.limit))
            if charged >= self._incumbent.limit or number == count:
                return bound
            counted, margin = self._incumbent.keep(plan), 0
            # What its transient bytes exceed their bound by is known with the plan.
            for _ in range(_MOST_MARGINS if number == 0 else 0):
                margin += max(0, counted.bytes - counted.capacity)
                following = None if counted.fits else next(plans(margin), None)
                if following is None:
                    break
                counted = self._incumbent.keep(following[1])
        return min(goal, self._incumbent.limit)

    def _in_layouts_of_solver(self, count: int) -> Iterator[Fraction]:
        """Search the modes of the layouts that a solver finds, which bounds no other layouts."""
        for layouts in layouts_at_prices(self._modes.of(count).first, self._solve):
            for _ in self._within(LayerModes(self._search, count, layouts, self._part)):
                yield Fraction()
        yield NEVER

    def _refusal(self) -> NothingFitsError:
        """Return the error, with the plan that lacks least; it says whether that is proved."""
        passed = self._search.deadline.passed()
        counts = self._modes.all_counts
        if not passed:
            self._keep_smallest(counts)
        assert self._incumbent.nearest is not None
        # What no layouts hold is the same at all shares.
        by_load = not any(map(self._modes.may_fit, counts))
        return NothingFitsError(
            self._incumbent.nearest,
            proved=by_load or (not passed and all(map(self._is_proved_too_large, counts))),
            at_any_share=by_load,
            stopped_by=TIME_LIMIT if passed else "limits",
        )

    def _keep_smallest(self, counts: Sequence[int]) -> None:
        """Count plans at a price at which memory outweighs cost, where they may hold less."""
        fast, accelerators = self._fastest, self._search.instance.problem.accelerators
        price = _MEMORY_OUTWEIGHS * fast.amount / fast.bytes
        for modes in sorted(map(self._modes.of, counts), key=lambda modes: modes.load_bound):
            assert self._incumbent.nearest is not None
            if modes.load_bound >= self._incumbent.nearest.bytes * accelerators:
                return
            with suppress(InfeasibleError, NoAnswerError):
                try:
                    if self._incumbent.proves:
                        self._incumbent.solve_at_price(modes, price)
                        continue
                except RefusedError:  # more than memory allows
                    pass
                self._incumbent.try_uniform_modes(modes, fast.result)

    def _is_proved_too_large(self, count: int) -> bool:
        """Return whether it is proved that no plan of so many micro-batches fits."""
        modes = self._modes.of(count)
        if modes.load_bound > modes.total_capacity:
            return True
        if self._incumbent.proves and self._bounds.bounds.get(count, 0) >= NEVER:
            return True
        if not self._search.solver.searches:  # it has one plan
            result, instance = self._fastest.result, self._fastest.mode.instance
            plan = result.assignments, result.priced
            rows = nodes_of(instance.workload, instance.cost, *plan, rule=instance.rule)
            layouts = tuple(map(tuple, rows))
            modes = LayerModes(self._search, count, layouts, self._part)
        try:
            return modes.memory_bound > modes.total_capacity
        except (NoAnswerError, RefusedError):  # a limit, or more than memory allows
            return False
