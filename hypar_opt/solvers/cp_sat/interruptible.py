"""Run CP-SAT so that Ctrl-C ends it, and so does a time limit that it overlooks."""

from __future__ import annotations

from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from hypar_opt.deadline import with_grace

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpSolver


def solve_interruptibly(solver: CpSolver, model: Any, seconds: float | None) -> None:
    """Solve a model; the response is in the solver.

    Python handles a signal only in its main thread and between its own instructions, so the
    search runs in a thread of its own.

    Parameters
    ----------
    seconds
        The time limit; None for none.

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C came during the search, which has ended by then.
    """
    if seconds is not None:
        solver.parameters.max_time_in_seconds = seconds
    begun, ended = Event(), Event()

    def search() -> None:
        begun.set()
        try:
            solver.solve(model)
        finally:
            ended.set()

    try:
        # A daemon, so that a search that does not stop cannot keep the process from ending.
        Thread(target=search, daemon=True).start()
        ended.wait(with_grace(seconds))
    finally:
        # A signal may come while the thread starts. The thread is always awaited: a process
        # that ends while CP-SAT still runs is aborted.
        if begun.wait(1.0):
            # Repeated, since a stop that comes before CP-SAT itself has started is lost.
            while not ended.wait(0.01):
                solver.stop_search()
