"""Reprice a plan from its choices alone, and refuse a plan that states another cost.

No code here is shared with a solver: a cost is the sum of the table entries of the choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.base import CostModel
from hypar_opt.costs.shared_nodes import Rows, Tensors, rows_with_shared
from hypar_opt.errors import HyparError
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pins import columns_of, pinned_choices
from hypar_opt.integers import exact_dtype
from hypar_opt.plan.costs import Baselines, Cost, Ratios, json_number
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.schemas import SCHEMA
from hypar_opt.plan.stored_layouts import (
    rows_with_stored,
    stored_layouts,
)
from hypar_opt.sharding.layouts import Layout
from hypar_opt.workload.operators.words import choices_of
from hypar_opt.workload.parallelism import PAPERS_CHOICES

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable
    from hypar_opt.hierarchy import SplitRule
    from hypar_opt.integers import Integers
    from hypar_opt.workload.tensors import Workload


def price_table(table: CostTable, assignment: Sequence[int]) -> int:
    """Return the cost of an assignment, as the table's entries count."""
    choice = np.asarray(assignment, np.intp)
    source, target = table.ends.T
    nodes = table.node[np.arange(table.layers), choice].sum()
    edges = table.edge[np.arange(len(table.ends)), choice[source], choice[target]].sum()
    return int(nodes) + int(edges)


def price_levels(
    workload: Workload,
    cost: CostModel,
    rows: Rows,
    tensors: Tensors | None = None,
    *,
    rule: SplitRule | None = None,
) -> tuple[Fraction, ...]:
    """Return the cost of each level, H1 first, in the cost's unit.

    Parameters
    ----------
    rows : (levels, layers)
        The layers' choices.
    tensors
        The layouts of shared tensors; unless given those that then cost least.
    rule
        How layers and shared tensors may be split; None without a rule.
    """
    (priced,) = price_plans(workload, cost, [rows], [tensors], rule=rule)
    return priced


def total_cost(
    instance: Instance, rows: Rows, tensors: Tensors | None = None, *, charged: bool = False
) -> Fraction:
    """Return the cost of a plan, ``(levels, layers)``, in the cost's unit.

    With ``charged``, the sum of its charges in tables, which may be less.
    """
    workload, rule = instance.workload, instance.rule
    (charges,) = _charges(workload, instance.cost, [rows], [tensors], rule=rule, charged=charged)
    return charges.total


def price_plans(
    workload: Workload,
    cost: CostModel,
    plans: Sequence[Rows],
    tensors: Sequence[Tensors | None],
    *,
    rule: SplitRule | None = None,
) -> list[tuple[Fraction, ...]]:
    """Return the cost of each level of several plans of as many levels.

    Parameters
    ----------
    plans : (plans, levels, layers)
    tensors
        The layouts of shared tensors in each plan, as for `price_levels`.
    """
    charges = _charges(workload, cost, plans, tensors, rule=rule)
    return [of_plan.levels for of_plan in charges]


class _Charges(NamedTuple):
    """A plan's charges by level, and the charges in a unit."""

    of_levels: list[int]
    resolution: int

    @property
    def levels(self) -> tuple[Fraction, ...]:
        return tuple(Fraction(charge, self.resolution) for charge in self.of_levels)

    @property
    def total(self) -> Fraction:
        return Fraction(sum(self.of_levels), self.resolution)


class Charged(NamedTuple):
    """The costs of a plan, and of the paper's baselines, under a cost model."""

    cost: CostModel
    plan: _Charges
    baselines: Sequence[Fraction]
    """The costs of Data and Model Parallelism; for a run, only of the former."""


def charged_beside_baselines(
    instance: Instance, rows: Rows, tensors: Tensors | None, *, run: bool = False
) -> Charged:
    """Return the cost of a plan in the problem's objective, or in bytes of a run.

    The baselines are priced with the first plan of an instance.
    """
    workload, cost = instance.workload, instance.cost
    if run:
        workload, cost = instance.executed_workload, instance.executed
    baselines: dict[bool, list[Fraction]] = vars(instance).setdefault("baselines", {})
    rows_of_baselines = [
        [workload.baselines[name][workload.shared :]] * len(rows)
        for name in PAPERS_CHOICES[: 1 if run else None]
        if run not in baselines
    ]
    tensors_of_plans = [tensors, *[None] * len(rows_of_baselines)]
    plan, *priced = _charges(
        workload, cost, [rows, *rows_of_baselines], tensors_of_plans, rule=instance.rule
    )
    if priced:
        baselines[run] = [baseline.total for baseline in priced]
    return Charged(cost, plan, baselines[run])


