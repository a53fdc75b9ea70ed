"""``hypar-opt report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hypar_opt.cli import inputs, options, output, request
from hypar_opt.cli.groups import ProblemOptions, RunningOptions, SolvingOptions, TrainingOptions
from hypar_opt.cli.signatures import takes_groups

EXAMPLES = (
    "hypar-opt report vgg-a -o vgg-a.html",
    "hypar-opt report plan.json --certificate proof.json -o plan.html",
)

PAGE_FILE = options.result_option(help="Write the page to this file.")


@takes_groups
def report(
    context: typer.Context,
    source: options.NETWORK_OR_PLAN,
    problem: ProblemOptions,
    solving: SolvingOptions,
    running: RunningOptions,
    training: TrainingOptions,
    other_array: options.OTHER_ARRAY = False,
    certificate: options.CERTIFICATE = None,
    page_file: Annotated[Path, PAGE_FILE] = Path("report.html"),
) -> None:
    from hypar_opt.deadline import Deadline
    from hypar_opt.display.page import page
    from hypar_opt.display.page.contents import gather
    from hypar_opt.display.page.rendering import check_installed
    from hypar_opt.documents.files import write_whole
    from hypar_opt.proofs.certificate import read_certificate
    from hypar_opt.studies import advice
    from hypar_opt.studies.targets import own_array
    from hypar_opt.units import format_bytes

    check_installed()
    deadline = Deadline.after(solving.time_limit)
    with output.outputs_checked(page_file):
        proof = None if certificate is None else read_certificate(certificate)
        plan, network = inputs.plan_or_network(context, source, problem)
        array = inputs.array_named(problem.array)
    from_file = plan is not None
    if from_file:
        inputs.refuse_what_a_plan_fixes(context, *vars(training))
    # The array is None from here on: the new plan has it, with its placement.
    if plan is None:
        typed = request.needed_array(problem, "a report") if array is None else array
        plan = request.solved(network, problem, solving, array=typed, training=training)
        array = None
    with output.progress_bar("simulations and choices") as progress:
        contents = gather(
            plan,
            array or own_array(plan),
            proof=proof,
            command=request.command_line(context, source),
            other_array=other_array,
            # Solver parameters are trusted if they were typed, not if a plan file holds them.
            parameters=not from_file,
            progress=progress,
            deadline=deadline,
            collective=running.collective,
            overlap=running.overlap,
        )
    for sentence in advice.warnings(plan, deadline):
        output.warn(sentence)
    text = page(contents)
    write_whole(page_file, text)
    output.print_line(f"{page_file}: {format_bytes(len(text.encode()))}")
