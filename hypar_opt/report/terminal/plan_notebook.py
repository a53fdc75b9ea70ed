"""A plan in a notebook: its grid of layers and levels, and its cost."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from hypar_opt.report.glyphs import explained, legend, stored_legend, stored_symbol, symbol
from hypar_opt.report.labels import cost_name, level_costs, total_costs
from hypar_opt.report.layer_groups import Stored, is_short_chain
from hypar_opt.report.plan_grid import plan_grid
from hypar_opt.report.terminal.notebook import SCROLLED, html_of
from hypar_opt.report.terminal.plan import baselines_table, plan_title
from hypar_opt.studies.advice import as_executed
from hypar_opt.units import format_cost

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.report.glyphs import Symbol
    from hypar_opt.report.plan_grid import GridRow, PlanGrid

_GRID = "border-collapse:separate;border-spacing:2px;font-variant-numeric:tabular-nums"
_NAME = "text-align:left;font-weight:normal;padding:.1em .8em .1em 0"
_LEVEL = "text-align:center;padding:.1em .5em"
_AMOUNT = "text-align:right;padding:.1em .5em;white-space:nowrap"
_SWATCH = "padding:0 .4em;border-radius:3px"

_INDENT, _GAP = "\N{EM SPACE}", " \N{EM SPACE}"


def plan_html(plan: Plan) -> str:
    """Return a plan's grid as HTML: one row per group of equal layers, one column per level.

    Equal layers have the same choices and layouts of their outputs. Below the grid are the levels'
    costs, the legend and the baselines.
    """
    grid = plan_grid(plan, stored=Stored.ALL, runs=not is_short_chain(plan))
    heads = ["layer", *plan.level_names, *(["stored"] if grid.layouts else [])]
    head = "".join(f'<th scope="col" style="{_LEVEL}">{name}</th>' for name in heads)
    executed = Text(as_executed(plan.cost) or "")
    return "\n".join(
        [
            "<div>",
            f"<p>{escape(plan_title(plan))}</p>",
            SCROLLED,
            f'<table style="{_GRID}">',
            f"<thead><tr>{head}</tr></thead>",
            "<tbody>",
            *_layers(plan, grid, len(heads)),
            "</tbody>",
            "<tfoot>",
            *_costs(plan),
            "</tfoot>",
            "</table>",
            "</div>",
            *_legends(plan, grid),
            html_of(Group(baselines_table(plan), executed)),
            "</div>",
        ]
    )


def _layers(plan: Plan, grid: PlanGrid, columns: int) -> Iterator[str]:
    """Yield one row per group of equal layers, and a heading row above each block."""
    for label, row in grid.lines(_INDENT):
        if row is not None:
            yield _row(plan, label, row)
        else:
            yield f'<tr><th colspan="{columns}" style="{_NAME}">{escape(label)}</th></tr>'


def _row(plan: Plan, name: str, row: GridRow) -> str:
    """Return the row of a group of equal layers."""
    cells = [f'<th scope="row" style="{_NAME}">{escape(name)}</th>']
    for level, choice in zip(plan.level_names, row.choices, strict=True):
        cells.append(_cell(f"{name.strip()}, {level}: {choice}", [symbol(choice)]))
    if row.stored:
        words = zip(plan.level_names, row.stored, strict=True)
        title = ", ".join(f"{level}: {layout}" for level, layout in words)
        cells.append(_cell(f"stored {title}", [stored_symbol(layout) for layout in row.stored]))
    return f"<tr>{''.join(cells)}</tr>"


def _cell(title: str, symbols: list[Symbol]) -> str:
    # A choice fills its cell; layouts, several per cell, are shown by glyphs.
    colours = _colours(symbols[0]) if len(symbols) == 1 else ""
    glyphs = "".join(own.glyph for own in symbols)
    return f'<td title="{escape(title)}" style="{_LEVEL};{colours}">{glyphs}</td>'


def _costs(plan: Plan) -> Iterator[str]:
    """Yield the costs of the levels, of parts that belong to no level, and the total."""
    cost = plan.cost
    charges = [format_cost(charge, cost.unit) for charge in level_costs(cost)]
    if charges:
        amounts = "".join(f'<td style="{_AMOUNT}">{charge}</td>' for charge in charges)
        yield f'<tr><th scope="row" style="{_NAME}">{escape(cost_name(plan))}</th>{amounts}</tr>'
    for name, amount in total_costs(cost):
        shown = escape(format_cost(amount, cost.unit))
        yield (
            f'<tr><th scope="row" style="{_NAME}">{escape(name)}</th>'
            f'<td colspan="{max(plan.levels, 1)}" style="{_AMOUNT}">{shown}</td></tr>'
        )


def _legends(plan: Plan, grid: PlanGrid) -> Iterator[str]:
    yield _legend("", legend(explained(plan)))
    if grid.layouts:
        yield _legend("stored: ", stored_legend(grid.layouts))


def _legend(before: str, entries: list[tuple[Symbol, str]]) -> str:
    swatches = (
        f'<span style="{_SWATCH};{_colours(own)}">{own.glyph}</span> {escape(words)}'
        for own, words in entries
    )
    return f"<p>{before}{_GAP.join(swatches)}</p>"


def _colours(own: Symbol) -> str:
    return f"background:{own.light.fill};color:{own.light.ink}"
