"""The fastest plan within the memory of a device: layouts, micro-batches, recomputation, shards.

What training repeats and shares out is tried in turn, the cheapest first. What more repetition and
more sharding takes is never less, plan by plan, so that a bound of one way holds for all beyond it.
Within a way the capacity is relaxed: bytes are charged at a price, whose least sum bounds all plans
that fit, and every plan found is counted tensor by tensor, as a device holds it.

Source: docs/decisions/0031-training-within-memory.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from heapq import heappop, heappush
from itertools import product
from math import isqrt
from typing import TYPE_CHECKING

from hypar_opt.costs.time import TimeCost
from hypar_opt.deadline import TIME_LIMIT
from hypar_opt.errors import InfeasibleError, NoAnswerError, RefusedError, argument
from hypar_opt.plan.training import Training
from hypar_opt.search.fused_gradients import in_buckets
from hypar_opt.search.result import SearchRequest, silent
from hypar_opt.search.way_of_training import Counted, WayOfTraining
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import Status
from hypar_opt.units import format_bytes
from hypar_opt.workload.parallelism import RECOMPUTED, SHARDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypar_opt.instance.instance import Instance
    from hypar_opt.plan.plan import Plan
    from hypar_opt.search.result import SearchResult

    Search = Callable[[SearchRequest], SearchResult]

_Key = tuple[int, int, int]
"""A way: its micro-batches, and the numbers of its recomputation and of its shards."""

SEARCHED = "searched "
"""Before the name of what the search chose of training, among the statistics of a plan."""

_NEVER = Fraction(2**62)
"""The seconds of a way of which no plan fits."""

_PRICES = 8
"""The most prices of memory that are tried for one way of training."""


def within_memory(search: SearchRequest, solve: Search) -> tuple[SearchRequest, SearchResult]:
    """Return the problem with its training settled, and the result of its search.

    Raises
    ------
    InfeasibleError
        If no plan is found that fits a memory that was stated.
    """
    problem = search.instance.problem
    if problem.device_memory is None or not isinstance(search.instance.cost, TimeCost):
        return search, in_buckets(search, solve)
    found = solve(replace(search, progress=silent))  # what is counted is the ways
    first = WayOfTraining.of(search, problem.training)
    if first.counted(found).fits:
        found = in_buckets(search, solve, found)
        if first.counted(found).fits:
            return search, found
    try:
        return _Ways(search, solve).best()
    except InfeasibleError:
        if problem.constraints.memory is not None:
            raise
    # The array's memory is no constraint that was stated: what exceeds it is said with the plan.
    return search, in_buckets(search, solve, found)


def training_left_open(plan: Plan) -> dict[str, None]:
    """Return what of a plan's training the search chose, by name."""
    names = {key.removeprefix(SEARCHED) for row in plan.solver.statistics for key in row}
    return {name: None for name in Training.model_fields if name in names}


def least_memory(instance: Instance) -> int:
    """Return a lower bound on what a device holds, in bytes, however a problem's plans train."""
    stated = instance.problem.training
    frugal = Training(
        micro_batches=stated.micro_batches or instance.problem.batch,
        recompute=stated.recompute or RECOMPUTED[-1],
        shard=stated.shard or SHARDED[-1],
    )
    return WayOfTraining.of(SearchRequest(instance, SOLVERS["dp"]()), frugal).least_bytes()


