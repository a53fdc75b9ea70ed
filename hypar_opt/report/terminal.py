"""The terminal, and plain tables on it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

_MIN_WIDTH = 60
"""A terminal too narrow for a table wraps its lines; columns are never dropped."""

_PIPE_WIDTH = 100
_UNBOUNDED_WIDTH = 10_000
"""Wider than any table, to measure one."""


def console() -> Console:
    """Standard output: the terminal's width, or a fixed one where there is no terminal."""
    # Without highlighting: rich would colour every number that it sees.
    output = Console(highlight=False, soft_wrap=False)
    if not output.is_terminal and not os.environ.get("COLUMNS"):
        output.width = _PIPE_WIDTH
    output.width = max(output.width, _MIN_WIDTH)
    return output


def ascii_only() -> bool:
    """Whether standard output's encoding has no more than ASCII."""
    return console().options.ascii_only


def new_table(*header: str, right: tuple[int, ...] = ()) -> Table:
    """Return an empty table; the columns numbered in ``right`` hold numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    # Names may fold on a narrow terminal; a number that is broken reads as two.
    for column, name in enumerate(header):
        numeric = column in right
        justify = "right" if numeric else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=numeric)  # type: ignore[arg-type]
    return table


def rows_view(
    header: Iterable[str], rows: Iterable[Iterable[str]], right: tuple[int, ...] = ()
) -> Table:
    """Show a plain table of texts.

    Parameters
    ----------
    right
        Indices of the columns that hold numbers, which are aligned right and never folded.
    """
    table = new_table(*header, right=right)
    for row in rows:
        # As texts: rich would read brackets in a name as its markup.
        table.add_row(*map(Text, row))
    return table


def unbroken(table: Table) -> Table:
    """Return a table whose names, and numbers with their units, are not broken."""
    output = console()
    options = output.options.update(width=_UNBOUNDED_WIDTH)
    table.min_width = output.measure(table, options=options).maximum
    return table
