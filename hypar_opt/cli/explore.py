"""``hypar-opt explore``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypar_opt.cli import options, output, request, shared
from hypar_opt.cli.simulate import default_array
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from hypar_opt.studies.exploration import Exploration

EPILOG = (
    "Examples: [bold]hypar-opt explore lenet-c --free all[/bold];"
    " [bold]hypar-opt explore vgg-a --free conv5_2,fc1 --objective time --array hmc-htree-16[/bold]"
)
EXPLORING = "What is explored"
ALIASES = {"seconds": "time", "joules": "energy"}
"""Objectives by their unit."""


def _complete_objectives(incomplete: str) -> list[str]:
    return options.starting(incomplete, ("bytes", "time", "energy"))


@shared.takes(shared.problem, shared.solving)
def explore(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK|PLAN",
            help="A network, as for solve, or the path of a plan file.",
            autocompletion=options.complete_networks,
            show_default=False,
        ),
    ],
    free: Annotated[
        str,
        typer.Option(
            metavar="H,...|LAYER,...|all",
            help="Levels at which all layers are free, as H1,H4; layers free at all levels, as"
            " fc1 or conv*; both, as fc1@H2; or all. The rest is as in the plan.",
            rich_help_panel=EXPLORING,
            show_default=False,
        ),
    ],
    objective: Annotated[
        str,
        typer.Option(
            help="What is counted of each plan: bytes; time (seconds, in closed form) or energy"
            " (joules), of an array.",
            autocompletion=_complete_objectives,
            rich_help_panel=EXPLORING,
        ),
    ] = "bytes",
    relative: Annotated[
        bool,
        typer.Option(
            "--relative",
            help="Spread the ratios over Data Parallelism, in place of the amounts.",
            rich_help_panel=EXPLORING,
        ),
    ] = False,
    csv_file: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            metavar="FILE",
            help="Write a row a plan: a digit a layer for each level, the amount, the ratio.",
            show_default=False,
        ),
    ] = None,
    levels: options.LEVELS = None,
    array: options.ARRAY = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw it, where two levels or two layers are free: .png, .svg or .pdf.",
            show_default=False,
        ),
    ] = None,
    as_json: options.JSON = False,
) -> None:
    """Price every plan of a subspace: where the best are, and where the solver's plan ranks."""
    from hypar_opt.files import recorded_reads, write_whole
    from hypar_opt.studies.exploration import explore as explore_plans
    from hypar_opt.studies.exploration.export import plans_csv, summary

    objective = ALIASES.get(objective, objective)
    with recorded_reads() as read:
        plan, network = request.plan_or_network(context, what)
        on = request.array_named(array)
    request.check_outputs(read, csv_file, picture=picture)
    if plan is None:
        default = default_array(levels) if objective != "bytes" else None
        plan, on = request.solved(context, network, on or default), None
    elif plan.array is not None:
        request.refuse_what_a_plan_fixes(context, "array")
    exploration = explore_plans(plan, free, objective=objective, array=on)
    for sentence in exploration.warnings():
        output.warn(sentence)
    if picture is not None:
        _draw(exploration, picture)
    if csv_file is not None:
        write_whole(csv_file, plans_csv(exploration))
    if as_json:
        output.print_json(summary(exploration, relative=relative))
        return
    from hypar_opt.report.exploration import exploration_view

    output.print_view(exploration_view(exploration, relative=relative))


def _draw(exploration: Exploration, picture: Path) -> None:
    """Draw what is free on two axes, as Figures 9 and 10 do."""
    from hypar_opt.report import pictures

    parts = exploration.free.split(",")
    if len(parts) != 2:
        raise HyparError(
            f"--picture draws two levels or two layers, as H1,H4; got {exploration.free!r}"
        )
    rows, columns = parts
    grid = exploration.grid(rows, columns)
    drawn = pictures.surface(
        exploration.data_parallel_cost / grid.values,
        grid.columns,
        grid.rows,
        xlabel=columns,
        ylabel=rows,
        name="times Data Parallelism",
        title=f"{exploration.plan.network.name}, every choice at {rows} and {columns}, reading"
        f" {exploration.plan.cost.reading}",
    )
    pictures.save(drawn, picture)
