"""The paper's plans side by side: rows, means, and the files they are written to."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.cli.output import print_view
from hypar_opt.documents.document import validate
from hypar_opt.errors import shell_words
from hypar_opt.hardware.array import Array
from hypar_opt.plan.configuration import family
from hypar_opt.plan.megatron import tensor_parallelism
from hypar_opt.plan.stated import stated_problem
from hypar_opt.plan.strategies import degrees, strategy_pins
from hypar_opt.planning.priced import plan_of_configuration
from hypar_opt.search.plan_file import repriced
from hypar_opt.search.staged_degrees import StagedEvaluator
from hypar_opt.studies.compared_plans import PLANS
from hypar_opt.studies.comparison import AMOUNTS, disagreements, warnings_of_rows
from hypar_opt.studies.simulation import per_second
from hypar_opt.units import format_bytes
from hypar_opt.workload.parallelism import CHOICES
from tests.cli.shell import Shell
from tests.display.test_graph_reports import GPT
from tests.hardware.cubes import CUBES, cubes
from tests.instance.test_staged import nodes
from tests.plan.test_stages import chain
from tests.slow import slow_after
from tests.strategies.arrays import AS_THE_PAPER

BLOCKS = "gpt:layers=2,hidden=64,heads=4,tokens=32,vocabulary=100"
"""A network of repeated blocks."""

WIDE = "gpt:layers=4,hidden=2048,heads=4,tokens=256,vocabulary=4096"
"""One whose stages may be interleaved."""

THREE = CHOICES


@pytest.fixture(scope="module")
def rows() -> Any:
    networks, arrays = ["lenet-c", "alexnet"], ["hmc-htree-4", "hmc-torus-8"]
    return ho.compare(networks, arrays, batches=[32, 256], reading="figures")


def test_between_two_groups_there_are_accpars_rows_and_what_plans_are_charged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Charged is at least the simulated time, in which a group that is ahead goes on."""
    between, plain = ho.compare("lenet-c", "tpu-v2-v3-16"), ho.compare("lenet-c", "hmc-htree-4")
    rows: Any = {row.plan: row for row in between}
    assert [*rows][-3:] == ["equal", "ratio", "accpar"]
    assert rows["joint"].seconds < rows["accpar"].seconds < rows["equal"].seconds
    assert all(row.plan != "accpar" for row in plain)
    data, plan = rows["data"], ho.solve("lenet-c", array="tpu-v2-v3-16", solver="data")
    assert data.closed_form_seconds == pytest.approx(float(plan.cost.total) / 1e15)
    assert data.seconds == ho.simulate(plan).seconds
    assert rows["equal"].seconds < data.seconds < data.closed_form_seconds
    for compared in (between, plain):
        print_view(compared)
        assert ("closed form" in capsys.readouterr().out) == (compared is between)


def test_a_row_is_a_plan_solved_and_simulated(rows: Any) -> None:
    for row in list(rows)[::3]:  # of seven a case: each plan is among them
        if row.plan == "three":
            continue
        asked: Any = {"batch": row.batch, "reading": "figures", "array": row.array}
        solver, search, cost = {
            "hypar": ("dp", "levelwise", "bytes"),
            "joint": ("dp", "joint", "bytes"),
            "time": ("dp", "joint", "time"),
        }.get(row.plan, (row.plan, "levelwise", "bytes"))
        plan = ho.solve(row.network, solver=solver, search=search, cost=cost, **asked)
        data = ho.simulate(ho.solve(row.network, solver="data", **asked))
        step = ho.simulate(plan)
        assert (row.levels, row.cost, row.reading) == (plan.levels, cost, "figures")
        moved = repriced(plan, cost="bytes").cost
        assert (row.bytes, row.seconds) == (moved.total, step.seconds)
        assert row.closed_form_seconds == step.closed_form
        assert row.executed_bytes == moved.executed_bytes
        assert row.data_parallel_bytes == moved.data_parallel_bytes
        assert row.joules == step.joules
        assert row.speedup == pytest.approx(data.seconds / step.seconds)
        assert row.energy_efficiency == pytest.approx((data.joules or 0) / (step.joules or 1))


