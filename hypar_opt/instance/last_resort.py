"""Whether layers have to be whole at some levels, because no split fits the constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError
from hypar_opt.instance.constraints import ConstraintSet
from hypar_opt.plan.micro_batch import micro_batch_of
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.workload.parallelism import WHOLE_LAYER, choices_below_h1

if TYPE_CHECKING:
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network


def with_last_resort(network: Network, problem: Problem) -> Problem:
    """Return a problem with `whole` among its choices if no plan keeps its constraints else.

    Layers that are whole repeat their work, so that tables have the choice only where it is needed:
    for even parts, parts that are not empty, and pins.

    Source: docs/model.md.
    """
    constrained = problem.split_rule is not None or problem.constraints.fix
    is_settled = WHOLE_LAYER in problem.choices or problem.reading not in RUN_READINGS
    if is_settled or not constrained or _is_feasible(network, problem):
        return problem
    everywhere = choices_below_h1(problem.choices)
    choices = (*everywhere, WHOLE_LAYER, *problem.choices[len(everywhere) :])
    wider = problem.model_copy(update={"choices": choices})
    return wider if _is_feasible(network, wider) else problem


def _is_feasible(network: Network, problem: Problem) -> bool:
    # Not for memory: a plan with whole layers takes more.
    constraints = problem.constraints.model_copy(update={"memory": None})
    problem = problem.model_copy(update={"constraints": constraints})
    shared = network.shares_tensors(problem.choices)
    workload = micro_batch_of(problem, network, shared_tensors=shared)
    try:
        ConstraintSet(problem, workload).check_feasible()
    except HyparError:  # a pin may name a choice that a layer lacks
        return False
    return True
