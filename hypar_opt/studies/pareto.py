"""The least bytes, time or energy within each memory: Pareto fronts, breakpoint by breakpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import log
from operator import attrgetter
from pathlib import Path
from typing import Any, Unpack

from hypar_opt.checked import checked
from hypar_opt.costs import COSTS
from hypar_opt.errors import (
    HyparError,
    InfeasibleError,
    NoAnswerError,
    RefusedError,
    Sentence,
    argument,
)
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import ProblemArguments
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.problem import Problem
from hypar_opt.plan.stated import stated_problem
from hypar_opt.plan.training import training_columns
from hypar_opt.planning.search import solve_jointly
from hypar_opt.results import Column, Columns, Documented, Results
from hypar_opt.search.memory.relaxation import least_memory
from hypar_opt.search.plan_file import priced_as
from hypar_opt.search.result import Progress, part_of, parts_of, silent
from hypar_opt.studies.memory import memory
from hypar_opt.units import PREFIXES, format_bytes, format_cost
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import choices_below_h1

OBJECTIVES = ("bytes", "time", "energy")
_SYMBOLS = {"time": "seconds", "energy": "joules"}

_TIGHTER = Fraction(15, 16)
"""The maximum memory of the next point of a device's front, relative to the last one's."""

_WITH_GAPS = 2
"""The consecutive unproved points after which a front ends, unless ``points`` is given."""


@dataclass(frozen=True)
class ParetoPoint:
    """A breakpoint: a plan of the least cost within its memory, and its other costs.

    No plan with less memory costs as little, and no cheaper plan takes as little memory, but where
    ``plan.solver.gap`` is not 0.
    """

    plan: Plan
    memory: int
    """Bytes of memory per accelerator, rounded up: of tensors, where a device's are counted."""
    bytes: int | float
    """Bytes moved by the plan in the reading."""
    seconds: float | None
    """Time of a step in closed form; None without an array."""
    joules: float | None
    """Energy of a step; None without an array, or if the array has no energies."""

    def __repr__(self) -> str:
        cost = format_cost(self.total, self.plan.cost.unit)
        return f"<ParetoPoint: {format_bytes(self.memory)} of memory, {cost}>"

    @property
    def total(self) -> int | float:
        """The least cost within the memory, exact, in the unit of the plan's cost."""
        return self.plan.cost.total

    @checked
    def amount(self, objective: str) -> float | None:
        """Return the plan's cost by an objective; None if it is not known."""
        amounts = {"bytes": self.bytes, "time": self.seconds, "energy": self.joules}
        total = self.total if objective == self.plan.cost.kind else None
        return amounts.get(objective, total)


@dataclass(frozen=True, repr=False)
class ParetoFront(Results[ParetoPoint]):
    """One objective against memory: `ParetoPoint` breakpoints, from the most memory down.

    The least cost within M bytes is that of the first point that takes no more than M.
    """

    row_columns = Columns(
        Column("objective", of="plan.cost.kind"),
        *("memory", "total"),
        Column("unit", of="plan.cost.unit"),
        "bytes",
        Column("executed_bytes", of="plan.cost.executed_bytes"),
        *("seconds", "joules"),
        Column("gap", of="plan.solver.gap"),
        *training_columns(attrgetter("plan.training.non_default")),
        entry=ParetoPoint,
    )

    objective: str
    complete: bool
    """Whether no plan takes less memory than the last point's."""
    reason: str | None = None
    """Why the front ends early, if a solver refused to go on, or proved none of the last points. A
    plan of less memory may then cost as little as the last point's."""

    @checked
    def within(self, memory: int) -> ParetoPoint | None:
        """Return the point of the least cost within a memory, in bytes; None if none is known."""
        return next((point for point in self if point.memory <= memory), None)

    @checked
    def ratio(self, point: ParetoPoint) -> float | None:
        """Return a point's cost over the front's least; None if that is 0 or not known.

        For a point of another front, it is the ratio of that point's amount.
        """
        # In integer units of the cost if it is the point's objective, and all have the same.
        units = {one.plan.cost.unit for one in (*self, point)}
        comparable = point.plan.cost.kind == self.objective and len(units) == 1
        amount = point.total if comparable else point.amount(self.objective)
        first = self[0].total if comparable else self[0].amount(self.objective)
        return amount / first if amount is not None and first else None

    def __repr__(self) -> str:
        count = f"{len(self):,} point{'s' if len(self) != 1 else ''}"
        return f"<ParetoFront of {self.objective} and memory: {count}>"