def test_every_case_has_all_seven_plans_and_networks_vary_fastest(rows: Any) -> None:
    cases = [(row.array, row.batch, row.network) for row in rows[::7]]
    assert cases == [
        (array, batch, network)
        for array in ("hmc-htree-4", "hmc-torus-8")
        for batch in (32, 256)
        for network in ("Lenet-c", "AlexNet")
    ]
    assert [row.plan for row in rows] == [*PLANS] * len(cases)
    for row in rows:
        if row.plan == "data":
            assert (row.speedup, row.energy_efficiency) == (1, 1)
    for *_, hypar, joint, fastest, three in zip(*[iter(rows)] * 7, strict=True):
        assert joint.bytes <= hypar.bytes
        assert three.bytes == three.executed_bytes <= joint.executed_bytes
        assert fastest.seconds <= min(hypar.seconds, joint.seconds) * (1 + 1e-9)


def test_means_are_geometric_and_over_all_rows(rows: Any) -> None:
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
    rows = ho.compare(["sfc"], [validate(Array, cubes(**one))], **AS_THE_PAPER)
    assert [row.bytes for row in rows] == [*[0] * 5, None, 0]
    assert rows[5].reason == "cost='time' needs an array of two accelerators or more"
    for plan, mean in ho.geometric_means(rows).items():
        assert mean["bytes"] is None
        assert mean["speedup"] == (None if plan == "time" else 1)
    assert ho.geometric_means([]) == {}


def test_how_it_is_run_changes_seconds_only() -> None:
    plain: Any = ho.compare(["lenet-c"], ["hmc-htree-4"])
    ring: Any = ho.compare(["lenet-c"], ["hmc-htree-4"], run={"collective": "ring"})
    over: Any = ho.compare(["lenet-c"], ["hmc-htree-4"], run={"overlap": "gradient"})
    assert [row.bytes for row in plain] == [row.bytes for row in ring]
    assert any(a.seconds != b.seconds for a, b in zip(plain, ring, strict=True))
    assert all(b.seconds <= a.seconds for a, b in zip(plain, over, strict=True))
    assert any(b.seconds < a.seconds for a, b in zip(plain, over, strict=True))


def test_constraints_are_every_rows_and_a_row_without_a_plan_says_why() -> None:
    pinned = ho.compare(["lenet-c"], ["hmc-htree-4"], constraints={"fix": ("conv1=model",)})
    by_plan: dict[str, Any] = {row.plan: row for row in pinned}
    for name in ("data", "trick"):
        assert by_plan[name].reason
        assert {getattr(by_plan[name], key) for key in AMOUNTS} == {None}
    for name in ("model", "hypar", "joint", "time"):  # nothing to hold them against
        row = by_plan[name]
        assert row.seconds
        assert row.reason is row.speedup is row.executed_speedup is None
    asked: Any = {"array": "hmc-htree-4", "constraints": {"fix": ("conv1=model",)}}
    assert by_plan["joint"].bytes == ho.solve("lenet-c", search="joint", **asked).cost.total
    both = ho.compare(["lenet-c", "sfc"], ["hmc-htree-4"], constraints={"even": True})
    assert [row.network for row in both if row.reason] == ["Lenet-c"]
    (refused,) = [row for row in both if row.reason]
    assert refused.plan == "model"
    means = ho.geometric_means(both)
    (other,) = [row for row in both if (row.network, row.plan) == ("SFC", "model")]
    assert means["model"]["speedup"] == pytest.approx(other.speedup)


