"""``hypar-opt show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypar_opt.cli import options, output
from hypar_opt.cli.solve import print_plan
from hypar_opt.errors import CheckFailedError, HyparError

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan

EPILOG = "Examples: [bold]hypar-opt show alexnet[/bold]; [bold]hypar-opt show plan.json[/bold]"


def show(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[NETWORK|PLAN]",
            help="A network, as for solve, or the path of a plan file.",
            autocompletion=options.complete_networks,
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(help="Images of the shapes shown; 1 unless given.", show_default=False),
    ] = None,
    reading: options.READING = None,
    rerun: Annotated[
        bool,
        typer.Option(
            "--rerun", help="Solve the plan's problem again and compare; 1 if they differ."
        ),
    ] = False,
    plan_options: Annotated[
        bool,
        typer.Option(
            "--plan-options",
            help="With --rerun: also hand the solver the parameters that the plan's file says.",
        ),
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a network file.")
    ] = False,
    as_json: options.JSON = False,
) -> None:
    """Show a network's layers, or a plan, which is priced again first."""
    from hypar_opt import pipeline
    from hypar_opt.models import find_network
    from hypar_opt.plan.arguments import problem_of
    from hypar_opt.workload.tensors import describe

    if schema:
        from hypar_opt.workload.network import json_schema

        given = (what, batch, reading)
        if any(each is not None for each in given) or rerun or plan_options:
            raise HyparError("--schema is the format's: it takes no NETWORK, PLAN or option")
        output.print_json(json_schema())
        return
    if plan_options and not rerun:
        raise HyparError("--plan-options goes with --rerun")
    if what is None:
        raise HyparError("show takes a NETWORK or a PLAN, or --schema")
    if is_plan(what):
        plan = pipeline.read_plan(what)
        if batch is not None:
            raise HyparError("--batch is fixed by the plan; leave it out")
        if rerun and reading is not None:
            raise HyparError("--rerun solves by the plan's own reading; leave --reading out")
        if rerun:
            plan = _rerun(plan, what, plan_options=plan_options)
        else:
            plan = pipeline.repriced(plan, reading=reading)
        print_plan(plan, as_json=as_json)
        return
    network = find_network(what)
    if rerun:
        raise HyparError(f"--rerun takes a plan file, and {what!r} is a network")
    if reading is not None:
        raise HyparError(f"--reading takes a plan file, and {what!r} is a network")
    description = describe(network, problem_of(batch=1 if batch is None else batch).batch)
    if as_json:
        output.print_json(description)
    else:
        from hypar_opt.report import terminal

        output.print_view(terminal.network_view(description))


def is_plan(name: str) -> bool:
    """Whether a name is a plan file's, not a network's: JSON opens with a brace, TOML cannot."""
    from hypar_opt import models
    from hypar_opt.documents import exists, read_text

    path = Path(name)
    if name.lower() in models.names() or not exists(path) or path.is_dir():
        return False
    if path.suffix == ".json":
        return True
    return path.is_file() and read_text(path).lstrip().startswith("{")


def _rerun(plan: Plan, file: str, *, plan_options: bool) -> Plan:
    from hypar_opt.studies import advice, evaluation

    with output.progress_bar("levels") as progress:
        again = evaluation.solve_again(plan, progress, parameters=plan_options)
    key = advice.difference(plan, again)
    if key is not None:
        raise CheckFailedError(f"{file}: {key} is not what solving again gives")
    if again.solver.versions != plan.solver.versions:
        output.warn(f"{file} was made by other versions; the answer is the same")
    return again
