"""``hypar-opt show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypar_opt.cli import inputs, options, output, targets
from hypar_opt.cli.plan_view import print_plan
from hypar_opt.errors import CheckFailedError, HyparError

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.network import Network

EPILOG = (
    "Examples: [bold]hypar-opt show alexnet[/bold]; [bold]hypar-opt show plan.json[/bold];"
    " [bold]hypar-opt show alexnet --picture alexnet.svg[/bold]"
)

SOURCE = options.network_argument(
    metavar="[NETWORK|PLAN]", help="A network, as for solve, or the path of a plan file."
)
BATCH = typer.Option(help="Images of the shapes shown; 1 unless given.")
RERUN = typer.Option(
    "--rerun", help="Solve the plan's problem again and compare; 1 if they differ."
)
PLAN_OPTIONS = typer.Option(
    "--plan-options",
    help="With --rerun: also hand the solver the parameters that the plan's file says.",
)
PICTURE = options.file_option(
    help="Draw a network's graph, or a plan: .png, .svg or .pdf (needs matplotlib and igraph)."
)
UNFOLDED = typer.Option(
    "--unfolded", help="With --picture: draw each repetition of a block by itself."
)
LAYOUTS = typer.Option(
    "--layouts",
    help="Of a plan: show how every layer's output is stored, not only tensors with several"
    " readers.",
)
SCHEMA = typer.Option("--schema", help="Print the JSON Schema of a network file.")


def show(
    source: Annotated[str | None, SOURCE] = None,
    batch: Annotated[int | None, BATCH] = None,
    reading: options.READING = None,
    rerun: Annotated[bool, RERUN] = False,
    plan_options: Annotated[bool, PLAN_OPTIONS] = False,
    picture: Annotated[Path | None, PICTURE] = None,
    unfolded: Annotated[bool, UNFOLDED] = False,
    layouts: Annotated[bool, LAYOUTS] = False,
    schema: Annotated[bool, SCHEMA] = False,
    as_json: options.JSON = False,
) -> None:
    """Show a network's layers, or a plan, which is priced again first."""
    from hypar_opt.files import recorded_reads

    if schema:
        # The schema depends on nothing: an option beside it is a mistake.
        typed = (source, batch, reading, picture)
        flags = (rerun, plan_options, unfolded, layouts)
        if any(value is not None for value in typed) or any(flags):
            raise HyparError("--schema is the format's: it takes no NETWORK, PLAN or option")
        _show_schema()
        return
    if plan_options and not rerun:
        raise HyparError("--plan-options goes with --rerun")
    if source is None:
        raise HyparError("show takes a NETWORK or a PLAN, or --schema")
    if unfolded and picture is None:
        raise HyparError("--unfolded goes with --picture")
    if inputs.is_plan(source):
        if unfolded:
            raise HyparError(f"--unfolded takes a network, and {source!r} is a plan")
        with recorded_reads() as read:
            plan = _plan(source, batch, reading, rerun=rerun, plan_options=plan_options)
        targets.check_outputs(read, picture=picture)
        if picture is not None:
            _draw_plan(plan, picture, layouts=layouts)
        print_plan(plan, layouts=layouts, as_json=as_json)
    else:
        with recorded_reads() as read:
            network = _network(source, reading, rerun=rerun, layouts=layouts)
        targets.check_outputs(read, picture=picture)
        if picture is not None:
            _draw_network(network, picture, unfolded=unfolded)
        _show_network(network, batch, as_json=as_json)


def _show_schema() -> None:
    from hypar_opt.workload.network import json_schema

    output.print_json(json_schema())


def _plan(
    file: str, batch: int | None, reading: str | None, *, rerun: bool, plan_options: bool
) -> Plan:
    """Read a plan, and price it by a reading or solve its problem again."""
    from hypar_opt import pipeline

    plan = pipeline.read_plan(file)  # first: a file that is no plan is the larger mistake
    if batch is not None:
        raise HyparError("--batch is fixed by the plan; leave it out")
    if not rerun:
        return pipeline.repriced(plan, reading=reading)
    # Other readings have other optima: nothing would be compared.
    if reading is not None:
        raise HyparError("--rerun solves by the plan's own reading; leave --reading out")
    return _rerun(plan, file, plan_options=plan_options)


def _rerun(plan: Plan, file: str, *, plan_options: bool) -> Plan:
    from hypar_opt.studies import advice, evaluation

    with output.progress_bar("levels") as progress:
        # Parameters reach a backend only on request: a plan file may come from anybody.
        again = evaluation.solve_again(plan, progress, parameters=plan_options)
    key = advice.difference(plan, again)
    if key is not None:
        raise CheckFailedError(f"{file}: {key} is not what solving again gives")
    # `difference` leaves versions out, so they are compared here.
    if again.solver.versions != plan.solver.versions:
        output.warn(f"{file} was made by other versions; the answer is the same")
    return again


def _network(name: str, reading: str | None, *, rerun: bool, layouts: bool) -> Network:
    from hypar_opt.models import find_network

    network = find_network(name)
    plans_own = {"--rerun": rerun, "--reading": reading is not None, "--layouts": layouts}
    for option, typed in plans_own.items():
        if typed:
            raise HyparError(f"{option} takes a plan file, and {name!r} is a network")
    return network


def _draw_network(network: Network, picture: Path, *, unfolded: bool) -> None:
    from hypar_opt.report import pictures

    pictures.save(pictures.network_graph(network, unfolded=unfolded), picture)


def _draw_plan(plan: Plan, picture: Path, *, layouts: bool) -> None:
    from hypar_opt.report import pictures

    pictures.save(pictures.plan_dots(plan, layouts=layouts), picture)


def _show_network(network: Network, batch: int | None, *, as_json: bool) -> None:
    from hypar_opt.plan.arguments import problem_of
    from hypar_opt.report.network import described, network_view

    # A problem's, so that the batch is checked as everywhere.
    problem = problem_of(batch=1 if batch is None else batch)
    description = described(network, problem.batch)
    if as_json:
        output.print_json(description)
        return
    output.print_view(network_view(description, network.repeats))