def _charges(
    workload: Workload,
    cost: CostModel,
    plans: Sequence[Rows],
    tensors: Sequence[Tensors | None],
    *,
    rule: SplitRule | None,
    charged: bool = False,
) -> list[_Charges]:
    """Return the charges of each level of several plans, as `price_plans` counts them."""
    full = [
        nodes_of(workload, cost, rows, stored, rule=rule)
        for rows, stored in zip(plans, tensors, strict=True)
    ]
    if not plans[0]:
        return [_Charges([], 1)] * len(plans)
    if cost.is_additive or charged:
        return [
            _Charges(charges, cost.resolution) for charges in charges_by_level(workload, cost, full)
        ]
    # Each plan by its own shares.
    models = [cost.for_plan(workload, nodes) for nodes in full]
    return [
        _Charges(charges_by_level(workload, one, [nodes])[0], one.resolution)
        for one, nodes in zip(models, full, strict=True)
    ]


def charges_by_level(workload: Workload, cost: CostModel, full: Sequence[Rows]) -> list[list[int]]:
    """Return the charges of each level, given the choices of all nodes in each plan."""
    # (levels, plans, nodes).
    states = np.array(full, np.intp).swapaxes(0, 1)
    boundaries = np.arange(len(workload.ends))
    sources, targets = ([states[:, :, ends]] for ends in workload.ends.T)
    every_node = np.arange(len(workload.nodes))[None]
    nodes = cost.attributed.node(workload, every_node, [states])
    edges = cost.attributed.edge(workload, boundaries[None], sources, targets)
    return _summed(nodes, edges, (len(full), len(workload.nodes), len(boundaries)))


def _summed(
    nodes: Sequence[Integers], edges: Sequence[Integers], sizes: tuple[int, int, int]
) -> list[list[int]]:
    """Return the charges of each level of each plan, over all nodes and boundaries.

    Parameters
    ----------
    nodes : (levels, plans, nodes)
    edges : (levels, plans, boundaries)
        As a cost model returns them.
    sizes
        The numbers of plans, nodes and boundaries.
    """
    plans, split, charged = sizes[0], sizes[1], sum(sizes[1:])
    rows = list(zip(nodes, edges, strict=True))
    exact = all(charge.dtype == np.int64 for row in rows for charge in row)
    entries: Integers = np.empty((len(rows), plans, charged), np.int64 if exact else object)
    for level, (of_nodes, of_edges) in enumerate(rows):
        entries[level, :, :split] = of_nodes
        entries[level, :, split:] = of_edges
    total = entries.sum(axis=2, dtype=exact_dtype(int(entries.max(initial=0)) * charged))
    of_plans: list[list[int]] = total.T.tolist()
    return of_plans


def nodes_of(
    workload: Workload,
    cost: CostModel,
    rows: Rows,
    tensors: Tensors | None,
    *,
    rule: SplitRule | None,
) -> Rows:
    """Return the choices of all nodes, ``(levels, nodes)``."""
    if workload.shared and tensors is not None:
        return rows_with_stored(workload, rows, tensors)
    return rows_with_shared(workload, cost, rows, rule=rule)


def tensors_of(instance: Instance, rows: Rows) -> Tensors:
    """Return the cheapest layouts of a run's shared tensors, given the layers' choices and pins.

    They are the cheapest in the problem's objective if it charges them, else in bytes under
    ``executed``.

    Parameters
    ----------
    rows : (levels, layers)
    """
    workload = instance.executed_workload
    cost = instance.cost if instance.workload is workload else instance.executed
    nodes = rows_with_shared(workload, cost, rows, rule=instance.rule)
    pinned = columns_of(pinned_choices(instance.problem, workload), workload.tensor_writers)
    return tuple(
        {node: row[node] for node in workload.tensor_writers} | stated
        for row, stated in zip(nodes, pinned, strict=True)
    )


