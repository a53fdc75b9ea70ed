"""A backend, a call of it, and its answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypar_opt.deadline import Deadline
from hypar_opt.solvers.backends.process import SolverProcess
from hypar_opt.solvers.base import SolverOptions


@dataclass(frozen=True)
class Backend:
    """A program that solves integer programs.

    Parameters
    ----------
    name
        As PuLP has it; ``cbc`` for the program that comes with PuLP.
    version
        Empty where it is not known.
    constructor_arguments
        The arguments of PuLP's constructor; none for ``cbc``, which is run without it.
    supported_options
        The names of the `SolverOptions` that it takes.
    """

    name: str
    version: str
    constructor_arguments: frozenset[str]
    supported_options: frozenset[str]


@dataclass(frozen=True)
class BackendCall:
    """A problem to minimise, and how.

    Parameters
    ----------
    process
        Where the backend's program runs, and its files are.
    problem
        PuLP's.
    options
        Their time limit does not count, but the deadline.
    start
        A warm start: values of all binary columns; empty for none.
    """

    process: SolverProcess
    problem: Any
    options: SolverOptions
    start: Mapping[str, int]
    deadline: Deadline


@dataclass(frozen=True)
class BackendAnswer:
    """A backend's claims; the objective and the bounds are those of PuLP's problem.

    Parameters
    ----------
    values
        Of the columns; None without a solution.
    proven
        Whether the search was exhausted: with values, they are optimal to a gap of 0; without,
        the problem is infeasible.
    bound
        A lower bound on the objective.
    root_bound
        The optimum of the linear relaxation.
    stopped_by
        The limit that ended the search.
    version
        The backend's.
    """

    values: Mapping[str, float] | None
    objective: float | None = None
    proven: bool = False
    bound: float | None = None
    root_bound: float | None = None
    stopped_by: str | None = None
    version: str = ""


def load_pulp() -> Any:
    """Import PuLP, but not the library that it would load for HiGHS.

    Once highspy is loaded, the process can no longer load ortools.
    """
    hide_highs = "pulp" not in sys.modules and "highspy" not in sys.modules
    if hide_highs:
        sys.modules["highspy"] = None  # type: ignore[assignment]  # importing it fails
    try:
        import pulp  # type: ignore[import-untyped, unused-ignore]
    finally:
        if hide_highs:
            del sys.modules["highspy"]
    return pulp
