"""Run programs for a parent process, and clean up when the parent ends.

`SolverProcess` starts this file as a separate program, without site packages, so that it runs
within a few hundredths of a second: nothing of this package can be imported here. The parent holds
the other end of standard input. Whatever ends the parent, be it Ctrl-C, SIGTERM or SIGKILL, also
closes that pipe; the supervisor then kills the running program and removes the parent's directory.

A line of input is JSON: the parent's directory; a job, ``[command, log file, seconds or null]``;
``null`` for no more jobs in that directory, which is then removed; or ``"end"``. A line of output
is a job's exit status, ``null`` if its program had to be killed, or that of the removal, 0.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

COMMAND_NOT_FOUND = 127
"""The exit status by which a shell reports a program that it could not start."""


def supervise() -> None:
    """Run jobs one by one; at the end of the input, kill the last and remove its directory."""
    program: subprocess.Popen[bytes] | None = None
    directory: str | None = None
    for line in sys.stdin:
        job = json.loads(line)
        if job == "end":
            break
        if isinstance(job, str):
            directory = job
            continue
        if job is None:
            _clean_up(program, directory)
            program, directory = None, None
            _write_status(0)
            continue
        command, log, seconds = job
        program = _start(command, Path(log))
        if program is None:
            _write_status(COMMAND_NOT_FOUND)
        else:
            # A thread waits for it, so that this one sees the end of the input meanwhile.
            threading.Thread(target=_await, args=(program, seconds), daemon=True).start()
    _clean_up(program, directory)


def _clean_up(program: subprocess.Popen[bytes] | None, directory: str | None) -> None:
    # It may have ended already, but its child processes may not.
    if program is not None:
        _kill(program)
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes] | None:
    """Start a program with its output in a log; if that fails, log the reason and return None."""
    with log.open("wb") as output:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a process group, which is killed as one
            )
        except OSError as error:
            output.write(f"{command[0]}: {error.strerror}\n".encode())
            return None


def _await(program: subprocess.Popen[bytes], seconds: float | None) -> None:
    """Write the program's exit status once it ends, or null once its time is up."""
    try:
        status: int | None = program.wait(seconds)
    except subprocess.TimeoutExpired:
        _kill(program)
        status = None
    _write_status(status)


def _write_status(status: int | None) -> None:
    """Write a line with the exit status, null for a killed program, to the parent."""
    # Unbuffered, since this thread may end with the interpreter; the parent may have ended.
    with contextlib.suppress(OSError):
        os.write(1, f"{json.dumps(status)}\n".encode())


def _kill(program: subprocess.Popen[bytes]) -> None:
    """Kill a program and all that it started."""
    if sys.platform == "win32":
        program.kill()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(program.pid, signal.SIGKILL)
    program.wait()


if __name__ == "__main__":
    supervise()
