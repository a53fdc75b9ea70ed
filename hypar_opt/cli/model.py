"""``hypar-opt model``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hypar_opt.cli import options, output, request
from hypar_opt.cli.groups import ProblemOptions, TrainingOptions
from hypar_opt.cli.signatures import takes_groups
from hypar_opt.units import format_cost

EXAMPLES = (
    "hypar-opt model vgg-e -o vgg-e.lp",
    "highs vgg-e.lp --solution_file vgg-e.sol",
    "hypar-opt solve vgg-e --solution vgg-e.sol",
)

MODEL_FILE = options.result_option(
    help="The file to write: .lp or .mps for a 0-1 program; .pb, or .pbtxt as text, for CP-SAT.",
)


@takes_groups
def model(
    network: options.NETWORK,
    problem: ProblemOptions,
    training: TrainingOptions,
    *,
    model_file: Annotated[Path, MODEL_FILE],
) -> None:
    from hypar_opt.planning.solve import write_model

    arguments = request.problem_arguments(problem)
    arguments["tokens"] = problem.tokens
    arguments["training"] = request.stated(training)
    size = write_model(network, model_file, **arguments)
    line = f"{model_file}: {size.columns:,} columns, {size.rows:,} rows"
    if size.cutoff is not None:
        line += f"; of all plans up to {format_cost(size.cutoff, size.unit)}, and some others"
    output.print_line(line)
