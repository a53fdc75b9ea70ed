"""An exploration for other programs: every plan as CSV, and a summary for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from hypar_opt.documents.files import csv_text
from hypar_opt.errors import shell_words, worded
from hypar_opt.plan.plan import words_of
from hypar_opt.results import Column, Columns, Number
from hypar_opt.studies.exploration.result import Exploration
from hypar_opt.studies.exploration.values import exact_number


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


def _plans(exploration: Exploration) -> int | None:
    return None if exploration.front is None else exploration.front.plans


def _has_plan(exploration: Exploration) -> bool | None:
    front = exploration.front
    return None if front is None else bool(front.on_front[exploration.plan_index])


def _points(exploration: Exploration) -> list[dict[str, Any]] | None:
    """Return the first plans of the Pareto front."""
    front = exploration.front
    if front is None:
        return None
    plans = np.flatnonzero(front.on_front)[:MAX_POINTS]
    words = exploration.plan.words
    return [
        {
            **{name: exact_number(amounts.flat[n]) for name, amounts in front.amounts.items()},
            "parallelism": words_of(digits, words),
        }
        for n, digits in zip(plans, exploration.digits(plans).tolist(), strict=True)
    ]


def _histogram(exploration: Exploration, *, relative: bool = False) -> dict[str, Any]:
    counts, edges = exploration.histogram(relative=relative)
    of = "ratio" if relative else exploration.unit
    # JSON knows no numpy numbers.
    return {"of": of, "edges": edges.tolist(), "plans": counts.tolist()}


def _amounts(name: str, value: str, priced: str = "") -> Iterator[Column]:
    """Yield the columns of a value, of its ratio to Data Parallelism's, and of both as executed."""
    of = attrgetter(value)
    yield Column(f"{name}.value", of=lambda explored: exact_number(of(explored)), type=Number)
    yield Column(
        f"{name}.ratio", of=lambda explored: explored.ratio(of(explored)), type=float | None
    )
    if priced:
        yield Column(f"{name}.executed_bytes", of=f"{priced}.cost.executed_bytes")
        yield Column(f"{name}.executed_ratio", of=f"{priced}.executed_ratio")


_Choices = tuple[tuple[str, ...], ...]

SUMMARY = Columns(
    Column("network", of="plan.network.name"),
    "array",
    Column("batch", of="plan.batch"),
    Column("levels", of="plan.levels"),
    Column("reading", of="plan.cost.reading"),
    *("objective", "unit", "free"),
    Column("layers", of="plan.layers"),
    Column("plans", of="values.size", type=int),
    *_amounts("best", "best_cost", "first"),
    Column("best.plans", of="ties"),
    Column("best.parallelism", of="best_plans", type=tuple[_Choices, ...]),
    Column("plan.solver", of="plan.solver.name"),
    Column("plan.search", of="plan.solver.search"),
    *_amounts("plan", "plan_cost", "own"),
    Column("plan.rank", of="rank"),
    Column("plan.parallelism", of="plan.parallelism"),
    Column(
        "front.of",
        of=lambda explored: explored.front and [*explored.front.amounts],
        type=list[str] | None,
    ),
    Column("front.plans", of=_plans, type=int, absent=None),
    Column("front.has_plan", of=_has_plan, type=bool, absent=None),
    Column("front.points", of=_points, type=list[Mapping[str, Any]], absent=None),
    Column("front.reason", of=lambda explored: shell_words(explored.no_front), type=str, absent=""),
    *_amounts("worst", "highest_cost"),
    *_amounts("data_parallel", "data_parallel_cost"),
    Column("data_parallel.executed_bytes", of="own.cost.data_parallel_bytes"),
    Column("histogram", of=_histogram, type=Mapping[str, Any]),
    entry=Exploration,
)
"""What a summary says of an exploration."""


def summary(exploration: Exploration, *, relative: bool = False) -> dict[str, Any]:
    """Return everything except the values as plain data; the histogram may be relative."""
    histogram = _histogram(exploration, relative=relative)
    return {**SUMMARY.document(exploration), "histogram": histogram}
