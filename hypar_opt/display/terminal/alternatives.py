"""Other plans on a terminal: the regret of each other choice, and the cheapest plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from hypar_opt.display.folding import fold
from hypar_opt.display.glyphs import glyph
from hypar_opt.display.labels import cost_name
from hypar_opt.display.plan_grid import is_short_chain
from hypar_opt.display.terminal.console import Column, ascii_only, new_table, texts
from hypar_opt.units import COUNT, format_cost

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from hypar_opt.plan.plan import Plan
    from hypar_opt.studies.alternatives import Alternative, BestPlans, Regret, Regrets


def regrets_view(regrets: Regrets) -> RenderableType:
    """Show the extra cost of each other choice, below a title."""
    plan = regrets.plan
    if not regrets:
        return Text("There is no other choice.")
    within = plan.constraints.within + regrets.qualifier
    title = Text(f"Extra cost of each other choice, all else re-optimised{within}:")
    return Group(title, _regret_table(plan, regrets))


def best_view(best: BestPlans) -> RenderableType:
    """Show the best plans of a plan's problem, below a title."""
    within = best.plan.constraints.within + best.plan.training.qualifier
    title = Text(f"Best plans over all levels together{within}:")
    return Group(title, *_best_tables(best.plan, best))


def _regret_table(plan: Plan, regrets: Sequence[Regret]) -> Table:
    """Show the extra cost of each other choice: rows of layers and choices, columns of levels."""
    unit = plan.cost.unit
    levels = range(1, max(regret.level for regret in regrets) + 1)
    columns = ("layer", "other choice", *(f"H{level}" for level in levels))
    cells: dict[tuple[str, str], dict[int, str]] = {}
    for regret in regrets:
        row = cells.setdefault((regret.layer, regret.choice), {})
        row[regret.level] = _extra(regret, unit)
    rows = (
        (name, choice, *(cells[layer, choice].get(level, "") for level in levels))
        for name, layer in _shown_layers(plan, cells)
        # Keyed by the choice's name within a layer.
        for choice in sorted(choice for cell_layer, choice in cells if cell_layer == layer)
    )
    table = new_table(texts(*columns), rows, keys=2)
    table.caption = "- where no plan has it"
    table.caption_justify = "left"
    return table


def _shown_layers(
    plan: Plan, cells: Mapping[tuple[str, str], Mapping[int, str]]
) -> list[tuple[str, str]]:
    """Return the layers to show: their names, and the layers whose regrets represent them.

    Repetitions of a block whose regrets look the same are shown once.
    """
    rows: dict[str, list[str]] = {}
    for (layer, choice), row in sorted(cells.items(), key=itemgetter(0)):
        rows.setdefault(layer, []).append(f"{choice} {row}")
    # As texts: regrets are equal if the digits shown are.
    keys = [str(rows.get(layer)) for layer in plan.layers]
    shown = []
    for section in fold(plan.layers, plan.network.description.repeats, keys, runs=False):
        prefix = f"{section.label}." if section.block else ""
        for row_layers in section.rows:
            layer = plan.layers[row_layers.positions[0]]
            if layer in rows:
                shown.append((prefix + row_layers.first, layer))
    return shown


def _extra(regret: Regret, unit: str) -> str:
    if regret.extra is None:
        return "-"
    return ("-" if regret.extra < 0 else "+") + format_cost(abs(regret.extra), unit)


def _best_tables(plan: Plan, best: Sequence[Alternative]) -> list[Table]:
    """Show the best plans, one row per plan or set of plans that differ in the order of levels.

    For a graph, or a long chain, a second table has their choices.
    """
    unit, by_layer, plain = plan.cost.unit, not is_short_chain(plan), ascii_only()
    total = partial(format_cost, unit=unit)
    columns: list[Column | None] = [
        *(("", COUNT), (cost_name(plan), total), ("extra", COUNT), ("plans", COUNT)),
        None if by_layer else (f"levels, {_level_order(best)}", str),
    ]
    rows = []
    # Totals may differ after the four digits shown; the extra cost tells them apart.
    extras = _distinguished([plans.total - best[0].total for plans in best], unit)
    for rank, (plans, extra) in enumerate(zip(best, extras, strict=True), 1):
        levels = (
            "".join(glyph(choice, ascii_only=plain) for choice in row) for row in plans.parallelism
        )
        rows.append((f"{rank}", plans.total, extra, plans.count, " ".join(levels)))
    table = new_table(columns, rows)
    if not by_layer:
        return [table]
    heading = f"layers, {_level_order(best)}"
    return [table, choices_table(plan, [plans.parallelism for plans in best], heading)]


def _distinguished(costs: Sequence[float], unit: str) -> list[str]:
    """Return costs as texts that differ if the costs do."""
    texts = [format_cost(cost, unit) for cost in costs]
    if len(set(texts)) == len(set(costs)):
        return texts
    return [f"{cost:,} {unit}" for cost in costs]


def _level_order(best: Sequence[Alternative]) -> str:
    return "in any order" if any(plans.count > 1 for plans in best) else "H1 first"


def choices_table(plan: Plan, plans: Sequence[Sequence[Sequence[str]]], heading: str) -> Table:
    """Return one row per group of layers equal in all plans, with a column of glyphs per plan.

    Parameters
    ----------
    plans
        The choices of each, (levels, layers), of the network of ``plan``.
    heading
        That of the layers' column.
    """
    plain = ascii_only()
    columns = [
        tuple(
            "".join(glyph(row[n], ascii_only=plain) for row in parallelism) for parallelism in plans
        )
        for n in range(len(plan.layers))
    ]
    dash = "-" if plain else "–"
    rows = (
        (f"{section.label}." * bool(section.block) + row.label(dash), *columns[row.positions[0]])
        for section in fold(plan.layers, plan.network.description.repeats, columns)
        for row in section.rows
    )
    headings = (heading, *(f"{rank}" for rank in range(1, len(plans) + 1)))
    return new_table(texts(*headings), rows)
