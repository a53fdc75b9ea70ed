"""Training modes: micro-batches, what is recomputed, what is sharded; and what their plans cost.

Mode-free bounds are on the plans of all modes by one table, as all modes may have too many states.
A node in another mode takes no less than `TimeCost.relaxes_ring_splits` charges it, which is no
more than its whole weights take (`hypar_opt.costs.reductions.stage_charges`). Of the levels over
which its gradient is reduced those at which nothing but the state is split are above all others,
and all-reduce together, in stages as rings say. Those at which gradients are split are next, and
then weights; each of both is reduced in stages of its own, and these are parts of stages of all
levels. A reduce-scatter in each micro-batch and an all-gather move the bytes of an all-reduce or
more, weights again for each pass, in as many messages or more; only reduce-scatters share the
latencies of a bucket. So the least over all places at which levels may be parted, and then over all
parts below, is a bound. Recomputation, and micro-batches of even parts, take no less, exchange by
exchange.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.alignments import bracketing_costs
from hypar_opt.costs.device_load import DeviceLoad, PartLoad, PricedLoad
from hypar_opt.costs.kinds import index_by_key, kinds_of_nodes
from hypar_opt.costs.state_charges import nodes_by_state
from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import nodes_of, total_cost
from hypar_opt.search.two_level_neighbourhood import least_compute
from hypar_opt.simulator.memory import (
    counted_memory,
    parts_between_groups,
    reserved_by,
    reserved_by_nodes,
)
from hypar_opt.solvers.base import MEMORY, Status
from hypar_opt.solvers.elimination.classes import bound_by_classes, solve_classes
from hypar_opt.step.holds import KEPT, WeightBytes, step_holds
from hypar_opt.step.shares import Share
from hypar_opt.units import format_bytes
from hypar_opt.workload.operators.kernels import Fused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hypar_opt.costs.base import CostModel
    from hypar_opt.costs.on_array import ArrayCost
    from hypar_opt.costs.shared_nodes import Rows, Tensors
    from hypar_opt.costs.time import TimeCost
    from hypar_opt.hardware.accelerator import Accelerator
    from hypar_opt.integers import Integers
    from hypar_opt.plan.training import Training
    from hypar_opt.search.result import Search, SearchRequest, SearchResult
    from hypar_opt.step.holds import HoldArrays
    from hypar_opt.step.states import Indices, States


@dataclass(frozen=True)
class CountedPlan:
    """A plan in a training mode, what it costs, and the bytes of the device that has least left.

    Parameters
    ----------
    part
        The number of the device's part of H1, between groups of accelerators.
    """

    mode: TrainingMode
    result: SearchResult
    bytes: int
    capacity: int
    part: int | None = None

    @property
    def with_reserve(self) -> tuple[int, int]:
        """The bytes that the device holds, and has, with the reserve."""
        return with_reserve(self.mode.instance, self.bytes, self.capacity, self.part or 0)

    @cached_property
    def amount(self) -> Fraction:
        """Seconds, joules, or bytes that are moved."""
        result, mode = self.result, self.mode
        charged = total_cost(mode.instance, result.assignments, result.priced)
        return mode.amount_of(charged)

    @property
    def fits(self) -> bool:
        return self.excess <= 0

    @property
    def excess(self) -> int:
        """The bytes that are lacking; below 0 those that are left."""
        return self.bytes - self.capacity


@dataclass(frozen=True)
class TrainingMode:
    """The search of a problem that trains in one mode, and what its plans take and hold.

    Parameters
    ----------
    part
        The part of H1 between groups of accelerators whose memory a search looks at. What fits all
        fits this one, so that a bound holds; and every plan is counted in all of them.
    """

    search: SearchRequest
    part: int | None = None

    @classmethod
    def of(cls, search: SearchRequest, training: Training, part: int | None = None) -> TrainingMode:
        instance = search.instance
        if training != instance.problem.training:
            instance = instance.trained(training)
        return cls(replace(search.without_progress, instance=instance, uses_fallback=False), part)

    @property
    def weight_bytes(self) -> WeightBytes:
        problem = self.instance.problem
        optimizer, reduce_bytes = problem.constraints.optimizer, problem.training.reduce_bytes
        return WeightBytes.of(problem.element_bytes, optimizer, reduce_bytes)

    @cached_property
    def load(self) -> DeviceLoad:
        """What each state holds: of one part, as if all accelerators did."""
        if self.part is None:
            return self.whole_load
        share, whole = Share.of_parts(self.instance.problem.part_shares)[self.part], self.whole_load
        return PartLoad(whole.holds, whole.workload, whole.hierarchy, share)

    @cached_property
    def whole_load(self) -> DeviceLoad:
        """What each state holds all the time, in all accelerators together."""
        hierarchy = self.instance.problem.hierarchy
        return DeviceLoad(self.holds.of(*KEPT), self.instance.workload, hierarchy)

    @property
    def holds(self) -> HoldArrays:
        """What nodes hold in a step."""
        instance, problem = self.instance, self.instance.problem
        step = instance.network, instance.workload, problem.hierarchy, problem.element_bytes
        return step_holds(*step, self.weight_bytes, self.fused, problem.in_flight)

    @property
    def fused(self) -> Fused:
        """What kernels do not write, of all accelerators alike."""
        return Fused.on(self._accelerators[0])

    @property
    def total_capacity(self) -> int:
        """The bytes of all accelerators together that tensors may take."""
        kinds = self._accelerators
        capacities = sum(capacity_of(self.instance, accelerator) for accelerator in kinds)
        return self.instance.problem.accelerators // len(kinds) * capacities

    @property
    def _accelerators(self) -> Sequence[Accelerator]:
        array = self.instance.problem.array
        assert array is not None
        return array.description.accelerators_of_parts

    @property
    def instance(self) -> Instance:
        return self.search.instance

    @property
    def cost(self) -> CostModel:
        return self.instance.cost

    @property
    def per_unit(self) -> int:
        """Charges per second, joule or byte."""
        physical: ArrayCost | None = self.cost.physical
        return self.cost.resolution if physical is None else physical.per_unit

    def amount_of(self, charged: Fraction) -> Fraction:
        """Return the seconds, joules or bytes of a total or a bound in the cost's unit."""
        return charged * self.cost.resolution / self.per_unit

    def cost_in(self, per_unit: int) -> CostModel:
        """Return the cost with so many charges per second or joule; bytes are what they are."""
        physical: ArrayCost | None = self.cost.physical
        if per_unit == self.per_unit or physical is None:
            return self.cost
        return physical.in_units(per_unit, self.instance.workload)

    @property
    def tiers(self) -> Sequence[int]:
        """The first level, from 0 for H1, of each run of levels with equal links and parts.

        Weights need be split from no other level on: within a run, each byte that is held less
        takes as long to exchange.
        """
        physical: ArrayCost | None = self.cost.physical
        levels = range(self.instance.problem.levels)
        links = map(self.cost.level_key, levels) if physical is None else physical.level_links
        borders = enumerate(pairwise(links), 1)
        return [0, *(level for level, (above, below) in borders if above != below)]

    @property
    def capacity(self) -> int:
        """The bytes of a device that tensors may take."""
        return capacity_of(self.instance, self._accelerators[self.part or 0])

    @property
    def communicator_reserve(self) -> int:
        """The bytes of a device outside `capacity`, at most what communicators may need."""
        accelerator, levels = self._accelerators[self.part or 0], self.instance.problem.levels
        # Each of a layer's communicators has levels of its own.
        reserved_at_most = accelerator.reserved(levels, experts=True)
        return min(int(accelerator.dram_capacity) - self.capacity, reserved_at_most)

    def further_reserve(self, nodes: Indices, states: States) -> Integers:
        """Return by how much each node's communicators exceed `communicator_reserve`.

        In bytes of all accelerators together: a plan with such a node may hold so much less.
        """
        accelerator = self._accelerators[self.part or 0]
        reserved = reserved_by_nodes(accelerator, self.instance.workload, nodes, states)
        further: Integers = np.maximum(reserved - self.communicator_reserve, 0)
        return further * self.instance.problem.accelerators

    def counted(self, result: SearchResult) -> CountedPlan:
        """Return a plan with its cost, and the bytes of the device that has least left."""
        memory_of_parts = bytes_held(self.instance, result.assignments, result.priced)
        plans = [CountedPlan(self, result, *memory) for memory in memory_of_parts]
        return max(plans, key=lambda plan: plan.excess)


