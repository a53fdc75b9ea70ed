"""The page about an exploration: the best plans, the front, and charts of all plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.errors import shell_words
from hypar_opt.report.page import explored_charts as charts
from hypar_opt.report.terminal.exploration import axis_label, digits_legend, front_note, ordinal
from hypar_opt.units import format_cost, format_ratio

if TYPE_CHECKING:
    from hypar_opt.studies.exploration import Exploration
    from hypar_opt.studies.exploration.front import ExploredFront


def template_values(exploration: Exploration) -> dict[str, Any]:
    """Return the values of the template's variables, except the command."""
    plan = exploration.plan
    where = f" on {exploration.array}" if exploration.array else ""
    front = exploration.front  # if there is none `front_note` says why
    is_map = exploration.two_parts is not None and exploration.values.size <= charts.MAX_CELLS
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
            *([charts.map_of(exploration, front)] if is_map else []),
            *([charts.trade_off(exploration, front)] if front is not None else []),
            charts.distribution(exploration),
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
            ("best", exploration.best_cost, f"{ties:,} plan{'s alike' if ties > 1 else ''}"),
            ("the solver's plan", exploration.plan_cost, f"{ordinal(exploration.rank)} of all"),
            ("worst", exploration.highest_cost, "of those explored"),
        )
    ]


def _order(exploration: Exploration) -> str:
    """Return the meaning and the order of a plan's digits."""
    parts = exploration.free.split(",")
    meanings = "; ".join(axis_label(exploration, part) for part in parts)
    return (
        f"The digits of a plan are its free choices, {digits_legend(exploration.plan)}: {meanings}."
    )


def _plans(exploration: Exploration, front: ExploredFront | None) -> dict[str, Any]:
    """Return the best plans, those of the front, and the solver's, as a table."""
    values, own = exploration.values.reshape(-1), exploration.plan_number
    on_front = set() if front is None else set(np.flatnonzero(front.on_front).tolist())
    listed = {own, *on_front, *np.flatnonzero(exploration.is_best()).tolist()}
    # The best first; ties in the order of plans.
    ranked = sorted(listed, key=lambda plan: (values[plan], plan))
    shown = ranked[: charts.MAX_ROWS]
    rows, others = [], []
    for plan, label in zip(shown, charts.labels_of(exploration, np.array(shown)), strict=True):
        amounts = {} if front is None else charts.amounts_of(front, plan)
        amounts.pop(exploration.objective, None)
        others = list(amounts)
        cost = format_cost(float(values[plan]), exploration.unit)
        ratio = format_ratio(exploration.ratio(float(values[plan])))
        notes = ["the solver's"] * (plan == own) + ["on the front"] * (plan in on_front)
        rows.append((label, cost, ratio, *amounts.values(), ", ".join(notes)))
    more = f"The first {len(shown)} of {len(ranked):,}." if len(ranked) > len(shown) else ""
    header = ("plan", exploration.objective, "over Data", *others, "")
    return {"header": header, "rows": rows, "more": more}
