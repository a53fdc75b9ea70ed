"""Every plan of a subspace priced at once: the paper's figures 9 and 10, for any network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.energy import EnergyCost
from hypar_opt.costs.product import canonical_states, expanded, in_mixed_radix
from hypar_opt.costs.time import TimeCost
from hypar_opt.errors import ARRAY, HyparError, RefusedError, argument
from hypar_opt.plan.arguments import problem_of
from hypar_opt.search.instance import Instance
from hypar_opt.search.pricing import price
from hypar_opt.simulator.closed_form import MAX_PLANS, ClosedForm
from hypar_opt.studies.exploration.found import (
    Cell,
    Exploration,
    Grid,
    Priced,
    Values,
    axes_of,
    cells_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan

__all__ = ["Exploration", "Grid", "explore"]


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
        If there are too many plans, the layers are no chain, or memory is limited.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> plan = ho.solve("lenet-c", reading="figures", array="hmc-htree-16")
    >>> found = explore(plan, "H1,H4", objective="time")
    >>> f"HyPar's is number {found.rank} of {found.values.size} plans"
    "HyPar's is number 1 of 256 plans"
    """
    cells = tuple(cells_of(free, plan))
    base = len(plan.choices)
    number = base ** len(cells)
    if number > MAX_PLANS:
        exactly = f" = {number:,}" if number < 10**15 else ""
        raise RefusedError(
            f"{argument('free', free)}: there are {base}^{len(cells)}{exactly} plans, more than"
            f" {MAX_PLANS:,}; leave fewer choices free"
        )
    asked = {**dict(plan.problem), "cost": objective}
    if array is not None:
        asked |= {"array": array, "placement": None}
    problem = problem_of(**asked)
    if problem.constraints.memory is not None:
        memory = argument("constraints.memory")
        raise RefusedError(f"explore takes no {memory}: it looks at layers one after the other")
    if problem.array is None and objective in ("time", "energy"):
        raise HyparError(f"{argument('objective', objective)} needs an array: {ARRAY}")
    instance = Instance(plan.network.description, problem)
    cost = instance.cost
    closed = ClosedForm.of(cost, instance.workload, plan.levels)
    own = [_number_of(column, base) for column in zip(*plan.assignments(), strict=True)]
    own = own or [0] * len(plan.layers)  # one accelerator chooses nothing
    states = _states(plan, cells, _allowed(instance))
    axes = axes_of(cells)
    values = _priced(closed, states, axes)
    data = _priced(closed, [np.zeros(1, np.intp)] * len(own), [0]).item()
    unit, parts = cost.unit, 1
    if isinstance(cost, TimeCost):
        unit = "seconds"
    elif isinstance(cost, EnergyCost):
        unit, parts = "joules", cost.per_joule
        values /= parts
    at = tuple(int(np.flatnonzero(states[layer] == own[layer])[0]) for layer in axes)
    first = np.unravel_index(int(values.argmin()), values.shape)
    best = [each[0].item() for each in states]
    for layer, place in zip(axes, first, strict=True):
        best[layer] = states[layer][place].item()
    return Exploration(
        plan=plan,
        free=free,
        cells=cells,
        array=problem.array.name if problem.array else None,
        objective=objective,
        unit=unit,
        states=states,
        values=values,
        data=data / parts,
        at=at,
        own=_when_run(instance, plan.assignments()),
        first=_when_run(instance, _rows_of(best, base, plan.levels)),
    )


def _when_run(instance: Instance, rows: Sequence[Sequence[int]]) -> Priced:
    """Price a plan by its reading, and as it is when run."""
    cost = price(instance, rows)
    run = instance.problem.model_copy(update={"reading": "executed"})
    try:
        executed = price(Instance(instance.network, run), rows)
    except HyparError:  # output parallelism, of which no run is known
        executed = None
    return Priced(cost, executed)


def _rows_of(states: Sequence[int], base: int, levels: int) -> list[list[int]]:
    """Return the choices that states stand for: levels x layers."""
    places = range(levels - 1, -1, -1)
    return [[state // base**place % base for state in states] for place in places]


def _priced(closed: ClosedForm, states: Sequence[NDArray[np.intp]], axes: Sequence[int]) -> Values:
    """Return what every combination of states costs; a layer without an axis has one state.

    Each of those is added to its neighbours first: numpy has 32 axes, and a network may have
    more layers.
    """
    nodes, edges = list(closed.node), list(closed.edge)
    for layer in reversed(range(len(states))):
        if layer in axes:
            continue
        state = states[layer].item()
        own = nodes.pop(layer)[state]
        if layer == 0:
            nodes[0] = own + edges.pop(0)[state] + nodes[0]
        elif layer == len(nodes):
            nodes[-1] = nodes[-1] + edges.pop()[:, state] + own
        else:
            after = edges.pop(layer)[state]
            edges[layer - 1] = edges[layer - 1][:, state, None] + own + after
    edge = np.array(edges).reshape(len(edges), *closed.edge.shape[1:])
    return ClosedForm(np.array(nodes), edge).of_all([states[layer] for layer in axes])


def _states(
    plan: Plan, cells: tuple[Cell, ...], allowed: NDArray[np.bool_] | None
) -> tuple[NDArray[np.intp], ...]:
    """Return what each layer may take: the plan's own choices where they are not free."""
    base, free = len(plan.choices), set(cells)
    found = []
    for layer in range(len(plan.layers)):
        states = np.zeros(1, np.intp)
        for level, row in enumerate(plan.assignments()):
            digits = np.arange(base) if (level, layer) in free else np.array([row[layer]])
            states = (states[:, None] * base + digits).reshape(-1)
        found.append(states if allowed is None else states[allowed[layer, states]])
    return tuple(found)


def _allowed(instance: Instance) -> NDArray[np.bool_] | None:
    """Return whether each layer may take each state; None where nothing is asked."""
    cost, levels = instance.cost, instance.problem.levels
    if not instance.constraints.any:
        return None
    states = canonical_states(levels, cost.choices)
    table = instance.constraints.states(expanded(cost, instance.workload, levels), states)
    if table.allowed is None:
        return None
    allowed: NDArray[np.bool_] = np.empty_like(table.allowed)
    allowed[:, in_mixed_radix(states, cost.choices)] = table.allowed
    return allowed


def _number_of(digits: tuple[int, ...], base: int) -> int:
    return sum(digit * base**place for place, digit in enumerate(reversed(digits)))
