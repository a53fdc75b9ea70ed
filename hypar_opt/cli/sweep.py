"""``hypar-opt sweep``: of a sweep file, or of all batches of a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hypar_opt.cli import inputs, options, output, request
from hypar_opt.cli.groups import ProblemOptions
from hypar_opt.cli.options import running_option
from hypar_opt.cli.signatures import takes_groups
from hypar_opt.errors import HyparError, InputError

if TYPE_CHECKING:
    from hypar_opt.studies.batches import AllBatches
    from hypar_opt.studies.sweep import SweepResult

EXAMPLES = (
    "hypar-opt sweep sweep.toml -o table.csv",
    "hypar-opt sweep sweep.toml --scheduler tcp://head:8786",
    "hypar-opt sweep vgg-e --batches 1:1000000000 --picture plans.svg",
)

SPEC = typer.Argument(
    metavar="SPEC|NETWORK",
    help="A sweep file, in TOML: lists of networks, batches, element_bytes, levels, arrays"
    " or hierarchies, choices, costs, solvers, overlap and readings (default: the array's); [vary]"
    " for any key of the networks and arrays; simulate = false to only solve. With --batches, a"
    " network.",
)
BATCHES = options.problem_option(
    metavar="LO:HI",
    help="Solve all batches of a network, as 1:1000000000, all levels together, in bytes: each"
    " range of batches with its plan. The other options of the problem go with it.",
)
TABLE = options.result_option(
    help="The table, .csv or .parquet (default: SPEC's name with .csv). Finished rows are kept in"
    " FILE.journal. With --batches .csv, a row for each range.",
)
WORKERS = running_option(
    metavar="N", help="Processes on this machine (default: one per available core)."
)
SCHEDULER = running_option(
    metavar="tcp://HOST:PORT", help="A Dask scheduler whose workers run the cases."
)

PICTURE = options.file_option(
    help="Draw the result, .png, .svg or .pdf (needs the extra figures): lines over one key of"
    " [vary], a map over two, else time against memory."
)


@takes_groups
def sweep(
    context: typer.Context,
    spec: Annotated[str, SPEC],
    problem: ProblemOptions,
    batches: Annotated[str | None, BATCHES] = None,
    table: Annotated[Path | None, TABLE] = None,
    workers: Annotated[int | None, WORKERS] = None,
    scheduler: Annotated[str | None, SCHEDULER] = None,
    picture: Annotated[Path | None, PICTURE] = None,
    as_json: options.JSON = False,
) -> None:
    if batches is None:
        _check_alone(context)
        _sweep_file(spec, table, workers, scheduler, picture, as_json=as_json)
        return
    for name, value in (("workers", workers), ("scheduler", scheduler)):
        if value is not None:
            raise HyparError(f"--{name} runs a sweep file's cases; --batches is a single process")
    result = _all_batches(spec, batches, _typed(context, problem), table, picture)
    if table is not None:
        output.write_csv(result.rows(), table)
    output.draw(picture, result)
    output.print_result(result, as_json=as_json)


def _check_alone(context: typer.Context) -> None:
    """Refuse options of a problem for a sweep file, which lists its problems."""
    of_sweep_files = {"spec", "table", "workers", "scheduler", "picture", "as_json"}
    for option in context.command.params:
        name = option.name or ""
        if name not in of_sweep_files and inputs.was_typed(context, name):
            raise HyparError(f"{option.opts[0]} goes with --batches; a sweep file states its cases")


def _typed(context: typer.Context, problem: ProblemOptions) -> Any:
    """Return the problem that was typed, without the batch unless that was typed, too."""
    arguments: Any = request.problem_arguments(problem)
    arguments["tokens"] = problem.tokens
    if not inputs.was_typed(context, "batch"):
        del arguments["batch"]
    return arguments


def _all_batches(
    network: str, batches: str, arguments: Any, table: Path | None, picture: Path | None
) -> AllBatches:
    """Solve all batches of a network."""
    from hypar_opt.models import find_network
    from hypar_opt.studies.batches import solve_all_batches

    ends = re.fullmatch(r"(\d{1,12}):(\d{1,12})", batches, re.ASCII)
    if ends is None:
        raise HyparError(f"--batches should be two batches, as 1:1000000000, got {batches!r}")
    if table is not None and table.suffix != ".csv":
        raise InputError("should end in .csv", file=str(table))
    with output.outputs_checked(table, picture=picture):
        described = find_network(network, arguments.pop("tokens"))
    with output.progress_bar("batches") as progress:
        return solve_all_batches(
            described, lo=int(ends[1]), hi=int(ends[2]), progress=progress, **arguments
        )


def _sweep_file(
    spec: str,
    table: Path | None,
    workers: int | None,
    scheduler: str | None,
    picture: Path | None,
    *,
    as_json: bool,
) -> None:
    from hypar_opt.documents.files import record_read

    # `with_suffix` fails on a path without a name, such as "" or "/".
    if not Path(spec).name:
        raise InputError("should be a sweep file, in TOML", file=repr(spec))
    # Next to the sweep file, so that a rerun finds the same journal.
    target = Path(spec).with_suffix(".csv") if table is None else table
    with output.outputs_checked(target, picture=picture):
        record_read(spec)
    swept = _run(spec, target, workers, scheduler)
    output.draw(picture, swept)
    if swept.moving_more:
        output.warn(
            f"when run, the plans of {swept.moving_more} of {len(swept)} rows move more than Data"
            " Parallelism: executed_bytes, data_parallel_bytes"
        )
    if as_json:
        output.print_json(swept.document())
        return
    notes = [f"{len(swept)} rows"]
    notes += [f"{swept.refused} of them refused"] if swept.refused else []
    notes += [f"{swept.done_before} done before"] if swept.done_before else []
    output.print_line(f"{target}: {', '.join(notes)}")


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
