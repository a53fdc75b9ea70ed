"""``hypar-opt simulate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hypar_opt.cli import options, output, request, shared
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.simulator.result import StepResult
    from hypar_opt.studies.evaluation import RunArguments

EPILOG = (
    "Examples: [bold]hypar-opt simulate vgg-a --array hmc-torus-16[/bold];"
    " [bold]hypar-opt simulate plan.json --trace step.json[/bold]"
)
DEFAULT_LEVELS = 4


@shared.takes(shared.problem, shared.solving)
def simulate(
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
    levels: options.LEVELS = None,
    array: options.ARRAY = None,
    collective: options.COLLECTIVE = None,
    overlap: options.OVERLAP = "none",
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Measured seconds a layer and pass, in place of computed ones.",
            rich_help_panel=options.RUNNING,
            show_default=False,
        ),
    ] = None,
    other_array: Annotated[
        bool,
        typer.Option(
            "--other-array",
            help="Simulate a plan on an array that it was not found for.",
            rich_help_panel=options.RUNNING,
        ),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write what happens when, as a Chrome trace for Perfetto.",
            rich_help_panel=options.RUNNING,
            show_default=False,
        ),
    ] = None,
    picture: options.PICTURE = None,
    as_json: options.JSON = False,
) -> None:
    """Simulate a training step on an array: where its time and energy go."""
    from hypar_opt.files import recorded_reads, write_whole
    from hypar_opt.hardware.profile import read_profile
    from hypar_opt.simulator.trace import chrome_trace
    from hypar_opt.studies import evaluation

    with recorded_reads() as read:
        measured = None if profile is None else read_profile(profile)
        plan, network = request.plan_or_network(context, what)
        on = request.array_named(array)
    request.check_outputs(read, trace, picture=picture)
    run: RunArguments = {
        "collective": collective,
        "overlap": overlap,
        "profile": measured,
        "trace": trace is not None or picture is not None,
    }
    if plan is None:
        if other_array:
            raise HyparError("--other-array goes with a plan file")
        plan, on = request.solved(context, network, on or default_array(levels)), None
    step = evaluation.simulate(plan, on, other_array=other_array, **run)
    found = on or evaluation.own_array(plan)
    if trace is not None and step.trace is not None:
        write_whole(trace, json.dumps(chrome_trace(step.trace), allow_nan=False) + "\n")
    if picture is not None and step.trace is not None:
        from hypar_opt.report import pictures

        title = f"{plan.network.name} on {found.name}, a step in time"
        pictures.save(pictures.timeline(step.trace, title=title), picture)
    if step.memory > step.capacity:
        output.warn(
            f"the plan takes {step.memory:,} bytes of memory an accelerator, which has"
            f" {step.capacity:,}; --memory array makes that a constraint"
        )
    _warn_of_run(plan, found, step, run, other_array=other_array)
    if as_json:
        output.print_json(_document(plan, found, run, step))
        return
    from hypar_opt.report.step import step_view

    how = collective or found.collective, overlap
    output.print_view(step_view(plan, found.name, step, *how))


def default_array(levels: int | None) -> str:
    """Return the paper's array of 2^levels accelerators."""
    from hypar_opt.hardware import arrays

    return arrays.papers(DEFAULT_LEVELS if levels is None else levels)


def _warn_of_run(
    plan: Plan, array: Array, step: StepResult, run: RunArguments, *, other_array: bool
) -> None:
    """Warn where Data Parallelism moves or takes less when the plan is run."""
    from hypar_opt.studies import advice, evaluation

    more = advice.moves_more(plan.cost)
    run = {**run, "trace": False}
    executed = evaluation.steps_when_run(plan, array, other_array=other_array, **run)
    turned: list[str] = []
    if executed is not None:
        data = evaluation.simulate(evaluation.baseline(plan, array, "data"), array, **run)
        turned = evaluation.warnings_of_run(plan.cost.reading, (step, data), executed)
    for sentence in ([more] if more else []) + turned:
        output.warn(sentence)


def _document(plan: Plan, array: Array, run: RunArguments, step: StepResult) -> dict[str, Any]:
    own = plan.array is not None and plan.array.digest == array.digest()
    return {
        "network": plan.network.name,
        "array": array.name,
        "batch": plan.batch,
        "reading": plan.cost.reading,
        "placement": plan.placement if own else array.placement,
        "parallelism": plan.parallelism,
        "collective": run["collective"] or array.collective,
        "overlap": run["overlap"],
        "executed_bytes": plan.cost.executed_bytes,
        "data_parallel_bytes": plan.cost.data_parallel_bytes,
        **step.document(),
    }
