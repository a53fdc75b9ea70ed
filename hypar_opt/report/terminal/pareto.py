"""Pareto fronts on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.report.terminal.console import rows_view, unbroken
from hypar_opt.units import format_bytes, format_cost, format_number, format_si

if TYPE_CHECKING:
    from hypar_opt.studies.pareto import ParetoFront, ParetoFronts, ParetoPoint

_LEAST = {"bytes": "fewest bytes", "time": "least time", "energy": "least energy"}
_AMOUNTS = ("bytes", "time", "energy")


def pareto_view(fronts: ParetoFronts) -> RenderableType:
    """Show each objective's front against memory as a table."""
    parts: list[RenderableType] = [Text(_title(fronts))]
    for front in fronts:
        parts += [Text(), front_view(front)]
    return Group(*parts)


def front_view(front: ParetoFront) -> RenderableType:
    """Show a front: the least cost within each memory, and the plan's other costs."""
    least = _LEAST.get(front.objective, f"least {front.objective}")
    # In the reading `executed` both columns would be equal.
    run = front[0].plan.cost.reading != "executed"
    others = [name for name in _AMOUNTS if name != front.objective]
    header = ["memory", least, "ratio", *others, *(["run"] if run else [])]
    rows = [
        [
            format_bytes(point.memory),
            format_cost(point.total, point.plan.cost.unit),
            _ratio(front.ratio(point)),
            *(format_amount(point, name) for name in others),
            *([_bytes(point.plan.cost.executed_bytes)] if run else []),
        ]
        for point in front
    ]
    table = unbroken(rows_view(header, rows, right=tuple(range(len(header)))))
    return Group(table, Text(ending(front)))


def _title(fronts: ParetoFronts) -> str:
    problem = fronts.problem
    # If a front ends early, its last point may not be the optimum within its memory.
    known = "incomplete" if any(front.reason for front in fronts) else "exact"
    array = f" on {problem.array.name}" if problem.array else ""
    return (
        f"{fronts.network.name}{array}: batch {problem.batch:,}, 2^{problem.levels} ="
        f" {problem.accelerators:,} accelerators, reading {problem.reading}, {known}"
        f"{problem.constraints.within}"
    )


def ending(front: ParetoFront) -> str:
    """Return a note on the memory below which nothing is known, and why."""
    # All digits: one byte less is another problem.
    last = f"{front[-1].memory:,} bytes"
    if front.complete:
        return f"No plan takes less memory than {last}."
    if front.reason is not None:
        return f"Not known within less than {last}: {front.reason}."
    count = f"{len(front):,} point{'s' if len(front) > 1 else ''}"
    return f"Ended at {count}: within less than {last} plans cost more."


def _ratio(ratio: float | None) -> str:
    # Four digits: neighbours on a front differ by little.
    return "-" if ratio is None else format_number(ratio)


def format_amount(point: ParetoPoint, name: str) -> str:
    """Return a point's amount; ``-`` if its array does not price it."""
    if name == "bytes":
        return _bytes(point.bytes)
    value, symbol = (point.seconds, "s") if name == "time" else (point.joules, "J")
    return "-" if value is None else format_si(value, symbol)


def _bytes(count: float | None) -> str:
    return "-" if count is None else format_bytes(count)
