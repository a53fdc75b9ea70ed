"""The default reading, plans priced by another, and what is said of a plan when it is run."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.hardware import arrays
from hypar_opt.plan.arguments import problem_of
from hypar_opt.search.plan_file import repriced
from hypar_opt.step.readings import READINGS
from hypar_opt.studies.advice import (
    better_reading,
    executed_note,
    more_bytes_warning,
    turns,
)
from tests.cli.shell import Shell
from tests.slow import examples
from tests.strategies.networks import networks

Capture = pytest.CaptureFixture[str]
THREE = ("data", "model", "output")


# The default.


@pytest.mark.parametrize("name", arrays.names())
def test_the_papers_arrays_have_the_papers_text_and_all_others_what_runs(name: str) -> None:
    assert problem_of().reading == problem_of(reading=None).reading == "text"  # without an array
    default = "text" if name.startswith("hmc-") else "executed"
    assert problem_of(array=name).reading == default
    assert problem_of(array=name, choices=THREE).reading == default
    assert problem_of(array=arrays.load(name), reading=None).reading == default
    assert problem_of(array=name, reading="figures").reading == "figures"


def test_a_plan_file_records_the_reading_that_was_taken(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "plan.json"
    for array, reading in (("hmc-torus-4", "text"), ("a100-4x8", "executed")):
        assert run(["solve", "lenet-c", "--array", array, "--output", str(file)]) == 0
        assert f"reading {reading}, " in capsys.readouterr().out
        assert json.loads(file.read_text())["cost"]["reading"] == reading
        assert ho.read_plan(file).cost.reading == reading


def test_a_sweep_takes_each_arrays_default(tmp_path: Path, capsys: Capture) -> None:
    spec, table = tmp_path / "sweep.toml", tmp_path / "table.csv"
    spec.write_text('networks = ["cifar-c"]\narrays = ["hmc-htree-16", "a100-4x8"]\n')
    assert run(["sweep", str(spec), "-o", str(table), "--workers", "1"]) == 0
    with table.open(newline="") as text:
        rows = list(csv.DictReader(text))
    assert [row["reading"] for row in rows] == ["text", "executed"]
    assert [row["cost"] for row in rows] == ["bytes", "time"]
    assert int(rows[0]["executed_bytes"]) > int(rows[0]["data_parallel_bytes"])
    assert (
        "run, the plans of 1 of 2 rows move more than Data Parallelism" in capsys.readouterr().err
    )


# The same choices by another reading.


@examples(30)
@given(
    networks(longest=4),
    st.integers(1, 9),
    st.integers(0, 3),
    st.sampled_from(sorted(READINGS)),
    st.sampled_from(sorted(READINGS)),
)
def test_repriced_choices_cost_what_pinning_them_under_that_reading_costs(
    network: ho.Network, batch: int, levels: int, reading: str, other: str
) -> None:
    plan = ho.solve(network, batch=batch, levels=levels, reading=reading)
    again = repriced(plan, reading=other)
    pins = tuple(
        f"{layer}@H{level}={choice}"
        for level, row in enumerate(plan.parallelism, 1)
        for layer, choice in zip(plan.layers, row, strict=True)
    )
    asked: Any = {"batch": batch, "levels": levels, "reading": other}
    pinned = ho.solve(network, constraints={"fix": pins}, **asked)
    assert again.parallelism == pinned.parallelism
    assert again.cost == pinned.cost
    if reading == other:
        assert again is plan
    else:
        assert again.solver.status == "feasible"
        assert again.solver.bound is again.solver.gap is None
    assert repriced(again, reading=reading).cost == plan.cost
    assert repriced(plan, reading="executed").cost.total == plan.cost.executed_bytes


def test_an_unknown_reading_of_a_plan_is_refused_by_name(tmp_path: Path, shell: Shell) -> None:
    file = str(tmp_path / "plan.json")
    ho.write_plan(ho.solve("sfc", array="hmc-htree-4"), file)
    for command in ("show", "simulate"):
        said = shell.refused(command, file, "--reading", "txt")
        assert said.startswith("unknown reading 'txt': did you mean text?")


# What is said.


def test_what_a_run_moves_is_said_unless_the_total_says_it() -> None:
    by_text, run_bytes = ho.solve("cifar-c"), ho.solve("cifar-c", reading="executed")
    moved, data = by_text.cost.executed_bytes, by_text.cost.data_parallel_bytes
    assert moved is not None
    assert executed_note(by_text.cost) == (
        f"Executed: {moved / 1e6:.4g} MB (Data Parallelism: {data / 1e6:.4g} MB)."
    )
    assert executed_note(run_bytes.cost) is None
    for asked in ({"cost": "time"}, {"cost": "energy"}):
        timed = ho.solve("cifar-c", array="a100-4x8", **asked)  # type: ignore[arg-type]
        said = executed_note(timed.cost)
        assert said is not None
        assert said.startswith("Executed: ")
    weighted = ho.solve("cifar-c", reading="executed", level_weights=(2, 2, 2, 2))
    assert executed_note(weighted.cost) is not None


def test_what_output_parallelism_moves_when_run_is_said_too() -> None:
    plan = ho.solve("lenet-c", choices=THREE, constraints={"fix": ("fc1=output",)})
    by_run = repriced(plan, reading="executed")
    assert plan.cost.executed_bytes == by_run.cost.total
    said = executed_note(plan.cost)
    assert said == f"Executed: {by_run.cost.total / 1e6:.4g} MB (Data Parallelism: 51.66 MB)."
    assert more_bytes_warning(plan.cost) is None


@pytest.mark.parametrize("network", ["lenet-c", "cifar-c", "resnet-18"])
def test_of_three_choices_the_better_plan_is_that_of_a_run(network: str) -> None:
    """The reading `figures` has no output parallelism, and is passed over."""
    model = ho.solve(network, choices=THREE, reading="text", solver="model", levels=2)
    best = ho.solve(network, choices=THREE, reading="executed", levels=2)
    assert better_reading(model) == ("executed", best.cost.total)


def test_what_is_whole_can_be_run_and_has_no_other_reading() -> None:
    layers: list[dict[str, Any]] = [
        {"name": "fc", "kind": "fc", "units": 8},
        {"name": "norm", "kind": "norm", "norm": "affine"},
    ]
    network = ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "whole",
            "input": {"features": 4},
            "layer": layers,
        }
    )
    asked: Any = {"choices": THREE, "reading": "executed", "constraints": {"fix": ("norm=whole",)}}
    plan = ho.solve(network, levels=2, **asked)
    assert plan.parallelism[0][1] == "whole"
    with pytest.raises(ho.HyparError, match="layer 'norm': whole needs the reading executed"):
        repriced(plan, reading="text")


@pytest.mark.parametrize("cost", ["bytes", "time", "energy"])
def test_a_plan_that_moves_more_when_run_warns_whatever_it_was_found_for(
    cost: str, capsys: Capture
) -> None:
    args = ["solve", "cifar-c", "--array", "hmc-htree-16", "--search", "joint", "--cost", cost]
    assert run([*args, "--json"]) == 0
    out, err = capsys.readouterr()
    priced = json.loads(out)["cost"]
    assert priced["executed_bytes"] > priced["data_parallel_bytes"]
    assert "warning: when run, this plan moves " in err
    plan = ho.solve("cifar-c", array="hmc-htree-16", search="joint", cost=cost)
    executed = repriced(plan, reading="executed").cost
    turned = executed.total > executed.baselines.data and cost != "bytes"
    assert (f"takes {plan.cost.ratios.data:.4g} times the {cost}" in err) == turned
    assert run([*args, "--reading", "executed", "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_a_baseline_that_the_constraints_refuse_is_said_so_and_warned_of_nowhere(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    args = ["sconv", "--levels", "3"]
    assert run(["solve", *args]) == 0
    assert "violates a constraint" not in "".join(capsys.readouterr())
    args += ["--fix", "conv1=model"]
    assert run(["solve", *args]) == 0
    out, err = capsys.readouterr()
    plan: Any = ho.solve("sconv", levels=3, fix=["conv1=model"])
    assert plan.cost.executed_bytes > plan.cost.data_parallel_bytes
    why = "conv1 may not take data at H1"
    assert f"Data Parallelism violates a constraint: {why}." in out.splitlines()
    assert "when run" not in err
    assert run(["compare", *args]) == 0
    assert "Data Parallelism moves fewer" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("ratio", "executed", "said"),
    [
        (1.3, 0.9, True),
        (1.0, 0.99, True),
        (1.3, 1.0, False),
        (0.9, 0.8, False),
        (0.9, 1.2, False),
        (None, 0.5, False),
        (1.3, None, False),
    ],
)
def test_a_ranking_turns_only_from_no_worse_to_worse(
    ratio: float | None, executed: float | None, said: bool
) -> None:
    assert (turns("time", "text", ratio, executed) is not None) == said


def test_a_step_says_what_a_run_moves(capsys: Capture) -> None:
    assert run(["simulate", "lenet-c"]) == 0
    moved = ho.solve("lenet-c").cost
    assert capsys.readouterr().out.splitlines()[-1] == executed_note(moved)
    assert run(["simulate", "lenet-c", "--reading", "executed"]) == 0
    assert "Executed: " not in capsys.readouterr().out


def test_an_exploration_says_what_its_plans_are_when_run(capsys: Capture) -> None:
    args = ["explore", "cifar-c", "--free", "H1"]
    assert run(args) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].split() == ["bytes", "over", "Data", "executed", "plans"]
    assert executed_note(ho.solve("cifar-c").cost) in out.splitlines()
    assert run([*args, "--reading", "executed"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split() == ["bytes", "over", "Data", "plans"]
    assert "Executed: " not in out
    assert err == ""
