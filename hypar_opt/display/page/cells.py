"""The cells of the page's grid: the cost of each choice of each layer at each level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from hypar_opt.costs.base import CostModel
from hypar_opt.costs.shared_nodes import level_tables, rows_with_shared
from hypar_opt.costs.table import CostTable
from hypar_opt.instance.instance import Instance
from hypar_opt.integers import Integers
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.stored_layouts import plan_tensors
from hypar_opt.planning.priced import plans_of_stages
from hypar_opt.step.states import exact_sum, states_from_rows
from hypar_opt.studies.alternatives import Regret
from hypar_opt.studies.simulation import per_second
from hypar_opt.workload.tensors import Workload

MAX_CELLS = 300
"""Regrets are computed for up to this many layers times levels."""

MAX_STEPS = 10**8
"""Pairs of product states up to which a joint search's regrets are computed: over all other choices
where each takes a solve, as under a memory limit."""


@dataclass(frozen=True)
class ChoiceCost:
    """The cost of one choice of a cell, in the plan's unit."""

    choice: str
    chosen: bool
    """Whether it is the plan's choice."""
    layer: Fraction
    """At this level, given the levels above: the cost of the layer, and that of its edges to its
    neighbours with the plan's choices."""
    neighbours: Fraction
    extra: int | float | None
    """Over all levels with everything else re-optimised; None if that is not known or no plan has
    the choice."""


Cells = tuple[tuple[tuple[ChoiceCost, ...], ...], ...]
"""Levels x layers x choices; no choices where their costs are not known by layer."""


def why_no_regrets(plan: Plan) -> str:
    """Return why the regrets of other choices are not computed; empty if they are."""
    if plan.is_staged:
        return "A plan in stages has no regrets of other choices: each takes a search of stages."
    cells = len(plan.layers) * plan.levels
    steps = 0
    if plan.solver.scope == "joint":
        instance = Instance.of_plan(plan)
        at_once = plan.solver.status == "optimal" and not instance.constraints.couple_layers
        if at_once and instance.thresholds is not None:
            return ""  # two answers per layer and level, for any number of them
        steps = len(plan.layers) * len(plan.choices) ** (2 * plan.levels)
        if not at_once:
            steps *= cells * (len(plan.choices) - 1)
    if cells <= MAX_CELLS and steps <= MAX_STEPS:
        return ""
    return (
        f"For a plan of {len(plan.layers):,} layers and {plan.levels} levels the page has no"
        " regrets of other choices; solve --regret computes them, which may take long."
    )


def cell_costs(plan: Plan, regrets: Sequence[Regret]) -> Cells:
    """Return the charge of each choice at its level, and its regret if known.

    Returns
    -------
    tuple
        Levels x layers x choices, in the plan's unit.
    """
    instance = Instance.of_plan(plan)
    workload = instance.workload
    extra = {(regret.level, regret.layer, regret.choice): regret.extra for regret in regrets}
    first, tensors = workload.shared, plan_tensors(plan, workload)
    rows = rows_with_shared(workload, instance.cost, plan.assignments(), tensors)
    cost = instance.cost.for_plan(workload, rows)
    levels = []
    above: list[Sequence[int]] = []
    tables = level_tables(workload, cost, plan.assignments(), tensors)
    for level, (table, row) in enumerate(tables, 1):
        # A level's table is conditioned on the choices above it, so the levels go top down.
        costs = _layer_costs(workload, cost, above)
        edges = _edge_costs(table, row)
        above.append(row)
        levels.append(
            tuple(
                tuple(
                    ChoiceCost(
                        choice=choice,
                        chosen=column == row[n],
                        layer=table.in_units(costs[n][column]),
                        neighbours=table.in_units(edges[n][column]),
                        extra=0 if column == row[n] else extra.get((level, layer, choice)),
                    )
                    for column, choice in enumerate(words)
                    if choice
                )
                # Shared nodes come first, and are not part of the plan.
                for n, (layer, words) in enumerate(zip(plan.layers, plan.words, strict=True), first)
            )
        )
    return tuple(levels)


def cells_of_stages(plan: Plan) -> Cells:
    """Return the charge of each choice inside its stage, without regrets.

    Returns
    -------
    tuple
        Levels x layers x choices, in the plan's unit; none at H1, whose parts are the stages.
    """
    columns: dict[str, list[tuple[ChoiceCost, ...]]] = {}
    for stage_plan in plans_of_stages(plan):
        units = Fraction(per_second(plan), per_second(stage_plan))
        for level in cell_costs(stage_plan, ()):
            for layer, options in zip(stage_plan.layers, level, strict=True):
                charged = tuple(
                    replace(one, layer=one.layer * units, neighbours=one.neighbours * units)
                    for one in options
                )
                columns.setdefault(layer, [()]).append(charged)
    return tuple(zip(*(columns[layer] for layer in plan.layers), strict=True))


def _edge_costs(table: CostTable, row: Sequence[int]) -> list[list[int]]:
    """Return the cost of a layer's edges for each choice, with the plan's choices of neighbours.

    Returns
    -------
    list of list of int
        (layers, choices), in the table's resolution.
    """
    costs = [[0] * table.choices for _ in range(table.layers)]
    for (source, target), edge in zip(table.ends.tolist(), table.edge.tolist(), strict=True):
        # An edge counts for both of its layers: either may change its choice.
        for choice in range(table.choices):
            costs[source][choice] += edge[choice][row[target]]
            costs[target][choice] += edge[row[source]][choice]
    return costs


def _layer_costs(
    workload: Workload, cost: CostModel, above: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return what a level's choices add to the charges of the layers themselves.

    An all-reduce around a ring joins all levels of one choice, so that it is a difference.

    Returns
    -------
    list of list of int
        (nodes, choices), in the cost's resolution.
    """
    nodes = np.arange(len(workload.nodes))[:, None]
    states = [row[..., None] for row in states_from_rows(above, len(nodes))]
    before = exact_sum(cost.node(workload, nodes, states))
    choices = np.arange(len(workload.choices))[None, None]
    charges = exact_sum(cost.node(workload, nodes, [*states, choices]))
    added: Integers = np.broadcast_to(charges - before, (len(nodes), choices.size))
    return list(added.tolist())
