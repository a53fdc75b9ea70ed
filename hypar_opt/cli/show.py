"""``hypar-opt show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypar_opt.cli import completion, inputs, options, output, request
from hypar_opt.cli.plan_view import print_plan
from hypar_opt.errors import CheckFailedError, HyparError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.network import Network

EPILOG = (
    "Examples: [bold]hypar-opt show alexnet[/bold]; [bold]hypar-opt show plan.json[/bold];"
    " [bold]hypar-opt show alexnet --picture alexnet.svg[/bold];"
    " [bold]hypar-opt show h100-8x8 --toml[/bold]"
)

SOURCE = typer.Argument(
    metavar="[NETWORK|PLAN|ARRAY]",
    autocompletion=completion.networks_and_arrays,
    help="A network, as for solve, a plan file, or an array, as for --array.",
)
BATCH = typer.Option(help="Batch size for the shapes (default 1).")
RERUN = typer.Option(
    "--rerun",
    help="Solve the plan's problem again and compare; exits with status 1 if they differ.",
)
PLAN_OPTIONS = typer.Option(
    "--plan-options",
    help="With --rerun: also pass the solver parameters recorded in the plan file.",
)
PICTURE = options.file_option(
    help="Draw a network's graph, a plan, or an array's topology: .png, .svg or .pdf (needs"
    " matplotlib)."
)
UNFOLDED = typer.Option(
    "--unfolded", help="With --picture: draw each repetition of a block separately."
)
ROOFLINE = typer.Option(
    "--roofline",
    help="With --picture, for an array: draw what bounds an accelerator, its peak, its DRAM and the"
    " levels' links, in place of the topology.",
)
LAYOUTS = typer.Option(
    "--layouts",
    help="For a plan: show how every layer's output is stored, not only those with several"
    " readers.",
)
SCHEMA = typer.Option(
    "--schema",
    help="Print a JSON Schema: of a network file, or, in place of a NETWORK, of what a command"
    " prints with --json.",
)
TOML = typer.Option("--toml", help="Print the file of an array or network, as a template to edit.")

_OF_PLANS = ("--rerun", "--reading", "--layouts")
_NOT_OF_PLANS = ("--unfolded", "--tokens", "--set", "--roofline")
_OF_ARRAYS = {"--set", "--roofline"}


def show(
    source: Annotated[str | None, SOURCE] = None,
    batch: Annotated[int | None, BATCH] = None,
    tokens: Annotated[int | None, options.TOKENS] = None,
    settings: options.SETTINGS = None,
    reading: options.READING = None,
    rerun: Annotated[bool, RERUN] = False,
    plan_options: Annotated[bool, PLAN_OPTIONS] = False,
    picture: Annotated[Path | None, PICTURE] = None,
    unfolded: Annotated[bool, UNFOLDED] = False,
    roofline: Annotated[bool, ROOFLINE] = False,
    layouts: Annotated[bool, LAYOUTS] = False,
    schema: Annotated[bool, SCHEMA] = False,
    toml: Annotated[bool, TOML] = False,
    as_json: options.JSON = False,
) -> None:
    flags = {
        "--batch": batch is not None,
        "--tokens": tokens is not None,
        "--set": bool(settings),
        "--reading": reading is not None,
        "--rerun": rerun,
        "--unfolded": unfolded,
        "--roofline": roofline,
        "--layouts": layouts,
    }
    typed = [option for option, is_typed in flags.items() if is_typed]
    if schema:
        # A schema depends on nothing, so any other option is a mistake.
        if picture is not None or plan_options or toml or typed:
            raise HyparError("--schema takes no other option")
        _print_schema(source)
        return
    if plan_options and not rerun:
        raise HyparError("--plan-options goes with --rerun")
    if source is None:
        raise HyparError("show takes a NETWORK, a PLAN or an ARRAY, or --schema")
    if picture is None:
        _refuse(typed, ("--unfolded", "--roofline"), "goes with --picture")
    if toml:
        _print_file(source, json=picture is not None or as_json, others=typed)
    elif inputs.is_plan(source):
        _refuse(typed, _NOT_OF_PLANS, f"takes no plan, and {source!r} is one")
        with output.outputs_checked(picture=picture):
            plan = _plan(source, batch, reading, rerun=rerun, plan_options=plan_options)
        output.draw(picture, lambda pictures: pictures.plan_dots(plan, layouts=layouts))
        print_plan(plan, layouts=layouts, as_json=as_json)
    elif inputs.is_array(source):
        others = flags.keys() - _OF_ARRAYS
        _refuse(typed, others, f"does not go with an array, and {source!r} is one")
        _show_array(source, settings, picture, roofline=roofline, as_json=as_json)
    else:
        with output.outputs_checked(picture=picture):
            network = _network(source, tokens, settings)
            _refuse(typed, _OF_PLANS, f"takes a plan file, and {source!r} is a network")
            _refuse(typed, ["--roofline"], f"takes an array, and {source!r} is a network")
        output.draw(picture, lambda pictures: pictures.network_graph(network, unfolded=unfolded))
        _show_network(network, batch, as_json=as_json)


def _print_schema(command: str | None) -> None:
    if command is None:
        from hypar_opt.workload.network import json_schema

        output.print_json(json_schema())
        return
    from hypar_opt.cli import schemas

    output.print_json(schemas.json_schema(command))


def _refuse(typed: Sequence[str], options: Iterable[str], why: str) -> None:
    """Refuse the first of some options that was typed."""
    for option in options:
        if option in typed:
            raise HyparError(f"{option} {why}")


def _print_file(source: str, *, json: bool, others: Sequence[str]) -> None:
    """Print an array's or a network's file, once it has been read; no other option goes with it."""
    from hypar_opt import models
    from hypar_opt.hardware import arrays

    if json or others:
        which = "--json and --picture" if json else "other options"
        raise HyparError(f"--toml prints only the file: leave {which} out")
    if inputs.is_plan(source):
        raise HyparError(f"--toml takes an array or a network, and {source!r} is a plan")
    if inputs.is_array(source):
        arrays.find_array(source)
        output.print_text(arrays.file_text(source))
    else:
        output.print_text(models.file_text(source))


def _show_array(
    name: str, settings: list[str] | None, picture: Path | None, *, roofline: bool, as_json: bool
) -> None:
    from hypar_opt.hardware.arrays import find_array
    from hypar_opt.plan.settings import changed
    from hypar_opt.report.terminal.array import described

    with output.outputs_checked(picture=picture):
        array = find_array(name)
        array = changed(None, array, request.key_values(settings)).array or array
    output.draw(
        picture,
        lambda pictures: pictures.array_roofline(array) if roofline else pictures.topology(array),
    )
    output.print_result(array, lambda: described(array), as_json=as_json, folds=True)


def _plan(
    file: str, batch: int | None, reading: str | None, *, rerun: bool, plan_options: bool
) -> Plan:
    """Read a plan, and price it by a reading or solve its problem again."""
    from hypar_opt.search.plan_file import read_plan, repriced

    plan = read_plan(file)  # first, since a file that is not a plan is the larger mistake
    if batch is not None:
        raise HyparError("--batch is fixed by the plan; leave it out")
    if not rerun:
        return repriced(plan, reading=reading)
    # Other readings have other optima: nothing would be compared.
    if reading is not None:
        raise HyparError("--rerun solves in the plan's reading; leave --reading out")
    return _rerun(plan, file, plan_options=plan_options)


def _rerun(plan: Plan, file: str, *, plan_options: bool) -> Plan:
    from hypar_opt.studies import advice, simulation

    with output.progress_bar("levels") as progress:
        # Parameters reach a backend only on request: a plan file may come from anybody.
        again = simulation.solve_again(plan, progress, parameters=plan_options)
    key = advice.difference(plan, again)
    if key is not None:
        raise CheckFailedError(f"{file}: {key} is not what solving again gives")
    # `difference` leaves versions out, so they are compared here.
    if again.solver.versions != plan.solver.versions:
        output.warn(f"{file} was made by other versions; the answer is the same")
    return again


def _network(name: str, tokens: int | None, settings: list[str] | None) -> Network:
    from hypar_opt import models
    from hypar_opt.hardware import arrays
    from hypar_opt.plan.settings import changed

    try:
        network = models.find_network(name, tokens)
        return changed(network, None, request.key_values(settings)).network or network
    except UnknownNameError:
        known = [*models.names(), *arrays.names()]
        raise UnknownNameError("network or array", name, known) from None


def _show_network(network: Network, batch: int | None, *, as_json: bool) -> None:
    from hypar_opt.plan.arguments import problem_of
    from hypar_opt.report.terminal.network import described, network_view

    # Part of a problem, so that the batch is checked as everywhere else.
    problem = problem_of(batch=1 if batch is None else batch)
    if as_json:
        output.print_json(described(network, problem.batch))
    else:
        output.print_view(network_view(network, problem.batch))
