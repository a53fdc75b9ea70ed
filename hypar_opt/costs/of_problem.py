"""The cost model of a problem: by its name, and where it has unequal groups, theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.costs import COSTS
from hypar_opt.costs.contract import check_contract

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload


def cost_of(problem: Problem, workload: Workload) -> CostModel:
    """Return the cost model of a problem.

    Raises
    ------
    HyparError
        If there is no such cost or reading, or it cannot charge the problem.
    """
    # Imported late: most problems have no groups.
    if problem.cost == "bytes" and problem.is_shared_out:
        from hypar_opt.costs.groups import GroupBytes

        return GroupBytes.of_groups(problem)
    if problem.cost == "time" and problem.groups:
        from hypar_opt.costs.groups import GroupTime

        return GroupTime.of_groups(problem, workload)
    # Looked up by name: a plug-in's cost is used as the built-in ones are.
    cost = COSTS[problem.cost].from_problem(problem, workload)
    if problem.cost not in COSTS.built_in_names():
        check_contract(cost, problem.cost, workload, problem.levels)
    return cost
