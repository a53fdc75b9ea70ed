"""How a loss is taken, what is gathered again, in what gradients are reduced, and what is reserved.

In time, in memory, in bytes and in what a run moves, each by a count of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.errors import HyparError, InputError
from hypar_opt.hardware import arrays
from hypar_opt.hardware.arrays import find_array
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.strategies import strategy_pins
from hypar_opt.proofs.check.rows import price_of
from hypar_opt.simulator.memory import reserved_by, reserved_by_nodes
from hypar_opt.step.states import states_from_rows
from hypar_opt.studies.simulation import per_second
from hypar_opt.workload.parallelism import CHOICES
from tests.cli.shell import Shell, command
from tests.commands import forked
from tests.execution import small_networks
from tests.strategies.written_plans import with_loss

HELD = {"eager": (12, 2), "in-place-eager": (4, 2), "in-place": (4, 2), "fused": (0, 0)}
"""Bytes of each logit while the loss runs, and saved for it, of elements of 2 bytes."""

MOVED = {"eager": 48, "in-place-eager": 52, "in-place": 28, "fused": 6}
"""Bytes of each logit that a loss reads and writes, forward and backward."""

TOKENS, WORDS, FEATURES = 256, 32768, 8


def llama(blocks: int = 2) -> ho.Network:
    """A LLaMA whose queries, keys and values, and gate and up, read one norm each."""
    block: list[dict[str, Any]] = [
        {"name": "norm1", "kind": "norm", "norm": "rms"},
        {"name": "query", "kind": "fc", "units": 32},
        {"name": "key", "kind": "fc", "inputs": ["norm1"], "units": 32},
        {"name": "value", "kind": "fc", "inputs": ["norm1"], "units": 32},
        {"name": "attention", "kind": "attention", "heads": 8, "causal": True}
        | {"inputs": ["query", "key", "value"]},
        {"name": "proj", "kind": "fc", "units": 32},
        {"name": "add1", "kind": "add", "inputs": ["input", "proj"]},
        {"name": "norm2", "kind": "norm", "norm": "rms"},
        {"name": "gate", "kind": "fc", "units": 64, "activation": "silu"},
        {"name": "up", "kind": "fc", "inputs": ["norm2"], "units": 64},
        {"name": "gated", "kind": "mul", "inputs": ["gate", "up"]},
        {"name": "down", "kind": "fc", "units": 32},
        {"name": "add2", "kind": "add", "inputs": ["add1", "down"]},
    ]
    return ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "small LLaMA",
            "input": {"tokens": 16, "vocabulary": 64},
            "layer": [
                {"name": "token", "kind": "embedding", "features": 32},
                {"name": "norm", "kind": "norm", "inputs": ["decoder"], "norm": "rms"},
                {"name": "head", "kind": "fc", "units": 64},
                {"name": "loss", "kind": "output"},
            ],
            "block": [{"name": "decoder", "repeat": blocks, "inputs": ["token"], "layer": block}],
        }
    )


def logits(loss: str, element_bytes: int = 2) -> ho.Plan:
    """A head of many words on eight accelerators, by batch."""
    network = ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "head",
            "input": {"tokens": TOKENS, "features": FEATURES},
            "layer": [
                {"name": "head", "kind": "fc", "units": WORDS},
                {"name": "loss", "kind": "output"},
            ],
        }
    )
    asked: dict[str, Any] = {"batch": 8, "solver": "data", "element_bytes": element_bytes}
    return ho.solve(network, array=with_loss("h100-8", loss), **asked)


@pytest.mark.parametrize("loss", HELD)
def test_a_loss_holds_and_moves_as_many_bytes_of_each_logit_as_the_way_in_which_it_is_taken(
    loss: str,
) -> None:
    plan, count = logits(loss), TOKENS * WORDS
    held = ho.memory(plan)
    at_loss, saved = HELD[loss]
    assert next(own.moment for own in held.layers if own.layer == "loss") == at_loss * count
    # Fused, neither is the error of the logits there while the head runs.
    assert next(own.moment for own in held.layers if own.layer == "head") == saved * count
    read = TOKENS * FEATURES * 2
    assert held.categories["saved"] == saved * count + read
    rows = [own for own in ho.simulate(plan).rows() if own["layer"] == "loss"]
    array = find_array("h100-8").accelerator
    launches = {"eager": 6, "in-place-eager": 8, "in-place": 4, "fused": 2}[loss] * float(
        array.launch or 0
    )
    per_byte = 1 / (float(array.dram_bandwidth) * (array.elementwise or 1))
    moved = (sum(own["compute"] for own in rows) - launches) / per_byte
    assert moved == pytest.approx(MOVED[loss] * count)


def test_in_single_precision_a_loss_in_place_needs_no_copy() -> None:
    moments = {
        loss: ho.memory(logits(loss, element_bytes=4)).moment.logits
        for loss in ("eager", "in-place")
    }
    assert moments == {"eager": 8 * TOKENS * WORDS, "in-place": 0}


def test_a_file_that_does_not_say_how_takes_its_loss_eagerly(tmp_path: Path) -> None:
    text = Path(arrays.__file__).with_name("h100-8.toml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("loss =")]
    (tmp_path / "own.toml").write_text("\n".join(lines))
    own = ho.solve("gpt2", batch=8, array=str(tmp_path / "own.toml"), solver="data")
    eager = ho.solve("gpt2", batch=8, array=with_loss("h100-8", "eager"), solver="data")
    assert ho.memory(own).total == ho.memory(eager).total
    assert own.cost.total == eager.cost.total
    with pytest.raises(
        InputError, match="loss: should be 'eager', 'in-place-eager', 'in-place' or 'fused'"
    ):
        validate(ho.Array, {**find_array("h100-8").description(), **_loss("quick")})
    groups = find_array("a100-h100-2x8").description()
    groups["accelerator"][0]["loss"] = "fused"
    with pytest.raises(InputError, match="loss: should be the same in all groups"):
        validate(ho.Array, groups)


def _loss(word: str) -> dict[str, Any]:
    accelerator = find_array("h100-8").description()["accelerator"]
    return {"accelerator": {**accelerator, "loss": word}}


def by_degrees(**training: Any) -> ho.Plan:
    """Tensor parallelism over four, whose norms are split by token (sequence parallelism)."""
    asked: dict[str, Any] = {"batch": 16, "array": "h100-8", "optimizer": "adam"}
    asked |= {"training": training}
    return ho.solve(llama(), degrees="tp=4,dp=2", **asked)


def test_megatrons_degrees_keep_shards_of_what_several_layers_gather() -> None:
    """The norms' outputs as they are written, and gather them once more in the backward pass."""
    again, once = by_degrees(), by_degrees(gather="once")
    words = {"*": "once", "decoder.*.norm1": "again", "decoder.*.norm2": "again"}
    assert again.training.gather == words
    assert (again.parallelism, again.layouts) == (once.parallelism, once.layouts)
    # Of each of two norms of two blocks three quarters of 8 x 16 x 32 elements of 2 bytes.
    tensor, norms = 2 * 8 * 16 * 32, 4
    saved = [ho.memory(own).categories["saved"] for own in (again, once)]
    assert saved[1] - saved[0] == norms * tensor * 3 // 4
    # Three accelerators of four receive each quarter, in both halves of data parallelism.
    runs = [ho.run(own) for own in (again, once)]
    assert all(run.agrees for run in runs)
    assert sum(runs[0].counted) - sum(runs[1].counted) == norms * tensor * 3 * 2
    assert again.cost.total > once.cost.total
    assert [price_of(own) for own in (again, once)] == [own.cost.total for own in (again, once)]
    steps = [ho.simulate(own, overlap="none") for own in (again, once)]
    for step, plan in zip(steps, (again, once), strict=True):
        assert step.closed_form == pytest.approx(plan.cost.total / per_second(plan))


