"""``hypar-opt list``: a command for each list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from hypar_opt.cli import options, output
from hypar_opt.cli.commands import SUMMARIES
from hypar_opt.studies.lists import LISTS

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(add_completion=False, rich_markup_mode=None, help=SUMMARIES["list"])


def _command(kind: str) -> Callable[[bool], None]:
    def print_list(as_json: options.JSON = False) -> None:
        rows = LISTS[kind]()
        if kind == "arrays" and not as_json:
            # A citation is wider than the rest of the table.
            rows = [{key: row[key] for key in row if key != "source"} for row in rows]
        output.print_rows(rows, as_json=as_json)

    return print_list


for kind, rows_of in LISTS.items():
    # Else Typer cuts it to one line in the help of all lists.
    app.command(kind, help=rows_of.__doc__, short_help=rows_of.__doc__)(_command(kind))
