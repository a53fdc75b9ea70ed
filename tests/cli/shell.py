"""The command line in this process and in others."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from _pytest.capture import CaptureIO

from hypar_opt.cli.app import run
from hypar_opt.cli.schemas import document_type
from tests.commands import Done

COMMAND = Path(sys.executable).with_name("hypar-opt")


def hypar(
    *args: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    env = env or {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    return subprocess.run(
        [COMMAND, *args], capture_output=True, text=True, check=False, env=env, cwd=cwd
    )


def piped(line: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell, in which ``hypar`` is the command."""
    line = line.replace("hypar ", f"{COMMAND} ")
    streams = streams or {"capture_output": True}
    return subprocess.run(line, shell=True, text=True, check=False, **streams)


def chain(folder: Path, layers: int) -> Path:
    """Write a network of so many fully-connected layers."""
    text = 'name = "chain"\ninput = { features = 300 }\n'
    for place in range(layers):
        text += f'[[layer]]\nname = "fc{place}"\nkind = "fc"\nunits = {100 + place % 37}\n'
    file = folder / "chain.toml"
    file.write_text(text)
    return file


class Shell:
    """Runs commands in this process, with a text on standard input."""

    def __call__(self, *call: object, piped: str | bytes = "", together: bool = False) -> Done:
        """Run a command.

        Parameters
        ----------
        together
            Whether what it writes to either stream is output, in the order in which it comes.
        """
        data = piped.encode() if isinstance(piped, str) else piped
        out, err = CaptureIO(), CaptureIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", out if together else err)
            status = run([*map(str, call)])
        return Done(status, out.getvalue(), err.getvalue())

    def output(self, *call: object, piped: str = "") -> str:
        """Return what a command prints that has nothing to say beside it."""
        status, out, err = self(*call, piped=piped)
        assert (status, err) == (0, "")
        return out

    def told(self, *call: object) -> tuple[Any, list[str]]:
        """Return the document that a command prints, and the lines on standard error."""
        status, out, err = self(*call, "--json")
        assert status == 0, err
        # What a command prints is what its schema says.
        document_type(str(call[0])).validate_json(out)
        return json.loads(out), err.splitlines()

    def document(self, *call: object) -> Any:
        """Return the document that a command prints."""
        return self.told(*call)[0]

    def refused(self, *call: object, status: int = 2, piped: str | bytes = "") -> str:
        """Return the one line, without the program's name, that refuses a call."""
        ended, out, err = self(*call, piped=piped)
        assert (ended, out) == (status, "")
        assert err.startswith("hypar-opt: ")
        assert err.endswith("\n")
        assert err[:-1].isprintable()
        return err.removeprefix("hypar-opt: ")[:-1]


def command(args: list[str], folder: Path, piped: str = "", *, together: bool = False) -> Done:
    """Run a command in a folder, in this process; its output is as wide as in a pipe."""
    with chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        return Shell()(*args, piped=piped, together=together)


def written(folder: Path, modules: dict[str, str], entry_points: Sequence[str]) -> dict[str, str]:
    """Install a package of others in a folder; return the environment in which it is found."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    info = folder / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text("\n".join(entry_points) + "\n")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}
