"""The page about an exploration: the best plans, the front, and three charts of all plans."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.display.exploration_labels import (
    axis_label,
    compared,
    digits_legend,
    front_note,
    ordinal,
)
from hypar_opt.display.figures.explored import histogram, plans_by_memory
from hypar_opt.display.figures.maps import exploration_map
from hypar_opt.display.labels import MEMORY, SOLVERS_PLAN
from hypar_opt.display.page.figure import Chart, chart_of
from hypar_opt.errors import shell_words
from hypar_opt.studies.exploration import Exploration
from hypar_opt.studies.exploration.front import ExploredFront
from hypar_opt.studies.exploration.subspace import cells_of
from hypar_opt.studies.exploration.values import UNITS
from hypar_opt.units import axis_byte_unit, axis_unit, format_bytes, format_cost, format_ratio


def template_values(exploration: Exploration) -> dict[str, Any]:
    """Return the values of the template's variables, except the command."""
    plan = exploration.plan
    where = f" on {exploration.array}" if exploration.array else ""
    front = exploration.front  # if there is none `front_note` says why
    is_map = exploration.two_parts is not None and exploration.values.size <= MAX_CELLS
    return {
        "title": f"Plans of {plan.network.name}{where}",
        "subtitle": f"{exploration.values.size:,} plans by {exploration.objective}, batch"
        f" {plan.batch:,}, reading {plan.cost.reading}; free: {exploration.free}",
        "provenance": f"All other choices are as in the plan of {plan.solver.name}"
        f" {plan.solver.search}{plan.constraints.within}",
        "headline": _headline(exploration),
        "warnings": [
            f"{sentence[:1].upper()}{sentence[1:]}."
            for sentence in map(shell_words, exploration.warnings())
        ],
        "order": _order(exploration),
        "front": front_note(exploration),
        "plans": _plans(exploration, front),
        "charts": [
            *([map_of(exploration)] if is_map else []),
            *([trade_off(exploration, front)] if front is not None else []),
            distribution(exploration),
        ],
    }


def _headline(exploration: Exploration) -> list[tuple[str, str, str]]:
    ties = exploration.ties
    return [
        (
            name,
            format_cost(value, exploration.unit),
            f"{format_ratio(exploration.ratio(value))} over Data Parallelism; {note}",
        )
        for name, value, note in (
            ("best", exploration.best_cost, f"{ties:,} {'equal plans' if ties > 1 else 'plan'}"),
            (SOLVERS_PLAN, exploration.plan_cost, f"{ordinal(exploration.rank)} of all"),
            ("worst", exploration.highest_cost, "of those explored"),
        )
    ]


def _order(exploration: Exploration) -> str:
    """Return the meaning and the order of a plan's digits."""
    if not exploration.cells:
        return "One accelerator leaves no choices."
    parts = exploration.free.split(",")
    meanings = "; ".join(axis_label(exploration, part) for part in parts)
    return (
        f"The digits of a plan are its free choices, {digits_legend(exploration.plan)}: {meanings}."
    )


def _plans(exploration: Exploration, front: ExploredFront | None) -> dict[str, Any]:
    """Return the best plans, those of the front, and the solver's, as a table."""
    values, plan_number = exploration.values.reshape(-1), exploration.plan_number
    on_front = set() if front is None else set(np.flatnonzero(front.on_front).tolist())
    listed = {plan_number, *on_front, *np.flatnonzero(exploration.is_best()).tolist()}
    # The best first; ties in the order of plans.
    ranked = sorted(listed, key=lambda plan: (values[plan], plan))
    shown = ranked[:MAX_ROWS]
    rows, amount_names = [], []
    for plan, label in zip(shown, labels_of(exploration, np.array(shown)), strict=True):
        amounts = {} if front is None else amounts_of(front, plan)
        amounts.pop(exploration.objective, None)
        amount_names = list(amounts)
        cost = format_cost(float(values[plan]), exploration.unit)
        ratio = format_ratio(exploration.ratio(float(values[plan])))
        notes = ["the solver's"] * (plan == plan_number) + ["on the front"] * (plan in on_front)
        rows.append((label, cost, ratio, *amounts.values(), ", ".join(notes)))
    more = f"The first {len(shown)} of {len(ranked):,}." if len(ranked) > len(shown) else ""
    header = ("plan", exploration.objective, "over Data", *amount_names, "")
    return {"header": header, "rows": rows, "more": more}


