"""Searches that plan files repeat."""

from __future__ import annotations

from typing import Literal

from hypar_opt.deadline import Deadline
from hypar_opt.errors import HyparError, RefusedError
from hypar_opt.plan.configuration import degrees_of_stages
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.stated_degrees import pinned
from hypar_opt.planning.search import SolveRequest, solve_problem
from hypar_opt.planning.stages import in_given_stages, solve_stages
from hypar_opt.search.free_modes import COUNT, CUTS, problem_left_open
from hypar_opt.search.model_file import SOLUTION
from hypar_opt.search.result import Progress, silent
from hypar_opt.search.shares import was_searched
from hypar_opt.search.solver_settings import options_of


def search_again(plan: Plan, progress: Progress = silent, *, parameters: bool = False) -> Plan:
    """Solve a plan's own problem with its own solver, search and options.

    Parameters
    ----------
    parameters
        Also pass the solver-specific parameters in the plan file; see `options_of`.

    Raises
    ------
    RefusedError
        If the plan file has such parameters and they are not to be passed, or its stages were not
        found by a search of stages.
    """
    if plan.solver.name == SOLUTION:
        raise RefusedError("the plan is from a solution file: there is no search to repeat")
    if plan.is_staged or any(CUTS in row for row in plan.solver.statistics):
        return _search_stages_again(plan, progress, parameters=parameters)
    problem = problem_left_open(plan)
    if was_searched(plan):
        problem = problem.model_copy(update={"share": None})
    return solve_problem(
        plan.network.description,
        problem,
        solver=plan.solver.name,
        search=plan.solver.search,
        options=options_of(plan, parameters=parameters),
        progress=progress,
    )


def _search_stages_again(plan: Plan, progress: Progress, *, parameters: bool) -> Plan:
    """Solve a plan in stages, or the result of a search over stages, as it was solved."""
    from hypar_opt.instance.staged import before_stages

    network, problem = plan.network.description, problem_left_open(plan)
    stages, schedule = plan.stages, plan.training.schedule
    options = options_of(plan, parameters=parameters)
    deadline = Deadline.after(options.time_limit)
    how = SolveRequest(None, "joint", options, plan.solver.options, None, deadline)
    searched = {name for row in plan.solver.statistics for name in row}
    if CUTS in searched:
        of_any = [own.removeprefix(COUNT) for own in searched if own.startswith(COUNT)]
        count: int | Literal["auto"] = "auto" if of_any else stages.parts if stages else 1
        problem = before_stages(problem) if stages else problem
        return solve_stages(network, problem, how, count, (*of_any, schedule)[0], progress)
    assert stages is not None
    if plan.solver.bound is None:
        raise RefusedError("the plan is of a configuration: there is no search to repeat")
    try:
        stated_by_plan = degrees_of_stages(plan)
        pins = pinned(network, problem, stated_by_plan).constraints.fix[
            len(problem.constraints.fix) :
        ]
    except HyparError as error:
        raise RefusedError(
            f"the plan does not say how its stages were stated: {error.message}"
        ) from None
    constraints = problem.constraints
    fix = constraints.fix[: len(constraints.fix) - len(pins)]
    if constraints.fix[len(fix) :] != pins:
        raise RefusedError("the plan's pins are not those of its stages' degrees")
    update = {"constraints": constraints.model_copy(update={"fix": fix})}
    problem = before_stages(problem).model_copy(update=update)
    return in_given_stages(network, problem, stated_by_plan, stages, how, schedule, progress)
