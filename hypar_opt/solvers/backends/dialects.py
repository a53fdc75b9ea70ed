"""The ways to pass parameters to PuLP's solvers that their constructors have no argument for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Parameters = Mapping[str, Any]
"""A backend's own parameters by name."""


def as_pairs(parameters: Parameters) -> dict[str, Any]:
    """Return parameters as ``options``, a list of pairs."""
    return {"options": list(parameters.items())}


def as_mapping(parameters: Parameters) -> dict[str, Any]:
    """Return parameters as ``options``, a dictionary."""
    return {"options": dict(parameters)}


def as_text(pattern: str) -> Callable[[Parameters], dict[str, Any]]:
    """Return a function that formats parameters as ``options``, strings of this pattern."""

    def formatted(parameters: Parameters) -> dict[str, Any]:
        return {"options": [pattern.format(*pair) for pair in parameters.items()]}

    return formatted


@dataclass(frozen=True)
class BackendDialect:
    """How a solver is passed parameters, and its names for those that our options set.

    Parameters
    ----------
    to_arguments
        Turns parameters into arguments of PuLP's constructor; None if it accepts none.
    seed, threads
        The parameters' names; empty if there is none, or PuLP has an argument for it.
    gap
        The parameter of the relative gap, if PuLP would not pass on a gap of 0.
    """

    to_arguments: Callable[[Parameters], dict[str, Any]] | None = None
    seed: str = ""
    threads: str = ""
    gap: str = ""

    def supported_options(self, constructor_arguments: frozenset[str]) -> frozenset[str]:
        """Return the `SolverOptions` that can be passed on through PuLP's constructor."""
        # PuLP silently ignores an option without an argument; it is refused instead.
        supported = {
            "gap": "gapRel" in constructor_arguments or self.gap,
            "parameters": self.to_arguments,
            "seed": self.seed,
            "threads": "threads" in constructor_arguments or self.threads,
            "time_limit": "timeLimit" in constructor_arguments,
            "warm_start": "warmStart" in constructor_arguments,
        }
        # Our own files need no support from a backend.
        always = {"backend", "export", "log"}
        return frozenset(always | {name for name, support in supported.items() if support})


DIALECTS: Mapping[str, BackendDialect] = {
    "COIN_CMD": BackendDialect(as_text("{} {}"), seed="randomSeed"),
    "HiGHS": BackendDialect(dict, seed="random_seed"),
    "HiGHS_CMD": BackendDialect(as_text("{}={}"), seed="random_seed"),
    "GUROBI": BackendDialect(dict, seed="Seed", threads="Threads", gap="MIPGap"),
    "GUROBI_CMD": BackendDialect(as_pairs, seed="Seed"),
    "CPLEX_PY": BackendDialect(),
    "CPLEX_CMD": BackendDialect(as_text("set {} {}"), seed="randomseed"),
    "SCIP_PY": BackendDialect(as_text("{}={}"), seed="randomization/randomseedshift"),
    "SCIP_CMD": BackendDialect(as_text("{}={}"), seed="randomization/randomseedshift"),
    "XPRESS_PY": BackendDialect(as_text("{}={}")),
    "XPRESS_CMD": BackendDialect(as_text("{}={}")),
    "COPT": BackendDialect(dict, threads="Threads", gap="RelGap"),
    "MOSEK": BackendDialect(as_mapping, gap="MSK_DPAR_MIO_TOL_REL_GAP"),
    "GLPK_CMD": BackendDialect(),
}
"""Solvers whose claim of an optimum is accepted, since at a gap of 0 they close the gap.

PuLP's other solvers may be called too, but their results are feasible, never optimal.
"""
