"""Solvers in a process that has loaded another library's build of HiGHS."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# Looked for and not imported: this process may have to load OR-Tools yet.
pytestmark = pytest.mark.skipif(find_spec("highspy") is None, reason="needs highspy")

SOLVE = """
import hypar_opt as ho
for solver in ("cut", "cpsat"):
    print(ho.solve("resnet-18", levels=1, reading="executed", solver=solver).cost.total)
"""


def printed(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_or_tools_solves_where_highspy_was_imported_first() -> None:
    assert printed("import highspy" + SOLVE) == printed(SOLVE)


def test_a_refusal_in_another_process_is_raised_in_this_one() -> None:
    out = printed(
        "import highspy\n"
        "import hypar_opt as ho\n"
        "try:\n"
        "    ho.solve('sfc', solver='cpsat', options={'parameters': {'no_such': '1'}})\n"
        "except ho.HyparError as error:\n"
        "    print(error)\n"
    )
    assert "no_such" in out
    assert len(out.splitlines()) == 1


def test_a_model_that_or_tools_cannot_write_is_one_line(tmp_path: Path) -> None:
    out = printed(
        "import highspy\n"
        "import hypar_opt as ho\n"
        "try:\n"
        f"    ho.write_model('sfc', {str(tmp_path / 'sfc.pb')!r}, levels=1)\n"
        "except ho.HyparError as error:\n"
        "    print(error)\n"
    )
    if (tmp_path / "sfc.pb").exists():  # an older highspy's build goes beside OR-Tools'
        assert out == ""
        return
    assert len(out.splitlines()) == 1
    assert out.startswith("OR-Tools, which writes the model, cannot be loaded: ")
