"""`--degrees`: Megatron-LM's plan of some degrees, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hypar_opt as ho
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.configuration import Configuration
from hypar_opt.planning.priced import plan_of_configuration
from tests.cli.shell import command

GPT = "gpt:layers=2,hidden=64,heads=8,tokens=32,vocabulary=128"
ASKED = ["--array", "h100-8", "--batch", "16", "--bucket", "0"]


@pytest.mark.parametrize("degree", [1, 2, 8])
def test_degrees_are_the_configuration_of_tensor_inside_data_parallelism(
    degree: int, tmp_path: Path
) -> None:
    dp = f"dp={8 // degree}, " if degree < 8 else ""  # all other parts unless stated
    typed = f"{dp}tp={degree}"
    done = command(["simulate", GPT, *ASKED, "--degrees", typed, "--json"], tmp_path)
    network = ho.gpt(layers=2, hidden=64, heads=8, tokens=32, vocabulary=128)
    problem = problem_of(network, batch=16, array="h100-8", bucket=0)
    plan = plan_of_configuration(network, problem, Configuration(1, 8 // degree, 1, degree))
    assert json.loads(done.output)["seconds"] == ho.simulate(plan).seconds


def test_other_degrees_are_refused_with_those_that_would_do(tmp_path: Path) -> None:
    names = "dp, dp_replicate, dp_shard, cp, tp, ep, pp, v"
    form = f"should be some of {names}, each once, as tp=8,dp=4, got "
    for typed in ("tp=2,dp=4,xp=1", "tp=2,tp=4", "", "dp", "tp=0", "tp=-1"):
        done = command(["memory", GPT, *ASKED, "--degrees", typed], tmp_path)
        assert (done.status, form + repr(typed) in done.errors) == (2, True), typed
    for typed, why in (
        ("tp=2,dp=4,pp=2", "pp x dp x cp x tp should be the 8 accelerators, got 'tp=2,dp=4,pp=2'"),
        ("tp=4,v=2", "v needs pp, got 'tp=4,v=2'"),
        ("ep=8", "ep needs experts, and"),
        ("tp=3,dp=4", "dp x cp x tp should be the 8 accelerators, got 'tp=3,dp=4'"),
        ("tp=3", "dp x cp x tp should be the 8 accelerators, got 'tp=3'"),
        ("dp=4", "dp x cp x tp should be the 8 accelerators, got 'dp=4'"),
    ):
        done = command(["memory", GPT, *ASKED, "--degrees", typed], tmp_path)
        assert (done.status, done.errors.count("\n")) == (2, 1)
        assert f"--degrees: {why}" in done.errors
    done = command(["solve", "sconv", *ASKED, "--degrees", "tp=8,dp=1"], tmp_path)
    assert "tp needs attention, or fully-connected layers of which one reads" in done.errors
    ho.write_plan(ho.solve("lenet-c", batch=16, array="h100-8"), tmp_path / "plan.json")
    for name in ("simulate", "memory"):
        done = command([name, "plan.json", "--degrees", "tp=8,dp=1"], tmp_path)
        assert (done.status, "--degrees is fixed by the plan" in done.errors) == (2, True)


def test_a_step_of_shared_weights_and_one_that_the_host_holds_up_are_shown(tmp_path: Path) -> None:
    """The update of a GPT's tied ends is its first layer's; launches are no layer's."""
    plain = command(["simulate", GPT, *ASKED, "--degrees", "tp=2,dp=4"], tmp_path)
    assert plain.status == 0
    assert "launches" not in plain.output
    slow = ["--set", "accelerator.host=1 ms"]
    held_up = command(["simulate", GPT, *ASKED, "--degrees", "tp=2,dp=4", *slow], tmp_path)
    assert held_up.status == 0
    assert "launches" in held_up.output


def test_degrees_split_pairs_of_layers_without_attention_and_other_numbers_of_parts(
    tmp_path: Path,
) -> None:
    layers = [
        {"name": name, "kind": "fc", "units": units, "activation": "relu"}
        for name, units in (("up", 512), ("down", 128), ("last", 16))
    ]
    mlp = ho.Network.model_validate({"name": "mlp", "input": {"features": 128}, "layer": layers})
    plan = ho.solve(mlp, batch=16, array="h100-8", degrees="tp=4,dp=2")
    for name, word in (("up", "output"), ("down", "model")):
        assert plan[name] == {"H1": "data", "H2": word, "H3": word}
    assert ho.run(plan).agrees
    # Data parallelism is a degree of any network.
    alone = ho.solve("sconv", batch=16, array="h100-8", degrees="dp=8")
    assert {*alone["conv1"].values()} == {"data"}
    # Without an array, whose default choices lack output parallelism, and of three parts.
    network = ho.gpt(layers=1, hidden=96, heads=24, tokens=8, vocabulary=96)
    plan = ho.solve(network, hierarchy=(3, 8), batch=8, degrees="tp=24")
    assert {*plan["decoder.0.qkv"].values()} == {"output"}
    assert {*plan["decoder.0.proj"].values()} == {"model"}
    typed = ["--hierarchy", "3,8", "--batch", "8", "--degrees", "tp=24"]
    asked = "gpt:layers=1,hidden=96,heads=24,tokens=8,vocabulary=96"
    assert command(["solve", asked, *typed], tmp_path).status == 0
