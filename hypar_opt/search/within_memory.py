"""The fastest plan within the memory of a device: layouts, micro-batches, recomputation, shards.

What training repeats and shares out is tried in turn, the cheapest first. What more repetition and
more sharding takes is never less, plan by plan, so that a bound of one way holds for all beyond it.
Within a way the capacity is relaxed: bytes are charged at a price, whose least sum bounds all plans
that fit, and every plan found is counted tensor by tensor, as a device holds it.

Source: docs/decisions/0031-training-within-memory.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.device_load import DeviceLoad, PricedLoad, device_load
from hypar_opt.costs.states import every_state
from hypar_opt.costs.time import TimeCost
from hypar_opt.errors import InfeasibleError, NoAnswerError, argument
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import nodes_of, total_cost
from hypar_opt.plan.problem import Training
from hypar_opt.search.fused_gradients import in_buckets
from hypar_opt.simulator.memory import WeightBytes, counted_memory
from hypar_opt.simulator.options import RunOptions
from hypar_opt.solvers.base import Status
from hypar_opt.units import format_bytes
from hypar_opt.workload.repeats import RECOMPUTED, SHARDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypar_opt.plan.plan import Plan
    from hypar_opt.search.result import SearchRequest, SearchResult

    Search = Callable[[SearchRequest], SearchResult]

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
        If no plan fits, with the least memory that is known to do.
    """
    problem = search.instance.problem
    if not problem.counts_device_memory:
        return search, in_buckets(search, solve)
    first = _Way.of(search, problem.training)
    found = in_buckets(search, solve)
    at_first = first.counted(found)
    if at_first.fits:
        return search, found
    return _Ways(search, solve, at_first).best()


def training_left_open(plan: Plan) -> dict[str, None]:
    """Return what of a plan's training the search chose, by name."""
    names = {key.removeprefix(SEARCHED) for row in plan.solver.statistics for key in row}
    return {name: None for name in Training.model_fields if name in names}


@dataclass(frozen=True)
class _Counted:
    """A result, the seconds that it takes, and the bytes of a device."""

    found: SearchResult
    seconds: Fraction
    bytes: int
    capacity: int

    @property
    def fits(self) -> bool:
        return self.bytes <= self.capacity