def layouts_of(
    instance: Instance, rows: Rows, tensors: Tensors | None = None
) -> dict[str, tuple[Layout, ...]]:
    """Return how a run of a plan stores each layer's output, by the layer's name.

    Parameters
    ----------
    rows : (levels, layers)
        The layers' choices.
    tensors
        The layouts of shared tensors; unless given those of `tensors_of`.
    """
    workload = instance.executed_workload
    if tensors is None:
        tensors = tensors_of(instance, rows)
    nodes = rows_with_stored(workload, rows, tensors)
    return stored_layouts(workload, nodes, instance.problem.hierarchy)


def price(
    instance: Instance,
    rows: Rows,
    tensors: Tensors | None = None,
    charged: Charged | None = None,
) -> Cost:
    """Price a plan and its baselines, by the problem's reading and by ``executed``.

    Parameters
    ----------
    rows : (levels, layers)
        The layers' choices.
    tensors
        The layouts of a run's shared tensors; unless given those that then cost least.
    charged
        The known cost of this plan, under whichever model.
    """
    problem, workload, cost = instance.problem, instance.workload, instance.cost
    check_choices(workload, rows)
    # Layouts are those of a run: a reading without shared tensors has none to price.
    of_reading = tensors if workload is instance.executed_workload else None
    if charged is None or charged.cost is not cost:
        charged = charged_beside_baselines(instance, rows, of_reading)
    moved, (data, model), costs = charged, charged.baselines, charged.plan.total
    if (workload, cost) != (instance.executed_workload, instance.executed):
        moved = charged_beside_baselines(instance, rows, tensors, run=True)
    communication = None
    if cost.physical is not None:
        exchanges = cost.physical.communication_only()
        exchanged = price_levels(workload, exchanges, rows, of_reading, rule=instance.rule)
        communication = tuple(map(json_number, exchanged))
    return Cost(
        kind=problem.cost,
        reading=problem.reading,
        unit=cost.unit,
        total=json_number(costs),
        per_level=tuple(map(json_number, charged.plan.levels)),
        communication=communication,
        executed_bytes=json_number(moved.plan.total),
        data_parallel_bytes=json_number(moved.baselines[0]),
        baselines=Baselines(data=json_number(data), model=json_number(model)),
        ratios=Ratios(
            data=float(data / costs) if costs else None,
            model=float(model / costs) if costs else None,
        ),
    )


def check_choices(workload: Workload, rows: Rows) -> None:
    """Refuse a choice that the reading, or a layer of its kind, does not have.

    Raises
    ------
    HyparError
        Naming the layer and its choice.
    """
    if not workload.forbidden.any():
        return
    forbidden = workload.forbidden[workload.shared :]
    choices = np.array(rows, np.intp).reshape(-1, len(forbidden))
    lacking = forbidden[np.arange(len(forbidden)), choices]
    if lacking.any():
        level, position = np.argwhere(lacking)[0]
        layer, word = workload.layers[position], workload.words[workload.shared + position]
        column = choices[level, position]
        lacked, choice = word[column], choices_of(layer, workload.choices)[column]
        if choice and choice.axis in layer.lacked:
            raise HyparError(
                f"layer {layer.name!r}: {lacked} needs all {choice.part}s in each tensor that is"
                " split"
            )
        raise HyparError(f"layer {layer.name!r}: {lacked} needs the reading executed")


def with_layouts(plan: Plan) -> Plan:
    """Return a plan with the layouts that follow from its choices, if its file states none."""
    if plan.layouts is not None:
        return plan
    instance, rows, cost = Instance.of_plan(plan), plan.assignments(), plan.cost
    tensors = tensors_of(instance, rows)
    if cost.executed_bytes is None:
        # Version 1 had no run of output parallelism.
        moved = price(instance, rows, tensors).executed_bytes
        cost = cost.model_copy(update={"executed_bytes": moved})
    layouts = layouts_of(instance, rows, tensors)
    return plan.model_copy(update={"schema_": SCHEMA, "layouts": layouts, "cost": cost})
