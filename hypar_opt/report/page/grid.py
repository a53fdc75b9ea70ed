"""The page's grid of levels and layers, and the details of each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypar_opt.report.glyphs import glyph
from hypar_opt.report.labels import level_costs, local_cost
from hypar_opt.units import format_page_cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.plan.plan import Plan
    from hypar_opt.report.page.cells import ChoiceCost
    from hypar_opt.report.page.contents import Contents

_HEADINGS = {"bytes": "communication", "time": "time", "energy": "energy"}


def grid_view(contents: Contents) -> dict[str, Any]:
    """Return what the template's grid shows: a row a level, a cell a layer."""
    plan, cost = contents.plan, contents.plan.cost
    levels: list[dict[str, Any]] = []
    for level, (row, charge) in enumerate(zip(contents.cells, level_costs(cost), strict=True), 1):
        cells = [
            _cell(contents, layer, level, options)
            for layer, options in zip(plan.layers, row, strict=True)
        ]
        levels.append(
            {"name": f"H{level}", "cells": cells, "charge": format_page_cost(charge, cost.unit)}
        )
    local = local_cost(cost)
    return {
        "layers": plan.layers,
        "levels": levels,
        # A cost by entry point is headed by its own name.
        "heading": _HEADINGS.get(cost.kind, cost.kind),
        "local": None if local is None else (local[0], format_page_cost(local[1], cost.unit)),
        "total": format_page_cost(cost.total, cost.unit),
        "legend": [(str(choice), glyph(choice)) for choice in plan.vocabulary],
        "tied": any(cell["tied"] for level in levels for cell in level["cells"]),
    }


def _cell(
    contents: Contents, layer: str, level: int, options: Sequence[ChoiceCost]
) -> dict[str, Any]:
    chosen = next(option for option in options if option.chosen)
    others = [option for option in options if not option.chosen]
    # The solver's tie-break decided, or its search level by level missed a better plan.
    tied = any(option.extra is not None and option.extra <= 0 for option in others)
    return {
        "layer": layer,
        "level": f"H{level}",
        "choice": str(chosen.choice),
        "glyph": glyph(chosen.choice),
        # Without regrets the extra costs are not known.
        "tied": tied and contents.regretted,
        "options": [_option(option, contents.plan, contents.regretted) for option in options],
    }


def _option(option: ChoiceCost, plan: Plan, regretted: bool) -> dict[str, Any]:
    unit = plan.cost.unit
    return {
        "choice": str(option.choice),
        "glyph": glyph(option.choice),
        "chosen": option.chosen,
        "layer": _unbroken(format_page_cost(float(option.layer), unit)),
        "neighbours": _unbroken(format_page_cost(float(option.neighbours), unit)),
        "extra": _extra(option, plan, regretted),
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
    # Of a plan that costs nothing there is no relative extra cost.
    # A true minus sign, as wide as the plus beside it.
    share = f" ({option.extra / plan.cost.total:+.2%})" if plan.cost.total else ""
    sign = "−" if option.extra < 0 else "+"
    amount = _unbroken(format_page_cost(option.extra, plan.cost.unit))
    return sign + amount + share.replace("-", "−")


def _unbroken(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")
