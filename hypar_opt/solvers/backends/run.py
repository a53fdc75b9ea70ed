"""Minimise a problem with a backend."""

from __future__ import annotations

from hypar_opt.errors import HyparError
from hypar_opt.solvers.backends.base import Backend, BackendAnswer, BackendCall
from hypar_opt.solvers.backends.cbc import run_cbc
from hypar_opt.solvers.backends.pulp_solvers import run_pulp_solver


def run_backend(backend: Backend, call: BackendCall) -> BackendAnswer:
    """Write a problem, and minimise it, from its warm start if it has one.

    Raises
    ------
    RefusedError
        If the backend refuses a parameter.
    HyparError
        If it fails, or the disk is full.
    """
    try:
        with call.model.open("w", encoding="ascii") as file:
            file.writelines(f"{line}\n" for line in call.lines)
        return run_cbc(call) if backend.name == "cbc" else run_pulp_solver(backend, call)
    except OSError as error:
        raise HyparError(
            f"{call.process.directory}: {error.strerror}; a backend's files are written there: set"
            " TMPDIR to a directory with room"
        ) from None
