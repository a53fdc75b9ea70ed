"""``hypar-opt reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypar_opt.cli import completion, options, output
from hypar_opt.errors import CheckFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from hypar_opt.paper.rows import PaperRow

EPILOG = (
    "Examples: [bold]hypar-opt reproduce[/bold];"
    " [bold]hypar-opt reproduce fig6 fig8 --figures pictures[/bold]"
)

FIGURES = typer.Argument(
    metavar="[FIGURE]...",
    help="tables (Tables 1 and 2), fig5 to fig13, or all; all unless given.",
    autocompletion=completion.figures,
)
FOLDER = typer.Option("--figures", metavar="DIR", help="Draw the figures into this folder.")
FORMATS = typer.Option("--format", metavar="F,...", help="Of the drawn figures: png, svg, pdf.")


def reproduce(
    figures: Annotated[list[str] | None, FIGURES] = None,
    folder: Annotated[Path | None, FOLDER] = None,
    formats: Annotated[str, FORMATS] = "png",
    as_json: options.JSON = False,
) -> None:
    """Show the paper's numbers beside ours; ends with 1 where one is no longer as listed."""
    from hypar_opt import paper

    if folder is not None:
        _draw({}, folder, formats)  # what cannot be drawn is refused before the work
    with output.progress_bar("rows") as progress:
        rows = paper.reproduce(figures or (), progress)
    if folder is not None:
        with output.progress_bar("pictures"):
            written = _draw(rows, folder, formats)
        # On standard error, since standard output may be one JSON document.
        output.note(f"wrote {', '.join(map(str, written)) or 'no picture'}")
    _print(rows, as_json=as_json)
    # Last: the rows printed above show what the check fails on.
    unexpected = paper.unexpected_rows(rows)
    if unexpected:
        from hypar_opt.paper.rows import format_value

        figure, row = unexpected[0]
        raise CheckFailedError(
            f"{len(unexpected)} of the rows no longer as listed; first {figure}, {row.label}:"
            f" {format_value(row.ours)}, printed {format_value(row.printed)}"
        )


def _draw(rows: Mapping[str, Sequence[PaperRow]], folder: Path, formats: str) -> Sequence[Path]:
    from hypar_opt.report.pictures import draw_paper

    # Without rows only the call is checked: matplotlib, formats and folder.
    return draw_paper(rows, folder, formats=formats.split(","))


def _print(rows: Mapping[str, Sequence[PaperRow]], *, as_json: bool) -> None:
    """Print the rows figure by figure, and how many have each verdict."""
    from rich.console import Group

    from hypar_opt import paper

    counts = paper.count_verdicts(rows)
    if as_json:
        documents = {figure: {"rows": list(map(vars, shown))} for figure, shown in rows.items()}
        output.print_json({"figures": documents, "counts": counts})
        return
    views = [_view(paper.TITLES[figure], shown) for figure, shown in rows.items()]
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    output.print_view(Group(*views, verdicts))


def _view(title: str, rows: Sequence[PaperRow]) -> RenderableType:
    """Show a figure's rows, and below them the reasons of those that are not reproduced."""
    from rich.console import Group
    from rich.text import Text

    from hypar_opt.paper.rows import format_rows
    from hypar_opt.report import terminal

    cells, reasons = format_rows(rows)
    head = ("", "reading", "ours", "printed", "ratio", "verdict")
    notes = [Text(f"({number}) {reason}", "dim") for number, reason in enumerate(reasons, 1)]
    # A number that is folded cannot be compared with the one beside it.
    table = terminal.unbroken(terminal.rows_view(head, cells, right=(2, 3, 4)))
    return Group(Text(title, "bold"), table, *notes, "")
