"""Steps in JAX that repeat passes and shard weights move what is modelled, loops counted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import HyparError
from hypar_opt.execution.export import jax_module
from hypar_opt.execution.jax.collectives import collectives
from hypar_opt.execution.shardings import shardings
from hypar_opt.sharding.program import Program
from hypar_opt.workload.parallelism import RECOMPUTED, SHARDED
from tests.execution.drawn_plans import random_program
from tests.execution.jax.steps import results
from tests.execution.small_networks import chain, cnn, gpt
from tests.execution.virtual.test_training import by_layer, trained
from tests.slow import slow_after
from tests.strategies.ways_of_training import words_in

NETWORKS = {"chain": chain(), "GPT": gpt(tied=False), "tied GPT": gpt(tied=True), "CNN": cnn()}
NETWORKS |= {"two blocks": gpt(tied=False, blocks=2)}
CASES = [
    ("chain", 3, "none", "weights"),
    ("chain", 2, "full", "gradients"),
    ("tied GPT", 2, "by layer", "by layer"),
    ("tied GPT", 2, "op", "weights"),
    ("tied GPT", 2, "full", "weights"),
    ("two blocks", 2, "by layer", "by layer"),
    ("CNN", 1, "op", "none"),
    ("tied GPT", 2, "selective", "weights"),
    ("chain", 1, "none", "state"),
    *product(NETWORKS, (1, 2), RECOMPUTED, SHARDED),
]


@pytest.mark.parametrize("part", slow_after(1, range(0, len(CASES), 4)))
def test_steps_that_train_move_what_is_modelled(part: int) -> None:
    rng = random.Random(part)
    programs = []
    for name, *way in CASES[part : part + 4]:
        network = NETWORKS[name]
        if "by layer" in way:
            shard = by_layer(rng, network)[1]
            again = {"decoder.0": "selective", "*": "none"}
            again |= {"decoder.1": rng.choice(["op", "full"])} if name == "two blocks" else {}
            way = [way[0], again, shard]
        program = random_program(rng, network, rng.choice([(2,), (2, 2), (2, 2, 2)]))
        programs.append((network, trained(network, program, tuple(way))))  # type: ignore[arg-type]
    _agree(programs, CASES[part:])


@pytest.mark.parametrize("seed", slow_after(1, [6, *range(6), *range(7, 12)]))
def test_what_is_split_from_a_level_down_moves_what_is_modelled(seed: int) -> None:
    """Inside a node, say: each layer in its own way, on two or three levels."""
    rng = random.Random(seed)
    programs = []
    for name in ("chain", rng.choice(["tied GPT", "two blocks", "CNN"])):
        network, sizes = NETWORKS[name], rng.choice([(2, 2), (2, 2, 2)])
        shard = by_layer(rng, network, words_in(len(sizes)))[1]
        way = rng.randint(1, 2), rng.choice(RECOMPUTED), shard
        programs.append((network, trained(network, random_program(rng, network, sizes), way)))
    _agree(programs, [seed, seed])


def _agree(programs: list[tuple[ho.Network, Program]], cases: Sequence[object]) -> None:
    for case, found in zip(cases, results(programs), strict=False):
        if "refused" in found:
            assert "equal shards" in found["refused"], case
            continue
        assert found["differences"] == [], case
        errors = found["loss"], found["updated"], found["gradients"]
        assert max(errors) < 1e-5, case


LOOP = """
%body.1 (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %r = f32[8]{0} all-reduce(%x), replica_groups={{0,1}}, to_apply=%add
}

%called.2 (p: f32[4]) -> f32[8] {
  %g = f32[8]{0} all-gather(%y), replica_groups={{0,1}}, dimensions={0}
}

%outer.3 (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %w = (s32[], f32[8]) while(%t), condition=%c, body=%body.1, metadata={op_name="a"}, TRIPS
  %k = f32[8] call(%z), to_apply=%called.2
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %v = (s32[], f32[8]) while(%t), condition=%c, body=%outer.3, KNOWN
}
""".replace("KNOWN", 'backend_config={"known_trip_count":{"n":"5"}}')


def test_what_a_loop_moves_counts_in_each_of_its_trips() -> None:
    text = LOOP.replace("TRIPS", 'backend_config={"known_trip_count":{"n":"3"}}')
    moved = {one.kind: one.bytes for one in collectives(text, (2,))}
    assert moved == {"all-reduce": 3 * 5 * 2 * 32, "all-gather": 5 * 2 * 16}
    with pytest.raises(ValueError, match="how often its loop runs is not known"):
        list(collectives(LOOP, (2,)))


def plan_of(**training: Any) -> ho.Plan:
    network = ho.gpt(layers=1, hidden=16, heads=4, tokens=8, vocabulary=48)
    asked: dict[str, Any] = {"batch": 16, "array": "h100-8", "constraints": {"even": True}}
    return ho.solve(network, **asked, solver="data", training=training)


def test_an_export_says_how_it_trains_or_why_it_cannot() -> None:
    text = jax_module(plan_of(micro_batches=2, shard="weights"), approximate=True)
    assert 'MICRO_BATCHES = 2\nSHARDED = {\n    "token": "weights",' in text
    assert "MICRO_BATCHES" not in jax_module(plan_of(), approximate=True)
    text = jax_module(plan_of(recompute="full"), approximate=True)
    assert "def from_decoder_0_norm1(w, inputs, embedded):" in text
    assert "add2, = again(from_decoder_0_norm1, " in text
    named = shardings(plan_of(micro_batches=2, recompute="full"))
    assert named["training"] == {"micro_batches": 2, "recompute": "full"}
    assert "training" not in shardings(plan_of())


def test_weights_that_do_not_divide_into_shards_are_refused_by_name() -> None:
    network = ho.Network.model_validate(
        {
            "name": "odd",
            "input": {"features": 3},
            "layer": [{"name": "fc", "kind": "fc", "units": 5}],
        }
    )
    training = {"shard": "state"}
    plan = ho.solve(network, batch=8, array="h100-8", solver="data", training=training)
    with pytest.raises(HyparError, match="layer 'fc': its 15 weights do not divide into 8 equal"):
        ho.run(plan, backend="jax")
    assert ho.run(plan).agrees
