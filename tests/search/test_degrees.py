"""The search over configurations: evaluated as the simulator does, and exact."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

import hypar_opt as ho
from hypar_opt.deadline import Deadline
from hypar_opt.errors import NoAnswerError
from hypar_opt.hardware.arrays import find_array
from hypar_opt.models import find_network
from hypar_opt.plan.configuration import HYBRID, Configuration, family, rows_of
from hypar_opt.plan.stated import stated_problem
from hypar_opt.planning.priced import plan_of_configuration
from hypar_opt.search.degrees import Evaluator, Searched, fitting_configurations, search_degrees
from hypar_opt.search.overlap import bound_of_all_plans
from hypar_opt.simulator.lockstep import NotInLockstepError
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.run import run_by_events
from hypar_opt.simulator.step import program
from hypar_opt.simulator.tasks import before_last_micro_batch
from hypar_opt.workload.parallelism import SHARDED
from hypar_opt.workload.tensors import workload_of
from tests.clocks import tick_when_read
from tests.slow import fewer, slow_after
from tests.strategies.arrays import random_array

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network


GPT_3 = "gpt:layers=96,hidden=12288,heads=96,tokens=2048,vocabulary=51200"
WITHOUT_RESERVE: dict[str, None] = {
    f"accelerator__{key}": None for key in ("reserve", "reserve_groups", "reserve_experts")
}
BEFORE = {"overlap": "gradient", "overlap_efficiency": 1}
"""How steps overlapped when the constants of the arrays ``mosaic-*`` were fitted."""


def network_of(name: str, blocks: int | None) -> Network:
    """Return a network, with another number of repetitions of blocks that have several.

    Experts of "loaded" have loads, of which some repetitions differ.
    """
    network = find_network(name.removeprefix("loaded "))
    described = network.description()
    for block in described["block"] if name.startswith("loaded ") else ():
        for layer in block["layer"]:
            if layer["kind"] == "router":
                layer["load"] = [
                    [5, 1, 1, 2, 1, 1, 1, 4],
                    [2] * 8,
                    [1] * 8,
                    [0, 3, 3, 1, 1, 1, 1, 2],
                ]
                layer["load"] = layer["load"][: blocks or 0]
    for block in described["block"] if blocks else ():
        if block.get("repeat", 1) > 1:
            block["repeat"] = blocks
    return type(network).model_validate(described)


def array_of(name: str, **keys: Any) -> Array:
    """Return an array with other keys, None to leave one out: of a table as ``table__key``."""
    array = find_array(name)
    described = array.description()
    for key, value in keys.items():
        *tables, last = key.split("__")
        table = described
        for part in tables:
            table = table[part]
        table[last] = value
        if value is None:
            del table[last]
    return type(array).model_validate(described)


def problem_on(
    name: str, array: Array, batch: int, blocks: int | None = None, **more: Any
) -> tuple[Network, Problem]:
    arguments: Any = {"batch": batch, "array": array, "optimizer": "adam", "choices": "all"}
    arguments |= {"cost": "time", **more}
    return stated_problem(network_of(name, blocks), arguments)


def drawn(network: Network, problem: Problem, seed: int, count: int) -> list[Configuration]:
    """Return configurations of a family, half of those that run blocks again with some of these."""
    chosen = random.Random(seed)
    blocks = sum(run.count for run in network.repeats)
    words = ("none", "op", "full")
    found = chosen.sample([*family(network, problem, recompute=words)], count)
    return [
        own._replace(blocks=chosen.randint(1, blocks - 1))
        if blocks > 1 and own.recompute != "none" and chosen.random() < 0.5
        else own
        for own in found
    ]


CASES = [
    ("llama-3-8b", "h100-8x8", {}, 64, 6, 1),
    ("gpt2", "h100-8", {"overlap": "gradient"}, 64, 7, 2),
    ("mixtral-8x7b", "h100-8x8", {"overlap": "none"}, 64, 5, 3),
    ("loaded mixtral-8x7b", "h100-8", {}, 16, 2, 8),
    ("gpt2", "h100-8", {"hidden": 0.5, "ring": True}, 32, 3, 4),
    ("gpt2", "h100-8", {"overlap": "branches"}, 32, 3, 5),
    ("gpt2", "a100-4x8", {"overlap_efficiency": 0.7}, 64, 5, 6),
    # Buckets over several blocks; channels that grow; no blocks.
    ("resnet-50", "rtx4090x4", {}, 64, None, 18),
    ("densenet-121", "rtx4090x4", {}, 64, 4, 19),
    ("vgg-a", "v100-16", {}, 64, None, 20),
    ("llama-3-8b", "h100-8x8", {"topology__nodes": 12}, 192, 5, 7),
    ("bert-base", "h100-8", {}, 64, 7, 8),
    ("loaded mixtral-8x7b", "h100-8x8", {"overlap": "gradient"}, 64, 4, 2),
    ("t5-base", "h100-8", {}, 64, 5, 9),
    ("vit-b16", "h100-8", {}, 64, None, 10),
    ("deepseek-moe-16b", "h100-8", {}, 64, None, 11),
    ("gpt2", "v100-16", {"overlap": "gradient"}, 64, 5, 12),
    ("gpt2", "tpu-v4-4x4x4", {"overlap": "prefetch"}, 256, 5, 13),
    ("llama-70b", "h100-8x8", {}, 64, None, 14),
    ("mixtral-8x7b", "mosaic-h100-8x8", {"overlap": "gradient"}, 512, None, 15),
    (GPT_3, "mosaic-h100-8x8", {"topology__nodes": 16, "overlap": "gradient"}, 1536, None, 16),
    ("llama-70b", "mosaic-h100-8x8", {"topology__nodes": 16, "overlap": "gradient"}, 512, None, 17),
]


@pytest.mark.parametrize(
    ("name", "array", "keys", "batch", "blocks", "seed"), slow_after(10, CASES)
)
def test_a_configuration_takes_the_seconds_and_bytes_of_its_simulated_plan(
    name: str, array: str, keys: dict[str, Any], batch: int, blocks: int | None, seed: int
) -> None:
    network, problem = problem_on(name, array_of(array, **keys), batch, blocks)
    early_stop = bool(seed % 2)
    evaluator = Evaluator(network, problem, early_stop=early_stop)
    configurations = drawn(network, problem, seed, fewer(6))
    bounds = evaluator.bounds(configurations)
    for configuration, bound in zip(configurations, bounds, strict=True):
        plan = plan_of_configuration(network, problem, configuration)
        step = ho.simulate(plan, early_stop=early_stop)
        evaluated = evaluator.evaluate(configuration)
        assert evaluated.seconds == pytest.approx(step.seconds, rel=1e-12), configuration
        assert evaluated.memory == step.memory, configuration
        assert evaluator.launching(configuration.micro_batches) <= bound, configuration
        assert bound * (1 - 1e-12) <= evaluator.bound(configuration) <= step.seconds, configuration
        assert 0 <= (evaluated.exposed or 0) < 1


@pytest.mark.parametrize("zero", SHARDED)
def test_the_bound_of_sharded_data_parallelism_is_its_seconds_but_for_buckets(zero: str) -> None:
    """Its program shares no links with the queue. The program alone is 0.41 to 0.59 of them."""
    network, problem = problem_on("gpt2", array_of("h100-8x8"), 64)
    evaluator, one = Evaluator(network, problem), Configuration(dp_shard=64, zero=zero)
    seconds = evaluator.evaluate(one).seconds
    assert 0.997 * seconds < evaluator.bound(one) <= seconds
    assert evaluator.bounds([one])[0] < 0.6 * seconds


def test_the_last_block_is_read_by_its_number_or_by_the_name_of_all() -> None:
    network = find_network("gpt:layers=3,hidden=64,heads=2,vocabulary=100,tokens=16")
    described = network.description()
    (reader,) = (layer for layer in described["layer"] if layer.get("inputs") == ["decoder"])
    last = described["block"][0]["layer"][-1]["name"]
    numbered = described | {
        "layer": [
            layer | {"inputs": [f"decoder.2.{last}"]} if layer is reader else layer
            for layer in described["layer"]
        ]
    }
    first, second = (
        ho.configure(type(network).model_validate(one), "h100-8", batch=64, bound="none").rows()
        for one in (described, numbered)
    )
    assert first == second


@pytest.mark.parametrize(
    ("key", "number"), slow_after(2, [("inputs", 3), ("tied", 1), ("inputs", 1), ("tied", 3)])
)
def test_a_block_that_other_layers_read_by_its_number_is_not_as_its_neighbours(
    key: str, number: int
) -> None:
    described = find_network(
        "gpt:layers=6,hidden=64,heads=2,vocabulary=100,tokens=16"
    ).description()
    up, down = (f"decoder.{number}.{name}" for name in ("up", "down"))
    again = [
        {"name": "wider", "kind": "fc", "units": 256, "inputs": ["decoder"], "tied": up},
        {"name": "narrower", "kind": "fc", "units": 64, "tied": down},
    ]
    inputs = ["narrower" if key == "tied" else down, "decoder"]
    reader = {"name": "both", "kind": "add", "inputs": inputs}
    layers = [
        layer | {"inputs": ["both"]} if layer.get("inputs") == ["decoder"] else layer
        for layer in described["layer"]
    ]
    network = ho.Network.model_validate(
        described | {"layer": [*layers, *(again if key == "tied" else ()), reader]}
    )
    given: Any = {"batch": 64, "array": array_of("h100-8"), "optimizer": "adam", "choices": "all"}
    _, problem = stated_problem(network, given)
    evaluator = Evaluator(network, problem)
    for configuration in drawn(network, problem, number, 3):
        step = ho.simulate(plan_of_configuration(network, problem, configuration))
        evaluated = evaluator.evaluate(configuration)
        assert evaluated.seconds == pytest.approx(step.seconds, rel=1e-12), configuration
        assert evaluated.memory == step.memory, configuration
        assert evaluator.bound(configuration) <= step.seconds * (1 + 1e-12), configuration


SMALL = "gpt:layers=2,hidden=256,heads=16,tokens=256,vocabulary=512"
GRIDS: list[tuple[str, dict[str, Any]]] = [
    ("tpu-v5e-256", {"topology__shape": [8]}),
    ("tpu-v5e-256", {"topology__shape": [8, 2]}),
    ("tpu-v4-8", {}),
    ("tpu-v4-4x4x4", {}),
    ("hmc-torus-8", {}),
    ("hmc-torus-16", {}),
    *((f"hmc-torus-{count}", {}) for count in (2, 4, 32, 64)),
    ("tpu-v5e-256", {}),
]


@pytest.mark.parametrize(
    ("seed", "array", "keys"),
    slow_after(4, [(seed, *grid) for seed in range(12) for grid in GRIDS]),
)
def test_no_bound_exceeds_the_seconds_of_a_step_on_a_torus(
    seed: int, array: str, keys: dict[str, Any]
) -> None:
    """Where some accelerators are ahead, they share links with fewer than in lockstep."""
    overlap = random.Random(seed).choice(("none", "gradient", "prefetch", "branches"))
    network, problem = problem_on(
        SMALL, array_of(array, **keys, overlap=overlap), 64, reading="executed"
    )
    evaluator, some = Evaluator(network, problem), drawn(network, problem, seed, 3)
    for one, bound in zip(some, evaluator.bounds(some), strict=True):
        seconds = evaluator.evaluate(one).seconds
        assert bound * (1 - 1e-12) <= evaluator.bound(one) <= seconds * (1 + 1e-12), one


def hypercube(rng: random.Random) -> Array:
    """Return eight accelerators on links of bandwidths of their own, wherever a bit differs."""
    ends = [(n, n ^ bit) for n in range(8) for bit in (1, 2, 4) if n < n ^ bit]
    edges = [
        {"source": source, "target": target, "bandwidth": f"{rng.choice((1, 1, 5, 20, 100))} GB/s"}
        for source, target in ends
    ]
    nodes = [{"id": n, "accelerator": n} for n in range(8)]
    topology = {"kind": "graph", "graph": {"nodes": nodes, "edges": edges}}
    return array_of("h100-8", topology=topology, overlap="none")


@pytest.mark.parametrize("seed", slow_after(16, range(60)))
def test_no_bound_exceeds_the_seconds_of_a_step_on_links_of_any_kind(seed: int) -> None:
    """Nor with any algorithm of all-reduces, at the hardware's levels or their factors."""
    rng = random.Random(seed)
    array = hypercube(rng) if seed % 2 else random_array(rng, 3)
    if not seed % 2:
        overlap, whole = rng.choice(("none", "gradient", "prefetch", "branches")), rng.random()
        described = array.description() | {"overlap": overlap, "whole_levels": whole < 0.5}
        array = type(array).model_validate(described)
    network, problem = problem_on(SMALL, array, 64, reading="executed")
    evaluator, some = Evaluator(network, problem), drawn(network, problem, seed, 2)
    for one, bound in zip(some, evaluator.bounds(some), strict=True):
        seconds = evaluator.evaluate(one).seconds
        assert max(bound, evaluator.bound(one)) <= seconds * (1 + 1e-12), one


