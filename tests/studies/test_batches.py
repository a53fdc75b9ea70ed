"""Every batch of a range has the plan that it has by itself."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.studies.batches import AllBatches, solve_all_batches
from hypar_opt.studies.random_networks import random_graph
from tests.slow import slow_after
from tests.strategies.problems import random_network

HIERARCHIES: list[tuple[int, ...]] = [(), (2, 2), (2, 2, 2), (3, 3), (2, 3), (4,)]


def assert_is_solved(every: AllBatches, batch: int) -> None:
    plan, piece = every.plan(batch), every.at(batch)
    assert piece.first <= batch <= piece.last
    assert piece.bytes_at(batch) == plan.cost.total
    assert piece.data_parallel_bytes_at(batch) == plan.cost.baselines.data
    assert piece.parallelism == plan.parallelism


@pytest.mark.parametrize("seed", slow_after(3, range(400)))
def test_every_batch_has_the_plan_that_it_has_by_itself(seed: int) -> None:
    """Chains and graphs, two choices and three, levels of any parts, ties included."""
    rng = Random(seed)
    network = random_network(rng, 4) if rng.random() < 0.5 else random_graph(rng, most=7)
    asked: dict[str, Any] = {"hierarchy": rng.choice(HIERARCHIES), "whole_levels": True}
    asked |= {"reading": "executed", "element_bytes": rng.choice([1, 4])}
    if rng.random() < 0.4:
        asked["choices"] = ("data", "model", "output")
    if rng.random() < 0.3:
        asked["constraints"] = {"fix": (f"{network.layers[0].name}=data",)}
    lo = rng.choice([1, rng.randint(1, 100)])
    every = solve_all_batches(network, lo=lo, hi=lo + rng.choice([0, 1, 39]), **asked)
    for batch in range(every.lo, every.hi + 1):
        assert_is_solved(every, batch)
    assert sorted(
        batch for piece in every for batch in range(piece.first, piece.last + 1, piece.every)
    ) == [*range(every.lo, every.hi + 1)]


@pytest.mark.parametrize("name", ["vgg-e", "gpt2"])
def test_breakpoints_are_those_of_single_solves(name: str) -> None:
    """On both sides of each, and at both ends of a thousand million batches."""
    every = ho.solve_all_batches(name, levels=4)
    assert (every.lo, every.hi) == (1, 10**9)
    for piece in every:
        assert_is_solved(every, piece.first)
        assert_is_solved(every, piece.last)


def test_plans_are_those_of_many() -> None:
    """All batches where plans of VGG-E change are solved at once, too."""
    every = ho.solve_all_batches("vgg-e", reading="executed", hi=60_000)
    many = ho.solve_many("vgg-e", batch=range(1, 60_001), reading="executed", search="joint")
    changes = (many.bits[1:, 0, 0, 0] != many.bits[:-1, 0, 0, 0]).any(axis=1)
    assert [piece.first for piece in every] == [1, *(changes.nonzero()[0] + 2).tolist()]
    for batch in (1, 777, 60_000):
        assert every.at(batch).bytes_at(batch) == many.totals[batch - 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"lo": 0}, "lo: a batch should be from 1 to 2,147,483,647, got 0"),
        ({"hi": 2**31}, "hi: a batch should be from 1 to"),
        ({"lo": 5, "hi": 4}, "from the smallest to the largest, got 5:4"),
        ({"batch": 64}, "batch: all batches are solved, from lo to hi"),
        ({"cost": "time"}, "cost='time' is not linear in the batch; only bytes are"),
        ({"array": "hmc-htree-16"}, "array: time on an array is not linear in the batch"),
        (
            {"constraints": {"even": True}},
            "constraints.even would allow different plans at different batches",
        ),
        ({"constraints": {"memory": 10**9}}, "constraints.memory would allow different plans"),
        ({"choices": ("data", "modle")}, "choices"),
    ],
)
def test_what_is_no_line_in_the_batch_is_named(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ho.HyparError, match=message) as raised:
        solve_all_batches("lenet-c", **asked)
    assert "\n" not in str(raised.value)


def test_a_batch_beyond_the_range_is_refused() -> None:
    every = solve_all_batches("sfc", lo=3, hi=9)
    with pytest.raises(ho.HyparError, match="batch should be from 3 to 9, got 2"):
        every.at(2)
    assert repr(every) == "<AllBatches: 1 plans of SFC, batches 3 to 9>"


def test_the_command_has_the_ranges_as_a_table_a_file_a_document_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    call = ["sweep", "lenet-c", "--batches", "1:1000000000", "--levels", "2"]
    assert run(call) == 0
    out = capsys.readouterr().out
    assert out.startswith("Lenet-c: 2^2 = 4 accelerators, reading text: 6 plans for batches 1 to")
    assert "302 to 970" in out
    assert run([*call, "-o", "t.csv", "--picture", "t.svg", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    every = ho.solve_all_batches("lenet-c", levels=2)
    assert document["ranges"] == every.rows()
    with Path("t.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["first"]) for row in rows] == [piece.first for piece in every]
    assert rows[-1]["H1"] == "dddd"
    assert "6 plans for batches 1 to 1,000,000,000" in Path("t.svg").read_text()


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["sfc", "--batches", "64"], "--batches should be two batches, as 1:1000000000, got '64'"),
        (["sfc", "--batches", "9:8"], "batches should be from the smallest to the largest"),
        (["sfc", "--batches", "1:8", "--batch", "4"], "--batch: all batches are solved"),
        (["sfc", "--batches", "1:8", "--memory", "8GB"], "--memory would allow different plans at"),
        (["sfc", "--batches", "1:8", "--workers", "2"], "--workers runs a sweep file's cases"),
        (["sfc", "--batches", "1:8", "-o", "t.parquet"], "t.parquet: should end in .csv"),
        (["s.toml", "--levels", "3"], "--levels goes with --batches; a sweep file states its"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(
    args: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sweep", *args]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"hypar-opt: {complaint}")
    assert said.count("\n") == 1
