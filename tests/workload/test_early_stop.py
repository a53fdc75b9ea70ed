"""Recomputation that stops early: of a block, all but what no backward pass reads."""

from __future__ import annotations

import hypar_opt as ho
from hypar_opt.instance.instance import Instance
from hypar_opt.simulator.result import StepResult
from hypar_opt.workload.early_stop import read_by_backward
from hypar_opt.workload.operators.kernels import ALL_FUSED
from hypar_opt.workload.recomputation import recomputed

GPT = ho.gpt(layers=2, hidden=256, heads=4, tokens=64, vocabulary=512)


def step(recompute: str, *, early_stop: bool = False) -> StepResult:
    return ho.simulate(
        *(GPT, "a100-8"), batch=16, solver="data", recompute=recompute, early_stop=early_stop
    )


def test_the_last_product_of_a_block_and_the_addition_behind_it_are_left_out() -> None:
    """Its backward pass reads its input, and an addition's nothing."""
    workload = Instance.of_plan(ho.solve(GPT, array="a100-8", batch=16)).workload
    for fused in ALL_FUSED:
        again = recomputed(GPT, workload, ["full"] * len(GPT.layers), fused=fused)
        needed = read_by_backward(workload, again, fused=fused)
        left_out = [
            workload.nodes[node].name
            for node in again
            if node not in needed and node >= workload.shared
        ]
        assert left_out == [f"decoder.{n}.{own}" for n in range(2) for own in ("down", "add2")]
        # What computes again by itself does.
        alone = recomputed(GPT, workload, ["selective"] * len(GPT.layers), fused=fused)
        assert read_by_backward(workload, alone, fused=fused) == alone


def test_a_step_is_shorter_by_the_forward_passes_of_what_is_left_out() -> None:
    whole, early, none = step("full"), step("full", early_stop=True), step("none")
    forward = {own.layer: own.compute for own in none.layers if own.phase == "forward"}
    saved = sum(forward[f"decoder.{n}.{own}"] for n in range(2) for own in ("down", "add2"))
    assert saved > 0
    assert abs(whole.seconds - early.seconds - saved) < 1e-12
    assert none.seconds < early.seconds
    assert step("none", early_stop=True).seconds == none.seconds
