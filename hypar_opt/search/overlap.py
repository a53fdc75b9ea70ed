"""The time of a step with overlap: a bound on all plans, and the plan of least time.

A plan takes no less than any of a few paths: the program up to a point of the backward pass, and
then the queue. A mixture of paths is an additive cost (`hypar_opt.costs.overlap`), which is
minimised, with proof, like any cost. The best mixture is the solution of a matrix game of paths
against plans, to which every plan that is found is added. Plans that are found are simulated, and
improved node by node. If there are few enough plans, they are listed by that cost until it exceeds
the best time.

Source: J. E. Kelley, "The cutting-plane method for solving convex programs", SIAM Journal 8(4),
1960; docs/algorithms.md.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property, lru_cache, partial
from itertools import accumulate
from math import isclose, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.costs.kinds import index_by_key, kinds_of_boundaries, kinds_of_nodes
from hypar_opt.costs.overlap import PRICE, OverlapTime, least_of, of_program, waits_on
from hypar_opt.costs.state_charges import choices_by_level, states_of
from hypar_opt.deadline import NEVER, TIME_LIMIT
from hypar_opt.errors import (
    HyparError,
    InputError,
    NoAnswerError,
    RefusedError,
    UnknownNameError,
    argument,
)
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import charges_by_level
from hypar_opt.integers import exact_dtype
from hypar_opt.plan.configuration import (
    Configuration,
    choices_of_configurations,
    is_named,
    limits_of,
    training_of,
    trains_as,
)
from hypar_opt.plan.micro_batch import micro_batch_of
from hypar_opt.plan.plan import WithOverlap
from hypar_opt.plan.problem import RUN_READINGS, ArrayRecord
from hypar_opt.plan.stated_degrees import choices_and_pins
from hypar_opt.plan.stored_layouts import rows_of_plan, rows_with_stored
from hypar_opt.plan.training import Training
from hypar_opt.search.cost_to_go import completion_along_chain, completion_by_elimination
from hypar_opt.search.default_solver import default_solver
from hypar_opt.search.degrees import rows_by_mesh, search_degrees
from hypar_opt.search.free_modes import problem_left_open
from hypar_opt.search.joint import joint
from hypar_opt.search.k_best import in_order_of_cost
from hypar_opt.search.memory.modes import bytes_held
from hypar_opt.search.memory.search import within_memory
from hypar_opt.search.result import SearchRequest
from hypar_opt.search.two_level_neighbourhood import least_compute
from hypar_opt.simulator.lockstep import NotInLockstepError
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.repeated_parts import Messages, RepeatedPart, seconds_of_parts
from hypar_opt.simulator.step import StepTimes, launching, program, repeats_on
from hypar_opt.simulator.tasks import before_last_micro_batch
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import Status
from hypar_opt.solvers.subprocess_solver import call
from hypar_opt.step.states import exact_sum
from hypar_opt.workload.contiguous import first_gap
from hypar_opt.workload.recomputation import units_of
from hypar_opt.workload.splitting import spatial_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hypar_opt.deadline import Deadline
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import Problem
    from hypar_opt.simulator.tasks import Task
    from hypar_opt.step.states import Indices
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload

    Rows = tuple[tuple[int, ...], ...]
    """The choices of all nodes, ``(levels, nodes)``."""

OVERLAPS = ("gradient", "prefetch")
"""What may overlap in the time that is minimised: steps of a program and a queue."""

_PIECES = 4
"""The most pieces of the backward pass, each with a price of its own."""

_ROUNDS = 6
"""The most mixtures of paths that are minimised."""

_CLOSE = 1.002
"""The improvement of a mixture below which no further one is computed."""

_SIMULATED, _OVERHEAD = 2**11, 8
"""The most nodes of plans that are simulated to improve others, and in a list of plans; and the
overhead of a plan, in nodes."""

_FEW = 2**6
"""The fewest plans in a list: if it could have fewer, there is none."""

_STEPS = 2**22
"""The most steps that the costs of moves, or of a list, may take."""

_LAYERS = 2**10
"""The most layers of a network without blocks whose configurations are simulated."""

_ROUNDING = 1e-9
"""The most by which charges, which are rounded, may differ from seconds."""


class BoundOfPlans(NamedTuple):
    """A lower bound on the seconds of a step of every plan, with the array's overlap.

    Parameters
    ----------
    proved
        Whether the bound is the minimum of the relaxed problem: some plan that fits takes as long
        if all that may overlap does, and, out of lockstep, if links are not shared. Else a limit
        came first: no plan takes less than this bound, but it may not be tight.
    """

    seconds: float
    proved: bool


def bound_of_all_plans(
    network: Network, problem: Problem, deadline: Deadline = NEVER
) -> BoundOfPlans:
    """Return a lower bound on the time with overlap of all plans that fit.

    No step takes less than its program: computations, and the exchanges for which they wait. That
    is an additive cost, so its minimum within the memory of a device, over all training settings,
    is a bound on all plans of the problem's choices.

    Raises
    ------
    RefusedError
        If the problem is not of the time of a training step on accelerators of one kind.
    NothingFitsError
        If no plan is found that fits.
    InfeasibleError, NoAnswerError
        If no plan satisfies the constraints, or none is found before a limit.
    """
    searched = Instance.to_search(network, problem)
    check_overlap(searched)
    assert problem.array is not None
    bounded = partial(of_program, array=problem.array.description)
    instance = replace(searched, bounded=bounded)
    solver = SOLVERS[default_solver(instance, "joint")]()
    search, result = within_memory(SearchRequest(instance, solver, deadline=deadline), joint)
    cost = search.instance.cost.physical
    seconds = Fraction(result.bound or 0) * cost.resolution / cost.per_unit
    return BoundOfPlans(float(seconds), result.status is Status.OPTIMAL)


def check_overlap(instance: Instance, overlap: str = "prefetch") -> None:
    """Refuse a problem whose step is not a program with a queue beside it.

    Raises
    ------
    UnknownNameError
        If what overlaps is none of `OVERLAPS`.
    RefusedError
        Naming what the time with overlap needs.
    """
    if overlap not in OVERLAPS:
        raise UnknownNameError("overlap in a search", overlap, ["none", *OVERLAPS])
    if needs := lacks_for_overlap(instance):
        raise RefusedError(f"the time with {argument('overlap')} needs {needs}")


def lacks_for_overlap(instance: Instance) -> str | None:
    """Return what a problem lacks for a time with overlap; None if nothing."""
    if instance.problem.cost != "time":
        return argument("cost", "time")
    if instance.problem.groups:
        return "an array of one kind of accelerators"
    if instance.problem.reading not in RUN_READINGS:
        return argument("reading", "executed")
    return None


class LeastTime(NamedTuple):
    """The plan of least known time with overlap, of those with one plan's training settings.

    Parameters
    ----------
    rows : (levels, nodes)
        The plan's choices.
    time
        Its time, and a bound on the time of all plans.
    stopped_by
        The limit that ended the search before a proof.
    simulated
        The number of plans that were simulated.
    """

    rows: Rows
    time: WithOverlap
    stopped_by: str | None
    simulated: int


def least_time(
    plan: Plan,
    overlap: str,
    deadline: Deadline = NEVER,
    *,
    further_starts: Sequence[Rows] = (),
    fastest_without: Plan | None = None,
    prices: tuple[int, ...] | None = None,
    closes: bool = True,
) -> LeastTime:
    """Return the plan of least time with overlap, of those with a plan's training settings.

    Parameters
    ----------
    plan
        The plan from which the search starts, and whose problem it is.
    overlap
        One of `OVERLAPS`.
    further_starts
        Plans that fit and have the same training settings, from which the search starts, too.
    fastest_without
        The plan that is fastest without overlap, if it has other training settings.
    prices
        The prices of a search with fewer choices, for the only bound. By default prices are
        optimised.
    closes
        Whether plans, if there are few enough, are listed until none can take less.

    Raises
    ------
    RefusedError
        If the problem is not of the time of a training step on accelerators of one kind.
    """
    best = PlansWithOverlap(plan, overlap, deadline).fastest(
        further_starts, prices=prices, closes=closes
    )
    if fastest_without in (None, plan):
        return best
    search = PlansWithOverlap(fastest_without, overlap)
    with_overlap = best.time._replace(without=max(search.time(search.start), best.time.seconds))
    return best._replace(time=with_overlap)


@dataclass
class PlansWithOverlap:
    """The plans with one plan's training settings, their times with overlap, and bounds.

    Parameters
    ----------
    overlap
        One of `OVERLAPS`; or ``none``, only to simulate plans.
    """

    plan: Plan
    overlap: str
    deadline: Deadline = NEVER
    times: dict[Rows, float] = field(default_factory=dict)
    """The seconds of all simulated plans."""
    stopped_by: str | None = None

    def __post_init__(self) -> None:
        self.instance = Instance.of_plan(self.plan)
        if self.overlap != "none":
            check_overlap(self.instance, self.overlap)
        self.workload: Workload = self.instance.workload
        self.options = RunOptions(overlap=self.overlap, **self.plan.training.stated)

    @property
    def start(self) -> Rows:
        """The plan from which the search starts."""
        return tuple(map(tuple, rows_of_plan(self.plan, self.workload)))

    def fastest(
        self,
        further_starts: Sequence[Rows] = (),
        *,
        prices: tuple[int, ...] | None = None,
        closes: bool,
    ) -> LeastTime:
        """Search, and return the best plan with the best bound."""
        start = self.start
        for rows in (start, *further_starts):
            self.time(rows)
        if self.instance.constraints.only_plan is None:
            prices, bound = self._searched(start, prices, closes=closes)
        else:  # pins leave only this plan
            prices, bound = (0,) * (1 + _PIECES), self.times[start]
        rows = self._best[1]
        seconds = self.seconds(rows)
        without = seconds if rows == start else max(seconds, self.times[start])
        # Charges are rounded: a bound that equals the time up to rounding is the time.
        bound = seconds if bound >= seconds * (1 - _ROUNDING) else bound
        time = WithOverlap(self.overlap, seconds, bound, without, prices)
        return LeastTime(rows, time, None if time.proved else self.stopped_by, len(self.times))

    def _searched(
        self, start: Rows, at: tuple[int, ...] | None, *, closes: bool
    ) -> tuple[tuple[int, ...], float]:
        """Search, and return the best prices with the best bound."""
        in_parallel = tuple(map(tuple, np.zeros_like(start).tolist()))  # data parallelism
        if not self._stops() and not self.workload.forbidden[:, 0].any() and self.fits(in_parallel):
            self.time(in_parallel)
        prices, bound = self._by_prices(start, at)
        self._improve(prices)
        if closes and bound < self._best[0] and not self.stopped_by:
            bound = self._by_listing(prices, bound)
        return prices, bound

    @property
    def _best(self) -> tuple[float, Rows]:
        return min((seconds, rows) for rows, seconds in self.times.items())

    def seconds(self, rows: Rows) -> float:
        """Return the simulated time of a plan, to the last bit as `hypar_opt.simulate` does."""
        return self._simulated(rows, self._by_events)

    def time(self, rows: Rows) -> float:
        """Return `seconds` up to rounding: faster, and cached."""
        if rows not in self.times:
            self.times[rows] = self._simulated(rows, self._run)
        return self.times[rows]

    def _simulated(self, rows: Rows, run: Callable[[Sequence[Task]], float]) -> float:
        tasks, count = self._program(rows), self.options.micro_batches
        before = run(before_last_micro_batch(tasks)) if count > 1 else 0.0
        return StepTimes(run(tasks), before, self._launching).of(count)

    @cached_property
    def _program(self) -> Callable[[Rows], Sequence[Task]]:
        """Returns the tasks of a plan; those of the last plan are cached."""
        step = self.plan, self._once, self._array, self.options
        return lru_cache(maxsize=1)(partial(program, *step))

    def _run(self, tasks: Sequence[Task]) -> float:
        efficiency = self._array.efficiency_of_overlap
        if not any(self.options.in_parts_on(self._array)):
            parts = [RepeatedPart(0, len(tasks))]
            with suppress(NotInLockstepError):
                return seconds_of_parts(tasks, parts, self._messages, efficiency)
        return self._by_events(tasks)

    def _by_events(self, tasks: Sequence[Task]) -> float:
        from hypar_opt.simulator.run import seconds_of  # whose packages take long to import

        efficiency = self._array.efficiency_of_overlap
        return seconds_of(tasks, self._array.interconnect, efficiency=efficiency)

    @cached_property
    def _array(self) -> Array:
        assert self.plan.array is not None
        return self.plan.array.description

    @cached_property
    def _messages(self) -> Messages:
        return Messages(self._array.interconnect)

    @cached_property
    def _launching(self) -> float:
        """The seconds in which the host launches the kernels of any plan's micro-batch."""
        step = self.plan.problem, self._once, self._array
        return launching(*step, repeats_on(self.plan.network.description, *step, self.options))

    @cached_property
    def _once(self) -> Workload:
        """The tensors of a micro-batch; repetitions are in the simulator's options."""
        training = Training(micro_batches=self.plan.training.micro_batches)
        problem = self.plan.problem.model_copy(update={"training": training})
        workload = micro_batch_of(problem, self.plan.network.description, shared_tensors=True)
        return workload.single_pass or workload

    def fits(self, rows: Rows) -> bool:
        """Return whether a plan satisfies the constraints, and fits the memory of a device."""
        instance, shared = self.instance, self.workload.shared
        layers = [row[shared:] for row in rows]
        if not instance.constraints.allow(layers):
            return False
        if spatial_columns(self.workload) and first_gap(self.workload, rows) is not None:
            return False
        if instance.problem.device_memory is None:
            return True
        tensors = tuple({node: row[node] for node in self.workload.tensor_writers} for row in rows)
        return all(amount <= limit for amount, limit, _ in bytes_held(instance, layers, tensors))

    # Paths and their mixtures

    @cached_property
    def _piece(self) -> list[int]:
        """The piece of the backward pass in which each node's is; they halve towards its end.

        There gradients are exposed.
        """
        workload = self.workload
        order = [*reversed(range(workload.shared, len(workload.nodes)))]
        work = [max(workload.nodes[node].macs, 1) for node in order]
        pieces = [0] * len(workload.nodes)
        for node, upto in zip(order, accumulate(work), strict=True):
            before = Fraction(upto - max(workload.nodes[node].macs, 1), sum(work))
            edges = (1 - Fraction(1, 2**piece) for piece in range(1, _PIECES))
            pieces[node] = sum(before >= edge for edge in edges)
        for node, users in workload.weight_users.items():
            pieces[node] = pieces[min(users)]
        for node, writer in workload.tensor_writers.items():
            pieces[node] = pieces[writer]
        return pieces

    def _cost(self, prices: Sequence[int]) -> OverlapTime:
        """Return the cost with prices in the forward pass, and in pieces of the backward pass."""
        forward, *backward = prices
        return OverlapTime.of(
            least_of(self.instance.cost.time, self._array, self.overlap),
            self.workload,
            [backward[piece] for piece in self._piece],
            waits=waits_on(self._array),
            units=self._units,
            forward=forward,
        )

    @cached_property
    def _units(self) -> Sequence[range] | None:
        """The nodes whose weights are prefetched together; None without prefetching."""
        if self.overlap != "prefetch":
            return None
        return units_of(self.plan.network.description, self.workload)

    def prices_of_layers(self, prices: Sequence[float]) -> tuple[int, dict[str, int]]:
        """Return the price forward, and those of the pieces of the backward pass, by first layers.

        Raises
        ------
        InputError
            If a file states more or fewer.
        """
        if len(prices) != 1 + _PIECES:
            problem = f"should be {1 + _PIECES} prices, got {len(prices)}"
            raise InputError(problem, where="solver, statistics")
        shared = self.workload.shared
        begins: dict[str, int] = {}
        for n, name in reversed([*enumerate(self.plan.layers)]):
            price = int(prices[1 + self._piece[shared + n]])
            if price != next(reversed(begins.values()), None):
                begins[name] = price
        return int(prices[0]), begins

    @cached_property
    def _paths(self) -> list[OverlapTime]:
        """The program alone; and the program up to each piece, with the queue from there on.

        The first entry is the queue in the forward pass, which any path may include.
        """
        none = (0,) * _PIECES
        pieces = [none, *((0,) * n + (PRICE,) * (_PIECES - n) for n in range(_PIECES))]
        return [self._cost((PRICE, *none)), *(self._cost((0, *prices)) for prices in pieces)]

    def _along_paths(self, rows: Rows) -> list[float]:
        """Return a plan's time along each path; first, its additional time along the queue."""
        ahead, *along = [self._charged(rows, cost) for cost in self._paths]
        return [ahead - along[0], *along]

    def _by_prices(self, start: Rows, at: tuple[int, ...] | None) -> tuple[tuple[int, ...], float]:
        """Minimise the cost at better and better prices; return the best prices, and the bound.

        The prices are those that are stated, or of the best mixture of paths against all plans so
        far.
        """
        tried: set[tuple[int, ...]] = set()
        best, bound = (
            (0,) * (1 + _PIECES),
            least_compute(self.instance) / self.instance.cost.time.per_unit,
        )
        if self._stops():
            return best, bound
        plans = {start: self._along_paths(start)}
        while len(tried) < _ROUNDS:
            value, (forward, _, *shares) = call(mixture, [*plans.values()], 1)
            forward = forward if self._units else 0.0
            mixed = [PRICE * upto for upto in (forward, *accumulate(shares))]
            # With the queue in both passes, a mixture against few plans overshoots.
            center, part = (best, 0.75) if tried else ((mixed[0], *(0,) * _PIECES), 0.5)
            part = part if forward else 1
            steps = zip(mixed, center, strict=True)
            prices = at or tuple(round(upto + part * (price - upto)) for price, upto in steps)
            if value <= bound * _CLOSE or prices in tried:
                break
            if self._stops():
                break
            tried.add(prices)
            cost = self._cost(prices)
            priced = self.instance.with_cost(cost)
            solver = SOLVERS[default_solver(priced, "joint")]()
            request = SearchRequest(priced, solver, deadline=self.deadline, uses_fallback=False)
            try:
                result = joint(request)
            except (NoAnswerError, RefusedError) as error:
                self.stopped_by = getattr(error, "stopped_by", None) or "memory"
                break
            least_seconds = float(
                (result.bound or Fraction()) * cost.resolution / _charges_per_second(cost)
            )
            is_better = least_seconds > bound
            if is_better:
                best, bound = prices, least_seconds
            tensors = result.priced or ({},) * len(start)
            rows = tuple(rows_with_stored(self.workload, result.assignments, tensors))
            plans[rows] = self._along_paths(rows)
            if self.fits(rows):
                self.time(rows)
            if forward and not is_better:
                break
        return best, bound

    def _stops(self) -> bool:
        if self.deadline.passed():
            self.stopped_by = TIME_LIMIT
        return self.stopped_by is not None

    # Node by node

    def _improve(self, prices: Sequence[int]) -> None:
        """Improve the known plans, the fastest first, until none improves.

        A move changes equal nodes in equal states to another state; moves of least cost at some
        prices come first.
        """
        if len(self.workload.nodes) * self._count > _STEPS:
            return
        cost = self._cost(prices)
        limit = len(self.times) + self._max_simulated
        for _, rows in sorted((seconds, rows) for rows, seconds in self.times.items()):
            better: Rows | None = rows
            while better is not None and len(self.times) < limit and not self._stops():
                rows, better = better, self._moved(better, cost, limit)

    def _moved(self, rows: Rows, cost: OverlapTime, limit: int) -> Rows | None:
        """Return a plan of less time that differs in one or more moves, if there is one."""
        now, better, choices = self.time(rows), None, np.array(rows, np.intp)
        charged, changes = self._charged(rows, cost), self._changes(choices, cost)
        states, allowed = self._allowed_states
        moves: list[tuple[float, list[int], int]] = []
        for nodes in self._moved_together:
            by_state: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
            for node in nodes:
                by_state[tuple(choices[:, node].tolist())].append(node)
            for moved in by_state.values():
                seconds = charged + changes[moved].sum(axis=0)
                seconds[~allowed[moved].all(axis=0)] = np.inf
                faster = np.flatnonzero(seconds < now).tolist()
                moves += [(float(seconds[n]), moved, n) for n in faster]
        for lower_bound, moved, column in sorted(moves):
            if lower_bound >= now or len(self.times) >= limit or self._stops():
                break
            changed = choices.copy()
            changed[:, moved] = states[:, column, None]
            candidate = tuple(map(tuple, changed.tolist()))
            if candidate in self.times or not self.fits(candidate):
                continue
            if self.time(candidate) < now:
                now, better, choices = self.time(candidate), candidate, changed
        return better

    def _changes(self, choices: Indices, cost: OverlapTime) -> NDArray[np.float64]:
        """Return the change of a path's seconds for each node's move to each state.

        All other nodes stay as they are: ``(nodes, states)``.
        """
        workload, columns = self.workload, np.arange(choices.shape[1])
        keys = index_by_key(cost.symmetries(workload, len(choices)).node_keys).numbers
        states = self._allowed_states[0][:, None]

        def of_kinds(keys: NDArray[np.intp], charge: Callable[[Indices], Any]) -> Any:
            _, first, kind = np.unique(keys, axis=1, return_index=True, return_inverse=True)
            charged = np.broadcast_to(exact_sum(charge(first)), (len(first), states.shape[2]))
            return charged[kind.reshape(-1)]

        def of_nodes(first: Indices) -> Any:
            nodes, now = columns[first, None], choices[:, first, None]
            rows = (cost.node(workload, nodes, [state]) for state in (states, now))
            return [row - before for row, before in zip(*rows, strict=True)]

        kinds = np.stack([kinds_of_nodes(workload).numbers, keys, *choices])
        changes: NDArray[Any] = of_kinds(kinds, of_nodes).astype(exact_dtype(cost.max_total))
        numbers = kinds_of_boundaries(workload, cost.end_keys).numbers
        sources, targets = workload.ends.T
        kinds = np.stack([numbers, *choices[:, sources], *choices[:, targets]])
        for moved in (0, 1):

            def of_boundaries(first: Indices, moved: int = moved) -> Any:
                now = [[choices[:, end, None]] for end in workload.ends[first].T]
                after = [[states] if end == moved else state for end, state in enumerate(now)]
                rows = (cost.edge(workload, first[:, None], *ends) for ends in (after, now))
                return [row - before for row, before in zip(*rows, strict=True)]

            if len(sources):
                np.add.at(changes, workload.ends[:, moved], of_kinds(kinds, of_boundaries))
        return changes.astype(np.float64) / _charges_per_second(cost)

    def _charged(self, rows: Rows, cost: OverlapTime) -> float:
        """Return a plan's seconds along a path, or a mixture of paths."""
        return sum(*charges_by_level(self.workload, cost, [rows])) / _charges_per_second(cost)

    @cached_property
    def _moved_together(self) -> list[list[int]]:
        """The nodes that move together: those at one position of repeated blocks, or single nodes.

        Nodes that share their weights do not move.
        """
        workload, shared = self.workload, self.workload.shared
        places: dict[int, tuple[int, ...]] = {n: (n,) for n in range(len(workload.nodes))}
        for number, run in enumerate(self.plan.network.description.repeats):
            for position in range(run.length * run.count):
                places[shared + run.first + position] = (number, position % run.length)
        for node, writer in workload.tensor_writers.items():
            places[node] = (*places[writer], -1)
        tied = {*workload.ends[workload.is_weight_boundary].ravel().tolist()}
        groups: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        for node, at in places.items():
            if node not in tied:
                groups[at].append(node)
        return [*groups.values()]

    @property
    def _max_simulated(self) -> int:
        """The most plans that are simulated to improve others, or in a list."""
        return _SIMULATED // (len(self.workload.nodes) + _OVERHEAD)

    @property
    def _count(self) -> int:
        """The number of states."""
        return prod(choices_by_level(self.workload, self.instance.problem.levels))

    @cached_property
    def _allowed_states(self) -> tuple[Indices, NDArray[np.bool_]]:
        """The states that any node may have, and which states each node may have.

        They are ``(levels, states)`` and ``(nodes, states)``.
        """
        states = states_of(self.workload, self.instance.problem.levels, self.deadline)
        allowed = self.instance.constraints.allowed(states, self.deadline)
        some = allowed.any(axis=0)
        return np.array(states, np.intp).reshape(len(states), -1)[some].T, allowed[:, some]

    # All plans that may be better

    def _by_listing(self, prices: Sequence[int], bound: float) -> float:
        """List plans by their cost at some prices, and simulate them; return a bound on all."""
        cost = self._cost(prices)
        instance, nodes = self.instance.with_cost(cost), len(self.workload.nodes)
        levels, states = instance.problem.levels, self._count
        limit = self._max_simulated
        is_too_large = limit < _FEW or nodes * states * max(states, levels) > _STEPS
        if is_too_large or instance.constraints.couple_layers:
            return bound
        try:
            completion = completion_along_chain(instance, self.deadline)
            completion = completion or completion_by_elimination(instance, self.deadline)
            listed = in_order_of_cost(completion, 0, limit, interchangeable=False)
            for number, (charges, columns) in enumerate(listed):
                bound = max(bound, charges / _charges_per_second(cost))
                if bound >= self._best[0] * (1 - _ROUNDING) or number == limit or self._stops():
                    return bound
                rows = tuple(zip(*(completion.states[column] for column in columns), strict=True))
                if self.fits(rows):
                    self.time(rows)
        except (NoAnswerError, RefusedError):  # a limit, or more than memory allows
            return bound
        return self._best[0]  # all plans were listed