@pytest.mark.parametrize(
    ("name", "shape", "batch", "one"),
    slow_after(
        1,
        [
            (SMALL, [8], 64, Configuration(1, 1, 2, 4, 1, False, 8)),
            ("gpt2", [16, 16], 512, Configuration(1, 2, 32, 4, 1, False, 128)),
        ],
    ),
)
def test_accelerators_that_are_ahead_share_links_with_fewer(
    name: str, shape: list[int], batch: int, one: Configuration
) -> None:
    """So that exchanges take less in sequence than the sum of what each takes alone."""
    network, problem = problem_on(name, array_of("tpu-v5e-256", topology__shape=shape), batch, 2)
    evaluator = Evaluator(network, problem)
    seconds = evaluator.evaluate(one).seconds
    plan = plan_of_configuration(network, problem, one)
    assert seconds < ho.simulate(plan).closed_form
    assert evaluator.bounds([one])[0] <= evaluator.bound(one) <= seconds


def test_replicated_key_value_heads_take_the_seconds_and_bytes_of_their_plan() -> None:
    name = "gpt:layers=3,hidden=512,heads=16,kv_heads=2,ffn=1024,tokens=512,gated=true"
    network, problem = problem_on(name, array_of("h100-8x8"), 64)
    every = [*family(network, problem, fixed={"tp": 8}, recompute=("none", "full"))]
    assert {own.zero for own in every} == {"none", "state", "gradients", "weights", HYBRID}
    evaluator = Evaluator(network, problem, kv_replicated=True)
    for configuration in random.Random(1).sample(every, 4):
        step = ho.simulate(plan_of_configuration(network, problem, configuration))
        evaluated = evaluator.evaluate(configuration)
        assert evaluated.seconds == pytest.approx(step.seconds, rel=1e-12), configuration
        assert evaluated.memory == step.memory, configuration
        assert evaluator.bounds([configuration])[0] <= step.seconds, configuration