class _Ways:
    """The ways of training that a problem leaves open, and the best plan known of them."""

    def __init__(self, search: SearchRequest, solve: Search) -> None:
        self._search, self._solve = search, solve
        self._best: tuple[Counted, WayOfTraining] | None = None
        self._unlimited: dict[_Key, Fraction] = {}
        """Bounds on all plans of some ways, whether they fit or not."""

    def best(self) -> tuple[SearchRequest, SearchResult]:
        """Return the best plan of all ways, and the bound on all of them.

        The way of the least bound is searched on, until no way can have a better plan.

        Raises
        ------
        InfeasibleError
            If none has a plan that fits.
        """
        ways = [(Fraction(), number, key) for number, key in enumerate(self._keys())]
        searches = {key: self._bounds_of(key) for _, _, key in ways}
        searched = []
        while ways and ways[0][0] < self._limit and not self._search.deadline.passed():
            self._search.progress(len(searches) - len(ways), len(searches))
            least, number, key = heappop(ways)
            known = max([least, *(own for of, own in self._unlimited.items() if _beyond(key, of))])
            bound = next(searches[key], None) if known == least else known
            if bound is None:  # no price tells more
                searched.append(known)
            else:
                heappush(ways, (max(known, bound), number, key))
        if self._best is None:
            self._refuse()
        return self._result(min([*searched, *(least for least, *_ in ways)], default=Fraction()))

    @property
    def _limit(self) -> Fraction:
        """The seconds from which a way is of no interest."""
        return self._best[0].seconds if self._best else _NEVER

    def _keys(self) -> Iterator[_Key]:
        """Yield the numbers of what is open: micro-batches, recomputation, shards.

        Without ways that recompute nothing new, and those whose least load exceeds the memory.
        """
        problem, stated = self._search.instance.problem, self._search.instance.problem.training
        micro_batches = [stated.micro_batches] if stated.micro_batches else divisors(problem.batch)
        recomputed = [stated.recompute] if stated.recompute else RECOMPUTED
        # To share out the state takes no more than to have it whole, and holds less.
        sharded = [stated.shard] if stated.shard else SHARDED[1:]
        for words in product(recomputed, sharded):
            own = RECOMPUTED.index(words[0]), SHARDED.index(words[1])
            if stated.recompute is None and own[0] and not self._recomputes((1, *own)):
                continue
            # More micro-batches hold no more.
            first = bisect_left(micro_batches, True, key=lambda count: self._may_fit((count, *own)))
            yield from ((count, *own) for count in micro_batches[first:])

    def _way(self, key: _Key) -> WayOfTraining:
        count, recompute, shard = key
        stated = Training(
            micro_batches=count, recompute=RECOMPUTED[recompute], shard=SHARDED[shard]
        )
        return WayOfTraining.of(self._search, stated)

    def _recomputes(self, key: _Key) -> bool:
        return bool(self._way(key).instance.workload.repeats.again)

    def _may_fit(self, key: _Key) -> bool:
        way = self._way(key)
        return way.least_bytes() <= way.capacity

    def _bounds_of(self, key: _Key) -> Iterator[Fraction]:
        """Search one way of training; yield bounds on the seconds of its plans that fit."""
        try:
            yield from self._within(self._way(key), key)
        except InfeasibleError:
            yield _NEVER
        except NoAnswerError:  # a limit
            return

    def _within(self, way: WayOfTraining, key: _Key) -> Iterator[Fraction]:
        """Search the plans of a way by prices of memory; yield a bound after each."""
        low, bound = way.priced(Fraction(), self._solve)
        self._unlimited[key] = bound
        yield self._keep(low, way, bound)
        if low.fits:
            return
        if not self._search.solver.searches:  # a baseline has one plan
            yield _NEVER
        if way.is_small:
            try:
                yield from self._limited(way, bound)
            except RefusedError:  # by prices then
                pass
            else:
                return
        # Seconds of a byte, up to where memory outweighs time.
        price = low.seconds / low.bytes / 4
        high = low
        for number in range(_PRICES):
            between, own = way.priced(price, self._solve)
            bound = max(bound, own)
            yield self._keep(between, way, bound)
            stays = between.bytes in (low.bytes, high.bytes)
            if between.fits:
                high = between
            else:
                low = between
            if not high.fits and number < _PRICES // 2 and not (stays and number):
                price *= 8
            elif stays or not high.fits or high.bytes >= low.bytes:
                break
            else:
                price = max((high.seconds - low.seconds) / (low.bytes - high.bytes), Fraction())
        if high.fits:
            for mixed in way.between(low, high):
                self._keep(mixed, way, bound)
            yield bound

    def _limited(self, way: WayOfTraining, bound: Fraction) -> Iterator[Fraction]:
        """Search the plans of a way whose loads are within the capacity, then with their moments.

        The moment of a plan is known with it: what it exceeds the capacity by is taken from it.
        """
        capacity = way.capacity
        for number in range(_PRICES):
            try:
                own = way.limited(capacity, self._solve)
            except InfeasibleError:
                yield bound if number else _NEVER
                return
            if not number:
                bound = max(bound, way.bound(own.found))
            yield self._keep(way.improved(own), way, bound)
            if own.fits:
                return
            capacity -= own.bytes - way.capacity

    def _keep(self, counted: Counted, way: WayOfTraining, bound: Fraction) -> Fraction:
        """Keep a plan if it is the best that fits; return a bound on all."""
        if counted.fits and (self._best is None or counted.seconds < self._best[0].seconds):
            self._best = counted, way
        return bound

    def _result(self, bound: Fraction) -> tuple[SearchRequest, SearchResult]:
        assert self._best is not None
        best, way = self._best
        search = replace(self._search, instance=way.instance)
        units: Fraction | None = Fraction(min(bound, best.seconds) * way.cost.per_unit // 1)
        proved = units == best.seconds * way.cost.per_unit
        if best.found.scope != "joint":  # level by level there is no bound on all plans
            units, proved = None, False
        limit = TIME_LIMIT if self._search.deadline.passed() and not proved else None
        open_ones = self._search.instance.problem.training
        row: Mapping[str, float] = {
            SEARCHED + name: 1 for name, own in dict(open_ones).items() if own is None
        }
        return search, replace(
            best.found,
            status=Status.OPTIMAL if proved else Status.FEASIBLE,
            bound=units,
            stopped_by=best.found.stopped_by or limit,
            statistics=(*best.found.statistics, row),
        )

    def _refuse(self) -> None:
        memory = format_bytes(self._search.instance.problem.device_memory or 0)
        raise InfeasibleError(
            f"{argument('constraints.memory')}: no plan that was found fits {memory} of a device,"
            " by any micro-batches, recomputation and shards that are left open"
        )


def divisors(number: int) -> list[int]:
    """Return what divides a number, in order."""
    low = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return sorted({*low, *(number // n for n in low)})


def _beyond(key: _Key, other: _Key) -> bool:
    """Return whether a way repeats and shares out no less than another, whose bound then holds."""
    count, recompute, shard = key
    # Selective recomputation need not be a part of full, which is of the network's blocks.
    return count % other[0] == 0 and other[1] in (0, recompute) and shard >= other[2]
