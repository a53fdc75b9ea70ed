"""An infeasible problem as a model whose rows are named after its constraints.

A solver's irreducible infeasible subsystem (IIS) of it shows which constraints are in conflict:
``fix[fc1=data,fc1]``, ``even[conv1]``, ``runnable[conv1]`` and ``memory``, or with groups that of
each part of H1, ``memory[H1.2]``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.state_charges import states_of
from hypar_opt.costs.weights import constrained
from hypar_opt.errors import InfeasibleError
from hypar_opt.instance.conflicts import forbidden_by, with_members
from hypar_opt.instance.constraints import ConstraintSet
from hypar_opt.search.reductions import ByStates
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.feasibility import trivially_infeasible
from hypar_opt.solvers.model_names import column_namer, plain_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hypar_opt.costs.table import CostTable
    from hypar_opt.instance.instance import Instance
    from hypar_opt.solvers.ilp.zero_one import ZeroOneProgram


def write_infeasible(instance: Instance, path: Path) -> bool:
    """Write the model of an infeasible problem; return whether the model is infeasible.

    It is not if the conflict is about the memory of weights that several layers share.

    Raises
    ------
    RefusedError
        If the model would be too large, or the format cannot hold its costs or names.
    """
    from hypar_opt.solvers.ilp.formulate import formulate
    from hypar_opt.solvers.ilp.model_file import check_format, write_program

    check_format(path)
    problem, workload = instance.problem, instance.workload
    reduction = ByStates(instance.with_constraints(with_members(problem.constraints, ())))
    reduction.check_size(SOLVERS["ilp"](), instead="take fewer levels")
    table, labels = reduction.apply()
    states = states_of(workload, problem.levels)
    memory = with_members(problem.constraints, [("memory", "")])
    alone = problem.model_copy(update={"constraints": memory})
    if not _shows(instance, table, states):
        return False
    program = formulate(table)
    for (name, pin), forbidden in forbidden_by(problem, workload, states):
        for node in np.flatnonzero(forbidden.any(axis=1)).tolist():
            weights = {(node, state): 1 for state in np.flatnonzero(forbidden[node]).tolist()}
            fields = (pin, labels.layer(node)) if pin else (labels.layer(node),)
            program = program.with_constraint(plain_name(name, *fields), weights, "<=", 0)
    if memory.memory is not None:
        limits = ConstraintSet(alone, workload).of_states(states)
        program = _within(program, constrained(workload, table, *limits))
    write_program(program, column_namer(table, labels), path)
    return True


def _shows(instance: Instance, table: CostTable, states: Sequence[tuple[int, ...]]) -> bool:
    """Whether the constraints of single nodes and the sum of loads leave no plan."""
    try:
        constraints = ConstraintSet(instance.problem, instance.workload)
    except InfeasibleError:  # pins in conflict
        return True
    limited = constrained(instance.workload, table, *constraints.of_states(states))
    return trivially_infeasible(limited)


def _within(program: ZeroOneProgram, table: CostTable) -> ZeroOneProgram:
    """Add each capacity of a table as a row, of loads in excess of each node's lightest."""
    for number, (of_states, capacity) in enumerate(table.limits, 1):
        loads = of_states.tolist()
        weights = {
            (node, state): load - min(row) for node, row in enumerate(loads)
            for state, load in enumerate(row)
        }  # fmt: skip
        unit = math.gcd(*weights.values()) or 1
        capacity_in_units = (capacity - sum(map(min, loads))) // unit
        weights = {choice: weight // unit for choice, weight in weights.items()}
        name = plain_name("memory", f"H1.{number}") if len(table.limits) > 1 else "memory"
        program = program.with_constraint(name, weights, "<=", capacity_in_units)
    return program
