"""A private directory in which one program runs at a time; neither outlives this process."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from types import TracebackType

_SUPERVISOR = Path(__file__).with_name("supervisor.py")


class SolverProcess:
    """Runs solvers' programs under a supervisor that outlives this process to clean up.

    A program has its own session: Ctrl-C in the terminal reaches only this process, which then
    ends the program.

    Attributes
    ----------
    directory
        For the programs' files; removed at the end.
    log
        The file of what the last program wrote to its standard output and error.

    Raises
    ------
    HyparError
        If no temporary directory can be made.
    """

    def __init__(self) -> None:
        try:
            self.directory = Path(tempfile.mkdtemp(prefix="hypar-opt-"))
        except OSError as error:
            raise HyparError(f"no temporary directory: {error.strerror}; set TMPDIR") from None
        self.log = self.directory / "log"
        self._supervisor = _supervisor()
        with contextlib.suppress(OSError):  # `run` reports a supervisor that was killed
            self._write(str(self.directory))

    def __enter__(self) -> Self:
        return self

    def run(self, command: list[str], seconds: float | None = None) -> int | None:
        """Run a program and return its exit status; None if it had to be killed.

        Parameters
        ----------
        command
            The program and its arguments.
        seconds
            Kill it after this time; None for no limit.

        Raises
        ------
        HyparError
            If the supervisor itself was killed.
        """
        answer = self._answer([command, str(self.log), seconds])
        # End of file, not an empty line: the supervisor has ended.
        if not answer:
            raise HyparError("the process that supervises the solver was killed; run it again")
        status: int | None = json.loads(answer)
        return status

    def _answer(self, job: list[object] | None) -> str:
        """Return the supervisor's answer to a job; empty if it was killed."""
        assert self._supervisor.stdout is not None
        with contextlib.suppress(OSError):
            self._write(job)
            return self._supervisor.stdout.readline()
        return ""

    def _write(self, job: object) -> None:
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.write(json.dumps(job) + "\n")
        self._supervisor.stdin.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error a program may still run, whose status would answer a later job.
        if error is None and self._answer(None):
            _IDLE.append(self._supervisor)
        else:
            _end(self._supervisor)


_IDLE: list[subprocess.Popen[str]] = []
"""Supervisors without a directory: to start one takes as long as a small program."""

# A fork shares the pipes of its parent's supervisors, and must not write to them.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDLE.clear)


def _supervisor() -> subprocess.Popen[str]:
    while _IDLE:
        idle = _IDLE.pop()
        if idle.poll() is None:
            return idle
        _end(idle)  # it was killed meanwhile
    # Isolated (-I) and without site packages (-S) it starts in hundredths of a second, while
    # this process goes on.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(_SUPERVISOR)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )


def _end(supervisor: subprocess.Popen[str]) -> None:
    assert supervisor.stdin is not None
    assert supervisor.stdout is not None
    # A broken pipe is no error here: `run` reports a supervisor that was killed.
    with contextlib.suppress(OSError):
        # Closing the pipe may not suffice: a fork of this process may hold it open.
        supervisor.stdin.write('"end"\n')
    with contextlib.suppress(OSError):
        supervisor.stdin.close()
    supervisor.stdout.close()
    supervisor.wait()


@atexit.register
def _end_idle() -> None:
    while _IDLE:
        _end(_IDLE.pop())
