"""An exploration on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise, zip_longest

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hypar_opt.display.glyphs import legend
from hypar_opt.display.plan_grid import is_short_chain
from hypar_opt.display.terminal.alternatives import choices_table
from hypar_opt.display.terminal.console import Column, ascii_only, new_table, texts
from hypar_opt.display.terminal.plan import legend_line
from hypar_opt.errors import shell_words
from hypar_opt.plan.plan import Plan, columns_of
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.results import Form
from hypar_opt.studies.advice import as_executed
from hypar_opt.studies.exploration import Exploration
from hypar_opt.studies.exploration.subspace import cells_of
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
    notes = [as_executed(exploration.own.cost)]
    if exploration.first != exploration.own:
        notes.append(as_executed(exploration.first.cost, "the first of the best"))
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


def digits_legend(plan: Plan) -> str:
    """Return the meaning of each digit: ``0 data, 1 model``."""
    # Kinds of layers have different words for a digit, so all are listed.
    words = [dict.fromkeys(filter(None, column)) for column in zip_longest(*plan.words)]
    return ", ".join(f"{digit} {' or '.join(same)}" for digit, same in enumerate(words))


def axis_label(exploration: Exploration, part: str) -> str:
    """Return the cells that the digits of a part stand for, in order: ``H1: conv1 to fc2``."""
    plan, cells = exploration.plan, cells_of(part, exploration.plan)
    levels = _range([plan.level_names[level] for level, _ in cells])
    layers = _range([plan.layers[layer] for _, layer in cells])
    if cells[0][0] == cells[-1][0]:
        return f"{levels}: {layers}"
    if cells[0][1] == cells[-1][1]:
        return f"{layers}: {levels}"
    # A layer's levels are together or, if all choices are free, a level's layers.
    together = cells[0][1] == cells[1][1]
    return f"{levels} of each of {layers}" if together else f"{layers} at each of {levels}"


def _range(names: Sequence[str]) -> str:
    return names[0] if names[0] == names[-1] else f"{names[0]} to {names[-1]}"


def compared(exploration: Exploration) -> str:
    """Return the name of the ratio: ``Data Parallelism's time / the plan's``."""
    return f"Data Parallelism's {exploration.objective} / the plan's"


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


def front_note(exploration: Exploration) -> str:
    """Return the number of plans on the Pareto front, and whether it has the solver's plan."""
    front = exploration.front
    if front is None:
        return f"No Pareto front: {shell_words(exploration.no_front)}."
    *others, last = front.amounts
    own = "on it" if front.on_front[exploration.plan_index] else "not on it"
    plans = f"{front.plans:,} plan{'s' if front.plans > 1 else ''}"
    return (
        f"The Pareto front of {', '.join(others)} and {last}: {plans}; the solver's plan is {own}."
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
            ("Data Parallelism", exploration.data_parallel_cost, "", ""),
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


def ordinal(rank: int) -> str:
    """Return a rank as it is read: ``1st``."""
    teen = 11 <= rank % 100 <= 13  # 11th, not 11st
    return f"{rank:,}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(rank % 10, 'th')}"
