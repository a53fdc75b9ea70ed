"""The command line in this process and in others."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hypar_opt.cli.app import run
from hypar_opt.cli.schemas import document_type

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

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        # Of the shell that runs the tests: output is as wide as in a pipe.
        monkeypatch.delenv("COLUMNS", raising=False)

    def __call__(self, *call: object, piped: str | bytes = "") -> tuple[int, str, str]:
        """Return the exit status, and what was written to the two streams."""
        data = piped.encode() if isinstance(piped, str) else piped
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        status = run([*map(str, call)])
        said = self._capsys.readouterr()
        return status, said.out, said.err

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