def test_micro_batches_smaller_than_the_parts_of_a_sum_hold_what_their_plans_do() -> None:
    """Partial sums whose reader has all of them are stored by batch, over all levels."""
    network, problem = problem_on("bert-base", array_of("h100-8"), 64, 2)
    evaluator = Evaluator(network, problem)
    one = Configuration(cp=2, tp=4, sp=False)
    for configuration in (one._replace(micro_batches=count) for count in (1, 32, 64)):
        plan = plan_of_configuration(network, problem, configuration)
        assert evaluator.memory(configuration) == ho.simulate(plan).memory


def seconds_by_events(
    network: Network, problem: Problem, configuration: Configuration
) -> tuple[float, int]:
    """Return the seconds of a step with all accelerators and messages as events, and its bytes."""
    assert problem.array is not None
    plan = plan_of_configuration(network, problem, configuration)
    array, count = problem.array.description, configuration.micro_batches
    workload = workload_of(network, problem.batch // count, plan.choices, shared_tensors=True)
    rows = rows_of(configuration, network, workload, problem.hierarchy)
    tasks = program(plan, workload, array, RunOptions(**plan.training.stated), rows)
    seconds = run_by_events(tasks, array.interconnect).seconds
    if count > 1:
        before = run_by_events(before_last_micro_batch(tasks), array.interconnect).seconds
        seconds += (count - 1) * before
    return seconds, ho.memory(plan).total


FAMILIES = [("gpt2", "prefetch", 2, 0.3, 1)]
FAMILIES += [
    (name, overlap, batch, memory, 2)
    for name in ("gpt2", "mixtral-8x7b", "llama-3-8b", "bert-base", "vit-b16")
    for overlap, batch, memory in (
        ("prefetch", 2, 0.3),
        ("prefetch", 8, 0.7),
        ("gradient", 8, 0.5),
        ("none", 4, 1.0),
    )
]


@pytest.mark.parametrize(("name", "overlap", "batch", "share", "nodes"), slow_after(1, FAMILIES))
def test_the_best_configuration_is_the_fastest_of_all_that_fit_by_events(
    name: str, overlap: str, batch: int, share: float, nodes: int
) -> None:
    keys: dict[str, Any] = {"overlap": overlap, "overlap_efficiency": None}
    if find_array("h100-8").overlap_efficiency is None:
        del keys["overlap_efficiency"]
    keys |= {"topology__nodes": nodes, "topology__per_node": 2}
    blocks = 2 if batch == 2 else 3  # fewer plans in `make test`
    network, problem = problem_on(name, array_of("h100-8x8", **keys), batch, blocks)
    every = [*family(network, problem)]
    found = {own: seconds_by_events(network, problem, own) for own in every}
    bytes_ = sorted(memory for _, memory in found.values())
    # Some do not fit, and some have to compute blocks again.
    memory = bytes_[min(int(share * len(bytes_)), len(bytes_) - 1)]

    def within(memory: int) -> Searched:
        capacity = {"accelerator__dram_capacity": f"{memory} B"}
        _, limited = problem_on(name, array_of("h100-8x8", **keys, **capacity), batch, blocks)
        return search_degrees(network, limited, count=3, allowed=lambda own: own.recompute != "op")

    searched = within(memory)
    assert searched.considered == len(every)
    fitting = [own for own in every if found[own][1] <= memory]
    assert searched.fitting == len(fitting)
    again = [own for own in fitting if own.recompute == "full"]
    some = {own._replace(blocks=k) for own in again for k in range(1, blocks)}
    partial = {one: seconds_by_events(network, problem, one) for one in some}
    least = min(seconds for seconds, held in [*found.values(), *partial.values()] if held <= memory)
    assert searched.best[0].seconds == pytest.approx(least, rel=1e-9)
    assert searched.simulated < len(every)
    assert all(own.memory <= memory for own in searched.best)
    none = within(bytes_[0] - 1)
    assert not searched.smallest
    assert not none.best
    assert [own.memory for own in none.smallest] == bytes_[:3]


@pytest.mark.parametrize(
    ("name", "array", "batch", "seed"),
    slow_after(
        1,
        [
            ("gpt2", "h100-8", 64, 1),
            ("llama-3-8b", "h100-8x8", 128, 2),
            ("mixtral-8x7b", "h100-8", 64, 3),
        ],
    ),
)
def test_each_block_that_runs_again_takes_memory_off(
    name: str, array: str, batch: int, seed: int
) -> None:
    network, problem = problem_on(name, array_of(array), batch)
    evaluator = Evaluator(network, problem)
    for one in drawn(network, problem, seed, 20):
        every = [
            evaluator.memory(one._replace(recompute="full", blocks=blocks))
            for blocks in range(evaluator.blocks + 1)
        ]
        assert every[0] == evaluator.memory(one._replace(recompute="none", blocks=None))
        assert every[-1] == evaluator.memory(one._replace(recompute="full", blocks=None))
        assert every == sorted(every, reverse=True), one


PROBLEMS = [
    ("llama-3-8b", "h100-8x8", 128),
    ("mixtral-8x7b", "h100-8", 64),
    ("gpt2", "a100-4x8", 64),
]


@pytest.mark.slow
@pytest.mark.parametrize("overlap", ["gradient", "prefetch"])
def test_as_few_blocks_as_fit_are_the_fastest_to_a_part_in_a_hundred(overlap: str) -> None:
    """E7: time rises with the blocks that run again, but where exchanges of the queue are longest.

    There it wiggles; and no bound is above the seconds, of which it is nine tenths.
    """
    shares, falls = [], []
    for name, array, batch in PROBLEMS:
        own = array_of(f"mosaic-{array}", overlap=overlap, overlap_efficiency=1)
        network, problem = problem_on(name, own, batch)
        evaluator = Evaluator(network, problem)
        blocks = evaluator.blocks
        for one in random.Random(5).sample([*family(network, problem)], 60):
            (bound,), seconds = evaluator.bounds([one]), evaluator.evaluate(one).seconds
            assert bound <= seconds, one
            shares.append(bound / seconds)
            steps = [
                evaluator.evaluate(one._replace(recompute="full", blocks=count)).seconds
                for count in (0, 1, blocks // 2, blocks - 1, blocks)
            ]
            falls += [max(0, before / after - 1) for before, after in pairwise(steps)]
    assert len(shares) == 180
    assert fmean(shares) > 0.85
    assert max(falls) < 0.01


def test_llama_70b_takes_what_it_took_when_its_constants_were_fitted() -> None:
    """As the simulator did, and as FSDP's blocks that wait for their weights do."""
    sharded = Configuration(dp_shard=64, recompute="full", zero="weights")
    beside = Configuration(1, 32, 1, 2, 1, True, 2, "full", 20, "weights")
    for overlap, expected in (
        ("gradient", (4.925649, 4.637780, 4.163790)),
        ("prefetch", (4.955072, 4.667203, 4.179021)),
    ):
        array = array_of("mosaic-h100-8x8", overlap=overlap, overlap_efficiency=1)
        network, problem = problem_on("llama-70b", array, 64)
        whole, early = (Evaluator(network, problem, early_stop=stops) for stops in (False, True))
        steps = whole.evaluate(sharded), early.evaluate(sharded), early.evaluate(beside)
        assert [round(step.seconds, 6) for step in steps] == [*expected]
        # What tensors take, and what is reserved for one communicator and for two.
        assert steps[0].memory == 28_001_151_232 + 5 * 10**9
        assert steps[2].memory == 66_614_438_144 + 57 * 10**8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "array", "nodes", "batch", "known", "expected"),
    [
        ("llama-70b", "h100-8x8", 8, 64, 4.164, 4.0773),
        ("llama-3-8b", "h100-8x8", 8, 512, 8.952, 8.9521),
        ("mixtral-8x7b", "h100-8x8", 8, 512, 6.220, 6.2200),
        (GPT_3, "h100-8x8", 16, 1536, 59.18, 57.950),
        ("llama-70b", "h100-8x8", 16, 512, 15.784, 15.7790),
        ("llama-3-8b", "a100-4x8", 8, 512, 18.956, 18.9555),
        ("gpt2", "h100-8x8", 8, 512, 0.032, 0.031958),
        ("vit-b16", "h100-8x8", 8, 4096, 0.0213, 0.021281),
    ],
)
def test_searches_find_the_best_that_are_known(
    name: str, array: str, nodes: int, batch: int, known: float, expected: float
) -> None:
    """E3: within 72 of 80 GB, of constants fitted on runs of 2023.

    What was known ran an eighth of the blocks again at a time, and had powers of two of
    micro-batches: LLaMA 70B and GPT-3 take less with as few blocks as fit, GPT-3 with 12 parts.
    """
    keys = {"accelerator__dram_capacity": "72 GB", **WITHOUT_RESERVE, **BEFORE}
    own = array_of(f"mosaic-{array}", **keys, topology__nodes=nodes)
    network, problem = problem_on(name, own, batch)
    found = search_degrees(
        network, problem, count=1, early_stop=True, allowed=lambda own: own.recompute != "op"
    )
    assert found.best[0].seconds == pytest.approx(expected, rel=1e-4)
    assert found.best[0].seconds < known * 1.0002


