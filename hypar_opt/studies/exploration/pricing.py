"""Pricing every plan of a subspace in closed form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.checked import checked
from hypar_opt.costs.energy import EnergyCost
from hypar_opt.costs.table import chain_ends
from hypar_opt.costs.time import TimeCost
from hypar_opt.errors import ARRAY, HyparError, RefusedError, argument
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price
from hypar_opt.plan.arguments import problem_of
from hypar_opt.search.check_result import check_bound
from hypar_opt.simulator.closed_form import MAX_PLANS, ClosedForm, charges_of_states
from hypar_opt.studies.exploration.graph_pricing import GraphCharges
from hypar_opt.studies.exploration.result import Exploration, PricedPlan, Values
from hypar_opt.studies.exploration.subspace import (
    Cell,
    allowed_states,
    axes_of,
    cells_of,
    level_choices,
    state_number,
    states_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.base import CostModel
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import Problem


@checked
def explore(
    plan: Plan,
    free: str,
    *,
    objective: str = "bytes",
    array: str | Path | Array | None = None,
) -> Exploration:
    """Price every plan that differs from one in what is free, and keeps to its constraints.

    Parameters
    ----------
    free
        Levels, ``H1,H4``: all layers at those; layers, ``conv5_2,fc*``: at all levels;
        ``conv5_2@H1``: one of both; ``all``. What any of them names is free.
    objective
        ``bytes`` of the plan's reading, ``time`` added up in closed form, or ``energy``.
    array
        For a plan without one.

    Raises
    ------
    HyparError
        If ``free`` names nothing, or the objective needs an array.
    RefusedError
        If there are too many plans, or memory is limited.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> plan = ho.solve("lenet-c", reading="figures", array="hmc-htree-16")
    >>> exploration = explore(plan, "H1,H4", objective="time")
    >>> f"HyPar's is number {exploration.rank} of {exploration.values.size} plans"
    "HyPar's is number 1 of 256 plans"
    """
    cells = _checked_cells(free, plan)
    problem = _problem(plan, objective, array)
    instance = Instance(plan.network.description, problem)
    allowed = allowed_states(instance)
    of_layers = None if allowed is None else allowed[instance.workload.shared :]
    axes, states = axes_of(cells), states_of(plan, cells, of_layers)
    values, data_parallel_cost, unit = values_of(instance, allowed, states, axes)
    first = _priced(instance, _first_best(plan, values, states, axes))
    if problem == plan.problem:
        check_bound(plan, first.cost.total)
    return Exploration(
        plan=plan,
        free=free,
        cells=cells,
        problem=problem,
        unit=unit,
        states=states,
        values=values,
        data_parallel_cost=data_parallel_cost,
        plan_index=_index_of(plan, states, axes),
        own=_priced(instance, plan.assignments()),
        first=first,
    )


class PricedStates(NamedTuple):
    """What every combination of layers' states costs, and Data Parallelism, in a unit."""

    values: Values
    data_parallel_cost: float
    unit: str


def values_of(
    instance: Instance,
    allowed: NDArray[np.bool_] | None,
    states: Sequence[NDArray[np.intp]],
    axes: Sequence[int],
) -> PricedStates:
    """Return what every combination of states costs by an instance's cost, an axis a layer."""
    charges = _charges_of(instance, allowed)
    values = _price_all(charges, states, axes)
    unit, parts = _unit_of(instance.cost)
    # In place: there may be 2^27 of them.
    values /= parts
    return PricedStates(values, _data_parallel_cost(charges, len(states)) / parts, unit)


def _checked_cells(free: str, plan: Plan) -> tuple[Cell, ...]:
    cells = tuple(cells_of(free, plan))
    base = len(plan.choices)
    plans = base ** len(cells)
    if plans > MAX_PLANS:
        exactly = f" = {plans:,}" if plans < 10**15 else ""
        raise RefusedError(
            f"{argument('free', free)}: there are {base}^{len(cells)}{exactly} plans, more than"
            f" {MAX_PLANS:,}; leave fewer choices free"
        )
    return cells


def _problem(plan: Plan, objective: str, array: str | Path | Array | None) -> Problem:
    """Return the plan's problem with the objective as its cost."""
    fields: dict[str, Any] = {**dict(plan.problem), "cost": objective}
    # Another array has other hierarchy bits, so the plan's placement says nothing there.
    if array is not None:
        fields |= {"array": array, "placement": None}
    problem = problem_of(**fields)
    # Memory adds up over layers, and no plan is a product of layers' states under it.
    if problem.constraints.memory is not None:
        memory = argument("constraints.memory")
        raise RefusedError(f"explore takes no {memory}: it looks at layers one after the other")
    if problem.array is None and objective in ("time", "energy"):
        raise HyparError(f"{argument('objective', objective)} needs an array: {ARRAY}")
    return problem


