"""The page's grid of levels and layers, and the details of each cell."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from hypar_opt.display.glyphs import Symbol, explained, legend, symbol
from hypar_opt.display.labels import level_costs, total_costs
from hypar_opt.display.page.cells import ChoiceCost
from hypar_opt.display.page.contents import Contents
from hypar_opt.display.plan_grid import GridRow, plan_grid
from hypar_opt.plan.plan import Plan
from hypar_opt.units import format_page_cost

MAX_COLUMNS = 100
"""Beyond this many columns, neighbouring layers are folded too, not only repetitions."""


def grid_view(contents: Contents) -> dict[str, Any]:
    """Return the template's grid: one row per level, one cell per group of equal layers."""
    plan, cost = contents.plan, contents.plan.cost
    grid = plan_grid(plan, runs=False)
    if len(grid.rows) > MAX_COLUMNS:
        grid = plan_grid(plan)
    columns = grid.rows
    groups = [(heading, len(rows)) for heading, rows in grid.sections]
    levels: list[dict[str, Any]] = []
    for level, (row, charge) in enumerate(zip(contents.cells, level_costs(cost), strict=True), 1):
        cells = [_cell(contents, column, level, row) for column in columns]
        levels.append(
            {"name": f"H{level}", "cells": cells, "charge": format_page_cost(charge, cost.unit)}
        )
    return {
        "layers": [column.label for column in columns],
        # The names of blocks, above their layers.
        "groups": groups if any(heading for heading, _ in groups) else [],
        "folded": any(len(column.positions) > 1 for column in columns),
        "levels": levels,
        # A plug-in's cost is headed by its name.
        "heading": "communication" if cost.kind == "bytes" else cost.kind,
        "totals": [
            (name, format_page_cost(amount, cost.unit)) for name, amount in total_costs(cost)
        ],
        "legend": [
            (symbol.name, symbol.glyph, words)
            for symbol, words in legend(explained(plan), plan.choices)
        ],
        "tied": any(cell["tied"] for level in levels for cell in level["cells"]),
    }


def _cell(
    contents: Contents, column: GridRow, level: int, row: Sequence[Sequence[ChoiceCost]]
) -> dict[str, Any]:
    """Return a cell, with the cost of each choice of all its layers together."""
    # Kinds of layers have different words for a choice: equal symbols are one option.
    options: dict[Symbol, list[ChoiceCost]] = {}
    for position in column.positions:
        for option in row[position]:
            options.setdefault(symbol(option.choice), []).append(option)
    word = column.choices[level - 1]
    chosen = next(
        (choice for choice, costs in options.items() if any(cost.chosen for cost in costs)),
        symbol(word),
    )
    alternatives = [cost for choice, costs in options.items() if choice != chosen for cost in costs]
    # The solver's tie-break decided, or its levelwise search missed a better plan.
    tied = any(option.extra is not None and option.extra <= 0 for option in alternatives)
    return {
        "layer": column.name,
        "count": len(column.positions),
        "level": f"H{level}",
        "choice": _words(options[chosen]) if options else word,
        "symbol": chosen.name,
        "glyph": chosen.glyph,
        # Without regrets the extra costs are not known.
        "tied": tied and contents.regretted,
        "options": [
            _option(choice, costs, contents.plan, contents.regretted)
            for choice, costs in options.items()
        ],
    }


def _words(options: Sequence[ChoiceCost]) -> str:
    return ", ".join(dict.fromkeys(str(option.choice) for option in options))


def _option(
    symbol: Symbol, options: Sequence[ChoiceCost], plan: Plan, regretted: bool
) -> dict[str, Any]:
    unit = plan.cost.unit
    priced = [option for option in options if option.extra is not None]
    # Extra costs are of the layer with the least one.
    cheapest = min(priced, key=lambda option: option.extra or 0, default=options[0])
    layer, neighbours = (
        sum((getattr(option, part) for option in options), Fraction())
        for part in ("layer", "neighbours")
    )
    return {
        "choice": _words(options),
        "symbol": symbol.name,
        "glyph": symbol.glyph,
        "chosen": options[0].chosen,
        "layer": _unbroken(format_page_cost(float(layer), unit)),
        "neighbours": _unbroken(format_page_cost(float(neighbours), unit)),
        "extra": _extra(cheapest, plan, regretted),
    }


def _extra(option: ChoiceCost, plan: Plan, regretted: bool) -> str:
    if option.chosen:
        return "chosen"
    if not regretted:
        return "not asked"
    if option.extra is None:
        return "no plan has it"
    if option.extra == 0:
        return "nothing"
    # A plan that costs 0 has no relative extra cost. A true minus sign, as wide as a plus.
    share = f" ({option.extra / plan.cost.total:+.2%})" if plan.cost.total else ""
    sign = "−" if option.extra < 0 else "+"
    amount = _unbroken(format_page_cost(option.extra, plan.cost.unit))
    return sign + amount + share.replace("-", "−")


def _unbroken(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")