BOUNDS = [
    # network, array, batch; seconds: the bound on all plans, and the best configuration
    ("vit-b16", "h100-8", 1024, 0.040757, 0.040757),
    ("gpt2", "h100-8", 256, 0.11837, 0.118463),
    ("llama-7b", "h100-8", 64, 3.3506, 3.3528),
    ("llama-3-8b", "h100-8", 128, 17.832, 17.912),
    ("llama-3-8b", "h100-8x8", 512, 8.9064, 8.9466),
    ("llama-70b", "h100-8x8", 64, 3.81675, 3.9047),
]


@pytest.mark.parametrize(("name", "array", "batch", "bound", "best"), slow_after(2, BOUNDS))
def test_no_configuration_is_far_above_the_bound_on_all_plans(
    name: str, array: str, batch: int, bound: float, best: float
) -> None:
    """E4: within 80 GB; LLaMA 70B is 2.3 % above, all others .5 %.

    Where blocks run again as a whole, and not by operator, it takes 3.9494 s, and 3.8701 at least.
    The bound is that of the choices of a problem by default; `configure` proves one of all choices.
    """
    keys = {"accelerator__dram_capacity": "80 GB", **WITHOUT_RESERVE, **BEFORE}
    own = array_of(f"mosaic-{array}", **keys)
    asked: Any = {"array": own, "batch": batch, "optimizer": "adam"}
    proved = bound_of_all_plans(*stated_problem(name, asked))
    network, problem = problem_on(name, own, batch)
    # Of LLaMA 70B no plan of less is known not to be; its bound is no less proved.
    assert proved.proved or name == "llama-70b"
    assert proved.seconds == pytest.approx(bound, rel=2e-5)
    (first,) = search_degrees(network, problem, count=1).best
    assert first.seconds == pytest.approx(best, rel=2e-5)
    assert first.memory <= 80 * 10**9
    assert proved.seconds <= first.seconds * (1 + 1e-9)
    if name == "llama-70b":
        configuration = Configuration(2, 16, 1, 2, 1, True, 2, "op", 20, "state+weights")
        assert first.configuration == configuration
        assert first.memory / 1e9 == pytest.approx(79.66, abs=5e-3)


