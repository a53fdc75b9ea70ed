"""The states in assignments up to a cost, as many as a 0-1 program can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.errors import InfeasibleError, RefusedError
from hypar_opt.solvers.base import FIRST_STEP, MEMORY, Status
from hypar_opt.solvers.elimination.classes import columns_within, solve_classes

if TYPE_CHECKING:
    from hypar_opt.costs.state_classes import ClassTable
    from hypar_opt.deadline import Deadline
    from hypar_opt.solvers.elimination.columns import Columns


def pruned_states(table: ClassTable, max_columns: int, deadline: Deadline) -> tuple[Columns, int]:
    """Return the states of each node in assignments up to a cutoff, and the cutoff.

    The cutoff is the cost of the best assignment that elimination finds. It then rises, first by a
    part of it and by twice as much each time, as long as there are few enough states.

    Parameters
    ----------
    table
        Without a capacity.
    max_columns
        The most columns of a program of the states; with the first cutoff it may have more.

    Raises
    ------
    InfeasibleError
        If no assignment is allowed.
    RefusedError
        If the first cutoff leaves more states than memory allows.
    NoAnswerError
        If the deadline passes.
    """

    def states_below(cost: int) -> Columns:
        return [columns for columns, _ in columns_within(table, cost, deadline)]

    result = solve_classes(table, deadline, canonical=False)
    if result.status is Status.INFEASIBLE:
        raise InfeasibleError("no assignment satisfies the constraints")
    if result.objective is None:
        raise RefusedError(f"no answer within the {result.stopped_by or MEMORY}")
    lowest = cutoff = result.objective
    states, step = states_below(cutoff), lowest // FIRST_STEP + 1
    allowed_states = int(table.allowed[table.node_kinds].sum())
    while sum(map(len, states)) < allowed_states:
        try:
            more = states_below(lowest + step)
        except RefusedError:
            break
        if program_columns(more, table) > max_columns:
            break
        states, cutoff, step = more, lowest + step, 2 * step
    return states, cutoff


def program_columns(states: Columns, table: ClassTable) -> int:
    """Return the columns of a program of states: one for each state and for each pair."""
    sizes = np.array([*map(len, states)])
    return int(sizes.sum() + sizes[table.ends].prod(axis=1).sum())
