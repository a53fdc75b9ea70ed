"""PuLP's solvers, each called in another process, which loads its library."""

from __future__ import annotations

import contextlib
import subprocess
from typing import Any

from hypar_opt.deadline import TIME_LIMIT, with_grace
from hypar_opt.errors import HyparError
from hypar_opt.solvers import process
from hypar_opt.solvers.backends.base import Backend, BackendAnswer, BackendCall
from hypar_opt.solvers.backends.dialects import DIALECTS, BackendDialect
from hypar_opt.solvers.backends.pulp_worker import solve
from hypar_opt.solvers.base import SolverOptions


def run_pulp_solver(call: BackendCall) -> BackendAnswer:
    """Minimise a problem in another process.

    Raises
    ------
    RefusedError
        If the solver refuses a parameter.
    HyparError
        If it fails.
    """
    backend, limit = call.backend, call.deadline.left()
    try:
        answer = process.call(
            call.directory,
            solve,
            backend.name,
            call.model,
            _constructor_arguments(backend, call.options, limit),
            dict(call.options.parameters),
            call.start,
            seconds=with_grace(limit),
        )
    except subprocess.TimeoutExpired:
        return BackendAnswer(None, stopped_by=TIME_LIMIT)
    except process.CallError as error:
        raise HyparError(f"the backend {backend.name} failed: {error}") from None
    # Some solvers report an optimum when a limit stops them, so a late claim does not count.
    late = limit is not None and answer.seconds >= limit
    optimal = answer.solution == "Optimal Solution Found" and not call.options.gap
    proven = (optimal or answer.status == "Infeasible") and not late
    objective = None
    if answer.values is not None:
        objective = sum(cost * answer.values[column] for column, cost in call.costs.items())
    return BackendAnswer(
        values=answer.values,
        objective=objective,
        proven=proven and backend.name in DIALECTS,
        bound=answer.bound,
        stopped_by=TIME_LIMIT if late else None,
        version=backend.version,
    )


def _constructor_arguments(
    backend: Backend, options: SolverOptions, limit: float | None
) -> dict[str, Any]:
    """Return the arguments for PuLP's constructor of a solver."""
    dialect = DIALECTS.get(backend.name, BackendDialect())
    # One by default, so that runs are reproducible.
    threads = options.threads or 1
    arguments: dict[str, Any] = {
        "msg": True,
        "timeLimit": limit,
        "gapRel": options.gap,
        "threads": threads,
        "warmStart": options.warm_start is not None,
    }
    supported = backend.constructor_arguments
    arguments = {name: value for name, value in arguments.items() if name in supported}
    if dialect.to_arguments is None:
        return arguments
    parameters = {name: _parsed(text) for name, text in options.parameters.items()}
    if options.seed is not None:
        parameters[dialect.seed] = options.seed
    if dialect.threads:
        parameters[dialect.threads] = threads
    # Otherwise the solver stops at its default gap, often 1e-4, and reports an optimum.
    if dialect.gap and not options.gap:
        parameters[dialect.gap] = 0
    return arguments | dialect.to_arguments(parameters)


def _parsed(text: str) -> int | float | str:
    """Return a parameter's value as a number where it is one, since PuLP passes on its type."""
    for convert in (int, float):
        with contextlib.suppress(ValueError):
            return convert(text)
    return text
