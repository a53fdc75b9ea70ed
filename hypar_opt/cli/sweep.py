"""``hypar-opt sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hypar_opt.cli import options, output
from hypar_opt.errors import InputError

EPILOG = (
    "Examples: [bold]hypar-opt sweep sweep.toml -o table.csv[/bold];"
    " [bold]hypar-opt sweep sweep.toml --scheduler tcp://head:8786[/bold]"
)
RUNNING = options.RUNNING


def sweep(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help="A sweep file: TOML, lists of networks, batches, element_bytes, levels,"
            " arrays, costs, solvers, overlap and readings (each array's default unless given).",
            show_default=False,
        ),
    ],
    table: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The table, .csv or .parquet; SPEC's name with .csv unless given. Rows that are"
            " done stand in FILE.journal.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Processes of this machine; one a core it may use unless given.",
            rich_help_panel=RUNNING,
            show_default=False,
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="tcp://HOST:PORT",
            help="A Dask scheduler, whose workers run the cases.",
            rich_help_panel=RUNNING,
            show_default=False,
        ),
    ] = None,
    as_json: options.JSON = False,
) -> None:
    """Simulate all combinations that a file asks for; run it again to go on."""
    from hypar_opt.studies.sweep import sweep

    if not Path(spec).name:
        raise InputError("should be a sweep file, in TOML", file=repr(spec))
    target = Path(spec).with_suffix(".csv") if table is None else table
    done = of = 0
    try:
        with output.progress_bar("cases") as bar:

            def progress(*now: int) -> None:
                nonlocal done, of
                done, of = now
                bar(done, of)

            swept = sweep(spec, target, workers=workers, scheduler=scheduler, progress=progress)
    except KeyboardInterrupt:
        output.note(f"stopped after {done} of {of} cases; run it again for the rest")
        raise typer.Exit(130) from None
    if swept.moving_more:
        output.warn(
            f"run, the plans of {swept.moving_more} of {len(swept.rows)} rows move more than Data"
            " Parallelism: executed_bytes, data_parallel_bytes"
        )
    if as_json:
        rows = [row.model_dump() for row in swept.rows]
        output.print_json(
            {
                "output": str(target),
                "before": swept.done_before,
                "refused": swept.refused,
                "moving_more": swept.moving_more,
                "rows": rows,
            }
        )
        return
    notes = [f"{len(swept.rows)} rows"]
    notes += [f"{swept.refused} of them refused"] if swept.refused else []
    notes += [f"{swept.done_before} done before"] if swept.done_before else []
    print(f"{target}: {', '.join(notes)}")
