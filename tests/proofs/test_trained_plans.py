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
from hypar_opt.hardware.array import COLLECTIVES
from hypar_opt.hardware.arrays import find_array
from hypar_opt.plan.arguments import problem_of
from hypar_opt.proofs.certificate import Certificate, check_certificate, check_price, proved_bound
from hypar_opt.proofs.check.memory import NodeMemory
from hypar_opt.proofs.check.nodes import nodes_of
from hypar_opt.proofs.check.rows import PlanProblem, nodes_states, price_of
from hypar_opt.proofs.check.tables import table_over_modes
from hypar_opt.proofs.check.training import Pass, counts_of
from hypar_opt.proofs.graphs import EliminationProof
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.brute_force import BruteForce
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.studies.simulation import per_second
from hypar_opt.workload.parallelism import GATHERED, RECOMPUTED, REDUCE_BYTES, SHARDED
from hypar_opt.workload.patterns import words_by_layer
from hypar_opt.workload.recomputation import recomputed_words
from tests.costs.test_energy import per_joule
from tests.execution import small_networks
from tests.execution.virtual.test_training import by_layer
from tests.slow import slow_after
from tests.strategies.arrays import random_array
from tests.strategies.problems import random_network
from tests.strategies.ways_of_training import counted, ways_by_layer, words_in
from tests.strategies.written_plans import with_collective, with_loss

NO_CLAIM = {"status": "feasible", "bound": None}
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
    more = Random(repr(seed))
    element_bytes = more.choice([1, 2, 4])
    gathered = {layer.name: more.choice(GATHERED) for layer in network.layers}
    training = dict(zip(names, way, strict=True)) | {
        "gather": more.choice([None, "again", gathered]),
        "reduce_bytes": more.choice([None, *(n for n in REDUCE_BYTES if n >= element_bytes)]),
    }
    return network, {
        "array": array,
        "batch": 12,
        "training": training,
        "element_bytes": element_bytes,
        "cost": cost,
        "reading": "executed",
        "choices": ("data", "model", "output")[: rng.choice((2, 3))],
        "solver": rng.choice(["data", "model", "trick"]),
        "constraints": {"runnable": False},
        **({"bucket": rng.choice([0, 10**3, 10**6])} if cost == "time" else {}),
    }


@pytest.mark.parametrize("seed", slow_after(20, range(720)))
def test_a_plan_that_trains_costs_what_the_search_says(seed: int) -> None:
    network, asked = drawn(seed)
    plan = ho.solve(network, **asked)
    assert price_of(plan) == Fraction(plan.cost.total), asked
    if plan.problem.device_memory is not None:
        held = ho.memory(plan)
        assert _least_held(plan) <= plan.accelerators * (held.total - held.reserve), asked


def _least_held(plan: ho.Plan) -> int:
    """Return what a plan holds at least, in all accelerators, by the proofs' derivation."""
    problem, network = PlanProblem(plan), plan.network.description
    memory, shared = NodeMemory(plan, problem.graph), problem.graph.shared
    names = [layer.name for layer in network.layers]
    again = [word or "none" for word in recomputed_words(network, plan.training.recompute)]
    split = [word or "none" for word in words_by_layer(plan.training.shard, names, "shard")]
    description = plan.array and plan.array.description
    assert description
    accelerator = description.accelerator
    room = int(accelerator.dram_capacity) - int(accelerator.reserve or 0)
    total = plan.accelerators * room - memory.capacity  # a moment, and the network's input
    for node, state in enumerate(nodes_states(problem)):
        users = [node - shared] if node >= shared else []
        users += [user - shared for user in problem.graph.users(node)]
        words = [split[user] for user in users if split[user] != "none"]
        run_again = again[node - shared] if node >= shared else "none"
        total += memory.of(node, state, run_again, words[0] if words else "none")
    return total


@pytest.mark.parametrize("seed", slow_after(10, range(500)))
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