class Faster(NamedTuple):
    """A configuration that takes less than a plan.

    Parameters
    ----------
    problem
        The plan's problem, with the configuration's training settings where it leaves them open; a
        problem with pins leaves nothing open. Its choices are wider if the configuration needs
        more; layers that the configuration leaves whole although they can be split are pinned.
    rows : (levels, nodes)
        The configuration's choices.
    seconds
        Of a step.
    """

    problem: Problem
    rows: Rows
    seconds: float


def faster_configuration(
    plan: Plan, overlap: str, deadline: Deadline, *, wider: bool = False
) -> Faster | None:
    """Return the best configuration for a plan's problem, if it takes less time than the plan.

    For a network without blocks, the best of those that have a name (`is_named`).

    Parameters
    ----------
    overlap
        One of `OVERLAPS`, or ``none``.
    wider
        Only configurations that have a name, and that need more choices than the problem has, or
        leave layers whole that its choices split.
    """
    network, problem = plan.network.description, problem_left_open(plan)
    assert plan.array is not None
    # Pins, and degrees, which are pins, determine a plan of their own.
    has_some = plan.levels and problem.device_memory is not None and not problem.constraints.fix
    if not (network.repeats or len(plan.layers) <= _LAYERS) or not has_some or deadline.passed():
        return None
    if wider and not limits_of(network, problem).tensor:
        return None
    array = ArrayRecord.of(plan.array.description.model_copy(update={"overlap": overlap}))
    opened = problem.model_copy(update={"array": array})
    seconds_of_plan = plan.solver.with_overlap
    if overlap == "none":
        cutoff = plan.cost.total / Instance.of_plan(plan).cost.physical.per_unit
    elif seconds_of_plan is None:
        search = PlansWithOverlap(plan, overlap, deadline)
        cutoff = search.time(search.start)
    else:
        cutoff = seconds_of_plan.seconds
    instance = Instance.to_search(network, opened)
    has = {*instance.problem.choices}
    if wider:
        offered = {"choices": choices_of_configurations(network)}
        instance = Instance(network, opened.model_copy(update=offered))

    @cache
    def fields_of(mesh: tuple[Any, ...]) -> dict[str, Any] | None:
        """Return the fields of the problem of a mesh's configurations; None without any."""
        if not wider:
            return {}
        choices, pins = choices_and_pins(network, instance.problem, Configuration(*mesh))
        if not pins and has.issuperset(choices):
            return None
        constraints = problem.constraints.model_copy(update={"fix": pins})
        return {"choices": choices, "constraints": constraints}

    @cache
    def rows(mesh: tuple[Any, ...]) -> Rows | None:
        if (fields := fields_of(mesh)) is None:
            return None
        trained_instance = instance.with_constraints(fields["constraints"]) if fields else instance
        return rows_by_mesh(trained_instance)(Configuration(*mesh))

    def allowed(configuration: Configuration) -> bool:
        # Without repeated blocks, a configuration takes as long to simulate as a plan.
        considered = (network.repeats and not wider) or is_named(configuration)
        if not considered or rows(configuration[:6]) is None:
            return False
        return trains_as(configuration, network, problem.hierarchy, problem.training)

    def trained(configuration: Configuration) -> tuple[Problem, Rows] | None:
        way = training_of(configuration, network, problem.hierarchy, problem.training)
        fields = {"training": way, **(fields_of(configuration[:6]) or {})}
        trained_problem = problem.model_copy(update=fields)
        if wider:
            fields["choices"] = Instance.to_search(network, trained_problem).problem.choices
        # With micro-batches, other choices may be available.
        plans = PlansWithOverlap(plan.model_copy(update=fields), overlap)
        choices = rows_by_mesh(plans.instance)(configuration)
        return (trained_problem, choices) if choices is not None and plans.fits(choices) else None

    searched = search_degrees(
        network,
        opened,
        count=1,
        choices=instance.problem.choices,
        allowed=allowed,
        accepted=lambda configuration: trained(configuration) is not None,
        cutoff=cutoff,
        deadline=deadline,
    )
    if not searched.best:
        return None
    best = searched.best[0]
    fields_of_best = trained(best.configuration)
    return None if fields_of_best is None else Faster(*fields_of_best, best.seconds)


