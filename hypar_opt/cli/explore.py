"""``hypar-opt explore``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypar_opt.cli import completion, inputs, options, output, request
from hypar_opt.cli.groups import ProblemOptions, SolvingOptions
from hypar_opt.cli.signatures import takes_groups

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array

EXAMPLES = (
    "hypar-opt explore lenet-c --free all",
    "hypar-opt explore vgg-a --free conv5_2,fc1 --objective time --array hmc-htree-16",
)

exploring_option = partial(typer.Option, rich_help_panel="The exploration")
FREE = exploring_option(
    metavar="H,...|LAYER,...|all",
    help="The choices to vary: levels (for all layers), as H1,H4; layers (at all levels), as fc1"
    " or conv*; single cells, as fc1@H2; or all. The plan fixes all others.",
)
OBJECTIVE = exploring_option(
    help="The objective that prices each plan: bytes, or on an array time (seconds, in closed"
    " form) or energy (joules). Default: what the plan minimises.",
    autocompletion=completion.one_of("bytes", "time", "energy"),
)
RELATIVE = exploring_option(
    "--relative",
    help="Show the distribution of ratios to Data Parallelism instead of amounts.",
)
CSV = options.table_option(
    help="Write one row per plan to this CSV file: its choices as digits, one per layer for each"
    " level, and its amounts."
)
PICTURE = options.file_option(
    help="Draw the values if two levels or two layers are varied: .png, .svg or .pdf."
)
PAGE = options.file_option("--page", help="Write a self-contained HTML page about all plans.")


@takes_groups
def explore(
    context: typer.Context,
    source: options.NETWORK_OR_PLAN,
    free: Annotated[str, FREE],
    problem: ProblemOptions,
    solving: SolvingOptions,
    objective: Annotated[str | None, OBJECTIVE] = None,
    relative: Annotated[bool, RELATIVE] = False,
    csv_file: Annotated[Path | None, CSV] = None,
    picture: Annotated[Path | None, PICTURE] = None,
    page_file: Annotated[Path | None, PAGE] = None,
    as_json: options.JSON = False,
) -> None:
    from hypar_opt.display.page import exploration_page
    from hypar_opt.display.page.rendering import check_installed
    from hypar_opt.documents.files import write_whole
    from hypar_opt.studies.exploration import explore
    from hypar_opt.studies.exploration.export import plans_csv, summary

    with output.outputs_checked(csv_file, page_file, picture=picture):
        plan, network = inputs.plan_or_network(context, source, problem)
        array: Array | str | None = inputs.array_named(problem.array)
    if page_file is not None:
        check_installed()
    if plan is None:
        # Bytes need no array, and without one any number of levels will do.
        if array is None and objective not in (None, "bytes"):
            array = request.needed_array(problem, f"--objective {objective}")
        plan, array = request.solved(network, problem, solving, array=array, overlap="none"), None
    # The levels of a plan with an array were solved for that array.
    elif plan.array is not None:
        inputs.refuse_what_a_plan_fixes(context, "array")
    explored = explore(plan, free, objective=objective, array=array)
    for sentence in explored.warnings():
        output.warn(sentence)
    # Made before anything is written: it may be refused.
    page = page_file and exploration_page(explored, request.command_line(context, source))
    output.draw(picture, explored)
    if csv_file is not None:
        write_whole(csv_file, plans_csv(explored))
    if page_file is not None and page:
        write_whole(page_file, page)
    if as_json:
        output.print_json(summary(explored, relative=relative))
        return
    from hypar_opt.display.terminal.exploration import exploration_view

    output.print_view(exploration_view(explored, relative=relative))