PUBLISHED = {
    "the best": (Configuration(8, 8, 1, 1, 1, True, 8, zero="state+weights"), 8.952, 66.4),
    "NVIDIA's, cp 2": (Configuration(1, 32, 2, 1, 1, True, 16, zero="state"), 9.039, 79.1),
    "without cp": (Configuration(1, 64, 1, 1, 1, True, 8, zero="state"), 8.915, 108.6),
    "torchtitan's FSDP": (Configuration(1, 64, 1, 1, 1, True, 8, zero="weights"), 8.994, 61.2),
    "tp 2": (Configuration(1, 32, 1, 2, 1, True, 16, zero="state"), 9.421, 57.2),
}
"""Of LLaMA 3 8B on 64 accelerators, batch 512: seconds, and GB without what is reserved."""


def test_recipes_that_are_published_take_little_longer_than_the_best() -> None:
    """E6: NVIDIA's recipe (Megatron-Bridge, llama3_8b) takes 1.0 % longer, torchtitan's .5 %.

    NVIDIA's needs its two parts of context: without, it would not fit. With weights prefetched,
    a block waiting for them, they take .3 and 1.1 % longer.
    """
    keys = {"accelerator__dram_capacity": "80 GB", **WITHOUT_RESERVE}
    over = {}
    for overlap in ("gradient", "prefetch"):
        array = array_of("mosaic-h100-8x8", **keys, overlap=overlap, overlap_efficiency=1)
        evaluator = Evaluator(*problem_on("llama-3-8b", array, 512), early_stop=True)
        steps = {name: evaluator.evaluate(own) for name, (own, _, _) in PUBLISHED.items()}
        least = steps["the best"].seconds
        over[overlap] = [round(100 * (own.seconds / least - 1), 1) for own in steps.values()]
        if overlap == "gradient":
            found = {name: (own.seconds, own.memory / 1e9) for name, own in steps.items()}
            for name, (_, seconds, memory) in PUBLISHED.items():
                assert found[name][0] == pytest.approx(seconds, abs=5e-4)
                assert found[name][1] == pytest.approx(memory, abs=0.05)
    assert over["gradient"] == [0, 1.0, -0.4, 0.5, 5.2]
    assert (over["prefetch"][1], over["prefetch"][3]) == (0.3, 1.1)