def test_the_same_runs_in_jax(tmp_path: Path) -> None:
    """In a process that has not used JAX before, which would keep to one device."""
    by_degrees(shard="weights").save(tmp_path / "plan.json")
    done = forked(["run", "plan.json", "--backend", "jax", "--json"], tmp_path)
    assert done.status == 0
    run = json.loads(done.output)
    assert run["agrees"]
    assert not any("not as in the plan" in note for note in run["notes"])


def test_a_block_that_runs_again_gathers_no_more_often() -> None:
    plans = [by_degrees(gather=word, recompute="full") for word in ("again", "once")]
    assert plans[0].cost.total == plans[1].cost.total
    assert ho.memory(plans[0]).total == ho.memory(plans[1]).total


@pytest.mark.parametrize(("shard", "halves"), [("none", (2, 0)), ("state", (1, 1))])
@pytest.mark.parametrize("reduce_bytes", [2, 4])
def test_gradients_are_exchanged_and_held_in_the_bytes_that_are_stated(
    reduce_bytes: int, shard: str, halves: tuple[int, int]
) -> None:
    """Of an all-reduce both halves are of gradients; of a state that is sharded the first alone."""
    asked: dict[str, Any] = {"batch": 16, "array": "h100-8", "solver": "data", "optimizer": "adam"}
    training = {"reduce_bytes": reduce_bytes, "shard": shard}
    plan = ho.solve("cifar-c", **asked, training=training)
    weights = sum(row["weights"] for row in plan.network.description.rows())
    own = sum(count * size for count, size in zip(halves, (reduce_bytes, 2), strict=True))
    moved = 7 * weights * own
    run = ho.run(plan)
    assert run.agrees
    assert sum(run.counted) == moved
    assert ho.memory(plan).categories["gradients"] == reduce_bytes * weights
    assert price_of(plan) == plan.cost.total


