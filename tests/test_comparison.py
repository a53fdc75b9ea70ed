"""The paper's plans side by side: rows, means, and the files they are written to."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.comparison import PLANS, Row
from hypar_opt.documents import validate
from hypar_opt.hardware.array import Array
from tests.hardware.cubes import CUBES, cubes

KEYS = (
    *("network", "batch", "levels", "array", "plan", "bytes", "seconds", "joules"),
    *("speedup", "energy_efficiency"),
)
AMOUNTS = KEYS[5:]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    networks, arrays = ["lenet-c", "alexnet"], ["hmc-htree-4", "hmc-torus-8"]
    return ho.compare(networks, arrays, batches=[32, 256], reading="figures")


def test_a_row_is_a_plan_solved_and_simulated(rows: list[Row]) -> None:
    for row in rows:
        asked: Any = {"batch": row.batch, "reading": "figures", "array": row.array}
        solver, search = {
            "hypar": ("dp", "levelwise"),
            "joint": ("dp", "joint"),
        }.get(row.plan, (row.plan, "levelwise"))
        plan = ho.solve(row.network, solver=solver, search=search, **asked)
        data = ho.simulate(ho.solve(row.network, solver="data", **asked))
        step = ho.simulate(plan)
        assert row.levels == plan.levels
        assert (row.bytes, row.seconds) == (plan.cost.total, step.seconds)
        assert row.joules == step.energy.total
        assert row.speedup == pytest.approx(data.seconds / step.seconds)
        assert row.energy_efficiency == pytest.approx(data.energy.total / step.energy.total)


def test_every_case_has_all_five_plans_and_networks_vary_fastest(rows: list[Row]) -> None:
    cases = [(row.array, row.batch, row.network) for row in rows[::5]]
    assert cases == [
        (array, batch, network)
        for array in ("hmc-htree-4", "hmc-torus-8")
        for batch in (32, 256)
        for network in ("Lenet-c", "AlexNet")
    ]
    assert [row.plan for row in rows] == ["model", "data", "trick", "hypar", "joint"] * len(cases)
    for row in rows:
        if row.plan == "data":
            assert (row.speedup, row.energy_efficiency) == (1, 1)
    for _, _, _, hypar, joint in zip(*[iter(rows)] * 5, strict=True):
        assert joint.bytes <= hypar.bytes


def test_means_are_geometric_and_over_all_rows(rows: list[Row]) -> None:
    means = ho.geometric_means(rows)
    assert list(means) == list(PLANS)
    for name, mean in means.items():
        mine = [row for row in rows if row.plan == name]
        assert list(mean) == list(AMOUNTS)
        for key in AMOUNTS:
            product = math.prod(float(getattr(row, key)) for row in mine)
            assert mean[key] == pytest.approx(product ** (1 / len(mine)))
    assert means["data"]["speedup"] == 1


def test_a_mean_over_nothing_moved_is_none() -> None:
    one = {"kind": "ring", "accelerators": 1, "link": {"bandwidth": "1 GB/s"}}
    rows = ho.compare(["sfc"], [validate(Array, cubes(**one))])
    assert [row.bytes for row in rows] == [0] * 5
    for mean in ho.geometric_means(rows).values():
        assert mean["bytes"] is None
        assert mean["speedup"] == 1
    none = ho.geometric_means([])
    assert none["data"] == dict.fromkeys(AMOUNTS)


def test_how_it_is_run_changes_seconds_only() -> None:
    plain = ho.compare(["lenet-c"], ["hmc-htree-4"])
    ring = ho.compare(["lenet-c"], ["hmc-htree-4"], run={"collective": "ring"})
    over = ho.compare(["lenet-c"], ["hmc-htree-4"], run={"overlap": "gradient"})
    assert [row.bytes for row in plain] == [row.bytes for row in ring]
    assert any(a.seconds != b.seconds for a, b in zip(plain, ring, strict=True))
    assert all(b.seconds <= a.seconds for a, b in zip(plain, over, strict=True))
    assert any(b.seconds < a.seconds for a, b in zip(plain, over, strict=True))


# The command.


def documented(args: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["compare", *args, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    document: dict[str, Any] = json.loads(out)
    return document


def test_json_and_csv_have_the_documented_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.csv"
    args = ["lenet-c", "--batch", "32,256", "--levels", "2,3", "--csv", str(file)]
    document = documented(args, capsys)
    assert list(document) == ["rows", "gmean"]
    assert len(document["rows"]) == 2 * 2 * 5
    assert all(tuple(row) == KEYS for row in document["rows"])
    assert {tuple(mean) for mean in document["gmean"].values()} == {AMOUNTS}
    assert list(document["gmean"]) == ["model", "data", "trick", "hypar", "joint"]
    cases = {(row["levels"], row["array"], row["batch"]) for row in document["rows"]}
    assert cases == {(h, f"hmc-htree-{2**h}", b) for h in (2, 3) for b in (32, 256)}
    with file.open(newline="") as text:
        found = list(csv.DictReader(text))
    assert tuple(found[0]) == KEYS
    assert [[json.loads(row[key]) for key in AMOUNTS] for row in found] == [
        [row[key] for key in AMOUNTS] for row in document["rows"]
    ]
    assert found[0]["network"] == "Lenet-c"
    assert file.read_text().endswith("\n")


def test_lists_of_arrays_may_mix_names_and_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cubes.toml"
    file.write_text(CUBES)
    document = documented(["sconv", "--array", f"{file},hmc-htree-4"], capsys)
    assert [row["array"] for row in document["rows"]] == ["four cubes"] * 5 + ["hmc-htree-4"] * 5


def test_all_is_the_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    rows = documented(["all", "--levels", "1"], capsys)["rows"]
    assert [row["network"].lower() for row in rows[::5]] == list(ho.names())


def test_the_reading_decides_plans_and_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    for reading in ("text", "figures"):
        rows = documented(["cifar-c", "--reading", reading], capsys)["rows"]
        plan = ho.solve("cifar-c", reading=reading)
        assert rows[3]["bytes"] == plan.cost.total


def test_people_see_every_row_once_and_the_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "lenet-c", "sfc", "--levels", "2", "--batch", "32,256"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        *("network", "batch", "array", "plan", "communication", "time", "energy"),
        *("speed-up", "efficiency"),
    ]
    assert [line.split()[0] for line in lines[1:21:5]] == ["Lenet-c", "SFC"] * 2
    assert lines[21].startswith("geometric mean")
    assert lines[-1] == "Plans and bytes by the reading text; ratios over Data Parallelism."
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["sfc", "--batch", "32,"], "--batch should be whole numbers, as 32,256, got '32,'"),
        (["sfc", "--batch", "0"], "batch: should be greater than or equal to 1, got 0"),
        (["sfc", "--batch", "-1"], "--batch should be whole numbers, as 32,256, got '-1'"),
        (["sfc", "--levels", "two"], "--levels should be whole numbers, as "),
        (["sfc", "--levels", "7"], "--levels should be from 1 to 6 for the paper's arrays, got 7"),
        (["sfc", "--levels", "0"], "--levels should be from 1 to 6 for the paper's arrays, got 0"),
        (
            ["sfc", "--levels", "3", "--array", "hmc-torus-16"],
            "--levels should be 4, since the array hmc-torus-16 has 16 accelerators, got 3",
        ),
        (
            ["sfc", "--levels", "3,4", "--array", "hmc-torus-16"],
            "--levels should be 4, since the array hmc-torus-16 has 16 accelerators, got 3,4",
        ),
        (["sfc", "--array", "hmc-tores-16"], "unknown array 'hmc-tores-16': did you mean hmc-to"),
        (["sfc", "vgg-f"], "unknown network 'vgg-f': did you mean vgg-"),
        (["sfc", "--reading", "txt"], "unknown reading 'txt': did you mean text?"),
        (["sfc", "--collective", "tree"], "unknown collective 'tree': known: pairwise, ring"),
        (["sfc", "--overlap", "all"], "unknown overlap 'all': known: none, gradient"),
        (["sfc", "--csv", "/nowhere/rows.csv"], "/nowhere/rows.csv: there is no folder '/nowh"),
        (["sfc", "--csv", "."], ".: should be a file, not a folder"),
        ([], "Missing argument 'NETWORK...|all'; see hypar-opt compare --help"),
    ],
)
def test_a_wrong_call_ends_with_2_and_one_line(
    args: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"hypar-opt: {complaint}")
    assert err.count("\n") == 1
