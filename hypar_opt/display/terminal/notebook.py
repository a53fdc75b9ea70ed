"""The terminal's views as HTML, for notebooks: the same texts and tables, in elements."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

from hypar_opt.display.glyphs import Symbol, explained, legend, stored_legend, stored_symbol, symbol
from hypar_opt.display.labels import cost_name, level_costs, total_costs
from hypar_opt.display.plan_grid import GridRow, PlanGrid, Stored, is_short_chain, plan_grid
from hypar_opt.display.terminal.plan import baselines_of, plan_title
from hypar_opt.plan.plan import Plan
from hypar_opt.studies.advice import executed_note
from hypar_opt.units import format_cost

SCROLLED = '<div style="overflow-x:auto">'
"""Opens an element that scrolls if the notebook is narrower."""

# Styles are in the elements: notebooks keep no style sheets with outputs.
_TABLE = "border-collapse:collapse;margin:.5em 0;font-variant-numeric:tabular-nums"
_CELL = "padding:.1em .8em .1em 0;white-space:pre;vertical-align:top"
_RULE = ";border-top:1px solid"
_CAPTION = "caption-side:bottom;text-align:left"


def html_of(view: RenderableType) -> str:
    """Return a view as HTML without a blank line, which would end it in Markdown.

    Parameters
    ----------
    view
        Texts, tables, and groups of these, as all of our views are.

    Raises
    ------
    TypeError
        If it has another part.
    """
    match view:
        case Group():
            return "\n".join(filter(None, map(html_of, view.renderables)))
        case Table():
            return _table(view)
        case str() | Text():
            inline = _inline(view)
            return f"<p>{inline}</p>" if inline else ""
    raise TypeError(f"no HTML is known of {view!r}")


def _table(table: Table) -> str:
    # A heading on every table: one without has empty cells.
    head = "".join(_cell("th", column, column.header) for column in table.columns)
    lines = [SCROLLED, f'<table style="{_TABLE}">']
    if table.caption:
        assert isinstance(table.caption, str | Text)
        lines.append(f'<caption style="{_CAPTION}">{_inline(table.caption)}</caption>')
    lines += [f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    ruled = False
    for number, row in enumerate(table.rows):
        columns = [(column, list(column.cells)[number]) for column in table.columns]
        cells = "".join(_cell("td", *pair, ruled=ruled) for pair in columns)
        lines.append(f"<tr>{cells}</tr>")
        ruled = row.end_section
    return "\n".join([*lines, "</tbody>", "</table>", "</div>"])


def _cell(tag: str, column: Column, content: RenderableType, *, ruled: bool = False) -> str:
    assert isinstance(content, str | Text)
    align = "right" if column.justify == "right" else "left"
    scope = ' scope="col"' if tag == "th" else ""
    style = f"{_CELL};text-align:{align}{_RULE * ruled}"
    return f'<{tag}{scope} style="{style}">{_inline(content)}</{tag}>'


def _inline(content: str | Text) -> str:
    """Return a text with its names escaped, and its styles on spans."""
    if isinstance(content, str):
        return escape(content)
    console = Console(width=max(len(content), 1))
    spans = []
    for segment in content.render(console):  # without the end of the line
        css, text = _css(segment.style) if segment.style else "", escape(segment.text)
        spans.append(f'<span style="{css}">{text}</span>' if css else text)
    return "".join(spans)


def _css(style: Style) -> str:
    parts = []
    # Dimmed by opacity, which suits a dark notebook as well as a light one.
    if style.dim:
        parts.append("opacity:.7")
    if style.bold:
        parts.append("font-weight:bold")
    if style.color is not None and not style.color.is_default:
        parts.append(f"color:{style.color.get_truecolor().hex}")
    return ";".join(parts)


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
    executed = Text(executed_note(plan.cost) or "")
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
            html_of(Group(*baselines_of(plan), executed)),
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
        cells.append(_filled_cell(f"{name.strip()}, {level}: {choice}", [symbol(choice)]))
    if row.stored:
        words = zip(plan.level_names, row.stored, strict=True)
        title = ", ".join(f"{level}: {layout}" for level, layout in words)
        cells.append(
            _filled_cell(f"stored {title}", [stored_symbol(layout) for layout in row.stored])
        )
    return f"<tr>{''.join(cells)}</tr>"


def _filled_cell(title: str, symbols: list[Symbol]) -> str:
    # A choice fills its cell; layouts, several per cell, are shown by glyphs.
    colours = _colours(symbols[0]) if len(symbols) == 1 else ""
    glyphs = "".join(symbol.glyph for symbol in symbols)
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
    yield _legend("", legend(explained(plan), plan.choices))
    if grid.layouts:
        yield _legend("stored tensors: ", stored_legend(grid.layouts))


def _legend(before: str, entries: list[tuple[Symbol, str]]) -> str:
    swatches = (
        f'<span style="{_SWATCH};{_colours(symbol)}">{symbol.glyph}</span> {escape(words)}'
        for symbol, words in entries
    )
    return f"<p>{before}{_GAP.join(swatches)}</p>"


def _colours(symbol: Symbol) -> str:
    return f"background:{symbol.light.fill};color:{symbol.light.ink}"
