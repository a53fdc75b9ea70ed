"""One way of training (micro-batches, recomputation, shards): its plans, their time and memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.device_load import DeviceLoad, PricedLoad, device_load
from hypar_opt.costs.time import TimeCost
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.least_loads import one_more
from hypar_opt.instance.pricing import nodes_of, tensors_of, total_cost
from hypar_opt.simulator.memory import WeightBytes, counted_memory
from hypar_opt.simulator.options import RunOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypar_opt.costs.table import Integers
    from hypar_opt.hardware.accelerator import Accelerator
    from hypar_opt.instance.least_loads import Parts
    from hypar_opt.plan.training import Training
    from hypar_opt.search.result import Assignments, SearchRequest, SearchResult

    Search = Callable[[SearchRequest], SearchResult]

_CHANGED = 2**6
"""The states of all layers up to which each is tried in a plan, one after the other."""

_CHAIN = 2**12
_GRAPH = 2**8
"""The states of all layers of a chain, and of a graph, up to which a capacity is a constraint."""


@dataclass(frozen=True)
class Counted:
    """A result, the seconds that it takes, and the bytes of a device."""

    found: SearchResult
    seconds: Fraction
    bytes: int
    capacity: int

    @property
    def fits(self) -> bool:
        return self.bytes <= self.capacity

    @property
    def rank(self) -> tuple[int, Fraction]:
        """What is less of the better plan: bytes beyond the capacity, and then seconds."""
        return max(0, self.bytes - self.capacity), self.seconds


@dataclass(frozen=True)
class WayOfTraining:
    """One way of training, its search, and its plans as they are found."""

    search: SearchRequest

    @classmethod
    def of(cls, search: SearchRequest, training: Training) -> WayOfTraining:
        instance = search.instance
        if training != instance.problem.training:
            problem = instance.problem.model_copy(update={"training": training})
            instance = Instance(instance.network, problem)
        return cls(replace(search.quiet, instance=instance, falls_back=False))

    @cached_property
    def load(self) -> DeviceLoad:
        """What each state holds."""
        instance, problem = self.instance, self.instance.problem
        return device_load(
            *(instance.network, instance.workload, problem.hierarchy, problem.element_bytes),
            WeightBytes.of(problem.element_bytes, problem.constraints.optimizer),
            self.training.recompute or "none",
            fused=not self._accelerator.saves_scores,
        )

    @property
    def _accelerator(self) -> Accelerator:
        array = self.instance.problem.array
        assert array is not None
        accelerator: Accelerator = array.description.accelerator
        return accelerator

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
        return (self.instance.problem.device_memory or 0) - int(self._accelerator.reserve or 0)

    def seconds(self, charges: Fraction) -> Fraction:
        return charges / self.cost.per_unit

    def bound(self, found: SearchResult) -> Fraction:
        """Return a bound on the seconds that all plans are charged; 0 where none is known."""
        known = found.scope == "joint" and found.bound is not None
        return self.seconds(found.bound or Fraction()) if known else Fraction()

    def counted(self, found: SearchResult) -> Counted:
        """Return a plan with what it takes and holds."""
        instance, problem = self.instance, self.instance.problem
        asked = found.assignments, found.priced
        total = total_cost(instance, *asked)
        nodes = nodes_of(instance.workload, instance.cost, *asked, rule=instance.rule)
        layers, moment = counted_memory(
            *(problem, instance.network, instance.workload, nodes),
            RunOptions(**problem.training.stated),
            self._accelerator,
        )
        held = sum(own.weights + own.gradients + own.state + own.saved for own in layers)
        return Counted(found, self.seconds(total), held + moment.total, self.capacity)

    def least_bytes(self) -> int:
        """Return a lower bound on the bytes of a device."""
        choices, hierarchy = range(len(self.instance.workload.choices)), self.load.hierarchy
        ways: set[Parts] = {(1,) * len(choices)}
        for size in hierarchy.sizes:
            ways = {one_more(parts, choice, size) for parts in ways for choice in choices}
        least: Integers = np.min([self.load.at(parts) for parts in ways], axis=0)
        held: int = sum(least.tolist())
        return -(-held // hierarchy.accelerators)

    def between(self, low: Counted, high: Counted) -> Iterator[Counted]:
        """Yield plans with the first layers of one plan and the others of another, by bisection.

        Equal blocks then are laid out in two ways, with one boundary between them.

        Parameters
        ----------
        low, high
            A plan that does not fit, and one that does.
        """
        layers = len(self.instance.workload.layers)
        for first, then in ((low, high), (high, low)):
            fits, does_not = (0, layers) if first is low else (layers, 0)
            while abs(fits - does_not) > 1:
                upto = (fits + does_not) // 2
                rows = tuple(
                    (*one[:upto], *other[upto:])
                    for one, other in zip(
                        first.found.assignments, then.found.assignments, strict=True
                    )
                )
                mixed = self.of_rows(high.found, rows)
                yield mixed
                fits, does_not = (upto, does_not) if mixed.fits else (fits, upto)

    @property
    def is_small(self) -> bool:
        """Whether solvers take a capacity of the problem as a constraint."""
        return self._states <= (_CHAIN if self.instance.workload.is_chain else _GRAPH)

    @property
    def _states(self) -> int:
        workload, levels = self.instance.workload, self.instance.problem.levels
        states: int = len(workload.nodes) * len(workload.choices) ** levels
        return states

    def limited(self, capacity: int, solve: Search) -> Counted:
        """Return the plan of least time whose load is within a capacity.

        Raises
        ------
        InfeasibleError
            If there is none.
        RefusedError
            If the solver takes no capacity.
        """
        instance = self.instance.with_capacity(self.load, capacity)
        return self.counted(solve(replace(self.search, instance=instance)))

    def improved(self, counted: Counted) -> Counted:
        """Return a plan that no other state of one layer makes faster, or makes fit.

        The plan itself where there are many of them.
        """
        if self._states > _CHANGED:
            return counted
        best, better = None, counted
        while better is not best:
            best = better
            better = min(self._neighbours(best), key=lambda own: own.rank, default=best)
            better = better if better.rank < best.rank else best
        return best

    def _neighbours(self, counted: Counted) -> Iterator[Counted]:
        """Yield the plans that give one layer another state that it may have."""
        rows, choices = counted.found.assignments, range(len(self.instance.workload.choices))
        for layer in range(len(self.instance.workload.layers)):
            for state in product(choices, repeat=len(rows)):
                other = tuple(
                    (*row[:layer], own, *row[layer + 1 :])
                    for row, own in zip(rows, state, strict=True)
                )
                if other != rows and self.instance.constraints.allow(other):
                    yield self.of_rows(counted.found, other)

    def of_rows(self, found: SearchResult, rows: Assignments) -> Counted:
        """Return a plan of other choices, as one that a search found."""
        tensors = tensors_of(self.instance, rows)
        return self.counted(replace(found, assignments=rows, tensors=None, priced=tensors))

    def priced(self, price: Fraction, solve: Search) -> tuple[Counted, Fraction]:
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
        return self.counted(found), self.bound(found) - price * self.capacity
