"""Run programs for a parent process, and leave nothing behind when the parent ends.

`SolverProcess` starts this file as a program of its own, without site packages, so that it is
there in a few hundredths of a second: nothing of this package can be imported here. The parent
holds the other end of standard input. Whatever ends the parent, be it Ctrl-C, SIGTERM or
SIGKILL, also ends that pipe, and then the program at work and the parent's directory.

A line of input is a job in JSON, ``[command, log file, seconds or null]``, or ``null`` for no
more jobs. A line of output is the job's exit status, ``null`` if its program had to be killed.
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
"""The exit status by which a shell says that a program could not be started."""


def supervise(directory: str) -> None:
    """Run one job after another; at the end of the input, end the last and the directory."""
    program: subprocess.Popen[bytes] | None = None
    for line in sys.stdin:
        job = json.loads(line)
        if job is None:
            break
        command, log, seconds = job
        program = _start(command, Path(log))
        if program is None:
            _write_status(COMMAND_NOT_FOUND)
        else:
            # A thread waits for it: the end of the input has to be seen meanwhile.
            threading.Thread(target=_await, args=(program, seconds), daemon=True).start()
    # It may have ended already; what it started may not.
    if program is not None:
        _kill(program)
    shutil.rmtree(directory, ignore_errors=True)


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes] | None:
    """Start a program with its output in a log; None, and the reason there, if it cannot be."""
    with log.open("wb") as output:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own, which is killed as one
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
    # Unbuffered, since this thread may die with the interpreter; and the parent may be gone.
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
    supervise(sys.argv[1])
