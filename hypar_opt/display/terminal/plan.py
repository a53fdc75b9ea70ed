"""A plan on a terminal, in the form of the paper's Figure 5."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from math import ceil
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.display.glyphs import explained, legend, stored_legend, stored_symbol, symbol
from hypar_opt.display.labels import (
    BASELINES,
    cost_name,
    level_costs,
    optimality,
    stages_in_words,
    total_costs,
)
from hypar_opt.display.plan_grid import Stored, is_short_chain, plan_grid
from hypar_opt.display.terminal.console import Column, ascii_only, new_table, texts
from hypar_opt.display.terminal.memory import training_phrase
from hypar_opt.plan.degrees import degrees
from hypar_opt.plan.share_of_group import SHARES
from hypar_opt.search.free_modes import has_wider_choices
from hypar_opt.search.shares import LEAST
from hypar_opt.studies.advice import executed_note, refused_baselines
from hypar_opt.studies.memory import memory
from hypar_opt.units import format_cost, format_percent, format_ratio, format_si
from hypar_opt.workload.parallelism import PART_WORDS

if TYPE_CHECKING:
    from rich.table import Table

    from hypar_opt.display.glyphs import Symbol
    from hypar_opt.display.plan_grid import PlanGrid
    from hypar_opt.plan.plan import Plan, WithOverlap
    from hypar_opt.studies.alternatives import BestPlans, Regrets

_MAX_RUNS = 8
"""Chains with up to this many runs of a kind of layer, one column each, are shown as columns."""


def plan_view(
    plan: Plan,
    joint: Plan | None = None,
    regrets: Regrets | None = None,
    best: BestPlans | None = None,
    *,
    layouts: bool = False,
) -> RenderableType:
    """Show a plan as in the paper's Figure 5, one row per level, one glyph per layer, and its cost.

    A graph, or a long chain, has one row per layer instead, with equal layers folded into one.

    Parameters
    ----------
    joint
        The optimum over all levels jointly, to show its savings.
    regrets, best
        The extra costs of other choices, and the cheapest plans; an empty one is not shown.
    layouts
        Show how every layer's output is stored, not only tensors with several readers.
    """
    parts: list[RenderableType] = [Text(plan_title(plan))]
    parts += [Text(says)] if (says := _in_words(plan)) else []
    if plan.solver.with_overlap is not None:
        parts.append(Text(_overlapped(plan, plan.solver.with_overlap)))
    if has_wider_choices(plan):
        parts.append(Text(_widened(plan)))
    runs = _runs_of_a_kind(plan)
    stored = Stored.ALL if layouts else Stored.SHARED
    grid = plan_grid(plan, stored=stored, ascii_only=ascii_only())
    if is_short_chain(plan) and len(runs) <= _MAX_RUNS and not layouts:
        parts.append(_levels(plan, runs))
    else:
        parts += [_layers(plan, grid), Text(), _levels(plan)]
    parts.append(Text(legend_line(legend(explained(plan), plan.choices)), style="dim"))
    if grid.layouts:
        parts.append(
            Text(f"stored tensors: {legend_line(stored_legend(grid.layouts))}", style="dim")
        )
    parts += [Text(), *baselines_of(plan)]
    # In readings other than `executed`, the total is not the bytes of a run.
    executed = executed_note(plan.cost)
    if executed is not None:
        parts.append(Text(executed))
    if plan.share is not None:
        parts.append(Text(_shares(plan)))
    if joint is not None:
        parts.append(Text(_saving(plan, joint)))
    # Each has a separate view.
    parts += [part for other in (regrets, best) if other for part in (Text(), other)]
    return Group(*parts)


def _in_words(plan: Plan) -> str:
    """Return the degrees of a plan's parallelism, its stages, and how it trains."""
    if plan.stages is not None:
        return stages_in_words(plan, plan.stages)
    says = [degrees(plan), training_phrase(memory(plan)) if plan.training.stated else ""]
    return "; ".join(filter(None, says))


