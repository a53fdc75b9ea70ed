"""Runs of plans: what they report, what they refuse, and that a wrong exchange is noticed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run as command
from hypar_opt.errors import HyparError, RefusedError
from hypar_opt.execution.run import run_program
from hypar_opt.execution.scale_down import scaled_down
from hypar_opt.execution.virtual import checks
from hypar_opt.execution.virtual.fabric import Fabric, Purpose
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import Phase
from hypar_opt.sharding.program import Program
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.execution.drawn import drawn_network, drawn_programs, run_as_one_device
from tests.execution.small_networks import by_tokens, decoder, gpt
from tests.slow import slow_after

THREE = ("data", "model", "output")

BLOCK: dict[str, Any] = {
    "name": "block",
    "schema": "hypar-opt/network/2",
    "input": {"tokens": 4, "features": 8},
    "layer": [
        {"name": "norm", "kind": "norm", "norm": "layer"},
        {"name": "qkv", "kind": "fc", "units": 24},
        {"name": "attention", "kind": "attention", "heads": 4, "causal": True},
        {"name": "proj", "kind": "fc", "units": 8},
        {"name": "add", "kind": "add", "inputs": ["norm", "proj"]},
        {"name": "up", "kind": "fc", "units": 16, "activation": "gelu"},
        {"name": "down", "kind": "fc", "units": 8},
        {"name": "sum", "kind": "add", "inputs": ["add", "down"]},
        {"name": "output", "kind": "output"},
    ],
}


def plan_of(description: dict[str, Any], **problem: Any) -> ho.Plan:
    network = ho.Network.model_validate(description)
    arguments: dict[str, Any] = {"reading": "executed", "choices": THREE, "levels": 2}
    return ho.solve(network, **arguments | problem)


def program_of(
    description: dict[str, Any], rows: Sequence[Sequence[int]], batch: int = 8
) -> tuple[ho.Network, Program]:
    network = ho.Network.model_validate(description)
    return network, Program(
        workload_of(network, batch, CHOICES, shared_tensors=True), rows, Hierarchy((2,) * len(rows))
    )


# By level: the shared tensors "norm" and "add", then the layers: heads and features at H1.
MEGATRON = [0, 0, 0, 2, 1, 1, 0, 2, 1, 0, 0]
BOTH = [MEGATRON, [1, 0, 1, 1, 0, 2, 1, 0, 0, 1, 1]]


def test_every_exchange_names_its_pass_kind_level_and_layer() -> None:
    network, program = program_of(BLOCK, [MEGATRON])
    rows = run_program(network, program).exchanges
    found = {(row.phase, row.kind, row.layer, row.tensor) for row in rows}
    # Output, heads, model: one all-gather in front and one reduce-scatter behind.
    assert ("forward", "all-gather", "qkv", "input from output of norm") in found
    assert ("forward", "reduce-scatter", "proj", "output") in found
    assert ("backward", "all-gather", "proj", "output") in found
    assert ("gradient", "all-reduce", "norm", "gradient") in found
    assert {layer for _, _, layer, _ in found}.isdisjoint({"attention"})
    assert all(row.modelled == row.counted for row in rows)


def test_inference_runs_the_forward_pass_alone() -> None:
    plan = plan_of(BLOCK, batch=8, inference=True)
    result = ho.run(plan)
    assert {row.phase for row in result.exchanges} <= {"forward"}
    assert result.gradients is None
    assert result.counted == plan.cost.per_level


def test_bytes_are_elements_of_the_plans_width() -> None:
    network, program = program_of(BLOCK, BOTH)
    four = run_program(network, program)
    one = run_program(network, program, element_bytes=Fraction(1))
    assert [4 * row.counted for row in one.exchanges] == [row.counted for row in four.exchanges]


def test_a_seed_makes_the_numbers() -> None:
    network, program = program_of(BLOCK, BOTH)
    losses = [run_program(network, program, seed=seed).loss for seed in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


def test_a_single_device_exchanges_nothing() -> None:
    result = ho.run(plan_of(BLOCK, batch=3, levels=0))
    assert result.exchanges == ()
    assert result.values == result.gradients == 0.0


# A wrong exchange


def test_a_message_that_is_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Fabric.exchange

    def losing(self: Fabric, message: Any, purpose: Purpose) -> Any:
        arrived = exchange(self, message, purpose)
        if purpose.kind is StepKind.REDUCE_SCATTER and purpose.source.phase is Phase.FORWARD:
            arrived[0] = {peer: np.zeros_like(block) for peer, block in arrived[0].items()}
        return arrived

    monkeypatch.setattr(Fabric, "exchange", losing)
    result = ho.run(plan_of(BLOCK, batch=8, constraints=ho.Constraints(fix=("proj=model",))))
    assert [line for line in result.disagreements() if line.startswith("values differ")]


def test_bytes_too_many_are_named_by_level_layer_and_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Fabric.exchange

    def wasting(self: Fabric, message: Any, purpose: Purpose) -> Any:
        arrived = exchange(self, message, purpose)
        if purpose.source.phase is Phase.GRADIENT:
            self.received[purpose] += 1
        return arrived

    monkeypatch.setattr(Fabric, "exchange", wasting)
    network, program = program_of(BLOCK, [MEGATRON])
    (row,) = [r for r in run_program(network, program).exchanges if r.counted != r.modelled]
    assert row.named == "H1, norm, gradient, all-reduce, gradient"
    # Both directions of the all-reduce counted an element of four bytes too many.
    assert row.counted - row.modelled == 8


def test_an_exchange_that_the_program_leaves_out_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Program, "gradient_steps", lambda self, node: ())
    network, program = program_of(BLOCK, [MEGATRON])
    result = run_program(network, program)
    assert result.gradients is not None
    assert result.gradients > 0.01


def test_an_exchange_that_the_price_lacks_is_noticed() -> None:
    result = ho.run(plan_of(BLOCK, batch=8))
    wrong = replace(result, priced=(result.priced[0] + 4, *result.priced[1:]))
    (line,) = wrong.disagreements()
    assert line.startswith("H1: ")
    assert line.endswith(" counted")


def test_what_is_not_a_number_is_no_agreement() -> None:
    result = replace(ho.run(plan_of(BLOCK, batch=8)), values=float("nan"))
    assert not result.agrees


# Refused


def test_a_device_without_an_image_is_refused() -> None:
    pinned = ho.Constraints(fix=("*=data",))
    plan = plan_of(BLOCK, batch=3, constraints=pinned)
    with pytest.raises(RefusedError, match=r"^batch: should be at least 4, .* got 3; "):
        ho.run(plan)
    small = ho.run(plan, scale_down=True)
    assert small.agrees
    assert small.notes[0].startswith("at full size it cannot run: it splits")
    assert "below one image" in small.notes[0]
    whole = plan_of(BLOCK, batch=6, constraints=pinned)
    assert ho.run(whole).agrees
    assert not any("cannot run" in note for note in ho.run(whole, scale_down=True).notes)


def test_arguments_are_checked() -> None:
    plan = plan_of(BLOCK, batch=8)
    with pytest.raises(HyparError, match="backend 'torch'"):
        ho.run(plan, backend="torch")
    with pytest.raises(HyparError, match=r"^seed: should be a number from 0"):
        ho.run(plan, seed=-1)
    with pytest.raises(HyparError, match="512 accelerators, and a run has at most 256"):
        ho.run(plan_of(BLOCK, batch=8, levels=9, choices=("data", "model")))


def test_a_softmax_that_another_layer_reads_is_refused() -> None:
    layers = [*BLOCK["layer"], {"name": "after", "kind": "fc", "units": 2}]
    plan = plan_of(BLOCK | {"layer": layers}, batch=8)
    with pytest.raises(RefusedError, match="layer 'output': a softmax with its loss must end"):
        ho.run(plan)


def test_an_unknown_activation_is_left_out_and_said() -> None:
    layers = [{"name": "fc", "kind": "fc", "units": 4, "activation": "squircle"}]
    result = ho.run(plan_of(BLOCK | {"layer": layers}, batch=8))
    assert result.notes == ("activation 'squircle' is not known and is left out",)
    assert result.agrees


# Scaled down


@pytest.mark.parametrize("name", ho.names())
def test_every_network_of_the_zoo_has_a_small_one_of_its_structure(name: str) -> None:
    network = ho.load(name)
    small = scaled_down(network, 256, Hierarchy((2, 2)))
    assert [layer.name for layer in small.network.layers] == [x.name for x in network.layers]
    assert [layer.splits for layer in small.network.layers] == [x.splits for x in network.layers]
    assert small.network.sources == network.sources
    layers = workload_of(small.network, small.batch).layers
    assert sum(np.prod(layer.weight, dtype=int) for layer in layers if layer.weight) < 2e6
    checks.check_limits(
        small.network, Program(workload_of(small.network, small.batch), (), Hierarchy(()))
    )


@pytest.mark.parametrize("seed", slow_after(20, dict.fromkeys([321, 354, 363, *range(300, 400)])))
def test_any_network_scaled_down_runs_the_same_choices(seed: int) -> None:
    network = drawn_network(seed)
    for program in drawn_programs(network, seed, 1):
        try:
            small = scaled_down(network, program.workload.batch, program.hierarchy)
        except RefusedError:
            # Some slices, blocks of pixels and norms of heads keep no structure in a smaller size.
            kinds = {layer.kind for layer in network.layers}
            heads = any(
                layer.kind == "norm" and getattr(layer, "heads", None) for layer in network.layers
            )
            if kinds.isdisjoint({"slice", "pixel_shuffle"}) and not heads:
                raise
            continue
        workload = workload_of(small.network, small.batch, CHOICES, shared_tensors=True)
        run_as_one_device(small.network, Program(workload, program.rows, program.hierarchy), seed)


# The command


def test_the_command_ends_with_one_where_a_byte_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_file = tmp_path / "plan.json"
    ho.write_plan(plan_of(BLOCK, batch=8), plan_file)
    exchange = Fabric.exchange

    def wasting(self: Fabric, message: Any, purpose: Purpose) -> Any:
        self.received[purpose] += 1
        return exchange(self, message, purpose)

    monkeypatch.setattr(Fabric, "exchange", wasting)
    assert command(["run", str(plan_file)]) == 1
    captured = capsys.readouterr()
    assert "DIFFERS" in captured.out
    (line,) = captured.err.splitlines()
    assert "bytes modelled" in line
    assert "H1" in line


def test_a_small_network_has_tokens_for_all_devices() -> None:
    """Attention by tokens on eight devices, of 8 and of 16 tokens, is run scaled down."""
    for network in (gpt(tied=True), decoder(unit=16)):
        assert ho.run(by_tokens(network, 8, 2, 2, 2), scale_down=True).agrees
