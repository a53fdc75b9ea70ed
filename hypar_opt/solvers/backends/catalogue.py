"""The installed backends, and the one that the options name."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from hypar_opt.errors import HyparError, RefusedError, UnknownNameError
from hypar_opt.solvers.backends.base import Backend
from hypar_opt.solvers.backends.cbc import cbc_program, cbc_version
from hypar_opt.solvers.backends.dialects import DIALECTS, BackendDialect
from hypar_opt.solvers.backends.pulp_worker import list_solvers
from hypar_opt.solvers.backends.tuning import check_parameters
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.process import CallError, call, private_directory

CBC_OPTIONS = frozenset(
    {
        "backend",
        "export",
        "gap",
        "log",
        "parameters",
        "seed",
        "threads",
        "time_limit",
        "warm_start",
    }
)
"""The `SolverOptions` that CBC supports; no backend supports more."""


def find_backend(options: SolverOptions) -> Backend:
    """Return the backend that the options name.

    A name may lack its suffix: ``gurobi`` is the first installed of PuLP's GUROBI and
    GUROBI_CMD.

    Raises
    ------
    UnknownNameError
        If PuLP knows no such solver.
    RefusedError
        If it is not installed, or does not support an option or a parameter.
    """
    requested = (options.backend or "cbc").lower()
    if requested == "cbc":
        # The default is not looked up: to list all backends takes a second.
        check_parameters("cbc", options.parameters)
        return Backend("cbc", "", frozenset(), CBC_OPTIONS)
    catalogue = _catalogue()
    # PuLP has up to three interfaces to one solver: a library, a program and a DLL.
    names = [
        name
        for name in catalogue
        if re.fullmatch(f"{re.escape(requested)}(_(cmd|py|dll))?", name.lower())
    ]
    if not names:
        raise UnknownNameError("backend", requested, list(catalogue))
    backend = next((catalogue[name] for name in names if catalogue[name]), None)
    if backend is None:
        installed_names = ", ".join(name for name, installed in catalogue.items() if installed)
        raise RefusedError(f"needs {names[0]}, not installed; available: {installed_names}")
    refused = options.given() - backend.supported_options
    if refused:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(refused))
        raise RefusedError(f"with the backend {backend.name} takes no {named}")
    check_parameters(backend.name, options.parameters)
    return backend


def installed_backends() -> list[Backend]:
    """Return the backends that can be used here, CBC first."""
    return [backend for backend in _catalogue().values() if backend is not None]


@functools.cache
def _catalogue() -> Mapping[str, Backend | None]:
    """Return PuLP's backends by name; None for those that are not installed."""
    # PuLP imports the library of every solver that it lists, so another process does that.
    try:
        with private_directory() as directory:
            solvers = call(directory, list_solvers)
            cbc = cbc_program()
            printed = cbc_version(cbc, directory) if cbc else ""
    except CallError as error:
        raise HyparError(f"PuLP cannot list its solvers: {error}") from None
    catalogue = {"cbc": Backend("cbc", printed, frozenset(), CBC_OPTIONS) if cbc else None}
    for name, solver in solvers.items():
        catalogue[name] = None
        if solver:
            arguments, version = solver
            supported = DIALECTS.get(name, BackendDialect()).supported_options(arguments)
            catalogue[name] = Backend(name, version, arguments, supported)
    return catalogue
