"""The default solver of a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hypar_opt.instance.instance import Instance


def default_solver(instance: Instance, search: str) -> str:
    """Return ``dp``, or ``cut`` if a graph's tables can be solved as minimum cuts.

    That is so with two choices and without a capacity, for the table of one level or for thresholds
    of all levels whose charges fit int64. Both solvers are exact, and return the same plan.
    """
    workload, problem = instance.workload, instance.problem
    if workload.is_chain:
        return "dp"
    if len(problem.choices) > 2 or instance.constraints.couple_layers:
        return "dp"
    if search == "levelwise":
        return "cut"
    table = instance.thresholds
    # Its charges are Python's integers, too large for a cut.
    too_large = table is None or np.asarray(table.data).dtype == object
    return "dp" if too_large else "cut"
