"""PuLP in another process, into which its solvers' libraries are loaded.

The libraries of highspy and OR-Tools cannot share a process. Nothing here imports more of this
package than that process needs.
"""

from __future__ import annotations

import inspect
import os
import time
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from hypar_opt.errors import RefusedError

DISTRIBUTIONS = {
    "HiGHS": "highspy",
    "GUROBI": "gurobipy",
    "CPLEX_PY": "cplex",
    "SCIP_PY": "pyscipopt",
}
"""The Python distributions whose names differ from those of their solvers."""


class PulpAnswer(NamedTuple):
    """A solver's answer as PuLP reports it.

    Parameters
    ----------
    status, solution
        As PuLP names them.
    seconds
        Reading included.
    values
        The columns' values; None without a solution.
    bound
        A lower bound on the objective; None if PuLP does not pass it on.
    """

    status: str
    solution: str
    seconds: float
    values: dict[str, float] | None
    bound: float | None


def solve(
    solver: str,
    model: Path,
    arguments: dict[str, Any],
    parameters: Mapping[str, str],
    start: Mapping[str, float],
) -> PulpAnswer:
    """Solve an MPS file with one of PuLP's solvers.

    Parameters
    ----------
    solver
        Its name in PuLP.
    arguments
        Arguments of the solver's PuLP constructor; a time limit counts from now.
    parameters
        The user's own parameters, which are also among the `arguments`.
    start
        A warm start: values of columns.

    Raises
    ------
    RefusedError
        If it refuses a parameter.
    """
    started = time.monotonic()
    warnings.simplefilter("ignore")

    # Imported after the clock has started, since loading counts towards the limit.
    import pulp  # type: ignore[import-untyped, unused-ignore]

    for key, text in parameters.items():
        if solver == "HiGHS" and not _is_highs_parameter(key, text):
            raise RefusedError(f"with the backend {solver} takes no parameter {key}={text}")
    columns, problem = pulp.LpProblem.fromMPS(model)
    os.chdir(model.parent)  # some solvers write files to the current directory
    for name, value in start.items():
        columns[name].setInitialValue(value, check=False)
    if arguments.get("timeLimit") is not None:
        # Less the time spent so far, but not 0, which to some solvers means no limit.
        arguments["timeLimit"] = max(arguments["timeLimit"] - (time.monotonic() - started), 0.01)
    status = problem.solve(pulp.getSolver(solver, **arguments))
    seconds = time.monotonic() - started
    values = {name: column.varValue for name, column in columns.items()}
    # PuLP may also have values for an infeasible problem; these are not a solution.
    has_solution = None not in values.values() and pulp.LpStatus[status] != "Infeasible"
    return PulpAnswer(
        pulp.LpStatus[status],
        pulp.LpSolution[problem.sol_status],
        seconds,
        values if has_solution else None,
        _bound(solver, problem),
    )


def _bound(solver: str, problem: Any) -> float | None:
    """Return the solver's lower bound, which PuLP itself does not pass on; None if unknown."""
    bound: float | None = None
    if solver == "HiGHS":
        bound = problem.solverModel.getInfo().mip_dual_bound
    elif solver == "GUROBI":
        bound = problem.solverModel.ObjBound
    return bound


def _is_highs_parameter(key: str, value: str) -> bool:
    """Whether HiGHS accepts a parameter, since PuLP ignores a refusal."""
    import highspy  # type: ignore[import-not-found, unused-ignore]

    highs = highspy.Highs()  # type: ignore[no-untyped-call, unused-ignore]
    accepted: bool = highs.setOptionValue(key, value) == highspy.HighsStatus.kOk
    return accepted


def list_solvers() -> dict[str, tuple[frozenset[str], str] | None]:
    """Return the arguments and the version of PuLP's solvers by name; None if not installed."""
    warnings.simplefilter("ignore")
    import pulp  # type: ignore[import-untyped, unused-ignore]

    installed = set(pulp.listSolvers(onlyAvailable=True))
    solvers: dict[str, tuple[frozenset[str], str] | None] = {}
    for name in pulp.listSolvers():
        if name == "PULP_CBC_CMD":  # deprecated; its program is run without PuLP
            continue
        solvers[name] = None
        if name in installed:
            constructor = type(pulp.getSolver(name, msg=False)).__init__
            arguments = frozenset(inspect.signature(constructor).parameters)
            solvers[name] = arguments, _version(name)
    return solvers


def _version(solver: str) -> str:
    """Return the version of a solver's distribution; empty for a program without one."""
    try:
        return version(DISTRIBUTIONS.get(solver, solver.lower()))
    except PackageNotFoundError:
        return ""
