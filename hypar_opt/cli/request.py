"""The package's arguments, from options as they are typed."""

from __future__ import annotations

import shlex
import tomllib
from typing import TYPE_CHECKING, Any

from hypar_opt.cli import inputs, output
from hypar_opt.errors import HyparError, argument

if TYPE_CHECKING:
    from pathlib import Path

    import typer

    from hypar_opt.cli.groups import (
        CostOptions,
        ProblemOptions,
        SizeOptions,
        SolvingOptions,
        TrainingOptions,
    )
    from hypar_opt.hardware.array import Array
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.plan.arguments import ProblemArguments
    from hypar_opt.plan.plan import Plan
    from hypar_opt.solvers.base import SolverOptions
    from hypar_opt.workload.network import Network


def cost_arguments(typed: CostOptions) -> ProblemArguments:
    """Return the fields of a `Problem` except its sizes; `Problem` validates them."""
    weights: tuple[int, ...] = ()
    if typed.level_weights is not None:
        weights = whole_numbers("--level-weights", typed.level_weights, "8,4,2,1")
    return {
        "cost": typed.cost,
        "reading": typed.reading,
        "element_bytes": typed.element_bytes,
        "inference": typed.inference,
        # `Problem` checks the words, with the same message as for callers from Python.
        "choices": None if typed.choices is None else tuple(typed.choices.split(",")),
        "level_weights": weights,
        "constraints": {
            "fix": tuple(typed.fix or ()),
            "even": typed.even,
            "runnable": typed.runnable,
            "memory": typed.memory,
            "optimizer": typed.optimizer,
        },
    }


def problem_arguments(typed: ProblemOptions) -> ProblemArguments:
    """Return the fields of a `Problem`, which validates them."""
    arguments: ProblemArguments = {
        "batch": typed.batch,
        "accelerators": typed.accelerators,
        "levels": typed.levels,
        "hierarchy": None if typed.hierarchy is None else sizes(typed.hierarchy),
        "whole_levels": typed.whole_levels,
        "array": typed.array,
        "share": None if typed.share is None else _shares(typed.share),
        "bucket": typed.bucket,
        "settings": key_values(typed.settings),
        "degrees": typed.degrees,
    }
    return {**cost_arguments(typed), **arguments}


def _shares(typed: str) -> float | tuple[float, ...]:
    """Return the shares of ``--share``: one, or several apart by commas.

    Raises
    ------
    HyparError
        If one of them is no number.
    """
    try:
        shares = tuple(map(float, typed.split(",")))
    except ValueError:
        wanted = "a number, as 0.3, or several, as 0.2,0.3,0.5"
        raise HyparError(f"{argument('share')} should be {wanted}, got {typed!r}") from None
    return shares if len(shares) > 1 else shares[0]


def hierarchy(typed: str, levels: int | None = None, *, whole: bool) -> Hierarchy:
    """Return the levels of ``--hierarchy``: whole, or their prime factors."""
    from hypar_opt.plan.arguments import hierarchy_of

    stated = hierarchy_of(sizes(typed), levels)
    return stated if whole else stated.in_primes


def papers_array(typed: SizeOptions) -> str | None:
    """Return the paper's array of the stated levels; None if it has none."""
    from hypar_opt.hardware import arrays
    from hypar_opt.plan.arguments import hierarchy_of_accelerators

    if typed.accelerators is not None:
        stated = hierarchy_of_accelerators(typed.accelerators)
    elif typed.hierarchy is None:
        return arrays.papers(typed.levels)
    else:
        stated = hierarchy(typed.hierarchy, typed.levels, whole=typed.whole_levels)
    return arrays.papers(stated.levels) if stated.is_binary else None


def needed_array(typed: SizeOptions, purpose: str) -> str:
    """Return the paper's array of the stated levels, for a purpose that needs an array.

    Raises
    ------
    HyparError
        If the paper has none with such levels.
    """
    array = papers_array(typed)
    if array is None:
        levels = typed.hierarchy or f"of {typed.accelerators} accelerators"
        raise HyparError(
            f"{purpose} needs an array of the levels {levels}: --array NAME|FILE; the"
            " paper's have levels of two parts"
        )
    return array


def sizes(typed: str) -> tuple[int, ...]:
    """Return the parts of each level, as ``--hierarchy`` states them."""
    return whole_numbers("--hierarchy", typed, "2,2,2")


