"""Recomputation by operator: products are kept, and what else a backward pass reads runs again."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import HyparError
from hypar_opt.execution.export import jax_module
from hypar_opt.execution.run import run_program
from hypar_opt.execution.virtual.micro_batch import MicroBatch
from hypar_opt.hardware.arrays import find_array
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.workload.operators.kernels import ALL_FUSED
from hypar_opt.workload.recomputation import recomputed_words, repeats_of
from hypar_opt.workload.repeats import EPILOGUE, INPUTS, PASS
from hypar_opt.workload.tensors import workload_of
from tests.cli.shell import command
from tests.execution import small_networks
from tests.execution.drawn import drawn_network, drawn_programs
from tests.execution.virtual.test_training import program_of, trained
from tests.slow import slow_after

GPT = ho.gpt(layers=2, hidden=256, heads=4, tokens=64, vocabulary=512)
LLAMA = "llama-3-8b"


def by_op(network: ho.Network, fused: Any, word: Any = "op") -> dict[str, str]:
    """What runs again of each layer, by name."""
    workload = workload_of(network, 8, ("data", "model"), shared_tensors=True)
    repeats = repeats_of(network, workload, 1, word, None, fused=fused)
    shared = workload.shared
    return {
        workload.nodes[node].name: what for node, what in repeats.by_op.items() if node >= shared
    }


def test_norms_activations_and_sums_run_again_and_no_product() -> None:
    """Not the last sum of a block, which the next one keeps, nor the product before it."""
    for fused in ALL_FUSED:
        found = by_op(GPT, fused)
        kinds = {layer.name: layer.kind for layer in GPT.layers}
        for n in range(2):
            own = {name.split(".")[2]: what for name, what in found.items() if f".{n}." in name}
            assert own.pop("norm1") == own.pop("add1") == own.pop("norm2") == PASS
            assert own.pop("up") == EPILOGUE  # a GELU
            assert set(own.values()) == {INPUTS}
            assert {kinds[f"decoder.{n}.{name}"] for name in own} == {"fc", "attention"}
            assert f"decoder.{n}.add2" not in found


def test_a_gate_runs_again_from_the_products_before_it() -> None:
    found = by_op(ho.load(LLAMA), ALL_FUSED[-1])
    own = {name.removeprefix("decoder.3."): what for name, what in found.items() if ".3." in name}
    assert {n for n, what in own.items() if what == PASS} == {"norm1", "add1", "norm2", "gated"}
    assert {n for n, what in own.items() if what == EPILOGUE} == {"gate"}  # its SiLU


def test_a_word_of_a_layer_is_of_its_block_and_full_outweighs_it() -> None:
    words = {"decoder.0.up": "op", "decoder.1.up": "full", "decoder.1.down": "op", "*": "none"}
    found = recomputed_words(GPT, words)
    own = {layer.name: word for layer, word in zip(GPT.layers, found, strict=True)}
    assert {word for name, word in own.items() if name.startswith("decoder.0.")} == {"op"}
    assert {word for name, word in own.items() if name.startswith("decoder.1.")} == {"full"}
    assert own["head"] == "none"
    with pytest.raises(HyparError, match="'head' names no layer of a block"):
        recomputed_words(GPT, {"head": "op"})


def saved(word: str) -> int:
    """What an accelerator saves of each token of a block, in bytes."""
    asked: dict[str, Any] = {"micro_batches": 1, "shard": "weights", "recompute": word}
    held = ho.memory(LLAMA, array="h100-8", batch=16, tokens=1024, solver="data", **asked)
    of_block = sum(own.saved for own in held.layers if own.layer.startswith("decoder.3."))
    sequences = 2  # on each of eight accelerators
    return of_block // (sequences * 1024)


def test_a_block_of_llama_keeps_its_input_its_products_and_rows_of_attention() -> None:
    hidden, keys, inner, rows = 2 * 4096, 2 * 1024, 2 * 14336, 4 * 32
    # Its input, queries, attention's output and the projection's; keys and values; gate and up.
    assert saved("op") == 4 * hidden + 2 * keys + 2 * inner + rows
    # Not the projection's, but both norms' outputs and the sum; SiLU's output and the product.
    assert saved("none") == 6 * hidden + 2 * keys + 4 * inner + rows
    assert saved("full") == hidden


def step(network: ho.Network, word: str, **asked: Any) -> Any:
    return ho.simulate(network, "a100-8", batch=16, solver="data", recompute=word, **asked)


def test_a_step_is_longer_by_what_runs_again() -> None:
    none, op, full = (step(GPT, word) for word in ("none", "op", "full"))
    forward = {own.layer: own.compute for own in none.layers if own.phase == "forward"}
    again = sum(
        forward[f"decoder.{n}.{own}"] for n in range(2) for own in ("norm1", "add1", "norm2")
    )
    # The GELU reads and writes the output of a product, of two sequences on each accelerator.
    own = find_array("a100-8").accelerator
    words = 2 * 2 * 64 * 4 * 256
    bytes_ = Fraction(2 * words) / (own.dram_bandwidth * Fraction(str(own.elementwise)))
    again += 2 * float(bytes_ + (own.launch or 0))
    assert op.seconds - none.seconds == pytest.approx(again, rel=1e-9)
    assert none.seconds < op.seconds < full.seconds
    assert step(GPT, "op", early_stop=True).seconds == op.seconds


@pytest.mark.parametrize("seed", slow_after(12, range(200)))
def test_a_step_is_between_one_of_nothing_and_one_of_all_again(seed: int) -> None:
    """Exchange by exchange, and pass by pass, of any plan; sums of products are reduced once."""
    network = drawn_network(seed)
    (program,) = drawn_programs(network, seed, 1, ((2, 2), (2, 3)))
    words = [trained(network, program, (2, word, "none")) for word in ("none", "op", "full")]
    moved = [Counter[tuple[Any, ...]]() for _ in words]
    for own, counts in zip(words, moved, strict=True):
        for one in exchanges_of_step(own):
            of_sums = one.boundary is None and one.tensor == "output"
            key = one.phase, one.node, one.boundary, one.level, one.kind, of_sums
            counts[key] += int(4 * one.elements)
    none, op, full = moved
    for key in full:
        assert none[key] <= op[key] <= full[key], key
        if key[-1] and program.workload.nodes[key[1]].operator.sums:
            assert op[key] == none[key], key
    passes = [own.workload.repeats.passes(len(own.workload.nodes))[0] for own in words]
    assert (passes[0] <= passes[1]).all()
    assert (passes[1] <= passes[2]).all()


def test_runs_drop_what_they_compute_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without running it again there is nothing to read."""
    monkeypatch.setattr(MicroBatch, "_run_again", lambda *_: None)
    network = small_networks.gpt(tied=False)
    rows = [
        [0] * len(workload_of(network, 12, ("data", "model", "output"), shared_tensors=True).nodes)
    ]
    with pytest.raises(KeyError):
        run_program(network, program_of(network, (1, "op", "none"), rows, 2))


