"""A backend, a call of it, and its answer: what all backends share."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hypar_opt.deadline import Deadline
from hypar_opt.solvers.base import SolverOptions


@dataclass(frozen=True)
class Backend:
    """A program that solves integer programs.

    Parameters
    ----------
    name
        The name of PuLP's solver; ``cbc`` for the program that PuLP bundles.
    version
        Empty if unknown.
    constructor_arguments
        The arguments of its PuLP constructor; none for ``cbc``, which is run without PuLP.
    supported_options
        The names of the `SolverOptions` that it supports.
    """

    name: str
    version: str
    constructor_arguments: frozenset[str]
    supported_options: frozenset[str]


@dataclass(frozen=True)
class BackendCall:
    """A problem to minimise, with its options and deadline.

    Parameters
    ----------
    directory
        A `private_directory`, in which the problem is.
    costs
        The cost of every column.
    options
        Their time limit is not used; ``deadline`` has the time left.
    start
        A warm start: values of all binary columns; empty for none.
    """

    backend: Backend
    directory: Path
    costs: Mapping[str, int]
    options: SolverOptions
    start: Mapping[str, int]
    deadline: Deadline

    @property
    def model(self) -> Path:
        """The problem, a free MPS file."""
        return self.directory / "model.mps"


@dataclass(frozen=True)
class BackendAnswer:
    """A backend's claims; the objective and the bounds are those of the problem in its file.

    Parameters
    ----------
    values
        The columns' values; None without a solution.
    proven
        Whether the search was exhausted: with values, they are optimal at a gap of 0; without,
        the problem is infeasible. A claim, like all of these.
    bound
        A lower bound on the objective.
    root_bound
        The optimum of the linear relaxation.
    stopped_by
        The limit that ended the search.
    version
        The backend's version.
    """

    values: Mapping[str, float] | None
    objective: float | None = None
    proven: bool = False
    bound: float | None = None
    root_bound: float | None = None
    stopped_by: str | None = None
    version: str = ""


@cache
def load_pulp() -> Any:
    """Return PuLP without HiGHS, a copy of our own unless a caller has imported it already.

    With PuLP comes highspy, beside which a process can no longer load OR-Tools. A caller's own
    import is not ours, and has HiGHS.
    """
    if "pulp" in sys.modules or "highspy" in sys.modules:
        return importlib.import_module("pulp")
    sys.modules["highspy"] = None  # type: ignore[assignment]  # importing it fails
    try:
        return importlib.import_module("pulp")
    finally:
        for name in [
            "highspy",
            *(module for module in sys.modules if module.partition(".")[0] == "pulp"),
        ]:
            sys.modules.pop(name, None)
