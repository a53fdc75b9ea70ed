"""Every plan of a subspace: the paper's figures 9 and 10, ranks, ties, constraints."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.display.page import exploration_page
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price
from hypar_opt.plan.arguments import problem_of
from hypar_opt.studies.exploration import Exploration, explore
from hypar_opt.studies.exploration.export import plans_csv, summary
from hypar_opt.studies.exploration.front import pareto_mask
from hypar_opt.workload.parallelism import CHOICES
from tests.cli.shell import Shell

PAPER: dict[str, Any] = {"reading": "figures", "array": "hmc-htree-16"}
ON_PAPER = ["--reading", "figures", "--array", "hmc-htree-16", "--objective", "time"]


def rows_of(found: Exploration, at: tuple[int, ...]) -> list[list[int]]:
    """Levels x layers of a plan's choices, by its place among the values."""
    places = dict(zip(found.axes, at, strict=True))
    states = [int(each[places.get(layer, 0)]) for layer, each in enumerate(found.states)]
    base = len(found.plan.choices)
    return [
        [state // base ** (found.plan.levels - 1 - level) % base for state in states]
        for level in range(found.plan.levels)
    ]


def test_all_65536_plans_of_lenet_c_of_which_12_tie() -> None:
    found = explore(ho.solve("lenet-c", **PAPER), "all", objective="time")
    assert found.values.shape == (16,) * 4
    assert (found.rank, found.ties) == (1, 12)
    counts, edges = found.histogram(relative=True)
    assert counts.sum() == 65_536
    assert edges[-1] == pytest.approx(3.055, abs=5e-4)


@given(
    free=st.lists(
        st.sampled_from(["H1", "h2", "conv1", "fc*", "conv2@H2", "fc1@1", "*@H1"]),
        min_size=1,
        max_size=3,
    ),
    cost=st.sampled_from(["bytes", "time", "energy"]),
    reading=st.sampled_from(["text", "tables", "figures", "executed"]),
    data=st.data(),
)
def test_each_plan_costs_what_it_is_priced_at(
    free: list[str], cost: str, reading: str, data: st.DataObject
) -> None:
    plan = ho.solve("lenet-c", array="hmc-torus-4", reading=reading)
    found = explore(plan, ",".join(free), objective=cost)
    at = tuple(data.draw(st.integers(0, size - 1)) for size in found.values.shape)
    rows = rows_of(found, at)
    problem = problem_of(array="hmc-torus-4", reading=reading, cost=cost)
    exact = price(Instance(ho.load("lenet-c"), problem), rows)
    parts = {"bytes": 1, "time": 1e15, "energy": 1e15}[cost]
    assert exact.unit in {"bytes", "femtoseconds", "femtojoules"}
    assert found.values[at] == pytest.approx(exact.total / parts, rel=1e-9)
    assert found.data_parallel_cost == pytest.approx(exact.baselines.data / parts, rel=1e-9)
    assert rows_of(found, found.plan_index) == [list(row) for row in plan.assignments()]


def test_output_parallelism_has_a_third_digit() -> None:
    plan = ho.solve("lenet-c", levels=2, choices=("data", "model", "output"), search="joint")
    found = explore(plan, "all")
    assert found.values.size == 9**4
    assert found.best_cost == found.plan_cost == plan.cost.total
    assert found.grid("H1", "H2").rows[5] == "0012"


def test_the_rest_keeps_to_the_plans_constraints() -> None:
    plan = ho.solve("lenet-c", levels=2, constraints={"fix": ("fc*=model", "conv1@H2=data")})
    found = explore(plan, "all")
    assert found.values.shape == (2, 4, 1, 1)
    grid = found.grid("conv1", "conv2,fc1,fc2")
    assert np.count_nonzero(np.isfinite(grid.values)) == 8
    turned = found.grid("conv2,fc1,fc2", "conv1").values
    assert np.array_equal(turned, grid.values.T, equal_nan=True)
    assert (found.rank, found.best_cost) == (1, plan.cost.total)


def test_one_accelerator_has_one_plan() -> None:
    found = explore(ho.solve("vgg-a", levels=0), "all")
    assert (found.values.size, found.rank, found.ratio(found.best_cost)) == (1, 1, None)
    assert found.front is not None
    memory = found.front.amounts["memory"].item()
    assert plans_csv(found) == f"bytes,ratio,memory,front,plan\n0,,{memory:.0f},1,1\n"
    assert found.histogram()[0].tolist() == [1]
    assert found.two_parts is None
    assert "One accelerator leaves no choices." in exploration_page(found)


def test_inference_in_data_parallelism_moves_nothing_and_has_no_ratio(
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = ["explore", "lenet-c", "--inference", "--free", "H1", "--levels", "1", "--relative"]
    assert run([*args, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["best"]["value"] == 0
    assert document["best"]["ratio"] is None
    assert document["histogram"] == {"of": "ratio", "edges": [0.0, 0.0], "plans": [15]}
    assert run(args) == 0


def test_a_plan_file_without_an_array_is_explored_on_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    ho.write_plan(ho.solve("lenet-c", reading="figures"), file)
    args = ["explore", str(file), "--free", "H1,H4", "--objective", "time"]
    assert run(args) == 2
    assert capsys.readouterr().err == (
        "hypar-opt: --objective time needs an array: --array NAME|FILE (list arrays)\n"
    )
    assert run([*args, "--array", "hmc-htree-16", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["best"]["ratio"] == pytest.approx(3.055, abs=5e-4)
    assert document["array"] == "hmc-htree-16"
    assert run([*args, "--array", "hmc-htree-8"]) == 2
    assert "levels: should be 3" in capsys.readouterr().err


def test_the_csv_has_a_row_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plans.csv"
    args = ["explore", "lenet-c", *ON_PAPER, "--free", "H1,H4", "--csv", str(file)]
    assert run(args) == 0
    with file.open() as stream:
        rows = list(csv.DictReader(stream))
    levels, others = ["H1", "H2", "H3", "H4"], ["joules", "memory", "front", "plan"]
    assert list(rows[0]) == [*levels, "seconds", "ratio", *others]
    assert len({(row["H1"], row["H4"]) for row in rows}) == 256
    assert {(row["H2"], row["H3"]) for row in rows} == {("0010", "0000")}
    best = min(rows, key=lambda row: float(row["seconds"]))
    assert (best["H1"], best["H4"]) == ("0011", "0011")
    assert float(best["ratio"]) == max(float(row["ratio"]) for row in rows)
    assert [row for row in rows if row["plan"] == "1"] == [best]
    assert best["front"] == "1"


def beaten_by_none(points: list[tuple[Any, ...]]) -> list[bool]:
    return [
        not any(
            other != own and all(a <= b for a, b in zip(other, own, strict=True))
            for other in points
        )
        for own in points
    ]


@pytest.mark.parametrize(
    ("choices", "array", "objectives"),
    [
        (2, None, ("bytes",)),
        (2, "hmc-torus-4", ("time", "energy")),
        (3, "hmc-htree-4", ("time", "energy")),
    ],
)
def test_the_front_is_of_the_plans_that_no_other_beats(
    choices: int, array: str | None, objectives: tuple[str, ...]
) -> None:
    """Each plan is priced by itself, in whole units, and held against every other."""
    plan = ho.solve("lenet-c", levels=2, array=array, choices=CHOICES[:choices])
    found = explore(plan, "conv2,fc1@H2,fc2")
    front = found.front
    assert front is not None
    costs = {
        name: Instance(plan.network.description, plan.problem.model_copy(update={"cost": name}))
        for name in objectives
    }
    points = []
    for at in np.ndindex(found.values.shape):
        rows = rows_of(found, at)
        amounts = [price(instance, rows).total for instance in costs.values()]
        points.append((*amounts, costs[objectives[0]].constraints.memory_of(rows)))
        assert front.amounts["memory"][at] == points[-1][-1]
    expected = beaten_by_none(points)
    assert front.on_front.reshape(-1).tolist() == expected
    assert list(front.amounts) == [*objectives, "memory"]
    assert 0 < front.plans < found.values.size
    listed = summary(found)["front"]
    assert (
        listed["has_plan"]
        is expected[int(np.ravel_multi_index(found.plan_index, found.values.shape))]
    )
    assert len(listed["points"]) == listed["plans"] == sum(expected)


@given(st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=40), st.booleans())
def test_what_no_point_dominates(points: list[tuple[int, ...]], two: bool) -> None:
    points = [point[:2] for point in points] if two else points
    expected = beaten_by_none(points)
    assert (
        pareto_mask([np.array(amount) for amount in zip(*points, strict=True)]).tolist() == expected
    )


def test_too_many_plans_and_shared_tensors_have_no_front(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hypar_opt.studies.exploration.front.MAX_PLANS", 255)
    assert run(["explore", "lenet-c", "--free", "H1,H4"]) == 0
    assert "No Pareto front: the Pareto front is computed for at most 255 plans" in (
        " ".join(capsys.readouterr().out.split())
    )
    found = explore(ho.solve("resnet-18", levels=2), "conv1@H1")
    assert found.front is None
    assert "layers share tensors" in found.no_front
    assert plans_csv(found).splitlines()[0] == "H1,H2,bytes,ratio,plan"
    assert summary(found)["front"]["of"] is None


def test_what_a_person_reads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["explore", "vgg-a", *ON_PAPER, "--free", "conv5_2,fc1", "--relative"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "VGG-A on hmc-htree-16: batch 256, reading figures, 256 plans by time, free: conv5_2,fc1"
    )
    best, own = lines[2].split(), lines[3].split()
    assert (best[:4], best[5:]) == (["best", "1.138", "s", "4.97"], ["4", "equal", "plans"])
    assert (own[:5], own[6:]) == (["dp", "levelwise", "1.138", "s", "4.97"], ["1st", "of", "all"])
    assert lines[-1].split() == ["00000001111", *["00000000111"] * 3]


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["lenet-c", "--free", "H5"], "--free H5: should be a level from H1 to H4"),
        (["lenet-c", "--free", "fc1@H0"], "--free fc1@H0: should be a level from H1 to H4"),
        (["lenet-c", "--free", "fc9"], "--free should name levels, as H1,H4, layers, as fc1"),
        (["lenet-c", "--free", "H1,,H2"], "--free should name levels, as H1,H4, layers, as fc1"),
        (["lenet-c"], "Missing option '--free'"),
        (["lenet-c", "--free", "all", "--objective", "tim"], "unknown cost 'tim'"),
        (["lenet-c", "--free", "all", "--memory", "8GB"], "explore does not support --memory"),
        (
            ["vgg-a", "--free", "all"],
            "--free all: there are 2^44 = 17,592,186,044,416 plans, more than 134,217,728",
        ),
        (["vgg-e", "--free", "all"], "--free all: there are 2^76 plans, more than"),
        (
            ["vgg-a", "--free", "H1,H4", "--csv", "no.csv"],
            "--output lists at most 1,048,576 plans, and there are 4,194,304",
        ),
    ],
)
def test_what_cannot_be_explored_is_said_in_one_line(
    args: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shell.refused("explore", *args).startswith(complaint)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("objective", ["bytes", "time"])
@pytest.mark.parametrize("free", ["fc0", "fc69", "fc0,fc7,fc8@H2,fc69@H1", "fc3*@H1"])
def test_only_layers_with_something_free_have_an_axis(
    free: str, objective: str, tmp_path: Path
) -> None:
    """A numpy array has at most 64 axes, and 32 before numpy 2."""
    file = tmp_path / "chain.toml"
    text = 'name = "chain"\ninput = { features = 30 }\n'
    for place in range(70):
        text += f'[[layer]]\nname = "fc{place}"\nkind = "fc"\nunits = {place % 7 + 30}\n'
    file.write_text(text)
    plan = ho.solve(file, batch=16, array="hmc-torus-4")
    found = explore(plan, free, objective=objective)
    problem = plan.problem.model_copy(update={"cost": objective})
    instance = Instance(plan.network.description, problem)
    parts = 10**15 if objective == "time" else 1
    for at in {
        found.plan_index,
        *(tuple(place % size for size in found.values.shape) for place in (1, 3)),
    }:
        total = price(instance, rows_of(found, at)).total
        assert found.values[at] == pytest.approx(total / parts, rel=1e-9)
    assert rows_of(found, found.plan_index) == [list(row) for row in plan.assignments()]
    assert found.data_parallel_cost == pytest.approx(
        price(instance, plan.assignments()).baselines.data / parts, rel=1e-9
    )
    if "," in free:
        grid = found.grid(*free.split(",", 1))
        assert grid.values.shape == (4, 16)
        assert sorted(grid.values.flat) == sorted(found.values.flat)
    lines = plans_csv(found).splitlines()
    assert len(lines) == 1 + found.values.size
    own = ["".join(map(str, row)) for row in plan.assignments()]
    place = int(np.ravel_multi_index(found.plan_index, found.values.shape))
    assert lines[1 + place].split(",")[:2] == own
    for peak in found.best_plans():
        assert len(peak[0]) == 70


def test_the_grids_parts_are_what_is_free() -> None:
    found = explore(ho.solve("lenet-c"), "H1,H4")
    for rows, columns in (("H1", "H2"), ("H1", "H1"), ("H1", "fc1@H4")):
        with pytest.raises(
            ho.HyparError, match="should be the free choices, 'H1,H4', in two parts"
        ):
            found.grid(rows, columns)
