"""A private directory and one program at a time in it; both end when this process ends."""

from __future__ import annotations

import contextlib
import json
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
    """Runs programs of solvers, under a supervisor that outlives this process.

    A program gets a session of its own: a Ctrl-C in the terminal reaches this process alone,
    which then ends the program in its own time.

    Attributes
    ----------
    directory
        For the programs' files; removed at the end.
    log
        What the last program wrote to its standard output and error.

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
        # Isolated and without site packages it starts quickly, while we go on.
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SUPERVISOR), str(self.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def run(self, command: list[str], seconds: float | None = None) -> int | None:
        """Run a program and return its exit status; None if it had to be killed.

        Parameters
        ----------
        command
            The program and its arguments.
        seconds
            When to kill it; None for never.

        Raises
        ------
        HyparError
            If the supervisor itself was killed.
        """
        assert self._supervisor.stdout is not None
        answer = ""
        with contextlib.suppress(OSError):
            self._write_job([command, str(self.log), seconds])
            answer = self._supervisor.stdout.readline()
        # The end of the pipe, and not an empty line: the supervisor is gone.
        if not answer:
            raise HyparError("the process that keeps the solver's program was killed; run it again")
        status: int | None = json.loads(answer)
        return status

    def _write_job(self, job: list[object] | None) -> None:
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.write(json.dumps(job) + "\n")
        self._supervisor.stdin.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        with contextlib.suppress(OSError):
            # Closing the pipe may not be enough: a fork of this process may hold it open.
            self._write_job(None)
        with contextlib.suppress(OSError):
            self._supervisor.stdin.close()
        self._supervisor.stdout.close()
        self._supervisor.wait()
