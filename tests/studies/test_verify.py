"""``verify``: many solvers on the same problem, and a liar among them."""

from __future__ import annotations

import json
from fractions import Fraction
from math import comb
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.plan.plan import write_plan
from hypar_opt.search.stage_units import PartsOfArray
from hypar_opt.studies.crosscheck import CrosscheckRow
from hypar_opt.studies.random_networks import random_networks
from hypar_opt.workload.stages import cuts_between_blocks
from tests.cli.shell import Shell, written
from tests.commands import forked
from tests.slow import slow_after

ALL = "dp,cut,ilp,cpsat,brute"


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return found


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--choices", "data,model,output", "--levels", "2"],
        ["--level-weights", "8,4,2,1", "--reading", "executed"],
        ["--even", "--fix", "fc1@H2=data", "--levels", "3"],
        ["--memory", "8547763", "--optimizer", "sgd"],
        ["--inference"],
        ["--levels", "0"],
        ["--batch", "1", "--element-bytes", "1"],
    ],
)
def test_all_solvers_agree_whatever_is_asked(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    solvers = ["dp", "ilp", "cpsat"] if options else ["dp", "cut", "ilp", "cpsat", "brute"]
    args = ["verify", "cifar-c" if options else "lenet-c", "--solvers", ",".join(solvers)]
    assert run([*args, *options, "--json"]) == 0
    found = rows(capsys)
    assert [(row["search"], row["solver"]) for row in found] == [
        (search, solver) for search in ("levelwise", "joint") for solver in solvers
    ]
    assert {row["verdict"] for row in found} == {"agrees"}
    assert len({(row["search"], row["objective"]) for row in found}) == 2


@pytest.mark.parametrize(
    ("network", "asked"),
    slow_after(
        2,
        [
            ("sconv", {"stages": "auto"}),
            (
                "lenet-c",
                {"stages": 2, "memory": 3_700_000, "optimizer": "adam", "micro_batches": 2},
            ),
            ("lenet-c", {"stages": 2, "schedule": "gpipe"}),
        ],
    ),
)
def test_solvers_agree_on_stages(network: str, asked: dict[str, Any]) -> None:
    """The search of stages, and each stage of all cuts solved one by one."""
    every = ho.verify(network, array="rtx4090x4", batch=4, solvers=["dp", "ilp", "brute"], **asked)
    every.check()
    assert len({row.objective for row in every if isinstance(row, CrosscheckRow)}) == 1
    plan = ho.solve(network, array="rtx4090x4", batch=4, **asked)
    assert [row["objective"] for row in every.rows()] == [plan.cost.total] * 3


def test_a_search_of_stages_that_bounds_too_high_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"array": "rtx4090x4", "batch": 4, "stages": 2}
    least, best = PartsOfArray.lower_bound, ho.solve("sconv", **asked).training.micro_batches

    def higher(parts: PartsOfArray, unit: int, count: int, length: int = 1) -> Fraction:
        return least(parts, unit, count, length) * (1000 if count == best else 1)

    monkeypatch.setattr(PartsOfArray, "lower_bound", higher)
    rows = ho.verify("sconv", **asked, solvers=["dp", "ilp"]).rows()
    assert [row["verdict"] for row in rows] == ["disagrees"] * 2
    assert rows[1]["objective"] < rows[0]["bound"]


def test_what_no_solvers_of_stages_are_is_refused(shell: Shell, tmp_path: Path) -> None:
    asked = ("verify", "lenet-c", "--array", "rtx4090x4", "--batch", "4", "--stages", "2")
    said = shell.refused(*asked, "--search", "levelwise")
    assert said == "--search levelwise goes without --stages"
    network = ho.gpt(layers=64, hidden=32, heads=4, tokens=8, vocabulary=64)
    cuts = 7 * comb(len(cuts_between_blocks(network)), 3)
    (row,) = ho.verify(network, array="h100-8", batch=64, stages=4, solvers=["ilp"]).rows()
    assert (row["verdict"], row["status"]) == (
        "refused",
        f"{cuts:,} cuts of stages are more than 5,000",
    )
    file = tmp_path / "plan.json"
    write_plan(ho.solve("lenet-c", levels=2), file)
    for option in (("--stages", "2"), ("--schedule", "gpipe")):
        said = shell.refused("verify", file, *option)
        assert said == f"{option[0]} is fixed by the plan; leave it out"


def test_a_solver_that_refuses_is_no_disagreement(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "vgg-a", "--solvers", "dp,brute", "--json"]) == 0
    verdicts = {(row["search"], row["solver"]): row["verdict"] for row in rows(capsys)}
    assert verdicts[("joint", "brute")] == "refused"
    assert verdicts[("levelwise", "brute")] == "agrees"


