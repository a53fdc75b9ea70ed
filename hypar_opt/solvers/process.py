"""Programs, and calls of functions in another Python, that do not outlive this process."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hypar_opt.errors import HyparError

Result = TypeVar("Result")

_GUARD = 'read _; rm -rf -- "$0"; kill -9 0'
"""A shell script: at the end of its input, remove a directory and kill the process group."""

_CALL = "from hypar_opt.solvers.process import _answer_call; _answer_call()"


class CallError(Exception):
    """A function in another process raised an error that is not ours, or ended the process."""


@contextlib.contextmanager
def private_directory() -> Iterator[Path]:
    """Make a directory for the files of programs, which is removed at the end.

    Raises
    ------
    HyparError
        If there can be none, or it has no room.
    """
    try:
        directory = tempfile.TemporaryDirectory(prefix="hypar-opt-", ignore_cleanup_errors=True)
    except OSError as error:
        raise HyparError(f"no temporary directory: {error.strerror}; set TMPDIR") from None
    try:
        with directory as name:
            yield Path(name)
    except OSError as error:
        raise HyparError(
            f"{directory.name}: {error.strerror}; a solver's files are written there: set TMPDIR to"
            " a directory with room"
        ) from None


def log_of(directory: Path) -> Path:
    """Return the file of what the last program of a directory wrote to its output and error."""
    return directory / "log"


def run(
    command: list[str],
    directory: Path,
    seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run a program, and end all that it has started; return its exit status.

    Ctrl-C in the terminal reaches this process alone, which then ends the program.

    Parameters
    ----------
    directory
        A `private_directory`, for its log.
    seconds
        None for no limit.
    environment
        None for that of this process.

    Raises
    ------
    subprocess.TimeoutExpired
        If it had to be killed.
    HyparError
        If it cannot be started.
    """
    with log_of(directory).open("wb") as log, _process_group(directory) as group:
        try:
            program = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                process_group=group,
            )
        except OSError as error:
            raise HyparError(f"{command[0]}: {error.strerror}") from None
        try:
            return program.wait(seconds)
        finally:
            program.kill()
            program.wait()


@contextlib.contextmanager
def _process_group(directory: Path) -> Iterator[int | None]:
    """Start a process group, which is killed at the end, or as soon as this process ends."""
    if sys.platform == "win32":  # has none
        yield None
        return
    with subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, str(directory)], stdin=subprocess.PIPE, process_group=0
    ) as guard:
        try:
            yield guard.pid
        finally:
            os.killpg(guard.pid, signal.SIGKILL)


def call(
    directory: Path,
    function: Callable[..., Result],
    *arguments: Any,
    seconds: float | None = None,
) -> Result:
    """Call a function in another Python.

    Parameters
    ----------
    directory
        A `private_directory` for this call alone; its log is what the function prints.
    function
        One that can be pickled, as its arguments and its result.
    seconds
        None for no limit.

    Raises
    ------
    subprocess.TimeoutExpired
        If it had to be killed.
    CallError
        If it raises an error other than a HyparError, which is raised as it is; or crashes.
    """
    question, answer = directory / "call", directory / "answer"
    question.write_bytes(pickle.dumps((function, arguments)))
    # -P: the current folder, which Python would search first, may hold anything.
    command = [sys.executable, "-P", "-c", _CALL, str(question), str(answer)]
    path = os.pathsep.join(filter(None, sys.path))
    status = run(command, directory, seconds, {**os.environ, "PYTHONPATH": path})
    if not answer.exists():
        raise CallError(f"it ended with status {status}")
    result: Result | Exception = pickle.loads(answer.read_bytes())
    if isinstance(result, Exception):
        raise result
    return result


def _answer_call() -> None:
    """Call what is in one file, and write its result, or its error, to another."""
    question, answer = map(Path, sys.argv[1:])
    try:
        function, arguments = pickle.loads(question.read_bytes())
        result = pickle.dumps(function(*arguments))
    except HyparError as error:
        result = pickle.dumps(error)
    except Exception as error:  # of a library, which this process may be unable to load
        result = pickle.dumps(CallError(f"{type(error).__name__}: {error}"))
    part = answer.with_suffix(".part")
    part.write_bytes(result)
    part.rename(answer)  # which is whole, though the disk may be full
