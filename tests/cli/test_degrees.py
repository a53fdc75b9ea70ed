"""`--degrees`: Megatron-LM's plan of some degrees, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.plan.strategies import strategy_pins
from tests.commands import command

GPT = "gpt:layers=2,hidden=64,heads=8,tokens=32,vocabulary=128"
ASKED = ["--array", "h100-8", "--batch", "16", "--bucket", "0"]


@pytest.mark.parametrize("degree", [1, 2, 8])
def test_degrees_are_the_pins_of_tensor_inside_data_parallelism(
    degree: int, tmp_path: Path
) -> None:
    dp = f"dp={8 // degree}, " if degree < 8 else ""  # all other parts unless stated
    typed = f"{dp}tp={degree}"
    done = command(["simulate", GPT, *ASKED, "--degrees", typed, "--json"], tmp_path)
    network = ho.gpt(layers=2, hidden=64, heads=8, tokens=32, vocabulary=128)
    pins = strategy_pins(network, (2, 2, 2), "megatron", degree)
    asked: dict[str, Any] = {"batch": 16, "array": "h100-8", "bucket": 0}
    plan = ho.solve(network, **asked, constraints={"fix": pins})
    assert json.loads(done.output)["seconds"] == ho.simulate(plan).seconds


def test_other_degrees_are_refused_with_those_that_would_do(tmp_path: Path) -> None:
    known = "--degrees should be one of tp=1,dp=8; tp=2,dp=4; tp=4,dp=2; tp=8,dp=1, got "
    for typed in ("tp=3,dp=4", "tp=3", "dp=4", "tp=2,dp=4,pp=1", "tp=2,tp=4", "", "dp"):
        done = command(["memory", GPT, *ASKED, "--degrees", typed], tmp_path)
        assert (done.status, known + repr(typed) in done.errors) == (2, True)
    done = command(["solve", "alexnet", *ASKED, "--degrees", "tp=8,dp=1"], tmp_path)
    assert "needs a network with attention, and AlexNet has none" in done.errors
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