_POINTS = Columns(
    *ParetoFront.row_columns,
    Column("parallelism", of="plan.parallelism"),
    entry=ParetoPoint,
)
_FRONTS = Columns(
    *("objective", "complete", "reason"),
    Column("points", of="entries", type=_POINTS),
    entry=ParetoFront,
)


def _array(fronts: ParetoFronts) -> str | None:
    return None if fronts.problem.array is None else fronts.problem.array.name


@dataclass(frozen=True, repr=False)
class ParetoFronts(Documented, Results[ParetoFront]):
    """The fronts of a problem, one for each objective."""

    contents = Columns(
        Column("network", of="network.name"),
        Column("array", of=_array, type=str | None),
        Column("batch", of="problem.batch"),
        Column("levels", of="problem.levels"),
        Column("parts", of="problem.parts", absent=None),
        Column("reading", of="problem.reading"),
        Column(
            "layers",
            of=lambda fronts: [layer.name for layer in fronts.network.layers],
            type=list[str],
        ),
        Column("fronts", of="entries", type=_FRONTS),
    )

    network: Network
    problem: Problem

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each point of each front: the rows of a data frame."""
        return [row for front in self for row in front.rows()]

    @property
    def moving_more(self) -> int:
        """The number of points whose plans, when run, move more bytes than Data Parallelism."""
        costs = [point.plan.cost for front in self for point in front]
        return sum((cost.executed_bytes or 0) > cost.data_parallel_bytes for cost in costs)

    def __repr__(self) -> str:
        fronts = ", ".join(f"{front.objective} {len(front):,}" for front in self)
        return f"<ParetoFronts of {self.network.name}: points by {fronts}>"


@checked
def pareto(
    network: str | Path | Network,
    objectives: Sequence[str] | None = None,
    *,
    points: int | None = None,
    solver: str | None = None,
    progress: Progress = silent,
    **problem: Unpack[ProblemArguments],
) -> ParetoFronts:
    """Trace the Pareto fronts of bytes, time and energy against memory.

    Each front starts at the optimum over all levels, and solves again within one byte less than the
    plan found takes, until no plan fits. Of plans of equal cost the one of the least memory stays.
    A front is exact where no point has a gap. Objectives are set against memory only, not against
    one another: a point's other amounts are those of its plan, and not the least.

    Parameters
    ----------
    network
        As `hypar_opt.solve` takes one.
    objectives
        Of ``bytes``, ``time``, ``energy``, or costs by entry point; unless given ``cost``, or
        else all of the three that the array prices, ``bytes`` without one.
    points
        After which a front ends, the most memory first; None: all, up to two in a row with gaps.
    solver
        As for `hypar_opt.solve`; it must be exact.
    **problem
        As for `hypar_opt.solve`; fronts start at the constraint ``memory``, if there is one.

    Raises
    ------
    HyparError
        If the input is wrong.
    InfeasibleError
        If no plan satisfies the constraints.
    RefusedError
        If the solver knows no bound on its plans, or refuses the first of a front.
    """
    if points is not None and points < 1:
        raise HyparError(f"{argument('points')} should be 1 or more, got {points}")
    cost = problem.get("cost")
    if objectives is None and cost is not None:
        objectives = [cost]
    described, stated = stated_problem(network, problem)
    return fronts_of(described, stated, objectives, points=points, solver=solver, progress=progress)


def fronts_of(
    network: Network,
    problem: Problem,
    objectives: Sequence[str] | None = None,
    *,
    points: int | None = None,
    solver: str | None = None,
    progress: Progress = silent,
) -> ParetoFronts:
    """Return the fronts of a problem; the arguments are those of `pareto`."""
    if objectives is None:
        # The other objectives count memory as the paper does, which is not comparable to a
        # device's.
        objectives = priced_by(problem) if problem.device_memory is None else ("time",)
    for objective in objectives:
        COSTS[objective]  # an unknown name is refused before the work
    if problem.groups and {*objectives} != {"bytes"}:
        raise RefusedError(
            "a front needs a count of memory, which unequal groups do not have; use"
            f" {argument('cost', 'bytes')}"
        )
    if problem.groups:  # bytes keep equal parts
        choices = choices_below_h1(problem.choices)
        problem = problem.model_copy(update={"choices": choices, "share": None})
    fronts = tuple(
        _front(network, problem.model_copy(update={"cost": objective}), solver, points, report)
        for objective, report in parts_of(progress, objectives)
    )
    return ParetoFronts(fronts, network, problem)


def priced_by(problem: Problem) -> tuple[str, ...]:
    """Return the objectives that a problem's array prices."""
    if problem.array is None:
        return ("bytes",)
    try:
        _ = problem.array.description.energies
    except HyparError:
        return ("bytes", "time")
    return OBJECTIVES


