"""``hypar-opt show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hypar_opt.cli import completion, options, output, request
from hypar_opt.cli.plan_view import check_explanation, print_plan
from hypar_opt.errors import CheckFailedError, HyparError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.network import Network

EXAMPLES = (
    "hypar-opt show alexnet",
    "hypar-opt show plan.json",
    "hypar-opt show alexnet --picture alexnet.svg",
    "hypar-opt show h100-8x8 --toml",
)

SOURCE = typer.Argument(
    metavar="NETWORK|PLAN|ARRAY",
    autocompletion=completion.networks_and_arrays,
    help="A network, as for solve, a plan file, or an array, as for --array.",
)
BATCH = typer.Option(help="Batch size for the shapes (default 1).")
RERUN = typer.Option(
    "--rerun",
    help="Re-solve the plan's problem and compare; exits with status 1 if the plans differ.",
)
PLAN_OPTIONS = typer.Option(
    "--plan-options",
    help="With --rerun: also pass the solver parameters recorded in the plan file.",
)
PICTURE = options.file_option(
    help="Draw a network's graph, a plan, or an array's topology: .png, .svg or .pdf (needs"
    " the extra figures)."
)
UNFOLDED = typer.Option(
    "--unfolded", help="With --picture: draw each repetition of a block separately."
)
ROOFLINE = typer.Option(
    "--roofline",
    help="With --picture, for an array: draw what bounds an accelerator, its peak, its DRAM and the"
    " levels' links, in place of the topology; for a plan on an array, its layers under these.",
)
LAYOUTS = typer.Option(
    "--layouts",
    help="For a plan: show how each layer's output is stored, not only tensors with several"
    " readers.",
)
SCHEMA = typer.Option(
    "--schema",
    help="Print a JSON Schema: of a network file, or, in place of a NETWORK, of what a command"
    " prints with --json.",
)
TOML = typer.Option("--toml", help="Print the file of an array or network, as a template to edit.")


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
    explain: options.EXPLAIN = None,
    schema: Annotated[bool, SCHEMA] = False,
    toml: Annotated[bool, TOML] = False,
    as_json: options.JSON = False,
) -> None:
    flags = {
        "--tokens": tokens is not None,
        "--set": bool(settings),
        "--reading": reading is not None,
        "--batch": batch is not None,
        "--rerun": rerun,
        "--unfolded": unfolded,
        "--roofline": roofline,
        "--layouts": layouts,
        "--explain": explain is not None,
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
    # Other readings have other optima: nothing would be compared.
    if rerun and reading is not None:
        raise HyparError("--rerun solves in the plan's reading; leave --reading out")
    if source is None:
        raise HyparError("show takes a NETWORK, a PLAN or an ARRAY, or --schema")
    for option in ("--unfolded", "--roofline"):
        if picture is None and option in typed:
            raise HyparError(f"{option} goes with --picture")
    if toml:
        _print_file(source, json=picture is not None or as_json, options=typed)
        return
    check_explanation(explain, as_json=as_json)
    with output.outputs_checked(picture=picture):
        subject = _named(source, tokens, request.key_values(settings), reading, typed)
        if rerun:
            subject = _rerun(subject, source, plan_options=plan_options)
    parts = {"layouts": layouts, "unfolded": unfolded, "roofline": roofline}
    _print(subject, picture, batch, explain, **parts, json=as_json)


def _named(
    source: str,
    tokens: int | None,
    settings: Mapping[str, Any],
    reading: str | None,
    typed: Sequence[str],
) -> Network | Array | Plan:
    """Return what a name stands for; what is shown of another kind of thing is refused."""
    from hypar_opt.studies import shown

    subject = shown.show(source, tokens=tokens, settings=settings, reading=reading)
    kind = shown.kind_of(subject)
    if kind == shown.PLAN and "--batch" in typed:
        raise HyparError("--batch is fixed by the plan; leave it out")
    takes = {
        **dict.fromkeys(("--batch", "--unfolded"), (shown.NETWORK,)),
        **dict.fromkeys(("--rerun", "--layouts", "--explain"), (shown.PLAN,)),
        "--roofline": (shown.ARRAY, shown.PLAN),
    }
    for option, takers in takes.items():
        if option in typed:
            shown.refuse(option, source, kind, takers)
    return subject


def _print(
    subject: Network | Array | Plan,
    picture: Path | None,
    batch: int | None,
    explain: str | None,
    *,
    layouts: bool,
    unfolded: bool,
    roofline: bool,
    json: bool,
) -> None:
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.arguments import problem_of
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.description import describe

    if picture is not None and roofline:
        from hypar_opt.display import figures

        is_plan = isinstance(subject, Plan)
        draw: Any = figures.layers_roofline if is_plan else figures.array_roofline
        figures.save(draw(subject), picture)
        picture = None
    if isinstance(subject, Plan):
        output.draw(picture, subject, layouts=layouts)
        print_plan(subject, layouts=layouts, explain=explain, as_json=json)
    elif isinstance(subject, Array):
        output.draw(picture, subject)
        output.print_result(subject, as_json=json, folds=True)
    else:
        output.draw(picture, subject, unfolded=unfolded)
        # Part of a problem, so that the batch is checked as everywhere else.
        size = problem_of(batch=1 if batch is None else batch).batch
        if json:
            output.print_json(describe(subject, size))
        else:
            from hypar_opt.display.terminal.network import network_view

            output.print_view(network_view(subject, size))


def _print_schema(command: str | None) -> None:
    if command is None:
        from hypar_opt.workload.network import json_schema

        output.print_json(json_schema())
        return
    from hypar_opt.cli import schemas

    output.print_json(schemas.json_schema(command))


def _print_file(source: str, *, json: bool, options: Sequence[str]) -> None:
    """Print an array's or a network's file, once it has been read; no other option goes with it."""
    from hypar_opt import models
    from hypar_opt.hardware import arrays
    from hypar_opt.studies.shown import is_array_named, is_plan_file

    if json or options:
        which = "--json and --picture" if json else "other options"
        raise HyparError(f"--toml prints only the file: leave {which} out")
    if is_plan_file(source):
        raise HyparError(f"--toml takes an array or a network, and {source!r} is a plan")
    if is_array_named(source):
        arrays.find_array(source)
        output.print_text(arrays.file_text(source))
    else:
        output.print_text(models.file_text(source))


def _rerun(plan: Any, file: str, *, plan_options: bool) -> Plan:
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
