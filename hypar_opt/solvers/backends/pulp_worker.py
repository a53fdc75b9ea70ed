"""PuLP in a separate process, into which its solvers' libraries are loaded.

`hypar_opt.solvers.backends.pulp_solvers` starts this file as a program, because the libraries of
highspy and ortools cannot share a process. The question and the answer are JSON files.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

DISTRIBUTIONS = {
    "HiGHS": "highspy",
    "GUROBI": "gurobipy",
    "CPLEX_PY": "cplex",
    "SCIP_PY": "pyscipopt",
}
"""The Python distributions whose names differ from their solver's."""


def answer_question(question_file: str, answer_file: str) -> None:
    """Answer one question: an empty one lists the solvers, any other solves a problem."""
    warnings.simplefilter("ignore")
    question = json.loads(Path(question_file).read_text(encoding="utf-8"))
    try:
        answer = _solve(**question) if question else _list_solvers()
    except Exception as error:  # any error that a library raises is the answer
        answer = {"error": f"{type(error).__name__}: {error}"}
    Path(answer_file).write_text(json.dumps(answer), encoding="utf-8")


def _solve(
    solver: str,
    model: str,
    arguments: dict[str, Any],
    parameters: dict[str, str],
    start: dict[str, float],
) -> dict[str, Any]:
    """Solve an MPS file with one of PuLP's solvers.

    Parameters
    ----------
    solver
        Its name in PuLP.
    model
        The MPS file.
    arguments
        Arguments of the solver's PuLP constructor; a time limit counts from now.
    parameters
        The user's own parameters, which are also among the `arguments`.
    start
        A warm start: values of columns.

    Returns
    -------
    dict
        ``status`` and ``solution``, as PuLP names them; ``seconds``, reading included;
        ``values`` of the columns, None without a solution; ``bound``, None if not known.
    """
    started = time.monotonic()

    # Imported after the clock has started, since loading counts towards the limit.
    import pulp  # type: ignore[import-untyped, unused-ignore]

    for key, text in parameters.items():
        if solver == "HiGHS" and not _is_highs_parameter(key, text):
            return {"error": f"it takes no parameter {key}={text}"}
    columns, problem = pulp.LpProblem.fromMPS(model)
    os.chdir(Path(model).parent)  # some solvers write files to the current directory
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
    return {
        "status": pulp.LpStatus[status],
        "solution": pulp.LpSolution[problem.sol_status],
        "seconds": seconds,
        "values": values if has_solution else None,
        "bound": _bound(solver, problem),
    }


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


def _list_solvers() -> dict[str, Any]:
    """Return the arguments and the version of PuLP's solvers by name; None if not installed."""
    import pulp  # type: ignore[import-untyped, unused-ignore]

    installed = set(pulp.listSolvers(onlyAvailable=True))
    solvers: dict[str, Any] = {}
    for name in pulp.listSolvers():
        if name == "PULP_CBC_CMD":  # deprecated; its program is run without PuLP
            continue
        solvers[name] = None
        if name in installed:
            constructor = type(pulp.getSolver(name, msg=False)).__init__
            arguments = list(inspect.signature(constructor).parameters)
            solvers[name] = {"arguments": arguments, "version": _version(name)}
    return solvers


def _version(solver: str) -> str:
    """Return the version of a solver's distribution; empty for a program without one."""
    try:
        return version(DISTRIBUTIONS.get(solver, solver.lower()))
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    answer_question(*sys.argv[1:])
