"""On a real terminal no command prints a line wider than it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hypar_opt as ho
from hypar_opt.cli.commands import SUMMARIES
from hypar_opt.plan.plan import write_plan
from tests.public import steps_file
from tests.slow import slow_after

CALLS = [
    "list networks",
    "list arrays",
    "list solvers",
    "list topologies",
    "list costs",
    "list operators",
    "show vgg-e",
    "show resnet-18",
    "show graph.json --layouts",
    "show h100-8x8",
    "solve vgg-a --regret --best 2",
    "solve lenet-c --levels 8 --regret",
    "simulate lenet-c --array hmc-htree-4",
    "memory lenet-c --array hmc-htree-4",
    "validate --file steps.toml",
    "calibrate a100-8 steps.toml",
    "compare sfc --array hmc-htree-2,hmc-torus-2",
    "explore lenet-c --free H1",
    "explore sfc --free H1,H2 --array hmc-htree-16",
    "pareto lenet-c --array hmc-htree-4",
    "configure gpt:layers=1,hidden=32,heads=2,tokens=16,vocabulary=50 --array a100-8 --batch 8",
    "configure gpt:layers=2,hidden=32,heads=2,tokens=16,vocabulary=50 --array rtx4090x4 --batch 8"
    " --by-degrees",
    "model lenet-c --levels 2 -o model.lp",
    "run lenet-c --levels 2 --batch 16",
    "verify plan.json",
    "doctor python command numpy figures brute",
    "verify lenet-c --levels 1 --solvers dp,ilp,brute",
    "import no-such-file.onnx",
    "export plan.json --to json",
    "report plan.json --output page.html",
    "sweep sweep.toml -o sweep.csv",
    "reproduce fig5 tables",
    "reproduce fig9 --rows",
    "solve no-such-network",
    "solve --help",
    "--help",
    "solve lenet-c --levels 70",
]

# All in one process, so that modules are imported once.
SCRIPT = """
import fcntl, json, os, struct, sys, termios
from hypar_opt.cli.app import run
fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, int(sys.argv[1]), 0, 0))
for call in json.loads(sys.argv[2]):
    print("@", call, flush=True)
    run(call.split())
    sys.stdout.flush(), sys.stderr.flush()
"""

CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07")


def test_every_command_is_among_the_calls() -> None:
    assert {call.split()[0] for call in CALLS} >= set(SUMMARIES)


@pytest.mark.skipif(sys.platform == "win32", reason="no pty")
@pytest.mark.parametrize("width", slow_after(1, [60, 80]))
def test_no_line_is_wider_than_the_terminal(width: int, tmp_path: Path) -> None:
    write_plan(ho.solve("lenet-c", levels=2), tmp_path / "plan.json")
    write_plan(ho.solve("resnet-18", levels=3, batch=8), tmp_path / "graph.json")
    (tmp_path / "sweep.toml").write_text('networks = ["lenet-c"]\nlevels = [2]\n')
    steps_file(tmp_path)
    shown = on_a_terminal(width, tmp_path)
    calls = re.split(r"^@ (.*)\n", shown, flags=re.M)[1:]
    assert calls[::2] == CALLS
    for call, text in zip(calls[::2], calls[1::2], strict=True):
        assert text.strip(), call
        assert "Traceback" not in text, call
        for line in text.splitlines():
            assert len(line) <= width, (call, line)


def on_a_terminal(width: int, folder: Path) -> str:
    """Return what all calls print at a width, without colours and cursor movements."""
    ours, theirs = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(width), json.dumps(CALLS)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=env | {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
    ):
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not part:
                break
            parts.append(part)
    os.close(ours)
    # A bar of progress is drawn over itself, from the line's start.
    text = CONTROL.sub("", b"".join(parts).decode())
    return text.replace("\r\n", "\n").replace("\r", "\n")
