"""PuLP's solvers, called by a worker process that loads their libraries."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from hypar_opt.deadline import TIME_LIMIT, with_grace
from hypar_opt.errors import HyparError
from hypar_opt.solvers.backends.base import Backend, BackendAnswer, BackendCall
from hypar_opt.solvers.backends.dialects import DIALECTS, BackendDialect
from hypar_opt.solvers.backends.process import SolverProcess
from hypar_opt.solvers.base import SolverOptions

_WORKER = Path(__file__).with_name("pulp_worker.py")


def ask_worker(
    process: SolverProcess, question: dict[str, Any], seconds: float | None = None
) -> dict[str, Any] | None:
    """Send a question to PuLP in a separate process; None if it had to be killed.

    Parameters
    ----------
    question
        The arguments of `pulp_worker`'s ``_solve``; empty to list PuLP's solvers.
    seconds
        Kill it after this time; None for no limit.

    Returns
    -------
    dict
        The worker's answer, or ``{"error": ...}``.
    """
    question_file, answer_file = process.directory / "question", process.directory / "answer"
    question_file.write_text(json.dumps(question), encoding="utf-8")
    # If the worker dies, the previous call's answer must not be read in its place.
    answer_file.unlink(missing_ok=True)
    # -P: modules beside the worker's file must not hide installed packages.
    command = [sys.executable, "-P", str(_WORKER), str(question_file), str(answer_file)]
    status = process.run(command, seconds)
    if status is None:
        return None
    if not answer_file.exists():
        return {"error": f"it ended with status {status}"}
    answer: dict[str, Any] = json.loads(answer_file.read_text(encoding="utf-8"))
    return answer


def run_pulp_solver(backend: Backend, call: BackendCall) -> BackendAnswer:
    """Minimise a problem in a worker process.

    Raises
    ------
    HyparError
        If the solver fails.
    """
    limit = call.deadline.left()
    question = {
        "solver": backend.name,
        "model": str(call.model),
        "arguments": _constructor_arguments(backend, call.options, limit),
        "parameters": dict(call.options.parameters),
        "start": call.start,
    }
    answer = ask_worker(call.process, question, with_grace(limit))
    if answer is None:
        return BackendAnswer(None, stopped_by=TIME_LIMIT)
    if "error" in answer:
        raise HyparError(f"the backend {backend.name} failed: {answer['error']}")
    # Some solvers report an optimum when a limit stops them, so a late claim does not count.
    late = limit is not None and answer["seconds"] >= limit
    optimal = answer["solution"] == "Optimal Solution Found" and not call.options.gap
    proven = (optimal or answer["status"] == "Infeasible") and not late
    values = answer["values"]
    objective = None
    if values is not None:
        objective = sum(cost * values[column] for column, cost in call.costs.items())
    return BackendAnswer(
        values=values,
        objective=objective,
        proven=proven and backend.name in DIALECTS,
        bound=answer["bound"],
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