def capacity_of(instance: Instance, accelerator: Accelerator, reserved: int | None = None) -> int:
    """Return the bytes of one of a problem's accelerators that tensors may take.

    A memory that is stated is of tensors; that of the accelerator has the reserve, too.

    Parameters
    ----------
    reserved
        What a plan's communicators need; by default that of one, so that no plan has more.
    """
    reserve = accelerator.reserved() if reserved is None else reserved
    return min(instance.problem.device_memory or 0, int(accelerator.dram_capacity) - reserve)


def bytes_held(
    instance: Instance, rows: Rows, tensors: Tensors | None = None
) -> Iterator[tuple[int, int, int]]:
    """Yield the bytes that a device holds at its peak, its capacity, and the number of its part.

    Counted tensor by tensor, without the reserve. Unless groups of accelerators are unequal, all
    are of one part.

    Parameters
    ----------
    rows : (levels, layers)
    tensors
        The layouts of shared tensors; by default the cheapest.
    """
    problem, workload = instance.problem, instance.workload
    nodes = nodes_of(workload, instance.cost, rows, tensors, rule=instance.rule)
    assert problem.array is not None
    parts = parts_between_groups(problem, problem.array.description)
    for part, (accelerator, share) in enumerate(parts):
        arguments = problem, instance.network, workload, nodes, accelerator
        layers, transient = counted_memory(*arguments, share=share)
        load = sum(layer.weights + layer.gradients + layer.state + layer.saved for layer in layers)
        reserved = reserved_by(accelerator, workload, nodes)
        yield load + transient.total, capacity_of(instance, accelerator, reserved), part


