"""``hypar-opt model``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hypar_opt.cli import inputs, options, request, targets
from hypar_opt.cli.groups import ProblemOptions
from hypar_opt.cli.signatures import takes_groups

EPILOG = (
    "Examples: [bold]hypar-opt model vgg-e -o vgg-e.lp[/bold];"
    " [bold]highs vgg-e.lp --solution_file vgg-e.sol[/bold];"
    " [bold]hypar-opt solve vgg-e --solution vgg-e.sol[/bold]"
)

MODEL_FILE = options.file_option(
    "--output",
    "-o",
    help="The file to write: .lp or .mps, a 0-1 program; .pb, or .pbtxt as text, for CP-SAT.",
)


@takes_groups
def model(
    network: options.NETWORK,
    problem: ProblemOptions,
    *,
    model_file: Annotated[Path, MODEL_FILE],
) -> None:
    """Write the model of all levels together, for other solvers, without solving it."""
    from hypar_opt.files import recorded_reads
    from hypar_opt.models import find_network
    from hypar_opt.plan.arguments import problem_of
    from hypar_opt.search.instance import Instance
    from hypar_opt.search.model_file import check_model_file, write_model

    with recorded_reads() as read:
        described, array = find_network(network), inputs.array_named(problem.array)
    check_model_file(model_file)
    targets.check_outputs(read, model_file)
    arguments = request.problem_arguments(problem)
    # The array that was read, not its name: a file is read once.
    arguments["array"] = array
    stated = problem_of(described, **arguments)
    size = write_model(Instance(described, stated), model_file)
    print(f"{model_file}: {size.columns:,} columns, {size.rows:,} rows")
