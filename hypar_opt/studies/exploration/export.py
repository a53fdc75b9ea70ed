"""An exploration for other programs: every plan as CSV, and a summary for JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from hypar_opt.documents.files import csv_text
from hypar_opt.errors import shell_words, worded
from hypar_opt.plan.plan import words_of
from hypar_opt.studies.exploration.result import Exploration
from hypar_opt.studies.exploration.values import PricedPlan, exact_number


def plans_csv(exploration: Exploration) -> str:
    """Return one row per plan, as `Exploration.table` has them.

    Raises
    ------
    RefusedError
        If there are too many plans.
    """
    return csv_text(*exploration.table(worded("plans_csv", "--output")))


MAX_POINTS = 1000
"""Plans of a front in a summary."""


def summary(exploration: Exploration, *, relative: bool = False) -> dict[str, Any]:
    """Return everything except the values as plain data; the histogram may be relative."""
    plan = exploration.plan
    counts, edges = exploration.histogram(relative=relative)

    def amounts(value: float) -> dict[str, Any]:
        return {"value": exact_number(value), "ratio": exploration.ratio(value)}

    def when_run(own: PricedPlan) -> dict[str, Any]:
        return {"executed_bytes": own.cost.executed_bytes, "executed_ratio": own.executed_ratio}

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
            **when_run(exploration.first),
            "plans": exploration.ties,
            "parallelism": exploration.best_plans(),
        },
        "plan": {
            "solver": plan.solver.name,
            "search": plan.solver.search,
            **amounts(exploration.plan_cost),
            **when_run(exploration.own),
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
    """Return the Pareto front with its first plans, and whether the solver's plan is on it."""
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
                **{name: exact_number(amounts.flat[n]) for name, amounts in front.amounts.items()},
                "parallelism": words_of(digits, words),
            }
            for n, digits in zip(plans, exploration.digits(plans).tolist(), strict=True)
        ],
    }