def _front(
    network: Network,
    problem: Problem,
    solver: str | None,
    points: int | None,
    report: Progress,
) -> ParetoFront:
    """Trace a front: tighten the memory limit from plan to plan until none fits."""
    limited = problem.constraints.model_copy(update={"memory": 1})
    if problem.model_copy(update={"constraints": limited}).device_memory is not None:
        return _device_front(network, problem, solver, points, report)
    instance = Instance.to_search(network, problem)
    constraints = instance.constraints
    smallest = constraints.least_memory()
    breakpoints: list[tuple[Plan, int]] = []
    complete, reason = False, None
    while not (complete or reason):
        try:
            if breakpoints:
                instance = instance.within_memory(breakpoints[-1][1] - 1)
            plan = _optimum(instance, solver)
        except (InfeasibleError, RefusedError) as error:
            if not breakpoints:
                raise
            complete = isinstance(error, InfeasibleError)
            reason = None if complete else Sentence(error.message)
            break
        memory = constraints.memory_of(plan.assignments())
        if breakpoints and plan.cost.total == breakpoints[-1][0].cost.total:
            # Equally cheap with less memory, so the previous point is dominated.
            breakpoints[-1] = plan, memory
        elif len(breakpoints) == points:
            break
        else:
            breakpoints.append((plan, memory))
        largest = breakpoints[0][1]
        _report(report, largest - memory, largest - smallest, len(breakpoints), points)
        complete = memory <= smallest
        if points is None and not complete:
            reason = _reason_to_end([plan for plan, _ in breakpoints])
    instances_of_costs: dict[str, Instance] = {}
    entries = tuple(point_of(plan, memory, instances_of_costs) for plan, memory in breakpoints)
    return ParetoFront(entries, problem.cost, complete, reason)