def test_where_no_row_has_an_answer_the_comparison_has_none() -> None:
    with pytest.raises(ho.HyparError, match="no plan fits 1,000 bytes"):
        ho.compare(["lenet-c"], ["hmc-htree-4"], constraints={"memory": 1000})
    with pytest.raises(ho.HyparError, match="no layer is called"):
        ho.compare(["lenet-c"], ["hmc-htree-4"], constraints={"fix": ("fc9=data",)})


def test_hypar_and_joint_are_found_for_the_cost_that_is_asked_for() -> None:
    asked: Any = {**AS_THE_PAPER, "cost": "energy"}
    rows: Any = ho.compare(["lenet-c"], ["a100-4x8"], **asked)
    costs = [row.cost for row in rows]
    assert costs == ["bytes", "bytes", "bytes", "energy", "energy", "time", "energy"]
    least = min(row.joules for row in rows[:6])
    assert rows[6].joules <= least
    assert rows[4].joules == pytest.approx(least)
    for row, search in ((rows[3], "levelwise"), (rows[4], "joint")):
        plan = ho.solve("lenet-c", array="a100-4x8", search=search, **asked)
        assert row.bytes == repriced(plan, cost="bytes").cost.total
        assert row.seconds == ho.simulate(plan).seconds


def test_the_fewest_bytes_and_the_least_time_are_said_to_disagree_where_they_do() -> None:
    every: Any = ho.compare(["lenet-c", "sfc"], ["h100-8x8"], bucket=0, **AS_THE_PAPER)
    # Of SFC three choices are both the fewest bytes and the fastest.
    assert [note for note in disagreements(every) if " of SFC (" in note] == []
    rows = [row for row in every if row.plan != "three"]
    notes = disagreements(rows)
    for place, network in enumerate(("Lenet-c", "SFC")):
        case = rows[6 * place : 6 * place + 6]
        frugal = min(case, key=lambda row: (row.bytes, row.seconds))
        fastest = min(case, key=lambda row: (row.seconds, row.bytes))
        said = [note for note in notes if f" of {network} (" in note]
        assert bool(said) == (fastest.seconds < frugal.seconds * (1 - 1e-9))
        for note in said:
            assert note.startswith(f"{frugal.plan!r} of {network} (batch 256, h100-8x8) moves ")
            assert f"{frugal.seconds / fastest.seconds - 1:.2%} more time" in note
            assert repr(fastest.plan) in note
    assert notes


def test_a_plan_that_only_its_reading_likes_is_named() -> None:
    """Cifar-c's plan by the text moves more than Data Parallelism, and is slower, when run."""
    rows: dict[str, Any] = {row.plan: row for row in ho.compare(["cifar-c"], ["hmc-htree-16"])}
    hypar, data = rows["hypar"], rows["data"]
    assert hypar.reading == "text"
    assert hypar.bytes < data.bytes == hypar.data_parallel_bytes < hypar.executed_bytes
    assert hypar.executed_speedup < 1 < hypar.speedup
    more, slower = warnings_of_rows([*rows.values()])
    assert more.startswith("when run, Data Parallelism moves fewer bytes than 'hypar'")
    assert "takes more time than 'hypar'" in slower
    assert "; reading='executed' plans for that" in slower
    assert "--reading executed" in shell_words(slower)
    run = ho.compare(["cifar-c"], ["hmc-htree-16"], reading="executed")
    assert warnings_of_rows(run) == []
    assert all(row.executed_speedup == row.speedup for row in run)


TRANSFORMERS = ("gpt2", "bert-base", "vit-b16", "llama-7b")


def test_tensor_parallelism_is_megatrons_on_every_transformer() -> None:
    for name in TRANSFORMERS:
        network = ho.load(name)
        words = tensor_parallelism(network)
        for layer in network.layers:
            local = layer.name.rpartition(".")[2]
            expected = {
                **dict.fromkeys(("qkv", "query", "key", "value", "gate", "up"), "output"),
                **dict.fromkeys(("proj", "down", "token", "word"), "model"),
                "attention": "heads",
                "head": "output",
                "loss": "channel",
            }
            assert words.get(layer.name) == expected.get(local), (name, layer.name)


