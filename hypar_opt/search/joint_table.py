"""The table of all levels together, with what its rows and columns stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hypar_opt.costs.state_tables import State, canonical_states, check_states, expanded
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import HyparError, InfeasibleError, RefusedError, argument
from hypar_opt.solvers.base import columns
from hypar_opt.solvers.feasibility import trivially_infeasible

if TYPE_CHECKING:
    from hypar_opt.costs.row_names import RowNames
    from hypar_opt.costs.table import CostTable
    from hypar_opt.costs.thresholds import ThresholdTable
    from hypar_opt.instance.instance import Instance


def joint_table(
    instance: Instance, max_columns: int | None, deadline: Deadline = NEVER
) -> tuple[CostTable, RowNames]:
    """Return the table whose assignments are plans of all levels, as a program solves it.

    Parameters
    ----------
    max_columns
        Columns that its program may have; None for any number.

    Raises
    ------
    HyparError
        If there are no levels, and so no choices.
    RefusedError
        If the table, or its program, would be too large.
    InfeasibleError
        If no plan keeps to the constraints.
    """
    levels = instance.problem.levels
    if levels == 0:
        raise HyparError(f"{argument('levels')} should be 1 or more: 0 leave nothing to choose")
    thresholds = thresholds_of(instance)
    if thresholds is not None:
        return threshold_table(instance, thresholds)
    nodes, choices = len(instance.workload.nodes), instance.cost.choices
    check_states(nodes, choices, levels)
    count = columns(nodes, len(instance.workload.ends), choices**levels)
    if max_columns is not None and count > max_columns:
        raise RefusedError(
            f"a model has at most {max_columns:,} columns, this may need {count:,}; take fewer"
            " levels"
        )
    states = canonical_states(levels, choices, deadline)
    table, labels = state_table(instance, states, deadline)
    if trivially_infeasible(table):
        raise InfeasibleError("no assignment keeps to the constraints")
    return table, labels


def thresholds_of(instance: Instance) -> ThresholdTable | None:
    """Return the problem by thresholds, without its constraints; None if it has none.

    None where levels differ, or constraints tell them apart: those apply to states.
    """
    constraints, levels = instance.constraints, instance.problem.levels
    if constraints.any and not constraints.by_counts:
        return None
    return instance.cost.thresholds(instance.workload, levels)


def threshold_table(instance: Instance, thresholds: ThresholdTable) -> tuple[CostTable, RowNames]:
    """Return all thresholds, "model parallelism at t levels or more", as one table.

    A plan has model parallelism at the topmost levels, so that threshold t is that of
    level Ht: its second choice is model parallelism there.
    """
    levels = instance.problem.levels
    table = replace(thresholds.as_one_table(), trick=instance.workload.trick * levels)
    if instance.constraints.any:
        table = replace(table, allowed=instance.constraints.thresholds().reshape(-1, 2))
    return table, instance.labels(*_names(levels))


def state_table(
    instance: Instance, states: Sequence[State], deadline: Deadline
) -> tuple[CostTable, RowNames]:
    """Return the table of states, each a layer's choices at all levels, with its constraints."""
    levels = instance.problem.levels
    table = expanded(instance.cost, instance.workload, levels, deadline)
    table = instance.constraints.states(table, list(states), deadline)
    return table, instance.labels(*_names(levels), states=states)


def _names(levels: int) -> tuple[str, ...]:
    return tuple(f"H{level + 1}" for level in range(levels))