def solver_options(typed: SolvingOptions, log: Path | None, export: Path | None) -> SolverOptions:
    """Return the solver's options, validated as far as possible without the solver."""
    from hypar_opt.documents.document import validate
    from hypar_opt.plan.plan import SolverSettings
    from hypar_opt.solvers.base import SolverOptions

    parameters = {}
    for pair in typed.solver_option or ():
        # A value may contain an equals sign, a key may not.
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise HyparError(f"--solver-option should be K=V, got {pair!r}")
        parameters[key] = value
    # Validated like the settings of a plan file, so that both refuse the same values.
    names = ("backend", "time_limit", "gap", "threads", "seed", "hint")
    limits = {name: getattr(typed, name) for name in names}
    settings = validate(SolverSettings, {**limits, "parameters": parameters})
    checked = settings.model_dump(exclude={"warm_start", "simulate"})
    return SolverOptions(log=log, export=export, **checked)


def solved(
    network: Network,
    problem: ProblemOptions,
    solving: SolvingOptions,
    *,
    array: Array | str | None,
    training: TrainingOptions | None = None,
    start: Plan | None = None,
    solution: Path | None = None,
    log: Path | None = None,
    export: Path | None = None,
    overlap: Any = None,
    explain: str | None = None,
) -> Plan:
    """Solve the problem that was typed, on an array that has been read.

    Parameters
    ----------
    explain
        ``LAYER@LEVEL``, whose charge will be explained.
    """
    from hypar_opt.planning.solve import solve

    arguments = problem_arguments(problem)
    # The array itself, not its name: its file is read, and recorded as read, only once.
    arguments["array"] = array
    if training is not None:
        arguments["training"] = trained = stated(training)
        # Of stages, which are not known yet.
        arguments["schedule"] = trained.pop("schedule", None)
    options = solver_options(solving, log, export)
    if explain is not None:
        from hypar_opt.plan.stated import stated_problem
        from hypar_opt.studies.explained import check_place

        check_place(explain, *stated_problem(network, arguments))
    with output.progress_bar("levels") as progress:
        return solve(
            network,
            solver=solving.solver,
            search=solving.search,
            options=options,
            start=start,
            solution=solution,
            place=solving.place,
            stages=stages(solving.stages),
            cuts=() if solving.cuts is None else solving.cuts.split(","),
            overlap=overlap,
            progress=progress,
            **arguments,
        )


def stages(typed: str | None) -> Any:
    """Return a number of stages, ``auto`` or None."""
    from hypar_opt.plan.stages import stage_counts

    number = int(typed) if typed and typed.isdecimal() and len(typed) <= 1000 else typed
    stage_counts(number)
    return number


def key_values(typed: list[str] | None) -> dict[str, Any]:
    """Return the values of ``--set`` by key: as in a TOML file, where text needs no quotes."""
    values: dict[str, Any] = {}
    for pair in typed or ():
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise HyparError(f"--set should be KEY=VALUE, got {pair!r}")
        if key.strip() in values:
            raise HyparError(f"--set: {key.strip()!r} is set twice")
        try:
            parsed = tomllib.loads(f"value = {text}")
        except (ValueError, RecursionError):
            # As of a shorter one, which a document refuses.
            if text.strip().isdecimal():
                raise HyparError(
                    f"--set: {key.strip()}: should have at most 1,000 digits"
                ) from None
            parsed = {}
        values[key.strip()] = parsed["value"] if len(parsed) == 1 else text
    return values


def stated(training: TrainingOptions) -> Any:
    """Return the options of a step that were typed."""
    return {name: value for name, value in vars(training).items() if value is not None}


def whole_numbers(option: str, text: str, example: str) -> tuple[int, ...]:
    """Return the numbers of an option that takes a list."""
    numbers = text.split(",")
    # Longer numbers are typing mistakes, and slow to parse.
    if not all(number.strip().isdecimal() and len(number) < 12 for number in numbers):
        raise HyparError(f"{option} should be whole numbers, as {example}, got {text!r}")
    return tuple(map(int, numbers))


def command_line(context: typer.Context, source: str) -> str:
    """Return the command line, quoted for a shell."""
    words = ["hypar-opt", context.info_name or "", source]
    for option in context.command.params:
        name = option.name or ""
        # The shortest command that reproduces the page: what was typed, without defaults.
        if name == "source" or not inputs.was_typed(context, name):
            continue
        typed = context.params[name]
        for value in typed if isinstance(typed, list | tuple) else [typed]:
            words += [option.opts[0]] if value is True else [option.opts[0], str(value)]
    # A file's name may not be valid text in any encoding; the page is in UTF-8.
    return shlex.join(words).encode(errors="replace").decode()