def test_without_room_the_three_are_named_that_need_the_least_memory() -> None:
    array = array_of("h100-8", accelerator__dram_capacity="5.1 GB")
    network, problem = problem_on("gpt2", array, 8, 2)
    found = search_degrees(network, problem)
    assert found.best == ()
    assert found.fitting == 0
    assert found.complete
    needs = [own.memory for own in found.smallest]
    assert len(needs) == 3
    assert needs == sorted(needs)
    assert needs[0] > int(5.1e9)


def test_a_deadline_leaves_what_is_known_by_then() -> None:
    network, problem = problem_on("gpt2", array_of("h100-8"), 8, 2)
    found = search_degrees(network, problem, deadline=Deadline.after(0))
    assert not found.complete
    assert found.best == ()


def test_whenever_a_deadline_comes_what_is_known_is_exact_and_no_better_than_the_best() -> None:
    """The clock goes on with each look at it, so that a search ends at every place it can."""
    network, problem = problem_on("gpt2", array_of("h100-8"), 8, 2)
    found = []
    for ticks in (3, 60, 10**6):
        with pytest.MonkeyPatch.context() as patch:
            tick_when_read(patch)
            until = Deadline.after(ticks)
            found.append(
                search_degrees(
                    network,
                    problem,
                    count=3,
                    allowed=lambda own: own.recompute == "none" and own.cp == 1,
                    deadline=until,
                )
            )
    none, some, whole = found
    assert (none.best, none.complete) == ((), False)
    assert (some.complete, whole.complete) == (False, True)
    assert none.considered < some.considered < whole.considered
    assert some.best[0].seconds >= whole.best[0].seconds
    evaluator = Evaluator(network, problem)
    for own in some.best:
        assert own == evaluator.evaluate(own.configuration)