def test_if_all_refuse_there_is_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = "".join(f'[[layer]]\nname = "fc{n}"\nkind = "fc"\nunits = 2\n' for n in range(30))
    file = tmp_path / "long.toml"
    file.write_text(f'name = "long"\ninput = {{ features = 2 }}\n{layers}')
    assert run(["verify", str(file), "--solvers", "brute"]) == 3
    out, err = capsys.readouterr()
    assert "refused" in out
    assert err == "hypar-opt: all solvers refuse\n"


def test_where_nobody_answers_in_time_nothing_is_verified(
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = ["verify", "lenet-c", "--solvers", "dp,cpsat", "--time-limit", "1e-9"]
    assert run([*args, "--json"]) == 3
    out, err = capsys.readouterr()
    assert {row["verdict"] for row in json.loads(out)["rows"]} == {"no answer"}
    assert err == "hypar-opt: no solver has an answer within the time limit\n"


@pytest.mark.parametrize("limit", ["inf", "nan", "-1", "0"])
def test_a_time_limit_that_is_none_is_refused(limit: str, shell: Shell) -> None:
    said = shell.refused("verify", "lenet-c", "--solvers", "data", "--time-limit", limit)
    assert said.startswith("--time-limit: should be")


@pytest.mark.parametrize("number", ["0", "-3", "1000000000"])
def test_more_random_networks_than_memory_holds_are_refused_at_once(
    number: str, shell: Shell
) -> None:
    said = shell.refused("verify", "--random", number, "--solvers", "dp")
    assert "--random should be from 1 to 100,000" in said


def test_random_networks_are_made_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand are asked for; the first solver to fail ends it, and one was made."""
    made: list[str] = []

    def compare(network: ho.Network, *_: object, **__: object) -> list[Any]:
        made.append(network.name)
        raise ho.HyparError("enough")

    monkeypatch.setattr("hypar_opt.studies.crosscheck.compare", compare)
    assert run(["verify", "--random", "1000", "--solvers", "dp"]) == 2
    assert made == ["random-0-1"]


def test_a_baseline_that_does_not_fit_is_refused_and_the_others_agree(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["verify", "sfc", "--solvers", "dp,data", "--memory", "400MB", "--json"]) == 0
    verdicts = {row["solver"]: row["verdict"] for row in rows(capsys)}
    assert verdicts == {"dp": "agrees", "data": "refused"}


def test_what_no_plan_keeps_to_is_infeasible_for_verify_too() -> None:
    assert run(["verify", "sfc", "--solvers", "dp,data", "--memory", "10"]) == 4


def test_baselines_are_feasible_and_contradict_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "vgg-a", "--solvers", "dp,data,trick", "--json"]) == 0
    verdicts = {row["solver"]: row["verdict"] for row in rows(capsys)}
    assert verdicts == {"dp": "agrees", "data": "feasible", "trick": "feasible"}


def test_random_networks_are_chains_and_graphs_in_turn_the_same_for_a_seed() -> None:
    networks = list(random_networks(40, seed=3))
    assert networks == list(random_networks(40, seed=3))
    assert networks != list(random_networks(40, seed=8))
    assert all(network.is_chain for network in networks[::2])
    assert not all(network.is_chain for network in networks[1::2])
    kinds = {layer.kind for network in networks for layer in network.layers}
    assert kinds >= {"conv", "fc", "norm", "add", "attention", "concat", "embedding", "output"}
    assert any(network.blocks for network in networks)


def test_solvers_agree_on_random_networks(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--random", "6", "--seed", "5", "--levels", "2", "--solvers", "dp,cut,cpsat", "--json"]
    assert run(["verify", *args]) == 0
    found = rows(capsys)
    assert len(found) == 6 * 2 * 3
    assert {row["verdict"] for row in found} == {"agrees"}


def test_a_third_partys_solver_takes_part_and_a_liar_is_found(tmp_path: Path) -> None:
    """One arrives by its entry point and claims optima that it does not have."""
    module = (
        "from hypar_opt.solvers.base import Solver, SolveResult, Status\n"
        "from hypar_opt.instance.pricing import price_table\n"
        "class Boaster(Solver):\n"
        "    summary = 'all data, and says it is the best'\n"
        "    def solve(self, table, options):\n"
        "        zeros = (0,) * table.layers\n"
        "        cost = price_table(table, zeros)\n"
        "        return SolveResult(zeros, cost, Status.OPTIMAL, cost)\n"
    )
    written(tmp_path, {"theirs": module}, ["[hypar_opt.solvers]", "boaster = theirs:Boaster"])
    done = forked(["verify", "lenet-c", "--solvers", "dp,boaster", "--json"], tmp_path)
    assert done.status == 1
    assert {row["verdict"] for row in json.loads(done.output)["rows"]} == {"disagrees"}
    assert "4 of 4 disagree; first dp on Lenet-c, levelwise" in done.errors