def test_what_is_reduced_in_less_than_an_element_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HyparError, match="reduce_bytes: should be no less than element_bytes, 4"):
        ho.solve("cifar-c", batch=8, array="h100-8", element_bytes=4, training={"reduce_bytes": 2})
    done = command(["solve", "cifar-c", "--array", "h100-8", "--reduce-bytes", "3"], tmp_path)
    assert (done.status, done.errors.count("\n")) == (2, 1)
    assert "reduce_bytes: should be 2 or 4, got 3" in done.errors
    with pytest.raises(HyparError, match="gather: should be once or again, got"):
        ho.solve("cifar-c", batch=8, array="h100-8", training={"gather": "twice"})


def test_a_plan_file_states_both_and_is_read(tmp_path: Path) -> None:
    plan = by_degrees(reduce_bytes=4)
    ho.write_plan(plan, tmp_path / "plan.json")
    assert '"schema": "hypar-opt/plan/12"' in (tmp_path / "plan.json").read_text()
    read = ho.read_plan(tmp_path / "plan.json")
    assert read.training == plan.training
    assert ho.memory(read).total == ho.memory(plan).total
    done = command(["memory", "plan.json"], tmp_path)
    assert "gradients of 4 bytes" in done.output
    assert "tensors of 4 layers gathered again" in done.output


def reserved(plan: ho.Plan) -> float:
    return ho.memory(plan).reserve / 1e9


def test_each_further_communicator_and_experts_are_reserved_for() -> None:
    """FSDP has one; tensor parallelism inside has two; hybrid sharding has one of replicas, too."""
    asked: dict[str, Any] = {"batch": 16, "array": "h100-8", "optimizer": "adam"}
    alone = ho.solve(llama(), **asked, solver="data", training={"shard": "weights"})
    assert reserved(alone) == 5
    inside = ho.memory(alone, shard="weights@H2-H3")
    assert inside.reserve == 5_700_000_000
    # Words of the vocabulary, features and heads are split at the same levels as one another.
    assert reserved(by_degrees()) >= 5.7
    mixture = small_networks.mixture()
    pins = strategy_pins(mixture, (2, 2, 2), "expert", 4)
    choices = ("data", "model", "output", "experts")
    experts = ho.solve(mixture, batch=16, array="h100-8", choices=choices, fix=pins)
    assert reserved(experts) >= 5 + 0.7 + 3.3


@pytest.mark.parametrize("shard", ["none", "weights", {"*": "state", "head": "weights@H2-H3"}])
@pytest.mark.parametrize("tied", [False, True])
def test_a_layer_needs_no_more_communicators_than_its_plan(tied: bool, shard: Any) -> None:
    """And one that has all of its plan's as many."""
    for network in (small_networks.gpt(tied=tied), small_networks.mixture()):
        asked: dict[str, Any] = {"batch": 16, "array": "h100-8", "training": {"shard": shard}}
        problem = problem_of(network, **asked, choices=CHOICES)
        instance, rng = Instance(network, problem), Random(0)
        workload, accelerator = instance.workload, find_array("h100-8").accelerator
        nodes, once = np.arange(len(workload.nodes)), workload.single_pass or workload
        users = [user for users in workload.weight_users.values() for user in users]
        offered = [
            [number for number, choice in enumerate(choices) if choice]
            for choices in workload.choices_of_nodes
        ]
        plans = [[[rng.choice(own) for own in offered] for _ in range(3)] for _ in range(20)]
        by_data = [[0] * len(nodes)] * 3
        for rows in (*plans, by_data):
            states = states_from_rows(rows, len(nodes))
            by_node = reserved_by_nodes(accelerator, workload, nodes, states).tolist()
            whole = reserved_by(accelerator, workload, rows)
            assert max(by_node) <= whole
            # How shared weights are sharded is said of these.
            alike = reserved_by_nodes(accelerator, once, nodes, states).tolist()
            assert [by_node[user] for user in users] == [alike[user] for user in users]
        assert max(by_node) == whole


def test_what_fits_says_by_how_much(tmp_path: Path, shell: Shell) -> None:
    network, file = (
        "gpt:layers=2,hidden=64,heads=4,tokens=32,vocabulary=100",
        tmp_path / "plan.json",
    )
    call = [network, "--array", "h100-8", "--batch", "8"]
    assert '"margin": ' in shell.output("memory", *call, "--solver", "data", "--json")
    for words in (["solve"], ["simulate"], ["memory", "--solver", "data"]):
        said = " ".join(shell.output(words[0], *call, *words[1:]).split())
        assert "fits: " in said or words == ["solve"]
        if words != ["solve"]:
            assert " to spare; reserve " in said
    wide = "gpt:layers=2,hidden=8192,heads=64,tokens=2048,vocabulary=32000"
    whole = ["solve", wide, "--array", "h100-8", "--batch", "512", "--solver", "data"]
    assert shell(*whole, "--output", file)[0] == 0
    stated = ["--micro-batches", "1", "--shard", "none", "--recompute", "none"]
    said = " ".join(shell("memory", file, *stated)[1].split())
    assert "does not fit: " in said
    assert " too much; reserve 5 GB." in said
