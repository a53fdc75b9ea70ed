"""From options as they are typed to what the package takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypar_opt.cli import output
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import typer

    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.arguments import ProblemArguments
    from hypar_opt.plan.plan import Plan
    from hypar_opt.solvers.base import SolverOptions
    from hypar_opt.workload.network import Network


PROBLEM = (
    *("batch", "levels", "array", "cost", "reading", "element_bytes", "inference", "choices"),
    *("level_weights", "fix", "even", "memory", "optimizer"),
)
"""The options that state a problem."""


def problem(context: typer.Context) -> ProblemArguments:
    """Return the fields of a `Problem` from a command's options; it checks them."""
    given: Any = {name: context.params[name] for name in PROBLEM if name in context.params}
    limits = {name: given.pop(name) for name in ("even", "memory", "optimizer")}
    limits["fix"] = tuple(given.pop("fix") or ())
    option, weights = "--level-weights", given["level_weights"]
    stated: ProblemArguments = {
        **given,  # type: ignore[typeddict-item]
        "choices": tuple(given["choices"].split(",")),
        "level_weights": () if weights is None else whole_numbers(option, weights, "8,4,2,1"),
        "constraints": limits,
    }
    return stated


def refuse_what_a_plan_fixes(context: typer.Context, *names: str) -> None:
    """Refuse an option that was typed, of those that a plan has an answer to."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise HyparError(f"--{name.replace('_', '-')} is fixed by the plan; leave it out")


SOLVER = ("backend", "time_limit", "gap", "threads", "seed", "hint")
"""The options of a solver that are fields of its settings under the same name."""


def solver_options(context: typer.Context) -> SolverOptions:
    """Return the solver's options, checked as far as one can without the solver."""
    from hypar_opt.documents import validate
    from hypar_opt.plan.plan import SolverSettings
    from hypar_opt.solvers.base import SolverOptions

    given = context.params
    parameters = {}
    for pair in given.get("solver_option") or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise HyparError(f"--solver-option should be K=V, got {pair!r}")
        parameters[key] = value
    asked = {name: given[name] for name in SOLVER}
    settings = validate(SolverSettings, {**asked, "parameters": parameters})
    log, export = given.get("solver_log"), given.get("export_model")
    chosen = settings.model_dump(exclude={"warm_start", "simulate"})
    return SolverOptions(log=log, export=export, **chosen)


def read_plan(context: typer.Context, file: str) -> Plan:
    """Read a plan file, priced by ``--reading`` if that is given.

    Options that it has an answer to are refused, but for ``--array``.
    """
    from hypar_opt import pipeline

    fixed = (name for name in PROBLEM if name not in {"array", "reading"})
    solving = ("place", "solver", "search", "solver_option", *SOLVER)
    refuse_what_a_plan_fixes(context, *fixed, *solving)
    return pipeline.repriced(pipeline.read_plan(file), reading=context.params["reading"])


def solved(
    context: typer.Context,
    network: Network,
    array: Array | str | None = None,
    start: Plan | None = None,
) -> Plan:
    """Solve for a network, on an array, as a command's other options ask."""
    from hypar_opt import pipeline

    given, asked = context.params, problem(context) | {"array": array}
    options = solver_options(context)
    with output.progress_bar("levels") as progress:
        return pipeline.solve(
            network,
            solver=given["solver"],
            search=given["search"],
            options=options,
            start=start,
            place=given["place"],
            progress=progress,
            **asked,
        )


def plan_or_network(context: typer.Context, what: str) -> tuple[Plan | None, Network]:
    """Read a plan file, whose network it also gives, or a network as `solve` takes one."""
    from hypar_opt.cli.show import is_plan
    from hypar_opt.models import find_network

    if is_plan(what):
        plan = read_plan(context, what)
        return plan, plan.network.description
    return None, find_network(what)


def array_named(array: str | None) -> Array | None:
    """Return the array that ``--array`` names, if it does."""
    from hypar_opt.hardware.arrays import find_array

    return None if array is None else find_array(array)


def check_outputs(read: Iterable[str], *outputs: Path | None, picture: Path | None = None) -> None:
    """Refuse, before the work, what could not be written or drawn, or is read or written."""
    from hypar_opt.files import check_outputs

    check_outputs(read, *outputs, picture)
    if picture is not None:
        from hypar_opt.report.pictures.canvas import checked_format

        checked_format(picture.suffix, str(picture))


def exported(model: Path | None) -> list[Path]:
    """Return the files that ``--export-model`` may write: a levelwise search has one a level."""
    from hypar_opt.plan.problem import MOST_LEVELS

    if model is None or not model.name:
        return [] if model is None else [model]
    names = [f"{model.stem}-H{level}" for level in range(1, MOST_LEVELS + 1)]
    return [model, *map(model.with_stem, names)]


def whole_numbers(option: str, text: str, example: str) -> tuple[int, ...]:
    """Return the numbers of an option that takes several."""
    numbers = text.split(",")
    if not all(number.strip().isdecimal() and len(number) < 12 for number in numbers):
        raise HyparError(f"{option} should be whole numbers, as {example}, got {text!r}")
    return tuple(map(int, numbers))
