"""An exploration on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hypar_opt.display.exploration_labels import digits_legend, front_note, ordinal
from hypar_opt.display.glyphs import legend
from hypar_opt.display.labels import BASELINES
from hypar_opt.display.plan_grid import is_short_chain
from hypar_opt.display.terminal.alternatives import choices_table
from hypar_opt.display.terminal.console import Column, ascii_only, new_table, texts
from hypar_opt.display.terminal.plan import legend_line
from hypar_opt.plan.plan import Plan, columns_of
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.results import Form
from hypar_opt.studies.advice import executed_note
from hypar_opt.studies.exploration import Exploration
from hypar_opt.units import COUNT, format_cost, format_ratio

Choices = Sequence[Sequence[str]]

_BAR_WIDTH = 40


def exploration_view(exploration: Exploration, *, relative: bool = False) -> RenderableType:
    """Show the best cost, the plan's rank, the distribution of all costs, and the best plans.

    Parameters
    ----------
    relative
        Show the distribution of ratios to Data Parallelism in place of values.
    """
    plan, ties = exploration.plan, exploration.ties
    # If the solver's plan is the first of the best, one note is enough.
    notes = [executed_note(exploration.own.cost)]
    if exploration.first != exploration.own:
        notes.append(executed_note(exploration.first.cost, "the first of the best"))
    plans = exploration.best_plans()
    listed = f"the first {len(plans)} of {ties:,}" if ties > len(plans) else "all"
    best = _digits if is_short_chain(plan) else _glyphs
    return Group(
        Text(_title(exploration)),
        _summary(exploration),
        *(Text(note) for note in (*notes, front_note(exploration)) if note is not None),
        Text(),
        _histogram(exploration, relative),
        Text(),
        *best(plan, plans, f"Best plans ({listed})"),
    )


def _digits(plan: Plan, best: Sequence[Choices], title: str) -> tuple[Text, Table]:
    """Show plans in the paper's form, one row each."""
    rows = (
        ["".join(map(str, level)) for level in columns_of(parallelism, plan.words)]
        for parallelism in best
    )
    table = new_table(texts(*plan.level_names), rows)
    return Text(f"{title}, one digit per layer: {digits_legend(plan)}."), table


def _glyphs(plan: Plan, best: Sequence[Choices], title: str) -> tuple[Text, Table]:
    """Show plans of a graph, one column each."""
    words = legend_line(legend(plan.vocabulary, plan.choices))
    return Text(f"{title}: {words}"), choices_table(plan, best, "layers, H1 first")


def _title(exploration: Exploration) -> str:
    plan = exploration.plan
    array = f" on {exploration.array}" if exploration.array else ""
    return (
        f"{plan.network.name}{array}: batch {plan.batch}, reading {plan.cost.reading},"
        f" {exploration.values.size:,} plans by {exploration.objective}{plan.constraints.within},"
        f" free: {exploration.free}"
    )


def _summary(exploration: Exploration) -> Table:
    """Return one row each for the best plan, the solver's, the worst and Data Parallelism."""
    plan, ties = exploration.plan, exploration.ties
    tied = f"{ties:,} equal plans" if ties > 1 else "1 plan"
    columns: list[Column | None] = [
        ("", str),
        (exploration.objective, partial(format_cost, unit=exploration.unit)),
        ("over Data", format_ratio),
        # In the reading `executed`, the ratio is that of a run.
        None if plan.cost.reading in RUN_READINGS else ("executed", format_ratio),
        ("plans", str),
    ]
    rows = (
        (name, value, exploration.ratio(value), run, note)
        for name, value, run, note in (
            # Only the plans that a user may run are priced by `executed`, not the costliest.
            ("best", exploration.best_cost, exploration.first.executed_ratio, tied),
            (
                f"{plan.solver.name} {plan.solver.search}",
                exploration.plan_cost,
                exploration.own.executed_ratio,
                f"{ordinal(exploration.rank)} of all",
            ),
            ("worst", exploration.highest_cost, "", ""),
            (BASELINES["data"], exploration.data_parallel_cost, "", ""),
        )
    )
    return new_table(columns, rows)


def _histogram(exploration: Exploration, relative: bool) -> Table:
    counts, edges = exploration.histogram(relative=relative)
    bar = "#" if ascii_only() else "█"
    # Relative to the fullest bin, whose bar has the full width.
    highest = max(counts.tolist(), default=0)
    edge: Form = "{:.4g}".format if relative else partial(format_cost, unit=exploration.unit)
    rows = (
        # Rounded up, so that every bin with a plan has a bar.
        (low, high, count, bar * -(-count * _BAR_WIDTH // highest))
        for (low, high), count in zip(pairwise(edges.tolist()), counts.tolist(), strict=True)
    )
    return new_table([("from", edge), ("to", edge), ("plans", COUNT), ("", str)], rows)