def check_with_overlap(plan: Plan, *, file: str) -> None:
    """Refuse a plan file whose time with overlap is not its plan's, or is below its bound.

    Raises
    ------
    InputError
        Naming what is stated, and what it should be.
    """
    stated = plan.solver.with_overlap
    if stated is None:
        return
    try:
        search = PlansWithOverlap(plan, stated.overlap)
        seconds = search.seconds(tuple(map(tuple, rows_of_plan(plan, search.workload))))
    except HyparError as error:
        raise InputError(error.message, where="solver, statistics", file=file) from None
    if not isclose(seconds, stated.seconds, rel_tol=_ROUNDING):
        problem = f"should be {seconds} s with overlap, as the plan is simulated, got"
        problem += f" {stated.seconds}"
    elif not stated.bound <= stated.seconds <= stated.without:
        problem = "should be a bound, a time and one of a plan that is no faster, got"
        problem += f" {stated.bound}, {stated.seconds} and {stated.without}"
    else:
        return
    raise InputError(problem, where="solver, statistics", file=file)


def mixture(values: Sequence[Sequence[float]], separate: int = 0) -> tuple[float, list[float]]:
    """Return the mixture of paths that maximises the least time of plans, and that time.

    Parameters
    ----------
    values : (plans, paths)
        The time of each plan along each path.
    separate
        The number of leading paths with shares of their own: additional times of plans.
    """
    # Imported late: it takes longer than most searches.
    from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

    unit = max(map(max, values)) or 1.0
    solver = pywraplp.Solver.CreateSolver("GLOP")
    value = solver.NumVar(0, solver.infinity(), "least")
    shares = [solver.NumVar(0, 1, f"share{path}") for path in range(len(values[0]))]
    solver.Add(sum(shares[separate:]) == 1)
    for along_paths in values:
        mean = sum(share * (path / unit) for share, path in zip(shares, along_paths, strict=True))
        solver.Add(value <= mean)
    solver.Maximize(value)
    solver.Solve()
    return value.solution_value() * unit, [share.solution_value() for share in shares]


def _charges_per_second(cost: OverlapTime) -> int:
    """Return the number of charges in a second."""
    return cost.per_unit * cost.scale
