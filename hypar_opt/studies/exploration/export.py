"""An exploration for other programs: every plan as CSV, and a summary for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import RefusedError, shell_words, worded
from hypar_opt.plan.plan import words_of

if TYPE_CHECKING:
    from hypar_opt.studies.exploration.result import Exploration, PricedPlan

MAX_ROWS = 2**20
"""Plans that a CSV lists: a spreadsheet holds no more rows."""


def plans_csv(exploration: Exploration) -> str:
    """Return a row a plan, as `table` has them.

    Raises
    ------
    RefusedError
        If there are too many plans.
    """
    header, rows = table(exploration, worded("plans_csv", "--output"))
    lines = [",".join(header)]
    # A plan that costs 0 has no ratio, and CSV has no NaN.
    lines += [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    return "\n".join(lines) + "\n"


Cell = str | int | float | None

UNITS = {"time": "seconds", "energy": "joules"}
"""Columns of amounts that are called by their unit."""

MAX_POINTS = 1000
"""Plans of a front that a summary lists."""


def table(
    exploration: Exploration, wanted: str = "a table"
) -> tuple[list[str], Iterator[list[Cell]]]:
    """Return the columns' names, and a row a plan: its digits, its value and its ratio.

    Where the Pareto front is known a row also has what else the plan takes, ``front``, 1 for a
    plan that is on it, and ``plan``, 1 for the solver's.

    Parameters
    ----------
    wanted
        What lists the plans, for a refusal.

    Raises
    ------
    RefusedError
        If there are too many plans.
    """
    values = exploration.values.reshape(-1)
    if values.size > MAX_ROWS:
        raise RefusedError(
            f"{wanted} lists at most {MAX_ROWS:,} plans, and there are {values.size:,}; leave"
            " fewer choices free"
        )
    digits = exploration.digits(np.arange(values.size))
    # Seen as bytes a level's digits are one text: a string operation a plan, not a layer.
    levels = np.ascontiguousarray(digits + ord("0"), np.uint8).view(f"S{digits.shape[2]}")
    columns = {exploration.unit: values, "ratio": exploration.ratios(), **_front(exploration)}
    numbers = zip(*(column.reshape(-1).tolist() for column in columns.values()), strict=True)
    header = [*exploration.plan.level_names, *columns]
    return header, (
        [*map(bytes.decode, row), *map(_cell, own)]
        for row, own in zip(levels[..., 0].tolist(), numbers, strict=True)
    )


def _front(exploration: Exploration) -> dict[str, NDArray[Any]]:
    """Return what plans take besides the value, and which are on the front and the solver's."""
    is_plan = np.zeros(exploration.values.shape)
    is_plan[exploration.plan_index] = 1
    front = exploration.front
    if front is None:
        return {"plan": is_plan}
    others = {
        UNITS.get(name, name): amounts
        for name, amounts in front.amounts.items()
        if name != exploration.objective
    }
    return {**others, "front": front.on_front.astype(float), "plan": is_plan}


def _cell(value: float) -> Cell:
    return None if np.isnan(value) else _integer_if_exact(value)


def _integer_if_exact(value: float) -> int | float:
    # Bytes are whole numbers that the closed form holds in float64: 12, not 12.0.
    return int(value) if value.is_integer() else value


def summary(exploration: Exploration, *, relative: bool = False) -> dict[str, Any]:
    """Return all but the values as plain data.

    Parameters
    ----------
    relative
        As `Exploration.histogram`.
    """
    plan = exploration.plan
    counts, edges = exploration.histogram(relative=relative)

    def amounts(value: float) -> dict[str, Any]:
        return {"value": _integer_if_exact(value), "ratio": exploration.ratio(value)}

    return {
        "network": plan.network.name,
        "array": exploration.array,
        "batch": plan.batch,
        "levels": plan.levels,
        "reading": plan.cost.reading,
        "objective": exploration.objective,
        "unit": exploration.unit,
        "free": exploration.free,
        "layers": plan.layers,
        "plans": exploration.values.size,
        "best": {
            **amounts(exploration.best_cost),
            **_when_run(exploration.first),
            "plans": exploration.ties,
            "parallelism": exploration.best_plans(),
        },
        "plan": {
            "solver": plan.solver.name,
            "search": plan.solver.search,
            **amounts(exploration.plan_cost),
            **_when_run(exploration.own),
            "rank": exploration.rank,
            "parallelism": plan.parallelism,
        },
        "front": _front_summary(exploration),
        "worst": amounts(exploration.highest_cost),
        "data_parallel": {
            **amounts(exploration.data_parallel_cost),
            "executed_bytes": exploration.own.cost.data_parallel_bytes,
        },
        "histogram": {
            "of": "ratio" if relative else exploration.unit,
            # JSON knows no numpy numbers.
            "edges": edges.tolist(),
            "plans": counts.tolist(),
        },
    }


def _front_summary(exploration: Exploration) -> dict[str, Any]:
    """Return the Pareto front, its first plans, and whether the solver's plan is on it."""
    front = exploration.front
    if front is None:
        return {"of": None, "reason": shell_words(exploration.no_front)}
    plans = np.flatnonzero(front.on_front)[:MAX_POINTS]
    words = exploration.plan.words
    return {
        "of": list(front.amounts),
        "plans": front.plans,
        "has_plan": bool(front.on_front[exploration.plan_index]),
        "points": [
            {
                **{
                    name: _integer_if_exact(amounts.flat[n])
                    for name, amounts in front.amounts.items()
                },
                "parallelism": words_of(digits, words),
            }
            for n, digits in zip(plans, exploration.digits(plans).tolist(), strict=True)
        ],
    }


def _when_run(priced: PricedPlan) -> dict[str, Any]:
    return {
        "executed_bytes": priced.cost.executed_bytes,
        "executed_ratio": priced.executed_ratio,
    }
