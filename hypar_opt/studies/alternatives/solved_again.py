"""The cost of a plan with one more choice pinned, by solving again."""

from __future__ import annotations

from fractions import Fraction

from hypar_opt.deadline import TIME_LIMIT, Deadline
from hypar_opt.errors import HyparError, InfeasibleError, NoAnswerError, RefusedError, worded
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pins import Pin
from hypar_opt.plan.costs import json_number
from hypar_opt.plan.plan import Plan
from hypar_opt.planning.again import search_again
from hypar_opt.search.default_solver import default_solver
from hypar_opt.search.model_file import SOLUTION
from hypar_opt.search.result import SearchRequest
from hypar_opt.search.searches import SEARCHES
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import SolverOptions

REGRETS = worded("regrets", "--regret")


def extra_of_pin(
    plan: Plan, instance: Instance, pin: Pin, options: SolverOptions, deadline: Deadline
) -> int | float | None:
    """Return a choice's regret by solving with one more pin, which every solver supports.

    None if no plan has it.

    Raises
    ------
    NoAnswerError
        If a limit stops the solve.
    """
    if deadline.passed():
        raise _too_late(pin, TIME_LIMIT)
    fix = (*plan.constraints.fix, str(pin))
    pinned = instance.with_constraints(plan.constraints.model_copy(update={"fix": fix}))
    solver = plan.solver.name
    if solver == SOLUTION:
        solver = default_solver(pinned, plan.solver.search)
    search = SearchRequest(pinned, SOLVERS[solver](), options, deadline=deadline)
    try:
        result = SEARCHES[plan.solver.search](search)
        # A plan within the gap is an answer; one from a solve stopped by a limit is not.
        if result.stopped_by not in {None, "gap"}:
            raise _too_late(pin, result.stopped_by)
    except (RefusedError, NoAnswerError):
        raise
    except HyparError:  # no plan satisfies the pin and the problem's constraints
        return None
    # As fractions: costs of one- and two-byte elements are in quarters and halves.
    return json_number(search.total(result.assignments) - Fraction(plan.cost.total))


def _too_late(pin: Pin, stopped_by: str) -> NoAnswerError:
    return NoAnswerError(f"{REGRETS}: the {stopped_by} came before what {pin} costs", stopped_by)


def extra_within_memory(plan: Plan, pin: Pin, deadline: Deadline) -> int | float | None:
    """Return a choice's regret by another search within memory, with the choice pinned.

    The search again chooses those training settings that the plan's search chose. None if it finds
    no plan that fits.

    Raises
    ------
    NoAnswerError
        If a limit stops the search.
    RefusedError
        If the search proves no optimum.
    """
    if deadline.passed():
        raise _too_late(pin, TIME_LIMIT)
    solver, limits = plan.solver, plan.constraints
    options = solver.options.model_copy(update={"time_limit": deadline.left()})
    pins = {"fix": (*limits.fix, str(pin)), "memory": plan.problem.device_memory}
    update = {
        "constraints": limits.model_copy(update=pins),
        "solver": solver.model_copy(update={"options": options}),
    }
    try:
        result = search_again(plan.model_copy(update=update), parameters=True)
    except InfeasibleError:
        return None
    except NoAnswerError as error:
        if error.least is None or error.stopped_by == TIME_LIMIT:
            raise
        return None
    if result.solver.stopped_by not in {None, "gap"}:
        raise _too_late(pin, result.solver.stopped_by)
    if solver.status == "optimal" != result.solver.status and result.solver.stopped_by is None:
        raise RefusedError(f"{REGRETS}: what {pin} costs within the memory is not proved")
    return json_number(Fraction(result.cost.total) - Fraction(plan.cost.total))
