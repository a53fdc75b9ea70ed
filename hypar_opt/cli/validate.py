"""``hypar-opt validate``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hypar_opt.cli import options, output

EXAMPLES = (
    "hypar-opt validate",
    "hypar-opt validate --file my-runs.toml --picture runs.svg",
)

FILE = typer.Option(
    "--file",
    metavar="FILE",
    help="Measured steps, with the columns that docs/validation.md lists. Default: those of"
    " Narayanan et al., SC 2021, table 1, and Korthikanti et al., MLSys 2023, table 5.",
)
CONSTANTS = typer.Option(
    metavar="FILE",
    help="Machine constants that add to the built-in ones; or an array, its file or a preset, on"
    " which all steps ran.",
)
CSV = options.table_option(help="Write one row per measured step to this CSV file.")


def validate(
    file: Annotated[Path | None, FILE] = None,
    constants: Annotated[Path | None, CONSTANTS] = None,
    csv_file: Annotated[Path | None, CSV] = None,
    picture: options.PICTURE = None,
    as_json: options.JSON = False,
) -> None:
    from hypar_opt.display.terminal.validation import sets_view, step_line
    from hypar_opt.documents.files import record_read
    from hypar_opt.studies import validation

    with output.outputs_checked(csv_file, picture=picture):
        for path in filter(None, (file, constants)):
            record_read(path)
    streams = not as_json and sys.stdout.isatty()
    if streams:
        # On a terminal the rows are the progress.
        def shown(step: validation.ValidatedStep | None) -> None:
            output.print_view(step_line(step))

        shown(None)
        result = validation.validate(file, constants=constants, each=shown)
        output.print_text("")
    else:
        with output.progress_bar("steps") as progress:
            result = validation.validate(file, constants=constants, progress=progress)
    if result.left_aside:
        output.note(f"columns left aside: {', '.join(result.left_aside)}")
    if csv_file is not None:
        output.write_csv(result.rows(), csv_file)
    output.draw(picture, result)
    if as_json:
        output.print_json(result.document())
    else:
        output.print_view(sets_view(result) if streams else result)