MAX_ROWS = 100
"""Plans in a table."""

MAX_CELLS = 2**14
"""Plans in a map."""

_MAX_POINTS = 5000
"""Points in a chart, both for plans on the front and for others."""


def labels_of(exploration: Exploration, plans: NDArray[np.intp]) -> list[str]:
    """Return plans' free choices as digits, grouped by the parts of the free choices."""
    parts = [cells_of(part, exploration.plan) for part in exploration.free.split(",")]
    return [
        " ".join("".join(str(digits[level, layer]) for level, layer in part) for part in parts)
        for digits in exploration.digits(plans)
    ]


def amounts_of(front: ExploredFront, plan: int) -> dict[str, str]:
    """Return a plan's amounts in the front, as text."""
    return {
        name: format_bytes(float(amounts.flat[plan]))
        if name == "memory"
        else format_cost(float(amounts.flat[plan]), UNITS.get(name, name))
        for name, amounts in front.amounts.items()
    }


def map_of(exploration: Exploration) -> Chart:
    """Draw one cell per plan: rows by the first part of the free choices, columns by the second."""
    assert exploration.two_parts is not None
    rows, columns = exploration.two_parts
    grid = exploration.grid(rows, columns)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (exploration.data_parallel_cost / grid.values).tolist()
    return chart_of(
        exploration_map(exploration, title=False),
        "map",
        "Every plan",
        f"{compared(exploration)}: larger is better.",
        (f"{rows} \\ {columns}", *grid.columns),
        [
            (row, *(format_ratio(cell) if np.isfinite(cell) else "" for cell in ratio))
            for row, ratio in zip(grid.rows, ratios, strict=True)
        ],
    )


def trade_off(exploration: Exploration, front: ExploredFront) -> Chart:
    """Draw each plan by its memory and the first amount of the front."""
    names = list(front.amounts)
    cost = names[0]
    x, y = front.amounts["memory"].reshape(-1), front.amounts[cost].reshape(-1)
    shown = np.flatnonzero(front.on_front)[:_MAX_POINTS]
    # Plans that are equal in both amounts are one point.
    _, distinct = np.unique(np.stack([x, y]), axis=1, return_index=True)
    sampled = distinct[:: -(-len(distinct) // _MAX_POINTS)]
    labels = labels_of(exploration, shown)
    amounts = [tuple(amounts_of(front, plan).values()) for plan in shown.tolist()]
    names_of = ["; ".join((label, *words)) for label, words in zip(labels, amounts, strict=True)]

    def places(plans: NDArray[np.intp]) -> list[tuple[float, float]]:
        return list(zip(x[plans].tolist(), y[plans].tolist(), strict=True))

    return chart_of(
        plans_by_memory(
            places(sampled),
            dict(zip(names_of, places(shown), strict=True)),
            places(np.array([exploration.plan_number]))[0],
            _axis(exploration, front, "memory"),
            _axis(exploration, front, cost),
        ),
        "trade-off",
        f"{cost.capitalize()} against memory",
        "The plans explored. On the front are those that no other beats in"
        f" {', '.join(names[:-1])} and {names[-1]} together.",
        ("on the front", *names),
        [(label, *words) for label, words in zip(labels, amounts, strict=True)][:MAX_ROWS],
        f"The first {MAX_ROWS} of {front.plans:,}." if front.plans > MAX_ROWS else "",
    )


def _axis(exploration: Exploration, front: ExploredFront, name: str) -> tuple[float, str]:
    """Return the scale and the title of an axis of amounts."""
    largest = float(front.amounts[name].max())
    size, unit = 1.0, exploration.unit
    if name in ("memory", "bytes"):
        size, unit = axis_byte_unit(largest)
    elif name in UNITS:
        size, unit = axis_unit(largest, "s" if name == "time" else "J")
    return size, f"{MEMORY if name == 'memory' else name} ({unit})"


def distribution(exploration: Exploration) -> Chart:
    """Draw the histogram of costs."""
    counts, edges = exploration.histogram()
    ends = [format_cost(edge, exploration.unit) for edge in edges.tolist()]
    ranges = [
        (low, high, f"{count:,}")
        for low, high, count in zip(ends[:-1], ends[1:], counts.tolist(), strict=True)
    ]
    return chart_of(
        histogram(ranges, counts.tolist(), exploration.objective),
        "distribution",
        "All costs",
        f"How many plans have which {exploration.objective}.",
        ("from", "to", "plans"),
        ranges,
    )