def test_the_degree_counts_the_deepest_levels() -> None:
    gpt2, halves = ho.load("gpt2"), (2, 2, 2)
    pins = strategy_pins(gpt2, halves, "megatron", 2)
    assert pins[:3] == ("*@H1=data", "*@H2=data", "token@H3=model")
    assert all(pin.rpartition("@")[2].startswith("H3=") for pin in pins[2:])
    assert strategy_pins(gpt2, halves, "megatron", 1) == ("*@H1=data", "*@H2=data", "*@H3=data")
    assert degrees(gpt2, halves) == (1, 2, 4, 8)
    assert degrees(ho.load("resnet-18"), halves) == ()
    # Six nodes of four: tensor parallelism in a node, or in three nodes.
    assert degrees(gpt2, (2, 3, 4)) == (1, 4, 12, 24)
    assert strategy_pins(gpt2, (2, 3, 4), "megatron", 4)[:3] == (
        "*@H1=data",
        "*@H2=data",
        "token@H3=model",
    )


@pytest.mark.parametrize("sizes", [(2,), (2, 2)])
@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("name", slow_after(2, ["gpt2", "llama-70b", *TRANSFORMERS[1:3]]))
def test_no_degree_of_megatron_moves_fewer_bytes_than_the_optimum(
    name: str, batch: int, sizes: tuple[int, ...]
) -> None:
    # A transformer's blocks are alike: their number changes no choice. The larger LLaMA has a gate
    # and grouped queries.
    document = ho.load(name).description()
    document["block"][0]["repeat"] = 2
    network = ho.Network.model_validate(document)
    asked: Any = {"batch": batch, "hierarchy": sizes, "reading": "executed", "choices": THREE}
    three = ho.solve(network, search="joint", **asked).cost.total
    for degree in degrees(network, sizes):
        fix = strategy_pins(network, sizes, "megatron", degree)
        fixed = ho.solve(network, constraints={"fix": fix}, **asked)
        assert three <= fixed.cost.total


def test_at_batch_1_the_optimum_of_gpt_2_is_megatrons() -> None:
    """What is between the pairs is split, and gathered by norms that are whole.

    It is split by features where each part should have a sequence, else by batch: both move as
    much as Megatron-LM's pins leave to move at least.
    """
    asked: Any = {"batch": 1, "levels": 1, "reading": "executed", "choices": THREE}
    network = ho.load("gpt2")
    pair = {"qkv": "output", "attention": "heads", "proj": "model", "up": "output", "down": "model"}
    for runnable, residual in (True, "channel"), (False, "data"):
        plan = ho.solve(network, search="joint", constraints={"runnable": runnable}, **asked)
        (row,) = plan.parallelism
        chosen = dict(zip(plan.layers, row, strict=True))
        for block in range(12):
            for layer, word in (pair | {"add1": residual, "add2": residual}).items():
                assert chosen[f"decoder.{block}.{layer}"] == word
    megatron = strategy_pins(network, (2,), "megatron", 2)
    best = ho.solve(network, search="joint", **asked).cost.total
    assert ho.solve(network, constraints={"fix": megatron}, **asked).cost.total == best


