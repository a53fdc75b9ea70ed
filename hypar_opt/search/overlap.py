"""The time of a step whose exchanges overlap: bounds on all plans, and the plan of least time."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.deadline import NEVER
from hypar_opt.errors import RefusedError, argument
from hypar_opt.instance.instance import Instance
from hypar_opt.search.default_solver import default_solver
from hypar_opt.search.joint import joint
from hypar_opt.search.result import SearchRequest
from hypar_opt.search.within_memory import within_memory
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import Status

if TYPE_CHECKING:
    from hypar_opt.deadline import Deadline
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network


class BoundOfPlans(NamedTuple):
    """A lower bound on the seconds of a step of every plan, whatever overlaps.

    Parameters
    ----------
    proved
        Whether it is the least there is: some plan that fits takes as long where all that may
        overlap does. Else a limit came first, and a plan may take less than any that is known, but
        none less than this.
    """

    seconds: float
    proved: bool


def bound_of_all_plans(
    network: Network, problem: Problem, deadline: Deadline = NEVER
) -> BoundOfPlans:
    """Return a lower bound on the time with overlap of all plans that fit.

    No step takes less than its program: what is computed, and the exchanges that are waited for.
    These are a cost that adds up; so its least sum within the memory of a device, however layers
    train, bounds all plans of the problem's choices.

    Raises
    ------
    RefusedError
        If the problem is not of the time of a training step on accelerators of one kind.
    NothingFitsError
        If no plan is found that fits.
    InfeasibleError, NoAnswerError
        If no plan keeps to the constraints, or none is found before a limit.
    """
    if problem.cost != "time" or problem.groups:
        raise RefusedError(
            f"a bound on the time with overlap needs {argument('cost', 'time')} on an array of one"
            " kind of accelerators"
        )
    searched = Instance.to_search(network, problem)
    instance = Instance(searched.network, searched.problem, hides=True)
    solver = SOLVERS[default_solver(instance, "joint")]()
    search, found = within_memory(SearchRequest(instance, solver, deadline=deadline), joint)
    cost = search.instance.cost.physical
    seconds = Fraction(found.bound or 0) * cost.resolution / cost.per_unit
    return BoundOfPlans(float(seconds), found.status is Status.OPTIMAL)
