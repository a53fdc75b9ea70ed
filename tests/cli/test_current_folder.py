"""Commands in a folder of somebody's: what lies there is read where it is named, never run."""

from __future__ import annotations

import os
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.cli.shell import COMMAND
from tests.commands import ended
from tests.slow import slow_after

POISON = (
    'open("RAN", "a").write(f"{__name__} in {__import__(chr(115) + chr(121) + chr(115)).argv}\\n")'
)
SPEC = 'networks = ["lenet-c"]\nbatches = [16, 32]\nlevels = [1]\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module of each name that anything here could import."""
    names = {*sys.stdlib_module_names, *packages_distributions(), "hypar_opt"}
    for name in names:
        if name.isidentifier():
            (tmp_path / f"{name}.py").write_text(POISON)
    (tmp_path / "sweep.toml").write_text(SPEC)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    slow_after(
        2,
        [
            # One of the two libraries is loaded into another process.
            "doctor highs cut cpsat",
            "sweep sweep.toml -o table.csv --workers 2",
            "solve sfc --solver ilp --backend highs",
        ],
    ),
)
def test_no_module_of_the_current_folder_is_imported(command: str, folder: Path) -> None:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    ended(COMMAND, *command.split(), cwd=folder, env=plain)
    ran = folder / "RAN"
    assert not ran.exists(), ran.read_text()