def excess_of_memory(instance: Instance, rows: Rows) -> str | None:
    """Return what a device needs and has, as ``5.038 GB of 5 GB``, if a plan does not fit.

    None if it fits, or the problem has no device's memory. Shared tensors are laid out as is
    cheapest.

    Parameters
    ----------
    rows : (levels, layers)
    """
    problem = instance.problem
    if problem.device_memory is None or problem.array is None:
        return None
    memory_of_parts = bytes_held(instance, rows)
    memory, capacity, part = max(memory_of_parts, key=lambda amounts: amounts[0] - amounts[1])
    if memory <= capacity:
        return None
    return amount_of_memory(*with_reserve(instance, memory, capacity, part))


def with_reserve(instance: Instance, held: int, capacity: int, part: int) -> tuple[int, int]:
    """Return what a device holds and has with its reserve; a memory that is stated has none."""
    problem = instance.problem
    assert problem.array is not None
    dram_capacity = int(problem.array.description.accelerators_of_parts[part].dram_capacity)
    reserve = 0 if capacity == problem.constraints.memory else dram_capacity - capacity
    return held + reserve, capacity + reserve


def amount_of_memory(held: int, most: int) -> str:
    """Return bytes of a memory as text, in as many digits as tell them apart."""
    needs, has = format_bytes(held), format_bytes(most)
    return f"{held:,} of {most:,} bytes" if needs == has else f"{needs} of {has}"


