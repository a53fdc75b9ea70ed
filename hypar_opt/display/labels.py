"""Words of results, for all views: names of baselines, titles of axes, captions and claims."""

from __future__ import annotations

from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from hypar_opt.plan.costs import Cost
from hypar_opt.plan.degrees import degrees, staged
from hypar_opt.plan.plan import Plan, SolverRecord
from hypar_opt.plan.trained import trained
from hypar_opt.results import Form
from hypar_opt.simulator.pipeline_order import in_flight_of_stages
from hypar_opt.units import (
    JOULES,
    SECONDS,
    format_bytes,
    format_hundredths,
    format_number,
    format_percent,
    format_rate,
    format_si,
)

if TYPE_CHECKING:
    from hypar_opt.plan.stages import Stages
    from hypar_opt.studies.pareto import ParetoFront

ENERGY_PARTS = {
    "macs": "multiply-accumulates",
    "sram": "SRAM",
    "dram": "local DRAM",
    "remote": "words between accelerators",
    "hops": "links",
}
"""The parts of a step's energy, by their field's name."""

BASELINES = {"trick": "OWT", "data": "Data Parallelism", "model": "Model Parallelism"}
"""The paper's baselines, by the name of their solver."""

MEMORY = "memory per accelerator"
COMMUNICATION, STEP = "communication of a step", "time of a step"
"""Titles of axes, before the unit."""

ON_FRONT, SOLVERS_PLAN = "on the Pareto front", "the solver's plan"

SHADES_OF_PASSES = "Full colour computes, pale colour communicates."

SCOPES = {"level": "each level given those above", "joint": "over all levels together"}
"""What a search minimises over, by its scope."""

OBJECTIVES: dict[str, Form] = {"bytes": format_bytes, "time": SECONDS, "energy": JOULES}
"""How amounts of an objective are written."""

_COST_NAMES = {"time": "time", "energy": "energy"}
_LOCAL_COSTS = {"time": "compute", "energy": "compute, local memory"}
_OPTIMALITY = {"level": "optimal level by level", "joint": "optimal over all levels"}


_UNITS: dict[str, Form] = {
    "_bytes_per_second": format_rate,
    "_operations_per_second": partial(format_si, symbol="op/s"),
    "_seconds": SECONDS,
    "_joules": JOULES,
    "_bytes": format_bytes,
}
"""How numbers of a sweep's column are shown, by the unit in its name."""


def cell_text(column: str, value: object) -> str:
    """Return what a sweep's column has in a row, as people read it: ``25 GB/s``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    shown = (form for ending, form in _UNITS.items() if column.endswith(ending))
    return next(shown, format_number)(value)


def accelerators(count: int) -> str:
    """Return a number of accelerators as a phrase."""
    return f"{count:,} accelerator{'s' if count > 1 else ''}"


def cost_name(plan: Plan) -> str:
    """Return the heading of the column of a plan's cost."""
    unit = plan.cost.unit
    if plan.solver.with_overlap is not None:
        return "time without overlap"
    # A cost by entry point is headed by its unit.
    return "communication" if unit == "bytes" else _COST_NAMES.get(plan.cost.kind, unit)


def optimality(plan: Plan) -> str:
    """Return how a plan is optimal, or its status without a proof, and who claims it."""
    with_overlap = plan.solver.with_overlap
    if with_overlap is not None and with_overlap.proved:
        return f"{plan.solver.attribution}least time with overlap{plan.constraints.within}"
    if with_overlap is not None:
        gap = format_percent(with_overlap.gap)
        return f"not proved optimal with overlap, {plan.solver.attribution}gap {gap}"
    if plan.solver.status == "optimal":
        return plan.solver.attribution + _OPTIMALITY[plan.solver.scope] + plan.constraints.within
    return _feasible(plan.solver)


def _feasible(solver: SolverRecord) -> str:
    # The simulator ranks the plans that it ran; it proves nothing about others.
    considered = solver.options.simulate
    if considered is not None:
        return (
            f"{solver.attribution}fastest simulated of the {considered:,} best and the search's own"
        )
    # Bounds of single levels, given those above, are not bounds over all plans.
    if solver.gap is None or solver.scope == "level":
        return "not proved optimal"
    return f"not proved optimal, {solver.attribution}gap {format_percent(solver.gap)}"


def stages_in_words(plan: Plan, stages: Stages) -> str:
    """Return a plan's stages: training settings, charged bubble, and micro-batches in flight."""
    training = {**plan.training.non_default, "schedule": plan.training.schedule}
    bubbles = [stage.bubble for stage in plan.cost.stages or ()]
    count = plan.training.micro_batches or 1
    first, *_, last = in_flight_of_stages(stages, plan.training.schedule, count)
    # A chunk has its share of a micro-batch.
    in_flight = (format_hundredths(fmean(chunks)) for chunks in (first, last))
    says = [
        staged(plan, stages),
        degrees(plan, first=1),
        trained(training, plan),
        f"bubble {format_percent(fmean(bubbles), 1)}" if bubbles else "",
        f"in flight {' .. '.join(dict.fromkeys(in_flight))}",
    ]
    return "; ".join(filter(None, says))


def level_costs(cost: Cost) -> tuple[int | float, ...]:
    """Return the cost of each level; if the cost has local parts, its communication only.

    Compute and local memory belong to the whole step, not to a level.
    """
    return cost.per_level if cost.communication is None else cost.communication


def total_costs(cost: Cost) -> list[tuple[str, int | float]]:
    """Return the names and the amounts of a cost's local part, if it has one, and its total."""
    total = ("total", cost.total)
    if cost.communication is None:
        return [total]
    # A plug-in's cost model does not name its local part.
    local = cost.total - sum(cost.communication)
    return [(_LOCAL_COSTS.get(cost.kind, "local"), local), total]


def ending(front: ParetoFront) -> str:
    """Return a note on the memory below which nothing is known, and why."""
    # In full, since one byte less is another problem.
    last = f"{front[-1].memory:,} bytes"
    if front.complete:
        return f"No plan takes less memory than {last}."
    if front.reason is not None:
        return f"Not known within less than {last}: {front.reason}."
    count = f"{len(front):,} point{'s' if len(front) > 1 else ''}"
    return f"Ended at {count}: within less than {last} plans cost more."
