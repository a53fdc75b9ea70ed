"""A call in a separate process, for a library that cannot be loaded into this one.

OR-Tools and highspy each bring a build of HiGHS under the same name. A process that has loaded
either cannot load the other.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Any, TypeVar

from hypar_opt.errors import HyparError, RefusedError
from hypar_opt.solvers.base import Solver, SolveResult, SolverOptions

Result = TypeVar("Result")

_PROGRAM = "from hypar_opt.solvers.apart import _main; _main()"


def solve(solver: Solver, table: Any, options: SolverOptions) -> SolveResult:
    """Solve a table, in another process if this one cannot load the solver's library.

    Raises
    ------
    HyparError
        If the library cannot be loaded there either; and as the solver does.
    RefusedError
        If another package's solver fails.
    """
    return call(_solved, solver, table, options)


def call(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function, in another process if this one cannot load a library that it needs.

    Raises
    ------
    HyparError
        If the library cannot be loaded there either; and as the function does.
    """
    try:
        return function(*arguments)
    except ImportError:
        # Its import is what failed: nothing has been computed yet.
        done = subprocess.run(
            # -P: the current folder, which the program would search first, may hold anything.
            [sys.executable, "-P", "-c", _PROGRAM],
            input=pickle.dumps((function, arguments)),
            capture_output=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise HyparError(f"the solver's library cannot be loaded: {last}")
    answer: Result | HyparError = pickle.loads(done.stdout)
    if isinstance(answer, HyparError):
        raise answer
    return answer


def _solved(solver: Solver, table: Any, options: SolverOptions) -> SolveResult:
    """Return a solver's result; what one of another package prints goes to standard error.

    Raises
    ------
    RefusedError
        If such a one fails, or returns no result; the search prefixes its name.
    """
    if type(solver).__module__.startswith("hypar_opt."):
        return solver.solve(table, options)
    try:
        with redirect_stdout(sys.stderr):
            result: object = solver.solve(table, options)
    except (HyparError, MemoryError, ImportError):
        raise
    except (Exception, SystemExit) as error:
        raise RefusedError(f"failed: {type(error).__name__}: {error}") from error
    if not isinstance(result, SolveResult):
        kind = type(result).__name__
        raise RefusedError(f"failed: its solve should return a SolveResult, got {kind}")
    return result


def _main() -> None:
    """Call what is on standard input; print the result, or the error, pickled."""
    function, arguments = pickle.load(sys.stdin.buffer)
    # What the library prints goes to standard error.
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)
        output.write(pickle.dumps(_answer(function, arguments)))


def _answer(function: Callable[..., Result], arguments: Sequence[Any]) -> Result | HyparError:
    try:
        return function(*arguments)
    except HyparError as error:
        return error
