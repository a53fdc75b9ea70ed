"""A call in a separate process, for a library that cannot be loaded into this one.

OR-Tools and highspy each bring a build of HiGHS under the same name. A process that has loaded
either cannot load the other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from typing import Any, TypeVar

from hypar_opt.errors import HyparError, RefusedError
from hypar_opt.solvers import process
from hypar_opt.solvers.base import Solver, SolveResult, SolverOptions

Result = TypeVar("Result")


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
    with suppress(ImportError):  # its import is what failed: nothing has been computed yet
        return function(*arguments)
    try:
        with process.private_directory() as directory:
            return process.call(directory, function, *arguments)
    except process.CallError as error:
        raise HyparError(f"the solver's library cannot be loaded: {error}") from None


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
