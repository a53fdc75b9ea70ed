"""From options as they are typed to what the package takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    import typer

    from hypar_opt.solvers.base import SolverOptions


PROBLEM = (
    *("batch", "levels", "array", "cost", "reading", "element_bytes", "inference", "choices"),
    *("level_weights", "fix", "even", "memory", "optimizer"),
)
"""The options that state a problem."""


def problem(context: typer.Context) -> dict[str, Any]:
    """Return the fields of a `Problem` from a command's options; it checks them."""
    given = {name: context.params[name] for name in PROBLEM if name in context.params}
    limits = {name: given.pop(name) for name in ("even", "memory", "optimizer")}
    limits["fix"] = tuple(given.pop("fix") or ())
    return {
        **given,
        "choices": tuple(given["choices"].split(",")),
        "level_weights": _weights(given["level_weights"]),
        "constraints": limits,
    }


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
    from hypar_opt.documents import check_writable, validate
    from hypar_opt.plan import SolverSettings
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
    for path in (log, export):
        if path is not None:
            check_writable(path)
    chosen = settings.model_dump(exclude={"warm_start", "simulate"})
    return SolverOptions(log=log, export=export, **chosen)


def _weights(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    weights = text.split(",")
    if not all(weight.strip().isdecimal() and len(weight) < 12 for weight in weights):
        raise HyparError(f"--level-weights should be whole numbers, as 8,4,2,1, got {text!r}")
    return tuple(map(int, weights))