def layouts_at_prices(mode: TrainingMode, solve: Search) -> Iterator[Rows]:
    """Yield the layouts, ``(levels, nodes)``, that a solver finds at a few prices of memory."""
    time: TimeCost | None = mode.cost.time
    prices, tried = [Fraction()], set()
    if mode.search.solver.searches and time is not None:
        fastest = mode.counted(solve(mode.search))
        accelerators = mode.instance.problem.accelerators
        price = Fraction(fastest.amount) / (fastest.bytes * accelerators)
        prices += [price * Fraction(8) ** n for n in range(-1, 4)]
    for price in prices:
        instance = mode.instance
        if time is not None:
            load = PricedLoad(mode.load, price * mode.per_unit)
            instance = instance.with_cost(time.with_memory(load))
        try:
            plan = solve(replace(mode.search, instance=instance))
        except RefusedError:
            if not price:
                raise
            return  # the charges are too large for this solver
        arguments = mode.instance.workload, mode.cost, plan.assignments, plan.priced
        layouts = tuple(map(tuple, nodes_of(*arguments, rule=mode.instance.rule)))
        if layouts not in tried:
            tried.add(layouts)
            yield layouts


def first_takes_least(modes: Sequence[TrainingMode], per_unit: int) -> bool:
    """Return whether no weights of the batch at once take less in another mode than the first.

    Around rings gradients that inner levels split may: these then are reduced over faster links.
    """
    first = modes[0]
    physical: ArrayCost | None = first.cost.physical
    levels = first.instance.problem.levels
    if physical is None or physical.rings is None:
        return True
    priced = [(mode.cost_in(per_unit), mode.instance.workload) for mode in modes]
    keys = [kinds_of_nodes(workload).numbers.tolist() for _, workload in priced]
    keys += [cost.symmetries(workload, levels).node_keys for cost, workload in priced]
    nodes, deadline = index_by_key(zip(*keys, strict=True)).first, first.search.deadline
    try:
        charges = [nodes_by_state(*mode, nodes, levels, deadline) for mode in priced]
    except NoAnswerError:  # a limit
        return False
    return all((charges[0] <= other).all() for other in charges[1:])


def exceeds_state_limit(mode: TrainingMode, result: SearchResult) -> bool:
    """Return whether the modes in which rings may take less have too many states."""
    cost, instance = mode.cost, mode.instance
    if not _is_around_rings(cost):
        return False
    if result.stopped_by == MEMORY:
        return True
    try:
        return bracketing_costs(cost, instance.workload, instance.problem.levels) is not None
    except RefusedError:
        return True


def is_optimal_over_modes(mode: TrainingMode, result: SearchResult) -> bool:
    """Return whether a mode-free bound proves that no plan of another mode takes less."""
    return not _is_around_rings(mode.cost) or with_mode_free_bound(mode, result) is result


def _is_around_rings(cost: CostModel) -> bool:
    return cost.physical is not None and cost.physical.rings is not None


def mode_free_bound(mode: TrainingMode) -> Fraction:
    """Return a bound on the plans of all modes, in as many micro-batches; or 0.

    Raises
    ------
    RefusedError, NoAnswerError
    """
    instance, deadline, time = mode.instance, mode.search.deadline, mode.cost.time
    if time is None or instance.problem.groups:
        return Fraction()
    cost = replace(time, relaxes_ring_splits=True)
    of_states = replace(instance.states(deadline), cost=cost, limits=())
    bounds = bracketing_costs(cost, instance.workload, of_states.levels)
    if bounds is None and _is_around_rings(cost):  # whose true links leave few levels alike
        bounds = cost.uniform_link_bounds
    table = of_states.by_classes(deadline, bounds=bounds)
    return Fraction(bound_by_classes(table, deadline)[0], mode.per_unit)


def with_mode_free_bound(mode: TrainingMode, result: SearchResult) -> SearchResult:
    """Return a result of one mode with a bound on the plans of all, in as many micro-batches."""
    if result.scope != "joint" or result.bound is None:
        return result
    cost, bound = mode.cost, least_compute(mode.instance)
    if cost.time is not None and result.stopped_by in (None, MEMORY):
        with suppress(NoAnswerError, RefusedError):
            table = mode.instance.with_cost(replace(cost.time, relaxes_ring_splits=True)).classes(
                mode.search.deadline
            )
            bound = solve_classes(table, mode.search.deadline, canonical=False).bound or bound
    if result.bound * cost.resolution <= bound:
        return result
    of_all = Fraction(bound, cost.resolution)
    return replace(result, status=Status.FEASIBLE, bound=of_all, stopped_by=MEMORY)
