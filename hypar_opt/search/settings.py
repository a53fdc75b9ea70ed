"""A solver's options, as a search takes them and as a plan records them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hypar_opt.documents import validate
from hypar_opt.errors import HyparError, RefusedError, worded
from hypar_opt.plan.plan import SolverSettings
from hypar_opt.solvers.base import SolverOptions

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan

_OF_THE_PLAN = {"warm_start", "simulate"}
"""What a plan records, and no solver is handed."""


def options_from(given: SolverOptions | Mapping[str, Any] | None) -> SolverOptions:
    """Return a caller's options.

    Raises
    ------
    HyparError
        If a name among a mapping's is none of `SolverOptions`.
    """
    if isinstance(given, SolverOptions):
        return given
    known = SolverOptions.__dataclass_fields__
    unknown = [name for name in given or () if name not in known]
    if unknown:
        raise HyparError(f"options: unknown {unknown[0]!r}; known: {', '.join(known)}")
    return SolverOptions(**(given or {}))


def settings_of(options: SolverOptions, *, warm_start: bool) -> SolverSettings:
    """Return what a plan records of its solver's options, validated."""
    names = SolverSettings.model_fields.keys() - _OF_THE_PLAN
    fields = {name: getattr(options, name) for name in names}
    fields["parameters"] = dict(options.parameters)
    return validate(SolverSettings, {**fields, "warm_start": warm_start})


def options_of(plan: Plan, *, parameters: bool) -> SolverOptions:
    """Return the options that a plan was solved with.

    Parameters
    ----------
    parameters
        Hand over the solver's parameters that the plan's file says, too. Who wrote the file
        chose them, so that they are refused unless the caller knows them.

    Raises
    ------
    RefusedError
        Naming the parameters.
    """
    settings = plan.solver.options
    if settings.parameters and not parameters:
        named = " ".join(f"{key}={value}" for key, value in settings.parameters.items())
        tuned = worded(f"the parameters {named}", f"--solver-option {named}")
        remedy = worded("parameters=True", "show --rerun --plan-options")
        raise RefusedError(
            f"the plan was solved with {tuned},"
            f" and solving again with what a file says is not done unasked: {remedy} does it"
        )
    return SolverOptions(**settings.model_dump(exclude=_OF_THE_PLAN))