def test_a_step_that_is_simulated_by_events_ends_with_the_deadline() -> None:
    """On this mesh each accelerator is simulated; what is known of others is the answer."""
    array = array_of("tpu-v4-8", topology__shape=[4, 4])
    network, problem = problem_on("gpt2", array, 64, 1)
    one = next(own for own in family(network, problem) if own.dp_shard == 16)
    with pytest.raises(NotInLockstepError):
        Evaluator(network, problem, by_events=False).evaluate(one)
    seconds = Evaluator(network, problem).evaluate(one).seconds
    with pytest.MonkeyPatch.context() as patch:
        tick_when_read(patch)
        until = Deadline.after(10**6)
        assert Evaluator(network, problem, deadline=until).evaluate(one).seconds == seconds
        looks = round(10**6 - (until.left() or 0))
        assert looks > 4  # more than before it
        until = Deadline.after(looks // 2)
        with pytest.raises(NoAnswerError, match="time limit"):
            Evaluator(network, problem, deadline=until).evaluate(one)


def test_all_that_fit_have_the_seconds_of_the_search() -> None:
    network, problem = problem_on("gpt2", array_of("h100-8"), 8, 2)

    def allowed(own: Configuration) -> bool:
        return own.tp == 4 and own.recompute == "none"

    every = fitting_configurations(network, problem, allowed=allowed)
    found = search_degrees(network, problem, count=len(every), allowed=allowed)
    assert sorted(own.seconds for own in every) == [own.seconds for own in found.best]
    assert len(every) == found.considered
