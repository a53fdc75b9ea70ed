"""A plan's training step on an array: its exchanges, its computations, and their tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import SplitCounts
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.compute import Work
from hypar_opt.costs.readings import INFERENCE, READINGS, TRAINING, Phase
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.schedule import ExchangedBytes, Schedule

if TYPE_CHECKING:
    from hypar_opt.costs.sharing import Rows
    from hypar_opt.costs.table import Integers
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.simulator.tasks import Task
    from hypar_opt.workload.tensors import Workload

_AS_THE_ARRAY = RunOptions()


def program(
    plan: Plan,
    workload: Workload,
    array: Array,
    options: RunOptions = _AS_THE_ARRAY,
    rows: Rows | None = None,
) -> tuple[Task, ...]:
    """Return the tasks of a plan's step on an array.

    Parameters
    ----------
    rows : (levels, nodes)
        As `hypar_opt.simulator.simulate_step`.

    Raises
    ------
    HyparError
        If the profile is not of this network and batch.
    """
    rows = plan.assignments() if rows is None else rows
    # The simulator moves unweighted bytes: a level's weight belongs to the search's objective.
    unweighted = plan.problem.model_copy(update={"level_weights": ()})
    communication = CommunicationCost.from_problem(unweighted, workload)
    schedule = Schedule(
        workload,
        exchanged_bytes(workload, communication, rows),
        _seconds(plan, workload, array, options, rows),
        _placement(plan, array),
        scatter=READINGS[plan.cost.reading].gathered_error > 0,
        ring=(options.collective or array.collective) == "ring",
        overlap=options.overlap,
    )
    return schedule.tasks()


def exchanged_bytes(
    workload: Workload, communication: CommunicationCost, rows: Sequence[Sequence[int]]
) -> Mapping[Phase, ExchangedBytes]:
    """Return the bytes that every pass exchanges: the cost tables' entries at a plan's choices.

    Parameters
    ----------
    rows : levels x nodes
        The column of every node's choice, H1 first.
    """
    return {
        phase: _of_pass(workload, communication.of(phase), rows) for phase in communication.phases
    }


def _of_pass(
    workload: Workload, cost: CommunicationCost, rows: Sequence[Sequence[int]]
) -> ExchangedBytes:
    """Return the bytes that one pass exchanges, by level and node or boundary."""
    sources, targets = workload.ends.T
    nodes, boundaries = [], []
    splits_above = SplitCounts.down(len(workload.nodes), cost.choices, rows)
    # `down` yields one more: the splits below the deepest level.
    for splits, row in zip(splits_above, rows, strict=False):
        choice = np.asarray(row, np.intp)
        node = cost.node(workload, splits)[np.arange(len(choice)), choice]
        edge = cost.edge(workload, splits, splits)
        pairs = edge[np.arange(len(edge)), choice[sources], choice[targets]]
        nodes.append(_in_bytes(node, cost))
        boundaries.append(_in_bytes(pairs, cost))
    return ExchangedBytes(tuple(nodes), tuple(boundaries))


def _in_bytes(charges: Integers, cost: CommunicationCost) -> tuple[Fraction, ...]:
    # Small elements have fractional bytes: a table of theirs counts halves or quarters.
    return tuple(Fraction(charge, cost.resolution) for charge in charges.tolist())


def phases_of(plan: Plan) -> tuple[Phase, ...]:
    """Return the passes of a plan's step, in their order."""
    return INFERENCE if plan.inference else TRAINING


def final_counts(plan: Plan, workload: Workload, rows: Rows) -> Integers:
    """Return how many levels have each choice, for every node: ``(choices, nodes)`` integers."""
    *_, final_splits = SplitCounts.down(len(workload.nodes), len(plan.choices), rows)
    return final_splits.counts


def _placement(plan: Plan, array: Array) -> tuple[int, ...]:
    """Return the plan's placement if the plan was made for this array, or else the array's."""
    # On another array the plan's order of the bits has no meaning.
    made_for_array = plan.array is not None and plan.array.digest == array.digest()
    return plan.placement if made_for_array and plan.placement is not None else array.placement


def _seconds(
    plan: Plan, workload: Workload, array: Array, options: RunOptions, rows: Rows
) -> Mapping[Phase, Sequence[float]]:
    """Return, by pass, the seconds of every node's computation on one accelerator."""
    phases = phases_of(plan)
    if options.profile is None:
        # Every pass of a layer has the same multiply-accumulates, and touches the same tensors.
        work = Work(array.accelerator, plan.levels, plan.element_bytes, options.input_sizes)
        counts = final_counts(plan, workload, rows)
        computed = [float(seconds) for seconds in work.seconds(workload, counts)]
        return dict.fromkeys(phases, computed)
    names = [layer.name for layer in workload.layers]
    measured = options.profile.seconds(names, workload.batch, [phase.value for phase in phases])
    # What layers share takes no time of its own.
    shared = [0.0] * workload.shared
    # The profile is of one accelerator with the whole batch; every choice halves a layer's work.
    return {
        phase: shared + [float(seconds / 2**plan.levels) for seconds in measured[phase]]
        for phase in phases
    }
