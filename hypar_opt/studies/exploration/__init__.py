"""Every plan of a subspace priced at once: the paper's figures 9 and 10, for any network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from hypar_opt.checked import checked
from hypar_opt.errors import ARRAY, HyparError, RefusedError, argument
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price
from hypar_opt.plan.arguments import problem_of
from hypar_opt.search.check_result import check_bound, is_allowed
from hypar_opt.search.solver_settings import SourceArguments
from hypar_opt.simulator.closed_form import MAX_PLANS
from hypar_opt.studies.exploration.pricing import values_of
from hypar_opt.studies.exploration.result import Exploration, Grid
from hypar_opt.studies.exploration.subspace import (
    Cell,
    allowed_states,
    axes_of,
    cells_of,
    choices_at,
    states_of,
)
from hypar_opt.studies.exploration.values import PricedPlan
from hypar_opt.studies.sources import planned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network

__all__ = ["Exploration", "Grid", "explore"]


@checked
def explore(
    plan: Plan | str | Path | Network,
    free: str,
    *,
    objective: str | None = None,
    array: str | Path | Array | None = None,
    **arguments: Unpack[SourceArguments],
) -> Exploration:
    """Price every plan that differs from a plan in its free choices and keeps its constraints.

    Parameters
    ----------
    plan
        A plan, the path of a plan file, or a network, which is solved first.
    free
        The choices to vary: levels (for all layers), ``H1,H4``; layers (at all levels),
        ``conv5_2,fc*``; single ones, ``conv5_2@H1``; or ``all``.
    objective
        ``bytes`` of the plan's reading, ``time`` added up in closed form, or ``energy``; None for
        what the plan minimises.
    array
        For a plan without one, or a network.
    **arguments
        The arguments of `hypar_opt.solve`, for a network.

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
    needs_array = objective in ("time", "energy")
    plan, array = planned(plan, arguments, array, needs_array=needs_array, overlap="none")
    if plan.is_staged:
        raise RefusedError("explore does not support plans in stages")
    cells = _checked_cells(free, plan)
    problem = _problem(plan, objective or plan.cost.kind, array)
    instance = Instance(plan.network.description, problem)
    allowed = allowed_states(instance)
    of_layers = None if allowed is None else allowed[instance.workload.shared :]
    axes, states = axes_of(cells), states_of(plan, cells, of_layers)
    values, data_parallel_cost, unit = values_of(instance, allowed, states, axes)
    best = np.unravel_index([values.argmin()], values.shape)
    first_rows = choices_at(best, states, axes, plan)[0].tolist()
    first = _priced(instance, first_rows)
    if problem == plan.problem and is_allowed(instance, first_rows):
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
    # Another array has other hierarchy bits, so the plan's placement means nothing on it.
    if array is not None:
        fields |= {"array": array, "placement": None}
    problem = problem_of(**fields)
    # Memory adds up over layers, so under a limit plans are not a product of layers' states.
    if problem.constraints.memory is not None:
        memory = argument("constraints.memory")
        raise RefusedError(f"explore does not support {memory}, which limits all layers together")
    if problem.array is None and objective in ("time", "energy"):
        raise HyparError(f"{argument('objective', objective)} needs an array: {ARRAY}")
    return problem


def _index_of(
    plan: Plan, states: Sequence[NDArray[np.intp]], axes: Sequence[int]
) -> tuple[int, ...]:
    """Return the plan's index into the values."""
    chosen = states_of(plan, (), None)
    return tuple(int(np.flatnonzero(states[layer] == chosen[layer])[0]) for layer in axes)


def _priced(instance: Instance, rows: Sequence[Sequence[int]]) -> PricedPlan:
    """Price a plan by its reading, and as it is run."""
    # From the exact tables: the closed form is in floating point, and serves for ranking only.
    cost = price(instance, rows)
    run = instance.problem.model_copy(update={"reading": instance.problem.run_reading})
    try:
        executed = price(Instance(instance.network, run), rows)
    except HyparError:  # a plug-in's cost may have readings of its own
        executed = None
    return PricedPlan(cost, executed)
