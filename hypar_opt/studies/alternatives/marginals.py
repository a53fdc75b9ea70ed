"""The least cost of a plan with each choice of each layer at each level."""

from __future__ import annotations

import math

import numpy as np

from hypar_opt.costs.state_table import FactoredTable
from hypar_opt.costs.table import CostTable
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.instance.instance import Instance
from hypar_opt.search.cost_to_go import chain_table
from hypar_opt.search.reductions import ByThresholds
from hypar_opt.solvers.elimination.marginals import least_by_choice
from hypar_opt.solvers.elimination.solve import eliminated
from hypar_opt.solvers.feasibility import allowed_choices
from hypar_opt.solvers.product_states import costs_to_come, costs_to_go

Least = list[list[list[int | None]]]
"""By node, level and choice, in the cost model's units; None if no plan has the choice."""


def least_with_choices(instance: Instance, deadline: Deadline = NEVER) -> Least:
    """Return the least joint cost of a plan with each choice, for a problem without memory limit.

    By thresholds if levels are interchangeable; else by a forward and a backward pass along a
    chain, or by elimination on a graph.

    Raises
    ------
    RefusedError
        If a table is larger than memory allows.
    NoAnswerError
        If the deadline passes.
    """
    thresholds = ByThresholds.accepts(instance)
    if thresholds is not None:
        return _by_thresholds(thresholds.apply()[0], instance.problem.levels, deadline)
    table = chain_table(instance, deadline)
    return _by_elimination(instance, deadline) if table is None else _along_chain(table)


def _by_thresholds(table: CostTable, levels: int, deadline: Deadline) -> Least:
    """Return the least costs where thresholds are independent.

    Levels can be permuted. So a layer may take model parallelism at a level if it does at one or
    more, the first threshold, and data parallelism if not at all of them, the last. Where one
    threshold is forced for a layer, the others' optima still go with it: the minima
    of submodular functions that ascend with the threshold are nested.
    """
    # The least costs are of the choices that are allowed.
    costs, allowed = least_by_choice(eliminated(table, deadline), deadline), allowed_choices(table)
    first_of_last = table.layers - table.layers // levels
    by_node: Least = []
    for one, node in enumerate(range(first_of_last, table.layers)):
        data = int(costs[node][0]) if allowed[node, 0] else None
        model = int(costs[one][-1]) if allowed[one, 1] else None
        by_node.append([[data, model]] * levels)
    return by_node


def _along_chain(table: FactoredTable) -> Least:
    by_layer = [
        come + go for come, go in zip(costs_to_come(table), costs_to_go(table), strict=True)
    ]
    upper_bound = math.inf if table.penalty is None else table.penalty
    by_node: Least = []
    for costs in by_layer:
        # The digits of a column are its choices, H1's first.
        views = (costs.reshape(table.choices**n, table.choices, -1) for n in range(table.levels))
        rows = [view.min(axis=(0, 2)).tolist() for view in views]
        by_node.append([[cost if cost < upper_bound else None for cost in row] for row in rows])
    return by_node


def _by_elimination(instance: Instance, deadline: Deadline) -> Least:
    of_states, choices = instance.states(deadline), len(instance.workload.choices)
    table, levels = of_states.dense(deadline), of_states.levels
    digits = np.array(of_states.states, np.intp).reshape(-1, levels)
    by_node: Least = []
    by_layer = least_by_choice(eliminated(table, deadline), deadline)
    for costs, allowed in zip(by_layer, allowed_choices(table), strict=True):
        rows = digits[allowed]
        having = [[costs[rows[:, n] == choice] for choice in range(choices)] for n in range(levels)]
        by_node.append([[int(some.min()) if len(some) else None for some in row] for row in having])
    return by_node
