"""A private directory in which one program runs at a time; neither outlives this process."""

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
    """Runs solvers' programs, under a supervisor that outlives this process to clean up.

    A program has a session of its own: Ctrl-C in the terminal reaches this process alone,
    which then ends the program.

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
        # Isolated (-I) and without site packages (-S) it starts in hundredths of a second, while
        # this process goes on.
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
            Kill it after this time; None for no limit.

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
        # End of file, not an empty line: the supervisor has ended.
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
        # A broken pipe is no error here: `run` reports a supervisor that was killed.
        with contextlib.suppress(OSError):
            # Closing the pipe may not suffice: a fork of this process may hold it open.
            self._write_job(None)
        with contextlib.suppress(OSError):
            self._supervisor.stdin.close()
        self._supervisor.stdout.close()
        self._supervisor.wait()
