"""The terminal's views as HTML, for notebooks: the same texts and tables, in elements."""

from __future__ import annotations

from html import escape

from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

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
    # Without the end of the line.
    parts = content.render(console)
    return "".join(_span(segment.text, segment.style) for segment in parts)


def _span(text: str, style: Style | None) -> str:
    declarations = _css(style) if style else ""
    return f'<span style="{declarations}">{escape(text)}</span>' if declarations else escape(text)


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