@pytest.mark.parametrize("collective", slow_after(2, COLLECTIVES[1:]))
@pytest.mark.parametrize("word", ["gradients@H3", "weights@H3"])
def test_a_ring_of_which_an_inner_level_is_split_pays_for_the_links_of_both(
    collective: str, word: str
) -> None:
    """Two levels lie along one side of a torus: reduced apart, their bytes cross other links."""
    described = random_array(Random(0), 1, detailed=True).description()
    described["topology"] = {"kind": "torus", "shape": [3, 4]} | {"link": {"bandwidth": "1 kB/s"}}
    described["energy"] = dict.fromkeys(("mac", "sram", "dram", "remote", "hop"), "2 pJ")
    array = with_collective(ho.Array.model_validate(described), collective)
    asked: dict[str, Any] = {"array": array, "batch": 48, "cost": "energy", "solver": "data"}
    plan = ho.solve(NETWORKS[3], **asked, training={"shard": word})
    assert price_of(plan) == Fraction(plan.cost.total)
    joules = Fraction(plan.cost.total) / per_joule(plan)
    assert ho.simulate(plan).energy.total == pytest.approx(float(joules))
    whole = ho.solve(NETWORKS[3], **asked)
    assert plan.cost.total > whole.cost.total


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
        overlap="none",
    )
    graph = nodes_of(plan)
    steps = counts_of(plan, graph)
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


@pytest.mark.parametrize("shard", slow_after(1, reversed(SHARDED)))
def test_the_best_plan_that_trains_in_a_way_is_proved(shard: str) -> None:
    training = {"micro_batches": 2, "recompute": "full", "shard": shard}
    asked: dict[str, Any] = {"batch": 16, "array": "h100-8", "training": training, "bucket": 0}
    asked |= {"choices": ("data", "model"), "overlap": "none"}
    network = small_networks.gpt(tied=False)
    best = ho.solve(network, **asked, search="joint")
    certificate = ho.certify(best)
    check_certificate(best, certificate)
    other = best.model_copy(update={"training": best.training.model_copy(update={"shard": None})})
    if shard != "none":
        with pytest.raises(CheckFailedError, match="belongs to another plan"):
            check_certificate(other, certificate)
    if shard in ("gradients", "weights"):
        with pytest.raises(CheckFailedError, match="the plan's own choices cost"):
            check_price(other)
    with pytest.raises(HyparError, match="no certificate"):
        ho.certify(ho.solve(network, **asked, solver="model"))


@pytest.mark.parametrize("seed", slow_after(4, range(60)))
def test_the_table_of_all_ways_bounds_just_the_best_plan_of_any(seed: int) -> None:
    """Of all layouts and ways of each layer, from whichever level on, in as many micro-batches."""
    rng = Random(seed)
    network = random_network(rng, 2)
    array = with_collective(random_array(rng, 2 if len(network.layers) == 1 else 1), "ring")
    asked: dict[str, Any] = {"array": array, "batch": 4, "bucket": 0, "cost": "time"}
    asked |= {"reading": "executed", "choices": ("data", "model")}
    asked |= {"constraints": {"runnable": False}, "training": {"micro_batches": rng.choice([1, 2])}}
    plan = ho.solve(network, **asked)
    table, count = table_over_modes(plan), plan.training.micro_batches or 1
    assert table is not None
    ways = ways_by_layer(network, count, words=words_in(array.levels))
    problem = problem_of(network, **asked)
    every = [seconds for way in ways for seconds, _ in counted(problem, network, way)]
    bound = Fraction(BruteForce().solve(table.by_edge, SolverOptions()).objective or 0)
    rounded = Fraction(100 * count * len(plan.layers), per_second(plan))
    assert abs(bound / per_second(plan) - min(every)) <= rounded


@pytest.mark.parametrize("seed", slow_after(4, [1, 2, 4, 9, 0, *range(5, 30)]))
def test_no_plan_that_fits_costs_less_than_is_proved(seed: int) -> None:
    """Of all layouts and ways of each layer; a bound that is higher is refused."""
    rng = Random(seed)
    network, network_levels = random_network(rng, 3), rng.randint(1, 2)
    while len(network.layers) * network_levels > 3:
        network, network_levels = random_network(rng, 3), 1
    array = with_collective(random_array(rng, network_levels), "ring")
    count = rng.choice([1, 2])
    asked: dict[str, Any] = {"array": array, "batch": 4, "bucket": 0, "cost": "time"}
    asked |= {"reading": "executed", "choices": ("data", "model")}
    asked |= {"training": {"micro_batches": count}}
    limits = {"runnable": False, "optimizer": rng.choice(["sgd", "adam"])}
    problem = problem_of(network, **asked, constraints=limits)
    ways = ways_by_layer(network, count, words=["none", *words_in(array.levels)])
    every = [own for way in ways for own in counted(problem, network, way)]
    sizes = sorted({held for _, held in every})
    for memory in rng.sample(sizes, min(2, len(sizes))):
        plan = ho.solve(network, **asked, constraints={**limits, "memory": memory})
        assert plan.solver.status == "optimal"
        certificate = ho.certify(plan)
        check_claims(plan, certificate)
        least = min(seconds for seconds, held in every if held <= memory)
        proved = Fraction(certificate.bound or plan.cost.total) / per_second(plan)
        assert proved <= least + Fraction(100 * count * len(plan.layers), per_second(plan))
        if certificate.bound is not None:
            higher = certificate.model_copy(update={"bound": certificate.bound + 1})
            with pytest.raises(CheckFailedError, match="bound: should be at most"):
                proved_bound(plan, higher)