@dataclass(frozen=True)
class _Way:
    """One way of training: its problem, and what each state holds."""

    search: SearchRequest
    load: DeviceLoad

    @classmethod
    def of(cls, search: SearchRequest, training: Training) -> _Way:
        instance = search.instance
        if training != instance.problem.training:
            problem = instance.problem.model_copy(update={"training": training})
            instance = Instance(instance.network, problem)
        problem = instance.problem
        assert problem.array is not None
        load = device_load(
            *(instance.network, instance.workload, problem.hierarchy, problem.element_bytes),
            WeightBytes.of(problem.element_bytes, problem.constraints.optimizer),
            training.recompute or "none",
            fused=not problem.array.description.accelerator.saves_scores,
        )
        quiet = replace(search, instance=instance, progress=lambda done, of: None, start=None)
        return cls(quiet, load)

    @property
    def instance(self) -> Instance:
        return self.search.instance

    @property
    def training(self) -> Training:
        return self.instance.problem.training

    @property
    def cost(self) -> TimeCost:
        cost = self.instance.cost
        assert isinstance(cost, TimeCost)
        return cost

    @property
    def capacity(self) -> int:
        """The bytes of a device that tensors may take."""
        problem = self.instance.problem
        assert problem.array is not None
        assert problem.constraints.memory is not None
        return problem.constraints.memory - int(problem.array.description.accelerator.reserve or 0)

    def seconds(self, charges: Fraction) -> Fraction:
        return charges / self.cost.per_unit

    def counted(self, found: SearchResult) -> _Counted:
        """Return a plan with what it takes and holds."""
        instance, problem = self.instance, self.instance.problem
        assert problem.array is not None
        asked = found.assignments, found.priced
        total = total_cost(instance, *asked)
        nodes = nodes_of(instance.workload, instance.cost, *asked, rule=instance.rule)
        layers, moment = counted_memory(
            *(problem, instance.network, instance.workload, nodes),
            RunOptions(**problem.training.stated),
            problem.array.description.accelerator,
        )
        held = sum(own.weights + own.gradients + own.state + own.saved for own in layers)
        return _Counted(found, self.seconds(total), held + moment.total, self.capacity)

    def least_bytes(self) -> int:
        """Return a lower bound on the bytes of a device."""
        workload, hierarchy = self.instance.workload, self.instance.problem.hierarchy
        states = every_state(len(workload.choices), hierarchy.levels)
        nodes = np.arange(len(workload.nodes)).reshape(-1, *[1] * hierarchy.levels)
        loads = self.load.of(nodes, states).reshape(len(nodes), -1).min(axis=1)
        held: int = sum(loads.tolist())
        return -(-held // hierarchy.accelerators)

    def priced(self, price: Fraction, solve: Search) -> tuple[_Counted, Fraction]:
        """Return a plan where memory has a price, and a bound on all plans that fit.

        Parameters
        ----------
        price
            Seconds for a byte of a device.
        """
        parts = self.instance.problem.accelerators
        own = PricedLoad(self.load, price * self.cost.per_unit / parts)
        found = solve(
            replace(self.search, instance=self.instance.with_cost(self.cost.with_memory(own)))
        )
        bound = self.seconds(found.bound or Fraction()) - price * self.capacity
        return self.counted(found), bound


class _Ways:
    """The ways of training that a problem leaves open."""

    def __init__(self, search: SearchRequest, solve: Search, at_first: _Counted) -> None:
        self._search, self._solve = search, solve
        self._best: tuple[_Counted, _Way] | None = None
        self._bounds: dict[tuple[int, ...], Fraction] = {}
        self._held = [at_first.bytes]

    def best(self) -> tuple[SearchRequest, SearchResult]:
        """Return the best plan of all ways, and the bound on all of them."""
        ways = [(Fraction(), key) for key in self._keys()]
        heapify(ways)
        bounds = []
        while ways:
            least, key = heappop(ways)
            least = max([least, *(b for own, b in self._bounds.items() if _beyond(key, own))])
            if ways and least > ways[0][0]:
                heappush(ways, (least, key))
                continue
            bounds.append(least)
            if self._best is not None and least >= self._best[0].seconds:
                break
            if self._search.deadline.passed():
                break
            bounds[-1] = self._of_way(key, least)
        if self._best is None:
            self._refuse()
        return self._result(min(bounds))

    def _keys(self) -> Iterator[tuple[int, int, int]]:
        """Yield the numbers of what is open: micro-batches, recomputation, shards."""
        problem, stated = self._search.instance.problem, self._search.instance.problem.training
        batch = problem.batch
        divisors = [n for n in range(1, batch + 1) if batch % n == 0]
        micro_batches = [stated.micro_batches] if stated.micro_batches else divisors
        recomputed = [stated.recompute] if stated.recompute else RECOMPUTED
        # To share out the state takes no more than to have it whole, and holds less.
        sharded = [stated.shard] if stated.shard else SHARDED[1:]
        for count, recompute, shard in product(micro_batches, recomputed, sharded):
            yield count, RECOMPUTED.index(recompute), SHARDED.index(shard)

    def _of_way(self, key: tuple[int, ...], least: Fraction) -> Fraction:
        """Search one way of training; return a bound on the seconds of its plans that fit."""
        count, recompute, shard = key
        training = Training(
            micro_batches=count, recompute=RECOMPUTED[recompute], shard=SHARDED[shard]
        )
        nothing_again = training.recompute == "selective"
        try:
            way = _Way.of(self._search, training)
            if nothing_again and not way.instance.workload.repeats.again:
                return _NEVER
            self._held.append(way.least_bytes())
            if self._held[-1] > way.capacity:
                return _NEVER
            return max(least, self._within(way, key))
        except (InfeasibleError, NoAnswerError) as error:
            return least if isinstance(error, NoAnswerError) else _NEVER

    def _within(self, way: _Way, key: tuple[int, ...]) -> Fraction:
        """Search the plans of a way by prices of memory."""
        at, bound = way.priced(Fraction(), self._solve)
        self._bounds[key] = bound
        self._keep(at, way)
        if at.fits:
            return bound
        # Seconds of a byte at which memory outweighs time.
        high, of_high = way.priced(1000 * at.seconds / at.bytes, self._solve)
        self._keep(high, way)
        bound = max(bound, of_high)
        low = at
        for _ in range(_PRICES):
            beaten = self._best is not None and bound >= self._best[0].seconds
            if beaten or not high.fits or high.bytes >= low.bytes or self._search.deadline.passed():
                break
            price = (high.seconds - low.seconds) / (low.bytes - high.bytes)
            between, own = way.priced(max(price, Fraction()), self._solve)
            self._keep(between, way)
            bound = max(bound, own)
            if between.bytes in (low.bytes, high.bytes):
                break
            low, high = (low, between) if between.fits else (between, high)
        return bound

    def _keep(self, counted: _Counted, way: _Way) -> None:
        self._held.append(counted.bytes)
        if counted.fits and (self._best is None or counted.seconds < self._best[0].seconds):
            self._best = counted, way

    def _result(self, bound: Fraction) -> tuple[SearchRequest, SearchResult]:
        assert self._best is not None
        best, way = self._best
        search = replace(self._search, instance=way.instance)
        units = Fraction(min(bound, best.seconds) * way.cost.per_unit // 1)
        proved = units == best.seconds * way.cost.per_unit
        open_ones = self._search.instance.problem.training
        row: Mapping[str, float] = {
            SEARCHED + name: 1 for name, own in dict(open_ones).items() if own is None
        }
        return search, replace(
            best.found,
            status=Status.OPTIMAL if proved else Status.FEASIBLE,
            bound=units,
            statistics=(*best.found.statistics, row),
        )

    def _refuse(self) -> None:
        problem = self._search.instance.problem
        assert problem.constraints.memory is not None
        raise InfeasibleError(
            f"{argument('constraints.memory')}: no plan fits"
            f" {format_bytes(problem.constraints.memory)} of a device, by any micro-batches,"
            " recomputation and shards that are open"
        )


def _beyond(key: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether a way repeats and shares out no less than another, whose bound then holds."""
    count, recompute, shard = key
    # Selective recomputation need not be a part of full, which is of the network's blocks.
    return count % other[0] == 0 and other[1] in (0, recompute) and shard >= other[2]
