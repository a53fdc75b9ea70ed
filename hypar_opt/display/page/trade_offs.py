"""The page's Pareto fronts of bytes, time and energy against memory, and the plan."""

from __future__ import annotations

from dataclasses import dataclass

from hypar_opt.display.labels import OBJECTIVES, ending
from hypar_opt.display.page.figure import Chart, chart_of
from hypar_opt.display.terminal.console import as_text
from hypar_opt.errors import HyparError
from hypar_opt.hardware.array import Array
from hypar_opt.plan.plan import Plan
from hypar_opt.search.result import Progress, silent
from hypar_opt.studies.pareto import ParetoFronts, ParetoPoint, fronts_of, point_of
from hypar_opt.units import format_bytes

MAX_STATES = 2**7
"""Fronts are computed by default for up to this many product states per layer."""

MAX_POINTS = 12
"""Points of a front on the page."""


@dataclass(frozen=True)
class TradeOffs:
    """The fronts of a plan's problem, and the plan; or the reason, ``note``, why there are none."""

    fronts: ParetoFronts | None
    plan: ParetoPoint | None
    note: str = ""


def trade_offs(
    plan: Plan, array: Array, progress: Progress = silent, *, limited: bool = False
) -> TradeOffs:
    """Return the fronts of a plan's problem on its array, if they are quick to compute.

    None within a time limit, which no front keeps to.
    """
    if not plan.levels:
        return TradeOffs(None, None)
    if plan.is_staged:
        return _without("each point takes a search of stages, which pareto has not")
    if limited:
        return _without("fronts take no time limit; pareto NETWORK computes them")
    if plan.array is None or plan.array.digest != array.digest():
        advice = "the plan was not solved for this array; pareto NETWORK --array computes them"
        return _without(advice)
    network = plan.network.description
    limited = plan.problem.model_copy(update={"cost": "time"}).device_memory is not None
    if limited or not network.is_chain:
        where = "within the memory of a device" if limited else "on a graph"
        return _without(
            f"{where} each point takes a search of its own; pareto NETWORK computes them"
        )
    states = len(plan.choices) ** plan.levels
    if states > MAX_STATES:
        return _without(
            f"a layer has {len(plan.choices)}^{plan.levels} = {states:,} states; pareto NETWORK"
            " computes the fronts, which may take long"
        )
    try:
        fronts = fronts_of(network, plan.problem, points=MAX_POINTS, progress=progress)
    except HyparError as error:  # the page shows the rest
        return _without(error.for_shell)
    return TradeOffs(fronts, point_of(plan))


def _without(reason: str) -> TradeOffs:
    return TradeOffs(None, None, f"Cost against memory is not shown: {reason}.")


def by_memory(shown: TradeOffs) -> Chart:
    """Draw each objective's front against memory, and the plan; the table has every point."""
    from hypar_opt.display.figures.points import fronts
    from hypar_opt.display.figures.results import ratios_of

    assert shown.fronts is not None
    assert shown.plan is not None
    ratios = {front.objective: front.ratio(shown.plan) or 1.0 for front in shown.fronts}
    return chart_of(
        fronts(ratios_of(shown.fronts), plan=(shown.plan.memory, ratios)),
        "by-memory",
        "Cost against memory",
        "The least that any plan of this problem costs within a memory: exact, over all levels"
        f" together. A star is this plan. {_endings(shown.fronts)}",
        ("memory", *OBJECTIVES, "least of all within that memory"),
        _rows(shown.fronts, shown.plan),
    )


def _endings(fronts: ParetoFronts) -> str:
    """Return a note on the memory below which no plan fits, and on fronts that end early."""
    parts = list(dict.fromkeys(ending(front) for front in fronts if front.complete))
    unknown = ", ".join(front.objective for front in fronts if not front.complete)
    if unknown:
        parts.append(f"Below its last point the front of {unknown} is not known: see pareto.")
    return " ".join(parts)


def _rows(fronts: ParetoFronts, plan: ParetoPoint) -> list[tuple[str, ...]]:
    """Return one row per distinct point, whichever fronts it is on, and the plan's row."""
    names: dict[tuple[str, ...], list[str]] = {}
    entries = [(front.objective, point) for front in fronts for point in front]
    for name, point in sorted(entries, key=lambda entry: -entry[1].memory):
        names.setdefault(_amounts(point), []).append(name)
    rows = [(*amounts, ", ".join(points)) for amounts, points in names.items()]
    return [*rows, (*_amounts(plan), "this plan")]


def _amounts(point: ParetoPoint) -> tuple[str, ...]:
    amounts = (as_text(point.amount(name), form) for name, form in OBJECTIVES.items())
    return (format_bytes(point.memory), *amounts)
