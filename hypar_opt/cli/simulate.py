"""``hypar-opt simulate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypar_opt.cli import inputs, options, output, request
from hypar_opt.cli.groups import ProblemOptions, RunningOptions, SolvingOptions, TrainingOptions
from hypar_opt.cli.options import running_option, step_option
from hypar_opt.cli.signatures import takes_groups
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.simulator.result import StepResult
    from hypar_opt.studies.simulation import RunArguments

EXAMPLES = (
    "hypar-opt simulate vgg-a --array hmc-torus-16",
    "hypar-opt simulate plan.json --trace step.json",
)

PROFILE = step_option(
    metavar="FILE", help="Use measured times of each layer and pass instead of the compute model."
)
TRACE = running_option(
    metavar="FILE", help="Write the step's events as a Chrome trace (for Perfetto)."
)
RING = step_option(
    "--ring/--no-ring",
    help="Overlap the ring of keys and values of context parallelism with attention, part by part;"
    " --no-ring exchanges them first. Default: the array's, or no ring.",
)
HIDDEN = step_option(
    metavar="PART",
    help="The fraction, 0 to 1, of tensor parallelism's all-gathers and reduce-scatters that"
    " overlaps the products beside them. Default: the array's, or 0.",
)
RESULT = options.result_option(help="Write the result as JSON.")


@takes_groups
def simulate(
    context: typer.Context,
    source: options.NETWORK_OR_PLAN,
    problem: ProblemOptions,
    solving: SolvingOptions,
    running: RunningOptions,
    training: TrainingOptions,
    profile: Annotated[Path | None, PROFILE] = None,
    ring: Annotated[bool | None, RING] = None,
    hidden: Annotated[float | None, HIDDEN] = None,
    other_array: options.OTHER_ARRAY = False,
    trace: Annotated[Path | None, TRACE] = None,
    result_file: Annotated[Path | None, RESULT] = None,
    picture: options.PICTURE = None,
    as_json: options.JSON = False,
) -> None:
    from hypar_opt.documents.files import write_whole
    from hypar_opt.hardware.profile import read_profile
    from hypar_opt.simulator.trace import chrome_trace
    from hypar_opt.studies import simulation, targets

    with output.outputs_checked(trace, result_file, picture=picture):
        # Read first, and recorded: an output must not overwrite an input.
        measured = None if profile is None else read_profile(profile)
        plan, network = inputs.plan_or_network(context, source, problem, "settings")
        array = inputs.array_named(problem.array)
    run: RunArguments = {
        "collective": running.collective,
        "overlap": running.overlap,
        "ring": ring,
        "hidden": hidden,
        "profile": measured,
        # Spans are recorded only if something shows them.
        "trace": trace is not None or picture is not None,
    }
    if plan is None:
        # A network is solved for the array that it is simulated on.
        if other_array:
            raise HyparError("--other-array goes with a plan file")
        typed = request.needed_array(problem, "a simulation") if array is None else array
        plan = request.solved(network, problem, solving, array=typed, training=training)
        array = None
    else:
        run = {**run, **request.stated(training)}
        if settings := request.key_values(problem.settings):
            array = targets.array_with(plan, array, settings)
            other_array = True
    step = simulation.simulate(plan, array, other_array=other_array, **run)
    array = array or targets.own_array(plan)
    array = array if plan.is_staged else targets.fitting(plan, array)
    if trace is not None and step.trace is not None:
        write_whole(trace, json.dumps(chrome_trace(step.trace), allow_nan=False) + "\n")
    output.draw(picture, step)
    simulated = simulation.SimulatedStep(plan, array, step)
    document = simulation.SIMULATED.document(simulated) | step.document()
    if result_file is not None:
        output.write_json(document, result_file)
    _warn(plan, array, step, run, other_array=other_array)
    output.print_result(step, as_json=as_json, document=document)


def _warn(
    plan: Plan,
    array: Array,
    step: StepResult,
    run: RunArguments,
    *,
    other_array: bool,
) -> None:
    """Warn if memory is exceeded, or if Data Parallelism moves or takes less when run."""
    from hypar_opt.simulator.pipeline_result import PipelineResult
    from hypar_opt.studies import advice, simulation

    # A warning, not an error: memory is a constraint only if the problem says so.
    if step.memory > step.capacity:
        counted = "--memory array makes that a constraint"
        output.warn(
            f"the plan takes {step.memory:,} bytes of memory per accelerator, which has"
            f" {step.capacity:,}; {counted}"
        )
    more_bytes_warning = advice.more_bytes_warning(plan.cost)
    if more_bytes_warning is not None:
        output.warn(more_bytes_warning)
    # These steps are compared by their totals alone.
    run = {**run, "trace": False}
    executed = simulation.steps_when_run(plan, array, other_array=other_array, **run)
    if executed is None or isinstance(step, PipelineResult):
        return
    data = simulation.simulated_step(simulation.baseline(plan, array, "data"), array, **run)
    for sentence in simulation.warnings_of_run(plan.cost.reading, (step, data), executed):
        output.warn(sentence)