def test_a_plan_says_it_in_its_file_and_in_words(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"array": "h100-8", "batch": 16, "solver": "data"}
    plan = ho.solve(GPT, **asked, training={"recompute": "op"})
    assert plan.schema_ == "hypar-opt/plan/13"
    ho.write_plan(plan, tmp_path / "plan.json")
    assert ho.read_plan(tmp_path / "plan.json").training.recompute == "op"
    assert ho.solve(GPT, **asked, training={"recompute": "full"}).schema_ == "hypar-opt/plan/2"
    said = command(["simulate", "plan.json", "--array", "h100-8"], tmp_path)
    assert "op-level recomputation" in " ".join(said.output.split())
    ho.write_plan(
        ho.solve(GPT, **asked, training={"recompute": {"decoder.1": "op"}}), tmp_path / "p.json"
    )
    said = command(["simulate", "p.json"], tmp_path)
    assert "op-level recomputation of 1 of 2 blocks" in " ".join(said.output.split())


def test_an_export_keeps_products_and_calls_blocks_by_op() -> None:
    network = ho.gpt(layers=1, hidden=16, heads=4, tokens=8, vocabulary=48)
    asked: dict[str, Any] = {"batch": 16, "array": "h100-8", "solver": "data"}
    plan = ho.solve(network, **asked, training={"recompute": "op"}, constraints={"even": True})
    text = jax_module(plan, approximate=True)
    assert "def from_decoder_0_norm1(kept, w, inputs, embedded):" in text
    assert "= again_by_op(from_decoder_0_norm1, " in text
    assert text.count(" = keep(kept, ") == 5  # qkv, attention, proj, up and down
    assert "def again(" not in text
