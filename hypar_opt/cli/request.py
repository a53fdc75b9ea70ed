"""From options as they are typed to what the package takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from pathlib import Path

    from hypar_opt.solvers.base import SolverOptions


def problem(
    *,
    batch: int,
    levels: int,
    reading: str,
    element_bytes: int,
    inference: bool,
    choices: str,
    level_weights: str | None,
    fix: list[str] | None,
    even: bool,
    memory: str | None,
    optimizer: str,
) -> dict[str, Any]:
    """Return the fields of a `Problem`; it checks them."""
    return {
        "batch": batch,
        "levels": levels,
        "reading": reading,
        "element_bytes": element_bytes,
        "inference": inference,
        "choices": tuple(choices.split(",")),
        "level_weights": _weights(level_weights),
        "constraints": {
            "fix": tuple(fix or ()),
            "even": even,
            "memory": memory,
            "optimizer": optimizer,
        },
    }


def solver_options(
    *,
    backend: str | None = None,
    solver_option: list[str] | None = None,
    time_limit: float | None = None,
    gap: float = 0.0,
    threads: int | None = None,
    seed: int | None = None,
    hint: bool = False,
    solver_log: Path | None = None,
    export_model: Path | None = None,
) -> SolverOptions:
    """Return the solver's options, checked as far as one can without the solver."""
    from hypar_opt.documents import check_writable, validate
    from hypar_opt.plan import SolverSettings
    from hypar_opt.solvers.base import SolverOptions

    parameters = {}
    for pair in solver_option or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise HyparError(f"--solver-option should be K=V, got {pair!r}")
        parameters[key] = value
    settings = validate(
        SolverSettings,
        {
            "backend": backend,
            "parameters": parameters,
            "time_limit": time_limit,
            "gap": gap,
            "threads": threads,
            "seed": seed,
            "hint": hint,
        },
    )
    for path in (solver_log, export_model):
        if path is not None:
            check_writable(path)
    given = settings.model_dump(exclude={"warm_start"})
    return SolverOptions(log=solver_log, export=export_model, **given)


def _weights(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    weights = text.split(",")
    if not all(weight.strip().isdecimal() and len(weight) < 12 for weight in weights):
        raise HyparError(f"--level-weights should be whole numbers, as 8,4,2,1, got {text!r}")
    return tuple(map(int, weights))