def _device_front(
    network: Network,
    problem: Problem,
    solver: str | None,
    points: int | None,
    report: Progress,
) -> ParetoFront:
    """Trace a device's front: the training settings follow its memory, tightened step by step."""
    limit, entries = problem.constraints.memory, list[ParetoPoint]()
    instance = Instance.to_search(network, problem)
    smallest, last = least_memory(instance), 0.0
    while points is None or len(entries) < points:
        largest = entries[0].memory if entries else problem.device_memory or smallest
        at = _position(largest, limit or largest, smallest, len(entries), points)
        step = part_of(report, *at)
        step(0, 1)
        try:
            if limit is not None:
                instance = instance.within_memory(limit)
            plan = solve_jointly(instance, solver, step)
        except (InfeasibleError, NoAnswerError):  # nothing fits, or nothing was found that does
            if not entries:
                raise
            break
        point = point_of(plan, memory(plan).tensors)
        cost = point.amount(problem.cost) or 0.0
        if entries and cost <= last:
            del entries[-1]  # equally cheap with less memory
        entries.append(point)
        last = cost
        limit = int(_TIGHTER * point.memory)
    reason = Sentence(f"each point has at most {_TIGHTER} of the memory of the one before")
    return ParetoFront(tuple(entries), problem.cost, complete=False, reason=reason)


def _optimum(instance: Instance, solver: str | None) -> Plan:
    """Return the plan of the least cost, perhaps with a gap.

    Raises
    ------
    RefusedError
        If no bound is known.
    """
    plan = solve_jointly(instance, solver)
    if plan.solver.gap is None:
        remedy = "try dp" if instance.cost.is_additive else f"use {argument('bucket', 0)}"
        who = f"solver {plan.solver.name!r} on {instance.network.name}"
        raise RefusedError(f"{who}: a front needs proven optima, or bounds on them; {remedy}")
    return plan


def point_of(
    plan: Plan, memory: int | None = None, instances: dict[str, Instance] | None = None
) -> ParetoPoint:
    """Return a plan's cost by each objective that its array prices.

    Parameters
    ----------
    memory
        The plan's, if it is known.
    instances
        The plan's problem under other objectives; missing ones are added to it.
    """
    instances = {} if instances is None else instances

    def by(cost: str) -> Plan:
        if cost == plan.cost.kind:
            return plan
        if cost not in instances:
            problem = plan.problem.model_copy(update={"cost": cost})
            instances[cost] = Instance(plan.network.description, problem)
        return priced_as(plan, instances[cost])

    if memory is None:
        constraints = Instance(plan.network.description, plan.problem).constraints
        memory = constraints.memory_of(plan.assignments())
    priced = priced_by(plan.problem)
    amounts = {
        cost: _in_base_unit(by(cost), unit) if cost in priced else None
        for cost, unit in _SYMBOLS.items()
    }
    return ParetoPoint(
        plan=plan,
        memory=memory,
        bytes=by("bytes").cost.total,
        seconds=amounts["time"],
        joules=amounts["energy"],
    )


def _in_base_unit(plan: Plan, unit: str) -> float:
    """Return a plan's cost in seconds or joules."""
    prefix = plan.cost.unit.removesuffix(unit)
    parts = next(parts for parts, name in PREFIXES.items() if name == prefix)
    return plan.cost.total / parts


def _reason_to_end(plans: Sequence[Plan]) -> Sentence | None:
    """Return why a front ends after these plans, if the last ones all have a gap."""
    if not all(plan.solver.gap for plan in plans[-_WITH_GAPS:]) or len(plans) < _WITH_GAPS:
        return None
    return Sentence(
        f"plans of less memory are hard to prove; {argument('points')} takes how many to seek"
    )


def _report(progress: Progress, done: int, of: int, tried: int, points: int | None) -> None:
    """Report the larger share done: of the memory range, or of the points."""
    shares = [(done, of), (tried, points or 0)]
    progress(*max(shares, key=lambda share: share[0] / share[1] if share[1] else 0))


def _position(
    first: int, limit: int, least: int, tried: int, points: int | None
) -> tuple[int, int]:
    """Return the index of the next point of a device's front, and their maximum number.

    Parameters
    ----------
    first, limit, least
        Bytes of the first point, the limit of the next one, and a lower bound over all plans.
    """
    steps, at, end = (log(max(memory, 1)) / -log(_TIGHTER) for memory in (first, limit, least))
    behind = int(steps - at)
    total = behind + max(int(at - end), 0) + 1
    return (tried, points) if points is not None and points <= total else (behind, total)
