"""``hypar-opt compare``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypar_opt.cli import options, output, request, shared
from hypar_opt.cli.simulate import default_array
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from hypar_opt.studies.comparison import Row

PLANS = {
    "model": "Model Parallelism",
    "trick": "the Trick",
    "hypar": "HyPar",
    "joint": "joint optimum",
    "time": "least time",
}

EPILOG = (
    "Examples: [bold]hypar-opt compare all --reading figures[/bold];"
    " [bold]hypar-opt compare vgg-a vgg-e --batch 32,256 --array hmc-torus-16[/bold]"
)


def _complete_arrays(incomplete: str) -> list[str]:
    *before, last = incomplete.split(",")
    return [",".join([*before, name]) for name in options.complete_arrays(last)]


@shared.takes(shared.problem)
def compare(
    context: typer.Context,
    networks: Annotated[
        list[str],
        typer.Argument(
            metavar="NETWORK...|all",
            help="Networks, as for solve; all for the zoo.",
            autocompletion=options.complete_networks,
            show_default=False,
        ),
    ],
    array: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE,...",
            help="Accelerator arrays (list arrays); the paper's H tree unless given.",
            autocompletion=_complete_arrays,
            rich_help_panel=options.PROBLEM,
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        str, typer.Option(metavar="B,...", help="Batches.", rich_help_panel=options.PROBLEM)
    ] = "256",
    levels: Annotated[
        str | None,
        typer.Option(
            metavar="H,...",
            help="Levels of the hierarchy: of the paper's arrays; another array has its own.",
            rich_help_panel=options.PROBLEM,
            show_default=False,
        ),
    ] = None,
    collective: options.COLLECTIVE = None,
    overlap: options.OVERLAP = "none",
    csv_file: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write the rows there.", show_default=False),
    ] = None,
    picture: options.PICTURE = None,
    as_json: options.JSON = False,
) -> None:
    """Compare Model and Data Parallelism, the Trick, HyPar, the joint optimum and the fastest."""
    from hypar_opt import models
    from hypar_opt.files import csv_text, recorded_reads, write_whole
    from hypar_opt.hardware.arrays import find_array
    from hypar_opt.models import find_network
    from hypar_opt.studies import comparison

    names = [name for each in networks for name in (models.names() if each == "all" else [each])]
    sizes = None if levels is None else request.whole_numbers("--levels", levels, "32,256")
    with recorded_reads() as read:
        named = [find_network(name) for name in names]
        if array is None:
            arrays = [find_array(default_array(size)) for size in sizes or [None]]
        else:
            arrays = [find_array(name) for name in array.split(",")]
    request.check_outputs(read, csv_file, picture=picture)
    if array is not None and sizes and set(sizes) != {found.levels for found in arrays}:
        wrong = next((found for found in arrays if found.levels not in sizes), arrays[0])
        raise HyparError(
            f"--levels should be {wrong.levels}, since the array {wrong.name} has"
            f" {2**wrong.levels} accelerators, got {levels}"
        )
    asked = request.problem(context)
    del asked["batch"], asked["levels"], asked["array"]
    with output.progress_bar("networks") as progress:
        rows = comparison.compare(
            named,
            arrays,
            batches=request.whole_numbers("--batch", batch, "32,256"),
            progress=progress,
            run={"collective": collective, "overlap": overlap},
            **asked,
        )
    means, notes = comparison.geometric_means(rows), comparison.disagreements(rows)
    for sentence in comparison.warnings_of_rows(rows):
        output.warn(sentence)
    if csv_file is not None:
        head = [field.name for field in fields(comparison.Row)]
        write_whole(csv_file, csv_text(head, (vars(row).values() for row in rows)))
    if picture is not None:
        _draw(rows, picture)
    if as_json:
        document = {"rows": [vars(row) for row in rows], "gmean": means, "notes": notes}
        output.print_json(document)
        return
    from hypar_opt.report.comparison import comparison_view

    output.print_view(comparison_view(rows, means, notes))


def _draw(rows: list[Row], picture: Path) -> None:
    """Draw the speed-up of each plan over Data Parallelism, a group of bars a case."""
    from hypar_opt.report import pictures

    several = {key: len({getattr(row, key) for row in rows}) > 1 for key in ("batch", "array")}
    series: dict[str, list[float | None]] = {}
    groups: dict[str, None] = {}
    for row in rows:
        parts = [row.network]
        parts += [f"batch {row.batch}"] if several["batch"] else []
        parts += [row.array] if several["array"] else []
        groups["\n".join(parts)] = None
        if row.plan != "data":
            series.setdefault(PLANS[row.plan], []).append(row.speedup)
    reading = " and ".join(dict.fromkeys(row.reading for row in rows))
    drawn = pictures.bars(
        list(groups),
        series,
        ylabel="times Data Parallelism",
        title=f"performance over Data Parallelism, reading {reading}",
        baseline=1.0,
    )
    pictures.save(drawn, picture)
