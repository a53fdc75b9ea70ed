"""Plans that repeat passes and shard weights are priced, and proved, by a derivation of its own."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import CheckFailedError, HyparError
from hypar_opt.hardware.arrays import find_array
from hypar_opt.proofs.certificate import check_certificate, check_price
from hypar_opt.proofs.reference.exchanges import shares_tensors
from hypar_opt.proofs.reference.nodes import nodes_of
from hypar_opt.proofs.reference.repetitions import Pass, repetitions_of
from hypar_opt.proofs.reference.rows import price_of
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.parallelism import RECOMPUTED, SHARDED
from tests.costs.test_energy import per_joule
from tests.execution import small_networks
from tests.execution.virtual.test_training import by_layer
from tests.slow import slow_after
from tests.strategies.arrays import random_array
from tests.strategies.ways_of_training import words_in
from tests.strategies.written_plans import with_collective

WAYS = [*product((1, 2, 3), RECOMPUTED, SHARDED)]
NETWORKS = [
    small_networks.gpt(tied=False, blocks=2),
    small_networks.gpt(tied=True),
    small_networks.cnn(),
    small_networks.chain(),
]


def drawn(seed: int) -> tuple[ho.Network, dict[str, Any]]:
    """A network, an array, a way of training, and a plan of them."""
    rng = Random(seed)
    network = random_graph(rng, most=5, largest=4) if seed % 2 else rng.choice(NETWORKS)
    array: Any = rng.choice(["h100-8", "tpu-v4-8"])
    if rng.random() < 0.7:
        collective = rng.choice(["pairwise", "ring", "hierarchical"])
        array = with_collective(random_array(rng, rng.randint(1, 3)), collective)
    names = ("micro_batches", "recompute", "shard")
    cost = rng.choice(["time", "time", "bytes"])
    way: Any = WAYS[seed % len(WAYS)]
    if seed % 5 < 3:
        words = words_in(find_array(array).levels) if seed % 5 else SHARDED
        way = way[0], *by_layer(rng, network, words)
    return network, {
        "array": array,
        "batch": 12,
        "training": dict(zip(names, way, strict=True)),
        "cost": cost,
        "reading": "executed",
        "choices": ("data", "model", "output")[: rng.choice((2, 3))],
        "solver": rng.choice(["data", "model", "trick"]),
        "constraints": {"runnable": False},
        **({"bucket": rng.choice([0, 10**3, 10**6])} if cost == "time" else {}),
    }


@pytest.mark.parametrize("seed", slow_after(36, range(720)))
def test_a_plan_that_trains_costs_what_the_search_says(seed: int) -> None:
    network, asked = drawn(seed)
    plan = ho.solve(network, **asked)
    assert price_of(plan) == Fraction(plan.cost.total), asked


@pytest.mark.parametrize("seed", slow_after(16, range(500)))
def test_a_plan_for_energy_pays_for_each_time_that_a_pass_runs(seed: int) -> None:
    """As a derivation of its own and the simulator count it, words between accelerators too."""
    network, asked = drawn(seed)
    rng, levels = Random(seed), find_array(asked["array"]).levels
    array = random_array(rng, levels, detailed=True)
    array = with_collective(array, rng.choice(["pairwise", "ring", "hierarchical"]))
    asked = {key: value for key, value in asked.items() if key != "bucket"}
    plan = ho.solve(network, **{**asked, "cost": "energy", "array": array})
    assert price_of(plan) == Fraction(plan.cost.total), asked
    joules = Fraction(plan.cost.total) / per_joule(plan)
    assert ho.simulate(plan).energy.total == pytest.approx(float(joules))


def test_running_all_layers_again_computes_a_third_more() -> None:
    asked: dict[str, Any] = {"batch": 16, "array": "hmc-htree-8", "solver": "data"}
    asked |= {"cost": "energy", "reading": "executed"}

    def energy(**training: Any) -> Any:
        return ho.simulate(ho.solve(NETWORKS[3], **asked, training=training)).energy

    once = energy()
    assert energy(recompute="full").macs == pytest.approx(once.macs * 4 / 3)
    assert energy(recompute="full").dram == pytest.approx(once.dram * 4 / 3)
    assert energy(micro_batches=2).macs == once.macs
    # Each micro-batch reads the weights, in each of its three passes.
    assert energy(micro_batches=2).dram > once.dram
    assert energy(shard="weights").remote == pytest.approx(once.remote * 3 / 2)


def test_a_step_is_counted_as_it_runs() -> None:
    """Two micro-batches of two blocks, run again, weights gathered for each pass."""
    plan = ho.solve(
        NETWORKS[1],
        batch=16,
        array="h100-8",
        training={"micro_batches": 2, "recompute": "full", "shard": "weights"},
    )
    graph = nodes_of(plan, shared_tensors=shares_tensors(plan))
    steps = repetitions_of(plan, graph)
    names = [node.name for node in graph.nodes]
    norm, head, tied = map(names.index, ("decoder.0.norm1", "head", "weights of token"))
    both = Pass.FORWARD, Pass.BACKWARD
    assert [steps.computed[step, norm] for step in Pass] == [4, 2, 2]
    assert [steps.exchanged[step, norm] for step in both] == [4, 2]
    assert [steps.computed[step, head] for step in both] == [2, 2]
    # Of the table that the embedding and the head use each gathers its own, forward and backward.
    for level in range(3):
        assert (steps.scattered[tied, level], steps.gathered[tied, level]) == (2, 8)
        assert (steps.scattered[norm, level], steps.gathered[norm, level]) == (2, 4)


@pytest.mark.parametrize("shard", SHARDED)
def test_the_best_plan_that_trains_in_a_way_is_proved(shard: str) -> None:
    training = {"micro_batches": 2, "recompute": "full", "shard": shard}
    asked: dict[str, Any] = {"batch": 16, "array": "h100-8", "training": training, "bucket": 0}
    network = small_networks.gpt(tied=False)
    best = ho.solve(network, **asked, search="joint")
    certificate = ho.certify(best)
    check_certificate(best, certificate)
    other = best.model_copy(update={"training": best.training.model_copy(update={"shard": None})})
    if shard != "none":
        with pytest.raises(CheckFailedError, match="of another plan"):
            check_certificate(other, certificate)
    if shard in ("gradients", "weights"):
        with pytest.raises(CheckFailedError, match="the plan's own choices cost"):
            check_price(other)
    with pytest.raises(HyparError, match="no certificate"):
        ho.certify(ho.solve(network, **asked, solver="model"))


def test_the_memory_that_a_plan_states_is_what_a_device_holds(tmp_path: Path) -> None:
    """Not the paper's sum over layers, which is far more; and less than it takes is refused."""
    plan = ho.solve(
        "gpt2",
        batch=512,
        array="h100-8",
        constraints={"memory": "20GB", "optimizer": "adam"},
    )
    assert plan.training.unlike_defaults
    check_price(plan)
    constraints = plan.constraints.model_copy(update={"memory": 15 * 10**9})
    short = plan.model_copy(update={"constraints": constraints})
    with pytest.raises(CheckFailedError, match=r"takes 17,[0-9,]+ bytes of 15,000,000,000"):
        check_price(short)


def test_a_concatenation_in_unequal_parts_takes_as_long_whatever_else_a_network_has() -> None:
    """Its inputs are read alike: their words are rounded up together."""
    layers: list[dict[str, Any]] = [
        {"name": f"fc{n}", "kind": "fc", "units": units, "inputs": ["input"]}
        for n, units in enumerate((3, 7))
    ]
    layers.append({"name": "both", "kind": "concat", "inputs": ["fc0", "fc1"]})
    layers.append({"name": "qkv", "kind": "fc", "units": 24})
    layers.append({"name": "attention", "kind": "attention", "heads": 8})
    network = ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "unequal",
            "input": {"features": 4, "tokens": 2},
            "layer": layers,
        }
    )
    plan = ho.solve(
        network, batch=8, array="h100-8", solver="model", constraints={"runnable": False}
    )
    assert price_of(plan) == Fraction(plan.cost.total)