@pytest.mark.parametrize("name", ["lenet-c", "gpt"])
def test_without_an_array_plans_are_compared_by_their_bytes(name: str, tmp_path: Path) -> None:
    """On levels of any parts: each row is that plan, solved; none is simulated."""
    (tmp_path / "gpt.toml").write_text(GPT)
    network = ho.load(name) if name == "lenet-c" else ho.read_network(tmp_path / "gpt.toml")
    asked: Any = {"batch": 12, "hierarchy": (2, 3)}
    compared = ho.compare(network, batches=12, hierarchy=(2, 3))
    rows: dict[str, Any] = {row.plan: row for row in compared}
    megatron = degrees(network, (2, 3))
    plans = [plan for plan in PLANS if plan != "time"]
    assert [*rows] == [*plans, *(f"megatron-{degree}" for degree in megatron)]
    data = ho.solve(network, solver="data", **asked).cost.total
    for plan, row in rows.items():
        assert (row.levels, row.array, row.reading) == (2, "2 x 3 = 6 accelerators", "executed")
        assert row.seconds is row.joules is row.speedup is row.executed_speedup is None
        if plan in ("model", "data", "trick"):
            assert row.bytes == ho.solve(network, solver=plan, **asked).cost.total
        assert row.bytes == row.executed_bytes
        assert row.reduction == data / row.bytes
    best = ho.solve(network, search="joint", **asked).cost.total
    assert rows["joint"].bytes == best <= rows["hypar"].bytes
    assert all(rows["three"].bytes <= row.bytes for row in rows.values())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (["--hierarchy", "3", "--cost", "time"], "--cost time needs an array"),
        (["--hierarchy", "3", "--overlap", "gradient"], "--overlap applies to a simulated step"),
        (["--hierarchy", "3", "--reading", "text"], "levels of 3 parts need --reading executed"),
        (["--hierarchy", "3", "--levels", "1"], "leave --levels out"),
        (["--hierarchy", "3", "--array", "a100-4x8"], "--hierarchy"),
        (["--hierarchy", "2,2", "--array", "a100-4x8"], "--levels should be 5"),
    ],
)
def test_what_needs_an_array_or_halves_says_so(call: list[str], said: str, shell: Shell) -> None:
    assert said in shell.refused("compare", "sfc", "--batch", "12", *call)


