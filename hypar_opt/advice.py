"""What a plan's user should know before running it, and how two plans differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypar_opt.costs.readings import READINGS
from hypar_opt.deadline import TIME_LIMIT
from hypar_opt.errors import HyparError
from hypar_opt.hardware.array import Array
from hypar_opt.parallelism import OUTPUT
from hypar_opt.pipeline import solve
from hypar_opt.plan import Plan
from hypar_opt.verify import too_fine

MOST_STATES = 2**12
"""States a layer up to which a joint optimum is looked up unasked."""


def readable_bytes(count: float) -> str:
    """Return a number of bytes in decimal units, to four digits: ``21.82 MB``."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.4g} {unit}" if count < 1e16 else f"{count / size:.3e} {unit}"
    return f"{count:g} B"


def better_reading(plan: Plan) -> tuple[str, int | float] | None:
    """Return the reading whose plan moves the fewest bytes when run, and those bytes.

    None unless a plan for fewest bytes would move more, when run, than Data Parallelism.
    """
    moved = plan.cost.executed_bytes
    if plan.cost.kind != "bytes" or moved is None or moved <= plan.cost.data_parallel_bytes:
        return None
    asked = dict(plan.problem) | {"choices": plan.choices[:OUTPUT], "level_weights": ()}
    executed: dict[str, int | float] = {}
    for reading in sorted(READINGS, key=lambda name: name != "executed"):
        other = solve(plan.network.description, **asked | {"reading": reading})
        executed[reading] = other.cost.executed_bytes or 0
    best = min(executed, key=executed.__getitem__)  # of equals, the one made for it
    return best, executed[best]


def joint_optimum(plan: Plan) -> Plan | None:
    """Return the cheapest plan over all levels together; None where that is too much to look up.

    Nothing is looked up once a time limit has come.
    """
    if plan.solver.stopped_by == TIME_LIMIT:
        return None
    alike = (
        plan.cost.kind == "bytes" and len(plan.choices) == 2 and len(set(plan.level_weights)) <= 1
    )
    if (not alike or plan.constraints.any) and len(plan.choices) ** plan.levels > MOST_STATES:
        return None
    try:
        return solve(plan.network.description, search="joint", **dict(plan.problem))
    except HyparError:
        return None


def warnings(plan: Plan) -> list[str]:
    """Say, a sentence each, what a plan's user should know before running it."""
    found = []
    try:
        better = better_reading(plan)
    except HyparError:  # the other plan's bytes are more than a number holds
        better = None
    if better is not None:
        reading, moved = better
        found.append(
            f"run, this plan moves {readable_bytes(plan.cost.executed_bytes or 0)},"
            f" Data Parallelism {readable_bytes(plan.cost.data_parallel_bytes)};"
            f" the plan of --solver dp --reading {reading} moves {readable_bytes(moved)}"
        )
    if plan.cost.kind == "time" and plan.array is not None:
        found += of_rings(plan.array.description)
    if plan.solver.stopped_by is not None:
        whose = f"; the plan is {plan.solver.found_by}" if plan.solver.found_by else ""
        found.append(f"the search was stopped by its {plan.solver.stopped_by}{whose}")
    return [*found, *too_fine(plan)]


def of_rings(array: Array) -> list[str]:
    """Say where what the cost of time charges is not how an array adds up."""
    if array.collective != "ring":
        return []
    return [
        f"{array.name} sums around rings, and the cost charges sums between pairs;"
        " simulate it to know its time"
    ]


def difference(plan: Plan, other: Plan) -> str | None:
    """Return the first key in which two plans differ, but for seconds and versions."""
    ours, theirs = dict(_keys(plan.document())), dict(_keys(other.document()))
    return next((key for key in [*ours, *theirs] if ours.get(key) != theirs.get(key)), None)


def _keys(table: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        path = before + key
        if isinstance(value, dict) and path != "solver.versions":
            yield from _keys(value, f"{path}.")
        elif path not in {"solver.seconds", "solver.versions"}:
            yield path, value