def _unit_of(cost: CostModel) -> tuple[str, int]:
    """Return the unit of an exploration's values, and how many of the closed form's make one."""
    if isinstance(cost, TimeCost):  # the closed form of time is in seconds already
        return "seconds", 1
    if isinstance(cost, EnergyCost):
        return "joules", cost.per_joule
    return cost.unit, 1


def _charges_of(instance: Instance, allowed: NDArray[np.bool_] | None) -> ClosedForm | GraphCharges:
    """Return the charges of all states: of a chain, in the form that adds up fastest."""
    cost, workload, levels = instance.cost, instance.workload, instance.problem.levels
    node, edge, ends = charges_of_states(cost, workload, levels)
    if np.array_equal(ends, chain_ends(len(node))):
        return ClosedForm(node, edge)
    if allowed is None:
        allowed = np.ones(node.shape, bool)
    shared = [np.flatnonzero(row) for row in allowed[: workload.shared]]
    return GraphCharges(node, edge, ends, shared)


def _price_all(
    charges: ClosedForm | GraphCharges, states: Sequence[NDArray[np.intp]], axes: Sequence[int]
) -> Values:
    """Return what every combination of states costs; a layer without an axis has one state.

    Sums of bytes are exact, since float64 holds them; those of time and energy are rounded.
    """
    if isinstance(charges, GraphCharges):
        return charges.of_all(states, axes)
    return _price_chain(charges, states, axes)


def _price_chain(
    closed: ClosedForm, states: Sequence[NDArray[np.intp]], axes: Sequence[int]
) -> Values:
    """Return what every combination of states of a chain's layers costs.

    Each layer without an axis is added to its neighbours first: numpy has 32 axes, and a network
    may have more layers.
    """
    nodes, edges = list(closed.node), list(closed.edge)
    # From the last: what is removed does not renumber the layers before it.
    for layer in reversed(range(len(states))):
        if layer in axes:
            continue
        state = states[layer].item()
        own = nodes.pop(layer)[state]
        # A chain: a layer has at most an edge before it and one after it.
        if layer == 0:
            nodes[0] = own + edges.pop(0)[state] + nodes[0]
        elif layer == len(nodes):
            nodes[-1] = nodes[-1] + edges.pop()[:, state] + own
        else:
            after = edges.pop(layer)[state]
            edges[layer - 1] = edges[layer - 1][:, state, None] + own + after
    edge = np.array(edges).reshape(len(edges), *closed.edge.shape[1:])
    return ClosedForm(np.array(nodes), edge).of_all([states[layer] for layer in axes])


def _data_parallel_cost(charges: ClosedForm | GraphCharges, layers: int) -> float:
    """Return what the state 0 of every layer costs."""
    return float(_price_all(charges, [np.zeros(1, np.intp)] * layers, [0]).item())


def _index_of(
    plan: Plan, states: Sequence[NDArray[np.intp]], axes: Sequence[int]
) -> tuple[int, ...]:
    """Return the plan's index into the values."""
    base = len(plan.choices)
    # One accelerator has no levels, and every layer the state 0.
    columns = list(zip(*plan.assignments(), strict=True)) or [()] * len(plan.layers)
    own = [state_number(column, base) for column in columns]
    return tuple(int(np.flatnonzero(states[layer] == own[layer])[0]) for layer in axes)


def _first_best(
    plan: Plan, values: Values, states: Sequence[NDArray[np.intp]], axes: Sequence[int]
) -> list[list[int]]:
    """Return the choices of the first plan of the lowest cost: levels x layers."""
    best = [layer_states[0].item() for layer_states in states]
    index = np.unravel_index(int(values.argmin()), values.shape)
    for layer, position in zip(axes, index, strict=True):
        best[layer] = states[layer][position].item()
    return level_choices(best, len(plan.choices), plan.levels)


def _priced(instance: Instance, rows: Sequence[Sequence[int]]) -> PricedPlan:
    """Price a plan by its reading, and as it is when run."""
    # From the exact tables: the closed form is in floating point, and only ranks.
    cost = price(instance, rows)
    run = instance.problem.model_copy(update={"reading": "executed"})
    try:
        executed = price(Instance(instance.network, run), rows)
    except HyparError:  # a plug-in's cost may have readings of its own
        executed = None
    return PricedPlan(cost, executed)