def test_a_hierarchy_of_halves_is_compared_on_the_papers_array(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """``--hierarchy 4`` as well, whose prime factors are two levels; others draw their bytes."""
    picture = tmp_path / "bars.svg"
    (paper, *_), (other, *_) = (
        documented(["sfc", "--batch", "12", *levels], capsys)["rows"]
        for levels in (["--hierarchy", "4"], ["--hierarchy", "3", "--picture", str(picture)])
    )
    assert (paper["array"], other["array"]) == ("hmc-htree-4", "3 accelerators")
    assert "fewer bytes" in picture.read_text()


def test_only_networks_with_attention_have_megatrons_rows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture, gpt = tmp_path / "bars.svg", tmp_path / "gpt.toml"
    gpt.write_text(GPT)
    args = ["lenet-c", str(gpt), "--levels", "1", "--batch", "8", "--picture", str(picture)]
    rows = documented(args, capsys)["rows"]
    by_network: dict[str, list[str]] = {}
    for row in rows:
        by_network.setdefault(row["network"], []).append(row["plan"])
    assert by_network == {
        "Lenet-c": [*PLANS],
        "small GPT": [*PLANS, "megatron-1", "megatron-2"],
    }
    amounts = {row["plan"]: row for row in rows if row["network"] == "small GPT"}
    assert amounts["megatron-1"]["bytes"] == amounts["data"]["executed_bytes"]
    assert amounts["three"]["bytes"] <= amounts["megatron-2"]["bytes"]
    assert "megatron-2" in picture.read_text()


def test_a_megatron_row_that_cannot_be_says_why() -> None:
    pinned: Any = {"fix": ("decoder.0.qkv=model",)}
    rows: Any = ho.compare(["gpt2"], ["hmc-htree-2"], batches=[8], constraints=pinned)
    reasons = {row.plan: row.reason for row in rows}
    assert "conflict at decoder.0.qkv, H1" in reasons["megatron-2"]
    assert reasons["three"] is None


# The command.


def documented(args: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["compare", *args, "--json"]) == 0
    out, err = capsys.readouterr()
    assert all(line.startswith("hypar-opt: warning: ") for line in err.splitlines())
    document: dict[str, Any] = json.loads(out)
    return document


def test_lists_of_arrays_may_mix_names_and_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cubes.toml"
    file.write_text(CUBES)
    document = documented(["sconv", "--array", f"{file},hmc-htree-4"], capsys)
    # On the first, time and three choices are what is asked for.
    assert [row["array"] for row in document["rows"]] == ["four cubes"] * 5 + ["hmc-htree-4"] * 7


def test_all_is_the_zoo(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ho.models, "names", lambda: ("sconv", "lenet-c"))
    rows = documented(["all", "--levels", "1"], capsys)["rows"]
    assert [row["network"] for row in rows[::7]] == ["SCONV", "Lenet-c"]


def test_the_problems_options_are_those_of_solve(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    args = ["--fix", "conv*=data", "--even", "--memory", "array", "--optimizer", "adam"]
    rows = documented(["lenet-c", "--array", "a100-4x8", "--cost", "energy", *args], capsys)["rows"]
    limits: Any = {"fix": ("conv*=data",), "even": True, "memory": "array", "optimizer": "adam"}
    asked: Any = {"array": "a100-4x8", "cost": "energy", "constraints": limits}
    plan = ho.solve("lenet-c", search="joint", **asked)
    by_plan = {row["plan"]: row for row in rows}
    assert by_plan["joint"]["joules"] == ho.simulate(plan).joules
    level = ho.solve("lenet-c", search="levelwise", **asked)
    assert by_plan["hypar"]["joules"] == ho.simulate(level).joules
    assert "it violates a constraint" in by_plan["model"]["reason"]
    assert by_plan["time"]["seconds"] <= by_plan["joint"]["seconds"]
    assert run(["compare", "lenet-c", "--fix", "conv1=model"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["data", *["-"] * 7]
    assert (
        "'data' of Lenet-c (batch 256, hmc-htree-16): it violates a constraint:"
        " --fix: conv1 may not take data at H1"
    ) in " ".join(lines)


def test_people_see_every_row_once_and_the_means(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert run(["compare", "lenet-c", "sfc", "--levels", "2", "--batch", "32,256"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        *("network", "batch", "plan", "communication", "executed", "time", "energy"),
        *("speed-up", "executed", "efficiency"),
    ]
    assert [line.split()[0] for line in lines[1:29:7]] == ["Lenet-c", "SFC"] * 2
    assert lines[29].startswith("geometric mean")
    assert " ".join(lines[36:]) == (
        "Plans and amounts by the reading text (columns executed, and plans of three choices: by"
        " the reading executed), on hmc-htree-4; ratios over Data Parallelism."
    )


def test_a_table_by_what_runs_needs_no_columns_of_what_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["--array", "h100-8x8", "--overlap", "none"]
    assert run(["compare", "lenet-c", "sfc", *asked]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [*("network", "plan", "communication", "time", "speed-up")]
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["sfc", "--batch", "32,"], "--batch should be whole numbers, as 32,256, got '32,'"),
        (["sfc", "--batch", "0"], "--batch: should be greater than or equal to 1, got 0"),
        (["sfc", "--batch", "-1"], "--batch should be whole numbers, as 32,256, got '-1'"),
        (["sfc", "--levels", "two"], "--levels should be whole numbers, as "),
        (
            ["sfc", "--levels", "7"],
            "--levels should be from 1 to 6 for the paper's arrays, which have 2 to 64"
            " accelerators, got 7",
        ),
        (
            ["sfc", "--levels", "0"],
            "--levels should be from 1 to 6 for the paper's arrays, which have 2 to 64"
            " accelerators, got 0",
        ),
        (
            ["sfc", "--levels", "3", "--array", "hmc-torus-16"],
            "--levels should be 4, since the array hmc-torus-16 has 16 accelerators, got 3",
        ),
        (
            ["sfc", "--levels", "3,4", "--array", "hmc-torus-16"],
            "--levels should be 4, since the array hmc-torus-16 has 16 accelerators, got 3,4",
        ),
        (["sfc", "--reading", "txt"], "unknown reading 'txt': did you mean text?"),
        (["sfc", "--cost", "hours"], "unknown cost 'hours': known: bytes, time, energy"),
        (["sfc", "--collective", "tree"], "unknown collective 'tree': known: pairwise, ring"),
        (["sfc", "--csv", "/nowhere/rows.csv"], "/nowhere/rows.csv: there is no folder '/nowh"),
        ([], "Missing argument 'NETWORK|all|paper'; see hypar-opt compare --help"),
    ],
)
def test_a_wrong_call_ends_with_2_and_one_line(
    args: list[str], complaint: str, shell: Shell
) -> None:
    assert shell.refused("compare", *args).startswith(complaint)


@pytest.mark.slow
def test_the_page_of_strategies_shows_what_each_moves_over_the_optimum() -> None:
    page = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text()
    heads, *table = re.findall(r"^\| .*\|$", page.partition("## By network")[2], re.M)[:16]
    named = [word.strip().lower() for word in heads.split("|")[5:-1]]
    assert len(table) == 15
    asked: Any = {"levels": 3, "choices": "all", "reading": "joined", "element_bytes": 2}
    for line in table:
        name, tokens, batch, *shown = [cell.strip() for cell in line.split("|")[1:-1]]
        images: Any = {} if name == "vit-b16" else {"tokens": int(tokens.replace(",", ""))}
        least: dict[str, tuple[float, str]] = {}
        for row in ho.compare(name, batches=int(batch), runnable=True, **images, **asked):
            strategy, _, degree = row.plan.partition("-")
            if row.reason is None and row.bytes is not None:
                own = (row.bytes, f" ({degree})" if degree else "")
                least[strategy] = min(own, least.get(strategy, own))
        optimum = least["joint"][0]
        said = {word: f"{moved / optimum:.3f}{degree}" for word, (moved, degree) in least.items()}
        assert shown == [format_bytes(optimum), *(said.get(word, "-") for word in named)], name


def test_with_stages_there_is_the_row_of_the_best_plan_in_stages(shell: Shell) -> None:
    network, array = chain(4), nodes(1, 4)
    compared = ho.compare(network, array, batches=8, stages=2)
    rows = {row.plan: row for row in compared}
    assert [*rows][-1] == "stages"
    assert [row for row in compared if row.plan != "stages"] == [
        *ho.compare(network, array, batches=8)
    ]
    plan = ho.solve(network, stages=2, array=array, batch=8)
    assert plan.is_staged
    step, row = ho.simulate(plan), rows["stages"]
    assert row.seconds == step.seconds
    assert row.closed_form_seconds == pytest.approx(float(plan.cost.total) / per_second(plan))
    assert row.bytes == row.executed_bytes == plan.cost.executed_bytes
    assert row.speedup == (rows["data"].seconds or 0) / step.seconds
    assert (row.joules, row.energy_efficiency, row.reason) == (None, None, None)
    said = shell.refused("compare", "sfc", "--hierarchy", "3", "--stages", "2")
    assert said == "--stages applies to a simulated step, which needs an array"
    three = ho.compare(network, array, batches=8, stages=3)[-1]
    assert three.plan == "stages"
    assert "3" in (three.reason or "")


@pytest.mark.parametrize("schedule", slow_after(1, ["zb-h1", "gpipe"]))
def test_the_row_in_stages_is_by_the_schedule(schedule: str, shell: Shell) -> None:
    """Beside the best plan without stages and Megatron-LM's degrees."""
    stated: dict[str, Any] = {"stages": 2, "micro_batches": 4}
    asked = stated | {"schedule": schedule}
    compared = ho.compare(BLOCKS, "rtx4090x4", batches=8, **asked)
    rows = {row.plan: row for row in compared}
    assert {
        "configured",
        "configured-stages",
        "stages",
        "megatron-1",
        "megatron-2",
        "megatron-4",
    } <= {*rows}
    plan = ho.solve(BLOCKS, array="rtx4090x4", batch=8, **asked)
    assert plan.training.schedule == schedule
    assert rows["stages"].seconds == ho.simulate(plan).seconds
    usual = ho.compare(BLOCKS, "rtx4090x4", batches=8, **stated)
    assert usual[:-1] == compared[:-1]
    # In ample memory GPipe takes what 1F1B does.
    takes_as_much = rows["stages"].seconds == pytest.approx(usual[-1].seconds, rel=1e-12)
    assert takes_as_much == (schedule == "gpipe")
    typed = ("compare", BLOCKS, "--array", "rtx4090x4", "--batch", "8", "--schedule", schedule)
    free = ho.compare(BLOCKS, "rtx4090x4", batches=8, stages=2, schedule=schedule)
    assert shell.document(*typed, "--stages", "2")["rows"] == free.rows()
    assert shell.refused(*typed) == "--schedule: should be with stages, layers in parts of H1"


@pytest.mark.parametrize("stages", slow_after(1, [2, "auto"]))
def test_the_best_configuration_in_stages_is_that_of_configure(stages: Any) -> None:
    asked: dict[str, Any] = {"optimizer": "adam", "stages": stages}
    rows = {row.plan: row for row in ho.compare(WIDE, "rtx4090x4", batches=8, **asked)}
    best = ho.configure(WIDE, "rtx4090x4", batch=8, bound="none", **asked)
    assert best.best.configuration.interleave == 2
    row, step = rows["configured-stages"], ho.simulate(best.plan())
    assert (row.seconds, row.closed_form_seconds) == (step.seconds, step.closed_form)
    assert step.seconds < (rows["configured"].seconds or 0)


@pytest.mark.parametrize(
    "stated",
    slow_after(
        2,
        [
            {"schedule": "zb-h1", "micro_batches": 4},
            {"recompute": "full", "shard": "weights"},
            {"micro_batches": 2, "shard": "state@H2"},
        ],
    ),
)
def test_that_configuration_trains_as_stated(stated: dict[str, Any]) -> None:
    """It is the fastest of all in two stages, each simulated as a plan."""
    network, problem = stated_problem(WIDE, {"array": "rtx4090x4", "batch": 8, "optimizer": "adam"})
    training = problem.training.model_copy(update={"schedule": stated.get("schedule", "1f1b")})
    problem = problem.model_copy(update={"training": training})
    shard = stated.get("shard", "").partition("@")[0]
    words = {"recompute": stated.get("recompute"), "zero": shard or None}
    words |= {"micro_batches": stated.get("micro_batches")}
    fixed = {name: word for name, word in words.items() if word}
    evaluator = StagedEvaluator(network, problem, 2)
    again = fixed.get("recompute", "none")
    every = family(network, evaluator.problem, fixed=fixed, recompute=(again,))
    seconds = [
        ho.simulate(plan_of_configuration(network, problem, one)).seconds
        for cut in evaluator.cut([*every])
        for one in cut
    ]
    compared = ho.compare(WIDE, "rtx4090x4", batches=8, optimizer="adam", stages=2, **stated)
    row = {row.plan: row for row in compared}["configured-stages"]
    assert row.seconds == pytest.approx(min(seconds), rel=1e-9)


@pytest.mark.parametrize("command", ["compare", "solve"])
def test_an_unknown_schedule_of_stages_is_refused(command: str, shell: Shell) -> None:
    typed = (command, BLOCKS, "--array", "rtx4090x4", "--batch", "8", "--stages", "2")
    said = shell.refused(*typed, "--schedule", "dualpipe")
    assert said.startswith('--schedule: should be 1f1b, gpipe or zb-h1, got "dualpipe", which')
