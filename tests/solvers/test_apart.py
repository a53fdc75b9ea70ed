"""Solvers in a process that has loaded another library's build of HiGHS."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho

# Looked for and not imported: this process may have to load OR-Tools yet.
pytestmark = pytest.mark.skipif(find_spec("highspy") is None, reason="needs highspy")

TIMED: dict[str, Any] = {"array": "rtx4090x4", "batch": 8, "overlap": "prefetch"}
TIMED |= {"choices": ("data", "model"), "search": "joint"}

PROGRAM = """
import highspy
import hypar_opt as ho
timed = ho.solve("sfc", **{timed!r})
print(timed.solver.with_overlap.seconds)
plan = ho.solve("resnet-18", levels=1, reading="executed", choices=("data", "model"))
print(ho.certify(plan).tables[0].form)
for solver in ("dp", "cpsat"):
    print(ho.solve("sfc", levels=1, solver=solver).cost.total)
try:
    ho.solve("sfc", solver="cpsat", options={{"parameters": {{"no_such": "1"}}}})
except ho.HyparError as error:
    print(error)
try:
    ho.write_model("sfc", {model!r}, levels=1)
except ho.HyparError as error:
    print(error)
"""


def printed(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_or_tools_is_used_in_another_process_where_highspy_was_imported_first(
    tmp_path: Path,
) -> None:
    """It solves; a refusal is raised in this process; a model that it cannot write is one line."""
    program = PROGRAM.format(model=str(tmp_path / "sfc.pb"), timed=TIMED)
    seconds, form, alone, cpsat, refusal, *more = printed(program).splitlines()
    assert cpsat == alone
    timed = ho.solve("sfc", **TIMED)
    assert timed.solver.with_overlap is not None
    assert (seconds, form) == (str(timed.solver.with_overlap.seconds), "flow")
    assert "no_such" in refusal
    if (tmp_path / "sfc.pb").exists():  # an older highspy's build goes beside OR-Tools'
        assert more == []
        return
    (said,) = more
    assert said.startswith("OR-Tools, which writes the model, cannot be loaded: ")
