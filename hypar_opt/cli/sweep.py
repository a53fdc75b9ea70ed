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
    help="A sweep file, in TOML: lists of networks, batches, element_bytes, levels, arrays"
    " or hierarchies, choices, costs, solvers, overlap and readings (default: the array's);"
    " simulate = false to only solve.",
)
TABLE = options.result_option(
    help="The table, .csv or .parquet (default: SPEC's name with .csv). Finished rows are kept in"
    " FILE.journal.",
)
WORKERS = running_option(
    metavar="N", help="Processes on this machine (default: one per available core)."
)
SCHEDULER = running_option(
    metavar="tcp://HOST:PORT", help="A Dask scheduler whose workers run the cases."
)


def sweep(
    spec: Annotated[str, SPEC],
    table: Annotated[Path | None, TABLE] = None,
    workers: Annotated[int | None, WORKERS] = None,
    scheduler: Annotated[str | None, SCHEDULER] = None,
    as_json: options.JSON = False,
) -> None:
    """Solve and simulate every combination in a sweep file; rerun to resume."""
    # `with_suffix` fails on a path without a name, such as "" or "/".
    if not Path(spec).name:
        raise InputError("should be a sweep file, in TOML", file=repr(spec))
    # Next to the sweep file, so that a rerun finds the same journal.
    target = Path(spec).with_suffix(".csv") if table is None else table
    swept = _run(spec, target, workers, scheduler)
    if swept.moving_more:
        output.warn(
            f"when run, the plans of {swept.moving_more} of {len(swept)} rows move more than Data"
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
    """Run the cases that are not done; after Ctrl-C, report how many are."""
    from hypar_opt.studies.sweep import sweep

    # After Ctrl-C, only the last report of progress says how many are done.
    done = cases = 0
    try:
        with output.progress_bar("cases") as bar:

            def progress(*counts: int) -> None:
                nonlocal done, cases
                done, cases = counts
                bar(done, cases)

            return sweep(spec, target, workers=workers, scheduler=scheduler, progress=progress)
    except KeyboardInterrupt:
        output.note(f"stopped after {done} of {cases} cases; rerun to resume")
        # Finished rows are in the journal, so no work is lost.
        raise typer.Exit(output.INTERRUPTED) from None
