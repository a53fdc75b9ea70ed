"""``hypar-opt pareto``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hypar_opt.cli import completion, inputs, options, output, request
from hypar_opt.cli.groups import ProblemOptions
from hypar_opt.cli.options import problem_option, solving_option
from hypar_opt.cli.signatures import takes_groups

EXAMPLES = (
    "hypar-opt pareto vgg-a --array hmc-htree-16",
    "hypar-opt pareto vgg-e --array hmc-htree-64 --cost time -o front.csv",
)
ALL = "all"

front_option = partial(typer.Option, rich_help_panel="The front")
COSTS = options.several(
    problem_option(
        help="The objectives, each against memory: communication in bytes, time or energy of a"
        " step.",
        autocompletion=completion.costs,
    ),
    "COST",
    "; all: those that the array prices",
)
POINTS = front_option(
    metavar="N",
    help="End each front after N points, from the most memory down. Default: no limit; a front"
    " ends after two gaps in a row.",
)
SOLVER = solving_option(
    help="The exact solver for each memory limit (see list solvers). Default: as for solve.",
    autocompletion=completion.solvers,
)
CSV = options.table_option(help="Write one row per point to this CSV file.")


@dataclass(frozen=True, eq=False, repr=False)
class FrontOptions(ProblemOptions):
    """Options of a problem with several objectives."""

    cost: Annotated[str, COSTS] = ALL


@takes_groups
def pareto(
    network: options.NETWORK,
    problem: FrontOptions,
    points: Annotated[int | None, POINTS] = None,
    solver: Annotated[str | None, SOLVER] = None,
    csv_file: Annotated[Path | None, CSV] = None,
    picture: options.PICTURE = None,
    as_json: options.JSON = False,
) -> None:
    from hypar_opt.models import find_network
    from hypar_opt.studies import pareto

    arguments = request.problem_arguments(problem)
    costs = arguments.pop("cost")
    with output.outputs_checked(csv_file, picture=picture):
        described = find_network(network, problem.tokens)
        # Without an array the fronts are of bytes alone.
        arguments["array"] = inputs.array_named(problem.array or request.papers_array(problem))
    with output.progress_bar("memory") as progress:
        fronts = pareto.pareto(
            described,
            None if costs in (None, ALL) else costs.split(","),
            points=points,
            solver=solver,
            progress=progress,
            **arguments,
        )
    fronts = output.worded_for_shell(fronts)
    if fronts.moving_more:
        output.warn(
            f"when run, the plans of {fronts.moving_more} of {len(fronts.rows())} points move more"
            " than Data Parallelism"
        )
    if csv_file is not None:
        output.write_csv(fronts.rows(), csv_file)
    output.draw(picture, fronts)
    output.print_result(fronts, as_json=as_json)
