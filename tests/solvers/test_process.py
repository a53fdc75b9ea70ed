"""What is started in another process ends with it, with its time, or with the process itself."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from hypar_opt.errors import HyparError, RefusedError
from hypar_opt.solvers.process import CallError, call, log_of, private_directory, run
from tests.clocks import until
from tests.commands import marked

BUSY = ["sh", "-c", "sleep 1000 & echo $$; exec sleep 1000"]
"""A program that has started another."""


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """A variable of all that is started, by which it is found."""
    value = str(uuid4())
    monkeypatch.setenv("HYPAR_MARK", value)
    return f"HYPAR_MARK={value}"


def test_a_program_has_a_log_and_a_status_and_leaves_nothing(mark: str) -> None:
    with private_directory() as directory:
        assert run(["sh", "-c", "echo one; echo two >&2; sleep 1000 & exit 3"], directory) == 3
        assert log_of(directory).read_text() == "one\ntwo\n"
        until(lambda: not marked(mark))
        assert run(["sh", "-c", "kill -9 $$"], directory) == -signal.SIGKILL
        assert log_of(directory).read_text() == ""
    assert not directory.exists()


def test_a_deadline_ends_a_program_and_what_it_started(mark: str) -> None:
    with private_directory() as directory:
        with pytest.raises(subprocess.TimeoutExpired):
            run(BUSY, directory, 0.1)
        until(lambda: not marked(mark))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_program_ends_with_the_process_that_runs_it(
    sent: signal.Signals, mark: str, tmp_path: Path
) -> None:
    code = (
        "import signal\n"
        "from hypar_opt.solvers.process import private_directory, run\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"with private_directory() as directory: run({BUSY!r}, directory)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    until(lambda: [log for log in tmp_path.glob("hypar-opt-*/log") if log.read_text()])
    parent.send_signal(sent)
    parent.wait()
    until(lambda: not marked(mark))
    assert not [*tmp_path.iterdir()]


def test_a_program_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    with private_directory() as directory, pytest.raises(HyparError, match="none: No such file"):
        run([str(tmp_path / "none")], directory)
    assert not directory.exists()


def test_a_function_is_called_in_another_process() -> None:
    with private_directory() as directory:
        assert call(directory, divmod, 7, 3) == (2, 1)
    with private_directory() as directory:
        assert call(directory, os.getppid) == os.getpid()
    with private_directory() as directory, pytest.raises(subprocess.TimeoutExpired):
        call(directory, time.sleep, 1000, seconds=0.5)


REFUSES = """
from hypar_opt.errors import RefusedError
print("on the way")
raise RefusedError("takes no such thing")
"""


@pytest.mark.parametrize(
    ("function", "argument", "error", "message"),
    [
        (exec, REFUSES, RefusedError, "takes no such thing"),
        (exec, "raise LookupError('nowhere')", CallError, "LookupError: nowhere"),
        (os._exit, 7, CallError, "it ended with status 7"),
    ],
)
def test_an_error_in_another_process_is_raised_in_this_one(
    function: Callable[[Any], None],
    argument: Any,
    error: type[Exception],
    message: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with private_directory() as directory:
        with pytest.raises(error, match=f"^{message}$"):
            call(directory, function, argument)
        assert log_of(directory).read_text() == ("on the way\n" if argument is REFUSES else "")
    assert capfd.readouterr() == ("", "")


def test_a_directory_without_room_is_named() -> None:
    told = r"hypar-opt-\w+: No space left .*: set TMPDIR"
    with pytest.raises(HyparError, match=told), private_directory():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
