"""CP-SAT's parameters: those that this package sets, and those that a user may set."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from hypar_opt.errors import HyparError, argument

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpSolver

    from hypar_opt.solvers.base import SolverOptions

RESERVED = {
    "num_workers": "the option threads",
    "num_search_workers": "the option threads",
    "random_seed": "the option seed",
    "max_time_in_seconds": "the time limit",
    "relative_gap_limit": "the option gap",
    "presolve_inclusion_work_limit": "0: with more, it proves wrong optima (or-tools issue 5293)",
    "fix_variables_to_their_hinted_value": "false: a hint is not a constraint",
    "catch_sigint_signal": "false: Python has the signal",
    "log_search_progress": "the option solver-log",
    "log_to_stdout": f"false: {argument('log', example='FILE')} has the log",
    "log_to_response": f"false: {argument('log', example='FILE')} has the log",
}
"""CP-SAT's parameters that a user may not set by name, and what decides them instead."""


def configured(options: SolverOptions) -> CpSolver:
    """Return CP-SAT's solver with its parameters set from the options.

    Raises
    ------
    HyparError
        If CP-SAT has no such parameter, it is reserved, or takes no such value.
    """
    # Imported late: OR-Tools takes long to load, and most commands do not need it.
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    parameters = solver.parameters
    # Ctrl-C is Python's to handle: `solve_interruptibly` then stops the search.
    parameters.catch_sigint_signal = False
    # Clauses join the linear relaxation: without it a graph of 30 layers takes minutes.
    parameters.linearization_level = 2
    # By default CP-SAT stops at a gap of 1e-4, in doubles.
    parameters.absolute_gap_limit = 0.0
    parameters.relative_gap_limit = options.gap
    # Under a capacity, this part of presolve proves wrong optima: or-tools issue 5293.
    parameters.presolve_inclusion_work_limit = 0
    parameters.log_search_progress = options.log is not None
    parameters.log_to_stdout = False
    _set_parameter(parameters, "num_workers", str(options.threads or 1))
    if options.seed is not None:
        _set_parameter(parameters, "random_seed", str(options.seed))
    for name, text in options.parameters.items():
        if name in RESERVED:
            raise HyparError(f"CP-SAT's {name} is here {RESERVED[name]}")
        _set_parameter(parameters, name, text)
    return solver


def demand_optimum(solver: CpSolver) -> None:
    """Let a search end only at an optimum, even if the options allow a gap."""
    solver.parameters.relative_gap_limit = 0.0
    solver.parameters.absolute_gap_limit = 0.0


def _set_parameter(parameters: Any, name: str, text: str) -> None:
    """Set a field of SatParameters from its text.

    Raises
    ------
    HyparError
        If there is no such field of one value, or the text is no value of it.
    """
    kind = type(getattr(parameters, name, None))
    values: dict[str, Any] = dict(getattr(kind, "__members__", {}))
    if kind is bool:
        values = {"true": True, "false": False}
    numbers: dict[type, Any] = {int: int, float: float}
    # A text parameter could name a file, and debug_ parameters can end the process.
    if name.startswith("debug_") or (not values and kind not in numbers):
        suggestions = get_close_matches(name, dir(parameters), n=1)
        hint = f": did you mean {suggestions[0]}?" if suggestions else ""
        raise HyparError(f"CP-SAT has no parameter {name!r} that takes one value{hint}")
    try:
        setattr(parameters, name, values[text] if values else numbers[kind](text))
    except (KeyError, TypeError, ValueError):
        expected = ", ".join(values) or ("a whole number" if kind is int else "a number")
        raise HyparError(f"CP-SAT's {name} should be {expected}, got {text!r}") from None
