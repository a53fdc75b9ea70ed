"""Ctrl-C, killed processes and full disks end a run in a line or without a word."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

import hypar_opt as ho
from hypar_opt import deadline
from hypar_opt.cli import app
from hypar_opt.errors import HyparError
from hypar_opt.solvers import process
from hypar_opt.solvers.backends import cbc
from tests.commands import ended


def interrupting(module: str, solver: str = "cpsat") -> str:
    """A program that is interrupted as it imports a module, and is the command line."""
    return f"""
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = ["solve", "sfc", "--levels", "1", "--solver", {solver!r}]
from hypar_opt.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("module", "status"),
    [("typer", -signal.SIGINT), ("numpy", 130), ("ortools", 130)],
)
def test_ctrl_c_ends_the_command_without_a_word_also_while_it_is_loaded(
    module: str, status: int
) -> None:
    done = ended(sys.executable, "-c", interrupting(module), status=status)
    assert (done.stdout, done.stderr) == ("", "")


def test_little_is_imported_before_ctrl_c_is_handled() -> None:
    # Before that, Python itself prints a traceback.
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import hypar_opt.__main__\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    env = {"PYTHONPATH": str(Path(ho.__file__).parent.parent)}
    done = ended(sys.executable, "-S", "-c", program, env=env)
    early = set(done.stdout.split())
    assert {name for name in early if name.startswith("hypar_opt")} == {
        "hypar_opt",
        "hypar_opt.__main__",
    }
    assert not early & {"dataclasses", "importlib", "inspect", "re", "typing"}


def test_what_an_import_makes_of_ctrl_c_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(args: list[str]) -> NoReturn:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("an extension cannot be initialised") from None
        raise AssertionError

    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        monkeypatch.setattr(app, "run", interrupted)
        assert app._until_interrupted([]) == 130
        monkeypatch.setattr(app, "run", lambda args: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            app._until_interrupted([])
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        + interrupting("numpy", "dp")  # as behind nohup
    )
    assert ended(sys.executable, "-c", program).stderr == ""


def no_room(*_: object) -> Iterator[str]:
    yield "NAME"
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("backend", ["cbc", "highs"])
def test_a_temporary_directory_without_room_is_named(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend == "highs" and find_spec("highspy") is None:
        pytest.skip("needs highspy, which this process must not load")
    monkeypatch.setattr("hypar_opt.solvers.ilp.minimise.mps_lines", no_room)
    options = ho.SolverOptions(backend=backend)
    with pytest.raises(HyparError, match=r"hypar-opt-\w+: No space left on device; .* set TMPDIR"):
        ho.solve("sfc", solver="ilp", options=options)


def cbc_that_writes(said: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace cbc by a program that writes a solution of its own."""
    program = folder / "cbc"
    program.write_text(f'#!/bin/sh\nfor last; do :; done\nprintf "{said}" > "$last"\n')
    program.chmod(0o700)
    monkeypatch.setattr(cbc, "cbc_program", lambda: str(program))


@pytest.mark.parametrize("left", ["", "Optimal - objective value 3\n      0 x", "\n"])
def test_a_solution_that_cbc_could_not_write_whole_is_no_answer(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cbc_that_writes(left, tmp_path, monkeypatch)
    with pytest.raises(HyparError, match="cbc could not write its solution there; set TMPDIR"):
        ho.solve("sfc", solver="ilp")


def test_without_a_time_limit_none_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cbc_that_writes("Stopped on difficulties - objective value 0\\n", tmp_path, monkeypatch)
    plan = ho.solve("sfc", solver="ilp")
    assert plan.solver.stopped_by == "difficulties"
    assert plan.solver.found_by is not None


def test_a_simplex_that_the_time_limit_ends_is_ended_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CBC then blames iterations."""
    cbc_that_writes("Stopped on iterations - objective value 0\\n", tmp_path, monkeypatch)
    now = 0.0
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: now))

    def run_for_two_seconds(command: list[str], directory: Path, _: object) -> int:
        nonlocal now
        now += 2
        return process.run(command, directory)

    monkeypatch.setattr(cbc, "run", run_for_two_seconds)
    plan = ho.solve("sfc", solver="ilp", options={"time_limit": 3})
    assert plan.solver.stopped_by == "time limit"


def test_no_temporary_directory_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: Any) -> NoReturn:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/x']")

    monkeypatch.setattr("tempfile.mkdtemp", nowhere)
    with pytest.raises(HyparError, match=r"no temporary directory: .*; set TMPDIR"):
        ho.solve("sfc", solver="ilp")
