"""Formats of export, one and all: what `hypar_opt.execution.formats.FORMATS` promises."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import hypar_opt as ho
from hypar_opt.execution.formats import FORMATS
from tests.cli.shell import Shell, command
from tests.execution.small_networks import decoder
from tests.slow import slow_off_diagonal
from tests.strategies.groups import nodes

PLANS = {
    "chain.json": ("lenet-c", {"levels": 2, "choices": ("data", "model", "output")}),
    "graph.json": ("bert-base", {"levels": 1, "constraints": {"even": True}}),
    "inference.json": ("sconv", {"levels": 1, "inference": True}),
    "uneven.json": ("lenet-c", {"levels": 9}),
    "heads.json": (decoder(), {"levels": 2, "choices": ("data", "model", "output")}),
    "unequal.json": ("lenet-c", {"array": nodes(1), "share": 0.3}),
}


@cache
def solved(file: str) -> ho.Plan:
    network, arguments = PLANS[file]
    return ho.solve(network, reading="executed", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "file"), slow_off_diagonal([*FORMATS], [*PLANS]))
def test_a_plan_is_written_or_refused_in_a_line(
    name: str, file: str, tmp_path: Path, shell: Shell
) -> None:
    path, written = tmp_path / file, tmp_path / "exported"
    ho.write_plan(solved(file), path)
    status, _, errors = shell("export", path, "--to", name, "--output", written)
    if status == 0:
        assert written.read_text() == FORMATS[name]().text(ho.read_plan(path), approximate=False)
    else:
        assert (status, errors.count("\n"), written.exists()) == (2, 1, False)
    printed = shell("export", path, "--to", name)[1]
    assert printed == (written.read_text() if status == 0 else "")


def test_formats_are_listed_with_what_they_write(tmp_path: Path) -> None:
    lines = command(["list", "formats"], tmp_path).output.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *FORMATS]


def test_an_uneven_split_and_an_unknown_format_are_refused_by_name(tmp_path: Path) -> None:
    ho.write_plan(solved("uneven.json"), tmp_path / "plan.json")
    for name, message in [
        ("onnx", f"unknown format 'onnx': known: {', '.join(FORMATS)}"),
        ("jax", "batch: should be at least 512, since 9 levels split it, got 256"),
        ("json", "the batch: its size 256 should be divisible by 512"),
    ]:
        assert message in command(["export", "plan.json", "--to", name], tmp_path).errors


def test_every_format_takes_approximate_of_any_network(tmp_path: Path) -> None:
    """So that one script is for all formats, and for networks that keep all of their models."""
    of_data = ho.solve("lenet-c", array="hmc-htree-2", constraints={"fix": ("*=data",)})
    ho.write_plan(of_data, tmp_path / "plan.json")
    for name in FORMATS:
        texts = [
            command(["export", "plan.json", "--to", name, *flag], tmp_path).output
            for flag in ((), ("--approximate",))
        ]
        assert texts[0] == texts[1]
        assert texts[0]


def test_a_vocabulary_that_parts_do_not_divide_is_refused_with_the_padding_that_helps(
    tmp_path: Path,
) -> None:
    """As GPT-2's 50,257 words between eight parts."""
    gpt = "gpt:layers=1,hidden=64,heads=8,tokens=16,vocabulary=257"
    asked = [gpt, "--array", "h100-8", "--batch", "8", "--degrees", "tp=8"]
    assert command(["solve", *asked, "-o", "odd.json"], tmp_path).status == 0
    for name in ("jax", "torch", "jax-shardings"):
        done = command(["export", "odd.json", "--to", name], tmp_path)
        assert done.status == 2
        assert "should be divisible by 8" in done.errors
        assert "as by --set token.pad=8, or" in done.errors
    padded = ["--set", "token.pad=8", "--set", "head.pad=8", "-o", "even.json"]
    assert command(["solve", *asked, *padded], tmp_path).status == 0
    for name in ("jax", "torch", "jax-shardings"):
        assert command(["export", "even.json", "--to", name], tmp_path).status == 0
