"""One way of training (micro-batches, recomputation, shards): the time and memory of its plans."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from hypar_opt.costs.device_load import DeviceLoad, PricedLoad, WeightBytes, device_load
from hypar_opt.costs.time import TimeCost
from hypar_opt.errors import RefusedError
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import nodes_of, total_cost
from hypar_opt.simulator.memory import counted_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypar_opt.costs.shared_nodes import Rows, Tensors
    from hypar_opt.hardware.accelerator import Accelerator
    from hypar_opt.plan.training import Training
    from hypar_opt.search.result import Search, SearchRequest, SearchResult


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


@dataclass(frozen=True)
class WayOfTraining:
    """The search of a problem that trains in one way, and what its plans take and hold."""

    search: SearchRequest

    @classmethod
    def of(cls, search: SearchRequest, training: Training) -> WayOfTraining:
        instance = search.instance
        if training != instance.problem.training:
            problem = instance.problem.model_copy(update={"training": training})
            instance = Instance(instance.network, problem)
        return cls(replace(search.quiet, instance=instance, falls_back=False))

    @property
    def weight_bytes(self) -> WeightBytes:
        problem = self.instance.problem
        return WeightBytes.of(problem.element_bytes, problem.constraints.optimizer)

    @cached_property
    def load(self) -> DeviceLoad:
        """What each state holds."""
        instance, problem = self.instance, self.instance.problem
        return device_load(
            *(instance.network, instance.workload, problem.hierarchy, problem.element_bytes),
            self.weight_bytes,
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
    def cost(self) -> TimeCost:
        cost = self.instance.cost
        assert isinstance(cost, TimeCost)
        return cost

    @property
    def capacity(self) -> int:
        """The bytes of a device that tensors may take."""
        return capacity_of(self.instance)

    def counted(self, found: SearchResult) -> Counted:
        """Return a plan with what it takes and holds."""
        instance = self.instance
        asked = found.assignments, found.priced
        total = total_cost(instance, *asked)
        return Counted(
            found, total / self.cost.per_unit, bytes_held(instance, *asked), self.capacity
        )


def capacity_of(instance: Instance) -> int:
    """Return the bytes of a device that a problem's tensors may take."""
    problem = instance.problem
    assert problem.array is not None
    reserve = int(problem.array.description.accelerator.reserve or 0)
    return (problem.device_memory or 0) - reserve


def bytes_held(instance: Instance, rows: Rows, tensors: Tensors | None = None) -> int:
    """Return what a device holds at most, counted tensor by tensor, the reserve aside.

    Parameters
    ----------
    rows : (levels, layers)
    tensors
        The layouts of shared tensors; by default the cheapest.
    """
    problem, workload = instance.problem, instance.workload
    assert problem.array is not None
    nodes = nodes_of(workload, instance.cost, rows, tensors, rule=instance.rule)
    accelerator = problem.array.description.accelerator
    layers, moment = counted_memory(
        *(problem, instance.network, workload, nodes), workload.repeats, accelerator
    )
    held = sum(own.weights + own.gradients + own.state + own.saved for own in layers)
    return held + moment.total


def layouts_at_prices(way: WayOfTraining, solve: Search) -> Iterator[Rows]:
    """Yield the layouts, ``(levels, nodes)``, that a solver finds at a few prices of memory."""
    prices, known = [Fraction()], set()
    if way.search.solver.searches:
        found = way.counted(solve(way.search))
        accelerators = way.instance.problem.accelerators
        prices += [found.seconds / found.bytes * 8**n / accelerators for n in range(-1, 4)]
    for price in prices:
        load = PricedLoad(way.load, price * way.cost.per_unit)
        instance = way.instance.with_cost(way.cost.with_memory(load))
        try:
            plan = solve(replace(way.search, instance=instance))
        except RefusedError:
            if not price:
                raise
            return  # the charges are too large for this solver
        asked = way.instance.workload, way.cost, plan.assignments, plan.priced
        layouts = tuple(map(tuple, nodes_of(*asked, rule=way.instance.rule)))
        if layouts not in known:
            known.add(layouts)
            yield layouts
