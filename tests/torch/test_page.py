"""The examples of docs/torch.md and docs/torch-modules.md, run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="make torch runs these with PyTorch")

from tests.commands import forked

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "torch.md").read_text()


def blocks(text: str) -> dict[str, str]:
    """Return the first block of each kind."""
    return dict(reversed(re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)))


@pytest.mark.parametrize("section", ["A whole example", "Stages", "Traced models"])
def test_the_example_prints_what_the_page_shows(section: str, tmp_path: Path) -> None:
    whole, staged = blocks(PAGE), blocks(PAGE.partition("## Stages\n")[2])
    traced = blocks(PAGE.partition("## Traced models\n")[2])["py"]
    first, script = whole, whole["py"]
    if section != "A whole example":
        first, script = whole | staged, script.partition("mesh = ")[0] + staged["py"]
    if section == "Traced models":
        schedule = r"chunks = .*\npasses = (?s:.*?)(?=optimizer = )"
        script, count = re.subn(schedule, lambda _: traced, script)
        assert count == 1
    (tmp_path / "transformer.toml").write_text(first["toml"])
    (tmp_path / "train.py").write_text(script)
    for line in re.findall(r"^\$ hypar-opt (.*)$", first["console"], re.M):
        done = forked(line.split(), tmp_path)
        assert done.status == 0, done.errors
    torchrun, _, expected = first["sh"].removeprefix("$ ").partition("\n")
    assert torchrun.startswith("torchrun ")
    torchrun = torchrun.removeprefix("torchrun ")
    ran = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *torchrun.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, expected), ran.stderr


def test_modules_are_the_networks_that_the_page_shows(tmp_path: Path) -> None:
    page = (DOCS / "torch-modules.md").read_text()
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.M | re.S)
    script, saving = (text for kind, text in blocks if kind == "py")
    (expected,) = (text for kind, text in blocks if kind == "text")
    ran = subprocess.run(
        [sys.executable, "-c", script + saving],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, expected), ran.stderr
    (commands,) = (text for kind, text in blocks if kind == "sh")
    for line in commands.splitlines():
        done = forked(line.removeprefix("hypar-opt ").split(), tmp_path)
        assert done.status == 0, done.errors