def check_claims(plan: ho.Plan, certificate: Certificate) -> None:
    """Check that a plan may claim what its certificate proves, and no more."""
    proved = proved_bound(plan, certificate)
    assert proved == (plan.cost.total if certificate.bound is None else certificate.bound)
    for claimed in {proved, Fraction(plan.cost.total)}:
        optimal = claimed == plan.cost.total
        status = "optimal" if optimal else "feasible"
        solver = plan.solver.model_copy(update={"status": status, "bound": float(claimed)})
        claims = plan.model_copy(update={"solver": solver})
        row = ho.verify(claims, certificate=certificate)
        if claimed <= proved:
            assert check_certificate(claims, certificate) == proved
            row.check()
            continue
        with pytest.raises(CheckFailedError, match="and the plan claims to be optimal"):
            check_certificate(claims, certificate)
        assert row.rows()[0]["unproved"] == "to be optimal"
        with pytest.raises(CheckFailedError, match="its file claims to be optimal, and is proved"):
            row.check()
        cautious = claims.model_copy(update={"solver": solver.model_copy(update=NO_CLAIM)})
        assert check_certificate(cautious, certificate) == proved


def test_a_certificate_of_any_training_vouches_for_all_ways_by_layer() -> None:
    network = small_networks.gpt(tied=False)
    asked: dict[str, Any] = {"batch": 16, "array": "h100-8", "bucket": 0, "overlap": "none"}
    asked["choices"] = ("data", "model")
    asked["constraints"] = {"optimizer": "adam"}
    best = ho.solve(network, **asked)
    proof = ho.certify(best)
    assert (proof.training, best.training.stated) == ("any", {"shard": "state"})
    checked = ho.verify(best, certificate=proof)
    assert "of all plans of the batch at once" in str(checked.rows()[0]["optimal"])
    rng = Random(0)
    for _ in range(2):
        recompute, shard = by_layer(rng, network, words_in(3))
        other = ho.solve(network, **asked, training={"recompute": recompute, "shard": shard})
        assert other.cost.total >= best.cost.total
        own = ho.certify(other)
        assert own.training is None
        with pytest.raises(CheckFailedError):  # it may not claim more than it proves
            check_certificate(other, own.model_copy(update={"training": "any"}))
    with pytest.raises(CheckFailedError):  # nor less be claimed with its messages raised
        check_certificate(best, _raised(proof))


def _raised(proof: Certificate) -> Certificate:
    """The proof with each message of its table one higher."""
    (table,) = proof.tables
    assert isinstance(table, EliminationProof)
    messages = tuple(tuple(entry + 1 for entry in own) for own in table.messages)
    return proof.model_copy(update={"tables": (table.model_copy(update={"messages": messages}),)})


def test_the_memory_that_a_plan_states_is_what_a_device_holds(tmp_path: Path) -> None:
    """Not the paper's sum over layers, which is far more; and less than it takes is refused."""
    network = "gpt:layers=2,hidden=1024,heads=16,tokens=1024,vocabulary=8192"
    stated: dict[str, Any] = {"memory": "700MB", "optimizer": "adam"}
    plan = ho.solve(
        network, batch=64, array=with_loss("h100-8", "eager"), constraints=stated, overlap="none"
    )
    assert plan.training.non_default
    check_price(plan)
    constraints = plan.constraints.model_copy(update={"memory": 600 * 10**6})
    short = plan.model_copy(update={"constraints": constraints})
    with pytest.raises(CheckFailedError, match=r"takes 637,[0-9,]+ bytes of 600,000,000"):
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
