"""One search: its request, its plan, priced again, and why there is none."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self, cast

from hypar_opt.deadline import TIME_LIMIT, Deadline
from hypar_opt.errors import (
    HyparError,
    InfeasibleError,
    Need,
    NoAnswerError,
    RefusedError,
    UnknownNameError,
    WrongClaimError,
    argument,
)
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.costs import json_number
from hypar_opt.plan.degrees import degrees
from hypar_opt.plan.plan import Plan, SolverRecord, SolverSettings
from hypar_opt.plan.trained import trained
from hypar_opt.planning.priced import priced_plan, unproved
from hypar_opt.search.default_solver import default_solver
from hypar_opt.search.level_order import fastest_order
from hypar_opt.search.memory.incumbent import NothingFitsError
from hypar_opt.search.memory.modes import amount_of_memory
from hypar_opt.search.memory.shares import search_within_memory
from hypar_opt.search.model_file import SOLUTION
from hypar_opt.search.result import Progress, SearchRequest, rows_to_start_from, silent
from hypar_opt.search.searches import SEARCHES
from hypar_opt.search.shares import shared_out
from hypar_opt.search.solver_settings import options_from, settings_of
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.version import __version__

if TYPE_CHECKING:
    from hypar_opt.plan.problem import Problem
    from hypar_opt.solvers.solution.solver import SolutionFile
    from hypar_opt.workload.network import Network


@dataclass(frozen=True)
class SolveRequest:
    """The solver, the search and their options for a problem."""

    solver: str | None
    search: str
    options: SolverOptions
    settings: SolverSettings
    start: Plan | None
    deadline: Deadline
    answer: SolutionFile | None = None
    """A solution file to read in place of solving; None without one."""

    @classmethod
    def of(cls, solver: str | None, search: str, options: SolverOptions | None = None) -> Self:
        """Return a request whose time limit starts now, without a plan to start from."""
        options = options_from(options)
        settings = settings_of(options, warm_start=False)
        return cls(solver, search, options, settings, None, Deadline.after(options.time_limit))


def solve_problem(
    network: Network,
    problem: Problem,
    *,
    solver: str | None = None,
    search: str | None = None,
    options: SolverOptions | None = None,
    progress: Progress = silent,
) -> Plan:
    """Solve a validated problem; the other parameters and the errors are those of `solve`."""
    how = SolveRequest.of(solver, search_for(problem, search), options)
    return solve_instance(Instance.to_search(network, problem), how, progress)


def solve_jointly(instance: Instance, solver: str | None, progress: Progress = silent) -> Plan:
    """Solve an instance over all levels together, on tables that it may share with others."""
    return solve_instance(instance, SolveRequest.of(solver, "joint"), progress)


def search_for(problem: Problem, search: str | None) -> str:
    """Return the search by name, or the default of the problem's objective."""
    if search is None:
        # Bytes: the paper's search. Time and energy: levels differ and parts of the charge depend
        # on the final shards, which only the joint search charges exactly
        # (docs/decisions/0007-arrays-and-time.md).
        jointly = problem.joins_levels or problem.device_memory is not None
        return "levelwise" if problem.cost == "bytes" and not jointly else "joint"
    if search not in SEARCHES:
        raise UnknownNameError("search", search, list(SEARCHES))
    return search


def solve_instance(instance: Instance, how: SolveRequest, progress: Progress) -> Plan:
    """Search, order the levels, and price the plan again, independently of the solver's claims."""
    started = time.perf_counter()
    named = how.solver
    if how.answer is not None:
        named = SOLUTION
    elif named is not None:
        SOLVERS[named]  # before tables are built: a wrong name should fail quickly
    # Built before the search, so that their errors are not attributed to the solver.
    _ = instance.cost, instance.constraints
    solver = named or default_solver(instance, how.search)
    method = how.answer or SOLVERS[solver]()
    try:
        start = None if how.start is None else rows_to_start_from(how.start, instance)
        request = SearchRequest(instance, method, how.options, start, progress, how.deadline)
        search_once = SEARCHES[how.search]
        search, share_statistics = shared_out(request, search_once, joint=how.search == "joint")
        if how.answer is None:
            search, partition = search_within_memory(request, search, search_once)
        else:
            partition = search_once(search)
        instance = search.instance
    except NothingFitsError as error:
        raise nothing_fits(error, f"solver {solver!r} on {instance.network.name}") from None
    except (RefusedError, WrongClaimError, InfeasibleError) as error:
        if named is None and solver == "cut" and isinstance(error, RefusedError):
            # The tables of a level are known once the levels above it are solved.
            return solve_instance(instance, replace(how, solver="dp"), progress)
        # The same type, to keep the exit status; prefixed with the solver, since a study may run
        # several solvers.
        who = f"solver {solver!r} on {instance.network.name}"
        who = who if how.answer is None else how.answer.file
        raise type(error)(f"{who}: {error.message}") from None
    rows = partition.assignments
    if how.search == "joint":
        # The joint optimum in bytes leaves the order of levels free; time on the array decides it.
        rows = tuple(fastest_order(instance, rows, how.deadline))
    # The gap is computed in `priced_plan`, from the total priced there.
    record = SolverRecord(
        name=solver,
        search=cast(Literal["levelwise", "joint"], how.search),
        status=cast(Literal["optimal", "feasible"], partition.status.value),
        scope=cast(Literal["level", "joint"], partition.scope),
        bound=None if partition.bound is None else json_number(partition.bound),
        gap=None,
        stopped_by=partition.stopped_by,
        found_by=partition.found_by,
        seconds=time.perf_counter() - started,
        options=how.settings,
        statistics=tuple(dict(model) for model in (*partition.statistics, *share_statistics)),
        versions={"hypar-opt": __version__, **partition.versions},
    )
    return priced_plan(instance, rows, record, partition if rows == partition.assignments else None)


def nothing_fits(error: NothingFitsError, who: str) -> HyparError:
    """Return the error with the memory that the smallest plan needs."""
    counted = error.counted
    instance, result = counted.mode.instance, counted.result
    plan = priced_plan(instance, result.assignments, unproved(), result)
    training = trained(plan.training.non_default, plan) or "the whole batch at once"
    how = "; ".join(filter(None, [degrees(plan), training]))
    bytes_held, capacity = counted.with_reserve
    need, limit = amount_of_memory(bytes_held, capacity), argument("constraints.memory")
    stated = f"{limit}: " if instance.problem.constraints.memory is not None else ""
    smallest_need = Need(bytes_held, capacity, how)
    if error.proved:
        message = f"{stated}nothing fits; the least that was found is {need} of a device, by {how}"
        return InfeasibleError(f"{who}: {message}", smallest_need)
    why = f" within the {error.stopped_by}" if error.stopped_by == TIME_LIMIT else ""
    message = f"{stated}no plan was found{why} that fits; the least is {need} of a device, by {how}"
    return NoAnswerError(f"{who}: {message}", error.stopped_by, smallest_need)
