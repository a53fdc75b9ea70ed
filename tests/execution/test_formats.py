"""Formats of export, one and all: what `hypar_opt.execution.formats.FORMATS` promises."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import hypar_opt as ho
from hypar_opt.execution.formats import FORMATS
from tests.commands import command
from tests.strategies.groups import nodes

PLANS = {
    "chain.json": ("lenet-c", {"levels": 2, "choices": ("data", "model", "output")}),
    "graph.json": ("bert-base", {"levels": 1, "constraints": {"even": True}}),
    "inference.json": ("sconv", {"levels": 1, "inference": True}),
    "uneven.json": ("lenet-c", {"levels": 9}),
    "unequal.json": ("lenet-c", {"array": nodes(1), "share": 0.3}),
}


@cache
def solved(file: str) -> ho.Plan:
    network, arguments = PLANS[file]
    return ho.solve(network, reading="executed", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("file", PLANS)
def test_a_plan_is_written_or_refused_in_a_line(name: str, file: str, tmp_path: Path) -> None:
    ho.write_plan(solved(file), tmp_path / file)
    done = command(["export", file, "--to", name, "--output", "exported"], tmp_path)
    written = tmp_path / "exported"
    if done.status == 0:
        assert written.read_text() == FORMATS[name]().text(
            ho.read_plan(tmp_path / file), approximate=False
        )
    else:
        assert (done.status, done.errors.count("\n"), written.exists()) == (2, 1, False)
    printed = command(["export", file, "--to", name], tmp_path)
    assert printed.output == (written.read_text() if done.status == 0 else "")


def test_formats_are_listed_with_what_they_write(tmp_path: Path) -> None:
    lines = command(["list", "formats"], tmp_path).output.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *FORMATS]


def test_an_uneven_split_and_an_unknown_format_are_refused_by_name(tmp_path: Path) -> None:
    ho.write_plan(solved("uneven.json"), tmp_path / "plan.json")
    for name, message in [
        ("onnx", "unknown format 'onnx': known: jax, jax-shardings, json, torch"),
        ("jax", "batch: should be at least 512, since 9 levels split it, got 256"),
        ("json", "the batch: its size 256 should be divisible by 512"),
    ]:
        assert message in command(["export", "plan.json", "--to", name], tmp_path).errors


def test_shardings_are_never_approximate(tmp_path: Path) -> None:
    ho.write_plan(ho.solve("lenet-c", levels=1), tmp_path / "plan.json")
    done = command(["export", "plan.json", "--to", "json", "--approximate"], tmp_path)
    assert done.errors == (
        "hypar-opt: --approximate goes with programs: shardings compute nothing\n"
    )
