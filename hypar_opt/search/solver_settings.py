"""A solver's options: as a caller states them, and as a plan records them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from hypar_opt.documents.document import validate
from hypar_opt.errors import HyparError, RefusedError, UnknownNameError, worded
from hypar_opt.plan.arguments import PlanningArguments, ProblemArguments
from hypar_opt.plan.plan import SolverSettings
from hypar_opt.solvers.base import SolverOptions, by_default

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan


class OptionArguments(TypedDict, total=False):
    """The fields of `SolverOptions` as arguments themselves."""

    backend: str | None
    parameters: Mapping[str, str]
    time_limit: float | None
    gap: float
    threads: int | None
    seed: int | None
    hint: bool
    log: str | Path | None
    export: str | Path | None


class SolveArguments(ProblemArguments, OptionArguments, total=False):
    """`ProblemArguments`, and the fields of ``options``, as on the command line."""


class SearchArguments(TypedDict, total=False):
    """How a plan is searched, besides a solver's options."""

    solver: str | None
    search: str | None
    place: bool
    stages: int | Literal["auto"] | None
    cuts: Sequence[str]


class SourceArguments(PlanningArguments, OptionArguments, SearchArguments, total=False):
    """The arguments of `hypar_opt.solve`, for a study of a network; it takes the array itself."""


class PlanArguments(ProblemArguments, SearchArguments, total=False):
    """The arguments of a study with options of its own: with the array, without a solver's."""


def options_among(
    options: SolverOptions | Mapping[str, Any] | None, arguments: SolveArguments
) -> tuple[SolverOptions, ProblemArguments]:
    """Return a solver's options, which may be arguments themselves, and the other arguments.

    Raises
    ------
    HyparError
        If a name or a value is wrong, or an option is stated twice.
    """
    annotations = SolveArguments.__annotations__
    for name in arguments:
        if name not in annotations:
            raise UnknownNameError("argument", name, list(annotations))
    names = annotations.keys() - ProblemArguments.__annotations__.keys()
    stated: dict[str, Any] = {name: arguments[name] for name in arguments if name in names}  # type: ignore[literal-required]
    problem: Any = {name: value for name, value in arguments.items() if name not in names}
    if not stated:
        return options_from(options), problem
    if options is not None:
        raise HyparError(f"{next(iter(stated))} is one of options: state all there, or none")
    return options_from(stated), problem


_OF_THE_PLAN = {"warm_start", "simulate"}
"""Fields that a plan records, but that are not options of a solver."""


def options_from(options: SolverOptions | Mapping[str, Any] | None) -> SolverOptions:
    """Return a caller's options as `SolverOptions`.

    Raises
    ------
    HyparError
        If a name or a value of a mapping is wrong.
    """
    if isinstance(options, SolverOptions):
        return options
    if not options:
        return by_default()
    fields = SolverOptions.__dataclass_fields__
    for name in options:
        if name not in fields:
            raise UnknownNameError("solver option", name, list(fields))
    return SolverOptions(**options)


def settings_of(options: SolverOptions, *, warm_start: bool) -> SolverSettings:
    """Return the solver options that a plan records, validated."""
    names = SolverSettings.model_fields.keys() - _OF_THE_PLAN
    fields = {name: getattr(options, name) for name in names}
    return validate(SolverSettings, {**fields, "warm_start": warm_start})


def options_of(plan: Plan, *, parameters: bool) -> SolverOptions:
    """Return the options that a plan was solved with.

    Parameters
    ----------
    parameters
        Also return the solver's own parameters that the plan file has. The file's author
        chose them, so they are refused unless the caller asks for them.

    Raises
    ------
    RefusedError
        Naming the parameters, if there are any and they are not asked for.
    """
    settings = plan.solver.options
    if settings.parameters and not parameters:
        named = " ".join(f"{key}={value}" for key, value in settings.parameters.items())
        tuned = worded(f"the parameters {named}", f"--solver-option {named}")
        remedy = worded("parameters=True", "show --rerun --plan-options")
        raise RefusedError(
            f"the plan was solved with {tuned};"
            f" parameters from a file are used only on request: {remedy} uses them"
        )
    return SolverOptions(**settings.model_dump(exclude=_OF_THE_PLAN))
