"""The terminal, and plain tables on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column as RichColumn
from rich.table import Table
from rich.text import Text

from hypar_opt.errors import printable
from hypar_opt.results import Columns, Form

Column = tuple[str, Form]
"""A column's heading, and the form of its values."""

_MIN_WIDTH = 60
"""A narrower terminal wraps the lines; columns are never dropped."""

_PIPE_WIDTH = 100
_UNBOUNDED_WIDTH = 10_000
"""Wider than any table, to measure one."""

_MAX_WORD = 32
"""Names up to this length are not folded if the table may be split."""


def console() -> Console:
    """Return standard output, at the terminal's width or a fixed one without a terminal."""
    # Without highlighting: rich would colour every number that it sees.
    output = Console(highlight=False, soft_wrap=False)
    if not output.is_terminal and not os.environ.get("COLUMNS"):
        output.width = _PIPE_WIDTH
    output.width = max(output.width, _MIN_WIDTH)
    return output


def is_bounded() -> bool:
    """Return whether lines must fit a width: on a terminal, or if ``COLUMNS`` is set."""
    return sys.stdout.isatty() or bool(os.environ.get("COLUMNS"))


def ascii_only() -> bool:
    """Return whether standard output's encoding is limited to ASCII."""
    return console().options.ascii_only


@dataclass(frozen=True)
class Shown:
    """A view whose texts send a terminal no command, wherever they come from.

    What is not printable is escaped: control characters, of which a terminal takes some as
    commands, and marks that change the order of letters. Colours are styles, and stay.
    """

    view: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.view, options):
            if segment.text.isprintable():
                yield segment
            else:
                lines = segment.text.split("\n")
                yield Segment("\n".join(map(printable, lines)), segment.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self.view)


class StackedTable(Table):
    """A table that, if wider than the terminal, is split into several, one below another.

    Each has the first columns, which name the rows, and as many other columns as fit.
    """

    keys: int = 1
    """The number of columns that name a row."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        groups = self._groups(console, options)
        if len(groups) == 1:
            yield from super().__rich_console__(console, options)
            return
        for number, group in enumerate(groups):
            if number:
                yield Text()
            yield self._part(group, last=number == len(groups) - 1)

    def _groups(self, console: Console, options: ConsoleOptions) -> list[list[int]]:
        """Return the columns of each table, without those that name the rows."""
        widths = [self._needed(console, options, column) for column in self.columns]
        groups: list[list[int]] = [[]]
        used = named = sum(widths[: self.keys])
        for column, width in list(enumerate(widths))[self.keys :]:
            # A column too wide to fit next to the names is narrowed or cut instead.
            if groups[-1] and used + width > options.max_width:
                groups.append([])
                used = named
            groups[-1].append(column)
            used += width
        return groups

    def _needed(self, console: Console, options: ConsoleOptions, column: RichColumn) -> int:
        """Return the least width that breaks no word or number of a column."""
        unlimited = options.update(width=_UNBOUNDED_WIDTH)
        shown = (column.header, *column.cells)
        cells = [Measurement.get(console, unlimited, cell) for cell in shown]
        if column.no_wrap:
            width = max(cell.maximum for cell in cells)
        else:
            width = min(max(cell.minimum for cell in cells), _MAX_WORD)
        return max(width, column.min_width or 0) + self.padding[1]

    def _part(self, group: list[int], *, last: bool) -> Table:
        table = Table(box=None, padding=self.padding, pad_edge=False, header_style="bold")
        columns = [*self.columns[: self.keys], *(self.columns[n] for n in group)]
        # The cells are shared; rich reads a column by its own number.
        table.columns = [replace(column, _index=n) for n, column in enumerate(columns)]
        table.rows = self.rows
        if last:
            table.caption, table.caption_justify = self.caption, self.caption_justify
        return table


def new_table(
    columns: Sequence[Column | None],
    rows: Iterable[Iterable[Any]] = (),
    *,
    totals: Collection[Iterable[Any]] = (),
    keys: int = 1,
) -> StackedTable:
    """Return a table of values, ``-`` for None; texts stay as they are.

    Parameters
    ----------
    columns
        Values of any form but `str` are numbers, which are aligned right and never folded. Those
        of None are left out.
    totals
        Rows below a rule.
    keys
        The number of first columns that name a row: a table too wide for the terminal is split
        into several, which all have them.
    """
    table = StackedTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.keys = keys
    # As texts: rich would interpret brackets in a name as markup.
    for heading, form in filter(None, columns):
        # Names may fold on a narrow terminal; a broken number would look like two.
        numeric = form is not str
        justify: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(Text(heading), justify=justify, overflow="fold", no_wrap=numeric)
    for part in (rows, totals):
        if part is totals and totals:
            table.add_section()
        for row in part:
            shown = [
                (value, column[1]) for value, column in zip(row, columns, strict=False) if column
            ]
            table.add_row(
                *(
                    value if isinstance(value, Text) else Text(as_text(value, form))
                    for value, form in shown
                )
            )
    return table


def table_of(
    columns: Columns, entries: Sequence[Any], first: Column | None = None, names: Iterable[Any] = ()
) -> StackedTable:
    """Return the table of a result's entries, with the columns that have a heading.

    Parameters
    ----------
    first, names
        A column that stands before these, and its value for each entry.
    """
    shown = columns.headed(entries)
    lines = ([column.value(entry) for column in shown] for entry in entries)
    headed = [(column.heading or "", column.form) for column in shown]
    if first is None:
        return new_table(headed, lines)
    named = ([name, *line] for name, line in zip(names, lines, strict=False))
    return new_table([first, *headed], named)


def rows_table(rows: Sequence[Mapping[str, Any]]) -> StackedTable:
    """Return a table whose header is the keys of the rows."""
    columns: list[Column] = [
        (name, _text if isinstance(value, int | float) else str) for name, value in rows[0].items()
    ]
    return new_table(columns, (map(_text, row.values()) for row in rows))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else str(value)


def texts(*headings: str) -> list[Column]:
    """Return columns of texts."""
    return [(heading, str) for heading in headings]


def as_text(value: Any, form: Form) -> str:
    """Return a value as text in one line: ``-`` for None, and what is text already as it is."""
    return printable(value) if isinstance(value, str) else "-" if value is None else form(value)


def unbroken(table: StackedTable) -> StackedTable:
    """Return a table whose names, and numbers with their units, are not broken."""
    for column in table.columns:
        column.no_wrap = True
    return table
