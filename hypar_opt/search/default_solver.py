"""The solver of a problem that names none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.search.prefix_costs import is_chain
from hypar_opt.search.reductions import thresholds_of

if TYPE_CHECKING:
    from hypar_opt.instance.instance import Instance


def default_solver(instance: Instance, search: str) -> str:
    """Return ``dp``, or ``cut`` where a graph's tables are minimum cuts.

    They are with two choices, in one level's table or where all levels together are thresholds,
    and without a capacity. Both are exact, and return the same plan.
    """
    workload, problem = instance.workload, instance.problem
    if is_chain(workload):
        return "dp"
    if len(problem.choices) > 2 or instance.constraints.couple_layers:
        return "dp"
    if search == "levelwise":
        return "cut"
    return "dp" if thresholds_of(instance) is None else "cut"
