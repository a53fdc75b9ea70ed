"""``hypar-opt memory``."""

from __future__ import annotations

from typing import Annotated

import typer

from hypar_opt.cli import inputs, options, output, request
from hypar_opt.cli.groups import ProblemOptions, SolvingOptions, TrainingOptions
from hypar_opt.cli.options import running_option
from hypar_opt.cli.signatures import takes_groups

EXAMPLES = (
    "hypar-opt memory llama-7b --array h100-8 --batch 8 --optimizer adam --shard weights",
    "hypar-opt memory plan.json --recompute full --picture memory.svg",
)


STAGE = running_option(
    metavar="N", help="Show this stage of a plan in stages. Default: the fullest stage."
)


@takes_groups
def memory(
    context: typer.Context,
    source: options.NETWORK_OR_PLAN,
    problem: ProblemOptions,
    solving: SolvingOptions,
    training: TrainingOptions,
    stage: Annotated[int | None, STAGE] = None,
    picture: options.PICTURE = None,
    as_json: options.JSON = False,
) -> None:
    from hypar_opt.studies import memory as study

    with output.outputs_checked(picture=picture):
        # Also of a plan: no choice depends on it where memory is not limited.
        plan, network = inputs.plan_or_network(context, source, problem, "optimizer")
        array = inputs.array_named(problem.array)
    if plan is None:
        typed = request.needed_array(problem, "a count of memory") if array is None else array
        plan = request.solved(network, problem, solving, array=typed, training=training)
        array, stated = None, {}
    else:
        stated = request.stated(training)
        if inputs.was_typed(context, "optimizer"):
            stated["optimizer"] = problem.optimizer
    result = study.memory(plan, array, stage=stage, **stated)
    output.draw(picture, result)
    output.print_result(result, as_json=as_json)
