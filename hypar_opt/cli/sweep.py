"""``hypar-opt sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypar_opt.cli import options, output
from hypar_opt.cli.options import running_option
from hypar_opt.errors import InputError

if TYPE_CHECKING:
    from hypar_opt.studies.sweep import SweepResult

EPILOG = (
    "Examples: [bold]hypar-opt sweep sweep.toml -o table.csv[/bold];"
    " [bold]hypar-opt sweep sweep.toml --scheduler tcp://head:8786[/bold]"
)

SPEC = typer.Argument(
    metavar="SPEC",
    help="A sweep file: TOML, lists of networks, batches, element_bytes, levels, arrays, choices,"
    " costs, solvers, overlap and readings (each array's default unless given); simulate = false"
    " for plans alone.",
)
TABLE = options.result_option(
    help="The table, .csv or .parquet; SPEC's name with .csv unless given. Finished rows stand in"
    " FILE.journal.",
)
WORKERS = running_option(
    metavar="N", help="Processes of this machine; one a core it may use unless given."
)
SCHEDULER = running_option(
    metavar="tcp://HOST:PORT", help="A Dask scheduler, whose workers run the cases."
)


def sweep(
    spec: Annotated[str, SPEC],
    table: Annotated[Path | None, TABLE] = None,
    workers: Annotated[int | None, WORKERS] = None,
    scheduler: Annotated[str | None, SCHEDULER] = None,
    as_json: options.JSON = False,
) -> None:
    """Solve and simulate all combinations of a file; run it again to go on."""
    # with_suffix would fail on a path without a name, such as "" or "/".
    if not Path(spec).name:
        raise InputError("should be a sweep file, in TOML", file=repr(spec))
    # Beside the sweep file, so that running it again meets the same journal.
    target = Path(spec).with_suffix(".csv") if table is None else table
    swept = _run(spec, target, workers, scheduler)
    if swept.moving_more:
        output.warn(
            f"run, the plans of {swept.moving_more} of {len(swept)} rows move more than Data"
            " Parallelism: executed_bytes, data_parallel_bytes"
        )
    if as_json:
        document = {
            "output": str(target),
            "before": swept.done_before,
            "refused": swept.refused,
            "moving_more": swept.moving_more,
            "rows": swept.rows(),
        }
        output.print_json(document)
        return
    notes = [f"{len(swept)} rows"]
    notes += [f"{swept.refused} of them refused"] if swept.refused else []
    notes += [f"{swept.done_before} done before"] if swept.done_before else []
    print(f"{target}: {', '.join(notes)}")


def _run(spec: str, target: Path, workers: int | None, scheduler: str | None) -> SweepResult:
    """Run the cases that are not done; Ctrl-C says how many were."""
    from hypar_opt.studies.sweep import sweep

    # Kept here, since after Ctrl-C only the last report of progress says what is done.
    done = cases = 0
    try:
        with output.progress_bar("cases") as bar:

            def progress(*counts: int) -> None:
                nonlocal done, cases
                done, cases = counts
                bar(done, cases)

            return sweep(spec, target, workers=workers, scheduler=scheduler, progress=progress)
    except KeyboardInterrupt:
        output.note(f"stopped after {done} of {cases} cases; run it again for the rest")
        # Finished rows are in the journal, so no work is lost.
        raise typer.Exit(output.INTERRUPTED) from None