def plan_title(plan: Plan) -> str:
    """Return the title: the problem and how it was solved."""
    count = plan.accelerators
    size = "1 accelerator" if count == 1 else f"{plan.hierarchy.shown} accelerators"
    options = [
        f"batch {plan.batch}",
        f"on {plan.array.name}" if plan.array else size,
        *placed(plan),
        f"reading {plan.cost.reading}",
        *([_element(plan)] if plan.element_bytes != plan.step_model.element_bytes else []),
        *(["inference"] if plan.inference else []),
        *(reductions(plan) if plan.cost.kind != "bytes" else []),
        # A proof says among which plans.
        *(["runnable plans"] if plan.constraints.runnable and not _proved(plan) else []),
        f"{plan.solver.name} {plan.solver.search} ({optimality(plan)})",
    ]
    return f"{plan.network.name}: {', '.join(options)}"


def _proved(plan: Plan) -> bool:
    """Return whether the title says among which plans the plan is best."""
    with_overlap = plan.solver.with_overlap
    return plan.solver.status == "optimal" if with_overlap is None else with_overlap.proved


def placed(plan: Plan) -> list[str]:
    """Return which dimensions of the hardware the levels split, where a search has placed them."""
    if plan.array is None or plan.placement is None:
        return []
    array = plan.array.description
    if plan.placement == array.placement:
        return []
    names: dict[int, list[str]] = {}
    for level, dimension in zip(plan.level_names, array.dimensions_of(plan.placement), strict=True):
        names.setdefault(dimension, []).append(level)
    named = (f"{', '.join(names[number])} on dimension {number + 1}" for number in sorted(names))
    return [f"placed ({'; '.join(named)})"]


def reductions(plan: Plan) -> list[str]:
    """Return a note on plans for an array without gradient buckets, which frameworks have."""
    if plan.array is None or plan.inference or not plan.step_model.runnable:
        return []
    return ["no gradient bucketing"] if plan.array.description.bucket is None else []


def _element(plan: Plan) -> str:
    return f"{plan.element_bytes}-byte elements"


def _shares(plan: Plan) -> str:
    """Return a note on each group's share of a layer that H1 splits."""
    shares = zip(plan.group_shares or (), plan.groups, strict=True)
    has = (f"{share / SHARES:.2%} on {group.count:,} {group.name}" for share, group in shares)
    of_groups = ", ".join(has)
    sentence = f"A layer that H1 splits has {of_groups}"
    if all(word in PART_WORDS for word in plan.parallelism[0]):
        sentence = f"H1 splits no layer; its shares would be {of_groups}"
    least_totals = [row[LEAST] for row in plan.solver.statistics if LEAST in row]
    if least_totals and plan.cost.total:
        # Rounded up, as it is a bound.
        saved = ceil(10_000 * max(0.0, 1 - least_totals[0] / plan.cost.total)) / 10_000
        sentence += (
            f"; with other shares, plans with the same training settings save at most {saved:.2%}"
        )
    if plan.cost.kind == "time":
        sentence += ". Each pass is charged as the slowest group's; simulated, a step may take less"
    return f"{sentence}."


def _overlapped(plan: Plan, with_overlap: WithOverlap) -> str:
    """Return a note on the time with overlap."""
    seconds = format_si(with_overlap.seconds, "s")
    says = f"A step takes {seconds} with overlap ({with_overlap.overlap})"
    attribution = plan.solver.attribution
    if with_overlap.proved:
        says += f", {attribution}the least of plans with the same training settings"
    else:
        bound, excess = format_si(with_overlap.bound, "s"), format_percent(with_overlap.gap)
        says += (
            f", {attribution}at most {excess} more than the fastest plan with the same training"
            f" settings, which takes at least {bound}"
        )
    if with_overlap.without > with_overlap.seconds:
        excess = format_percent(with_overlap.without / with_overlap.seconds - 1)
        says += f". The plan that is fastest without overlap takes {excess} longer"
    return f"{says}."


def _widened(plan: Plan) -> str:
    """Return a note on the plans that bounds hold for, if choices are wider than the default."""
    choices, default = ", ".join(plan.choices), ", ".join(plan.step_model.choices)
    pins = ", and with its pins of layers that are whole" if plan.constraints.fix else ""
    says = f"A configuration is faster than all plans of the choices {default}, so bounds cover"
    says += f" plans of its choices, {choices}{pins}"
    return f"{says}; bounds with overlap also hold without these."


