"""``hypar-opt reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypar_opt.cli import options, output
from hypar_opt.errors import CheckFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from hypar_opt.paper import PaperRow

EPILOG = (
    "Examples: [bold]hypar-opt reproduce[/bold];"
    " [bold]hypar-opt reproduce fig6 fig8 --figures pictures[/bold]"
)


def _complete(incomplete: str) -> list[str]:
    from hypar_opt.paper import FIGURES

    return options.starting(incomplete, (*FIGURES, "all"))


def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FIGURE]...",
            help="tables (Tables 1 and 2), fig5 to fig13, or all; all unless given.",
            autocompletion=_complete,
            show_default=False,
        ),
    ] = None,
    pictures: Annotated[
        Path | None,
        typer.Option("--figures", metavar="DIR", help="Draw them there.", show_default=False),
    ] = None,
    formats: Annotated[
        str, typer.Option("--format", metavar="F,...", help="Of the pictures: png, svg, pdf.")
    ] = "png",
    as_json: options.JSON = False,
) -> None:
    """Show the paper's numbers beside ours; ends with 1 where one is no longer as listed."""
    from hypar_opt import paper

    if pictures is not None:
        from hypar_opt.report.pictures import draw_paper

        draw_paper({}, pictures, formats=formats.split(","))  # refuses before the work
    with output.progress_bar("rows") as progress:
        rows = paper.reproduce(figures or (), progress)
    if pictures is not None:
        with output.progress_bar("pictures"):
            written = draw_paper(rows, pictures, formats=formats.split(","))
        output.note(f"wrote {', '.join(map(str, written)) or 'no picture'}")
    counts = paper.count_verdicts(rows)
    if as_json:
        found = {figure: {"rows": list(map(vars, each))} for figure, each in rows.items()}
        output.print_json({"figures": found, "counts": counts})
    else:
        from rich.console import Group

        views = [_view(paper.TITLES[figure], each) for figure, each in rows.items()]
        output.print_view(Group(*views, ", ".join(f"{n} {word}" for word, n in counts.items())))
    unexpected = paper.unexpected_rows(rows)
    if unexpected:
        from hypar_opt.paper.rows import format_value

        figure, row = unexpected[0]
        raise CheckFailedError(
            f"{len(unexpected)} of the rows no longer as listed; first {figure}, {row.label}:"
            f" {format_value(row.ours)}, printed {format_value(row.printed)}"
        )


def _view(title: str, rows: Sequence[PaperRow]) -> RenderableType:
    """Show a figure's rows, and below them the reasons of those that are not reproduced."""
    from rich.console import Group
    from rich.text import Text

    from hypar_opt.paper.rows import format_rows
    from hypar_opt.report import terminal

    cells, reasons = format_rows(rows)
    head = ("", "reading", "ours", "printed", "ratio", "verdict")
    notes = [Text(f"({place}) {reason}", "dim") for place, reason in enumerate(reasons, 1)]
    table = terminal.unbroken(terminal.rows_view(head, cells, right=(2, 3, 4)))
    return Group(Text(title, "bold"), table, *notes, "")
