"""``hypar-opt reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypar_opt.cli import completion, options, output
from hypar_opt.errors import CheckFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypar_opt.paper.rows import PaperRow

EXAMPLES = (
    "hypar-opt reproduce",
    "hypar-opt reproduce fig8 --rows --reading executed",
    "hypar-opt reproduce fig6 fig8 --figures pictures",
)

FIGURES = typer.Argument(
    metavar="FIGURE",
    help="tables (Tables 1 and 2), fig5 to fig13, or all (the default).",
    autocompletion=completion.figures,
)
FOLDER = typer.Option("--figures", metavar="DIR", help="Draw the figures into this folder.")
FORMATS = typer.Option(
    "--format", metavar="F,...", help="Formats of the drawn figures: png, svg, pdf."
)
CSV = options.table_option(help="Write every number to this CSV file.")
ROWS = typer.Option("--rows", help="Show every number instead of one row per figure.")
READING = typer.Option(
    help="Compute everything in this reading only (default: the readings that the paper follows).",
    autocompletion=completion.readings,
)


def reproduce(
    figures: Annotated[list[str] | None, FIGURES] = None,
    every_row: Annotated[bool, ROWS] = False,
    reading: Annotated[str | None, READING] = None,
    folder: Annotated[Path | None, FOLDER] = None,
    formats: Annotated[str, FORMATS] = "png",
    csv_file: Annotated[Path | None, CSV] = None,
    as_json: options.JSON = False,
) -> None:
    from hypar_opt import paper
    from hypar_opt.documents.files import check_outputs

    check_outputs((), csv_file)
    if folder is not None:
        _draw({}, folder, formats)  # refuses what cannot be drawn before the work
    with output.progress_bar("rows") as progress:
        rows = paper.reproduce(figures or (), progress, reading=reading)
    if folder is not None:
        with output.progress_bar("pictures"):
            written = _draw(rows, folder, formats)
        # On standard error, since standard output may be one JSON document.
        output.note(f"wrote {', '.join(map(str, written)) or 'no picture'}")
    if csv_file is not None:
        numbers = [{"figure": figure, **vars(row)} for figure in rows for row in rows[figure]]
        output.write_csv(numbers, csv_file)
    _print(rows, every_row=every_row, as_json=as_json)
    # Last, so that the rows on which the check fails are printed above.
    unexpected = paper.unexpected_rows(rows)
    if unexpected:
        from hypar_opt.paper.rows import format_value

        figure, row = unexpected[0]
        raise CheckFailedError(
            f"{len(unexpected)} rows are no longer as listed; first {figure}, {row.label}:"
            f" {format_value(row.ours)}, printed {format_value(row.printed)}"
        )


def _draw(rows: Mapping[str, Sequence[PaperRow]], folder: Path, formats: str) -> Sequence[Path]:
    from hypar_opt.display.figures import draw_paper

    # Without rows only the call is checked: the extra, formats and folder.
    return draw_paper(rows, folder, formats=formats.split(","))


def _print(rows: Mapping[str, Sequence[PaperRow]], *, every_row: bool, as_json: bool) -> None:
    """Print one row per figure, or all rows figure by figure."""
    from hypar_opt import paper

    summaries = paper.summary(rows)
    if as_json:
        output.print_json(paper.REPRODUCED.document(rows))
        return
    from hypar_opt.cli.paper_view import rows_view, summary_view

    output.print_view(rows_view(rows) if every_row else summary_view(summaries), folds=True)