def _glyphs(symbols: Iterable[Symbol]) -> Text:
    plain = ascii_only()
    return Text.assemble(*((symbol.drawn(ascii_only=plain), symbol.colour) for symbol in symbols))


def legend_line(entries: Iterable[tuple[Symbol, str]]) -> str:
    """Return symbols with their words, on one line."""
    plain = ascii_only()
    return "   ".join(f"{symbol.drawn(ascii_only=plain)} {words}" for symbol, words in entries)


def _levels(plan: Plan, runs: Sequence[tuple[int, int]] = ()) -> Table:
    """Return one row per level, with its cost, and the total.

    Parameters
    ----------
    runs
        The first and the last layer of each column of glyphs.
    """
    cost, dash = plan.cost, "-" if ascii_only() else "–"
    # A run's names may be long; on a narrow terminal its glyphs may fold too.
    names = ((plan.layers[first], plan.layers[last]) for first, last in runs)
    columns = texts("level", *(dash.join(dict.fromkeys(ends)) for ends in names))
    rows = (
        (level, *(_glyphs(map(symbol, row[first : last + 1])) for first, last in runs), charge)
        for level, row, charge in zip(
            plan.level_names, plan.parallelism, level_costs(cost), strict=True
        )
    )
    # Compute and local memory belong to no level, so they have a separate row.
    totals = [(name, *[""] * len(runs), amount) for name, amount in total_costs(cost)]
    columns.append((cost_name(plan), partial(format_cost, unit=cost.unit)))
    table = new_table(columns, rows, totals=totals)
    table.columns[0].no_wrap = True
    return table


def _layers(plan: Plan, grid: PlanGrid) -> Table:
    """Return one row per group of equal layers, with the levels' glyphs, H1 first.

    Layouts have a separate column if there are any.
    """
    ends = dict.fromkeys(("H1", f"H{plan.levels}"))
    levels = ("-" if ascii_only() else "–").join(ends) if plan.levels else ""
    stored: Column | None = ("stored", str) if grid.layouts else None
    rows = (
        (label, _glyphs(map(symbol, row.choices)), _glyphs(map(stored_symbol, row.stored)))
        if row
        else (label,)
        for label, row in grid.lines("  ")
    )
    table = new_table([*texts("layers", levels), stored], rows)
    for glyphs in table.columns[1:]:
        glyphs.no_wrap = True
    return table


def _runs_of_a_kind(plan: Plan) -> list[tuple[int, int]]:
    """Return the first and the last layer of each run of layers of one kind."""
    layers = enumerate(plan.network.description.layers)
    runs = ([n for n, _ in run] for _, run in groupby(layers, key=lambda layer: layer[1].kind))
    return [(run[0], run[-1]) for run in runs]


def baselines_of(plan: Plan) -> Iterator[RenderableType]:
    """Show the costs of Data and Model Parallelism, also relative to the plan's."""
    cost = plan.cost
    form = partial(format_cost, unit=cost.unit)
    rows = (
        (BASELINES["data"], cost.baselines.data, cost.ratios.data),
        (BASELINES["model"], cost.baselines.model, cost.ratios.model),
    )
    yield new_table([("", str), (cost_name(plan), form), ("relative cost", format_ratio)], rows)
    yield from map(Text, refused_baselines(plan))


def _saving(plan: Plan, joint: Plan) -> str:
    within = plan.constraints.within
    total, optimum = plan.cost.total, joint.cost.total
    # Levelwise search is greedy: lower levels pay for the choices of upper ones.
    if optimum == total:
        return f"Also jointly optimal{within} across all levels."
    saved = (total - optimum) / total
    cheaper = format_cost(optimum, plan.cost.unit)
    # A smaller share would be rounded to 0.00%.
    less = f"{saved:.2%}" if saved >= 5e-5 else format_cost(total - optimum, plan.cost.unit)
    return f"Joint optimum across all levels{within}: {cheaper}, {less} less (--search joint)."
