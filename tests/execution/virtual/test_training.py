"""Micro-batches, recomputation and shards run as modelled, and train as the whole batch at once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import RefusedError
from hypar_opt.execution.run import run_program
from hypar_opt.execution.virtual.trained_weights import TrainedWeights
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.parallelism import CHOICES, GATHERED, RECOMPUTED, SHARDED
from hypar_opt.workload.patterns import Words
from hypar_opt.workload.recomputation import repeats_of, segments, with_repeats
from hypar_opt.workload.tensors import workload_of
from tests.cli.shell import command
from tests.execution import small_networks
from tests.execution.drawn import drawn_network, drawn_programs, random_row, run_as_one_device
from tests.slow import slow_after
from tests.strategies.ways_of_training import words_in

WAYS = [*product((1, 2, 3), RECOMPUTED, SHARDED)]
HIERARCHIES = ((2,), (2, 2), (3,), (2, 3))
NETWORKS = {
    "two blocks": small_networks.gpt(tied=False, blocks=2),
    "tied": small_networks.gpt(tied=True),
    "graph": small_networks.cnn(),
    "chain": small_networks.chain(),
}


Way = tuple[int, Words, Words]


def trained(
    network: ho.Network, program: Program, way: Way, gather: Words = "once", reduced: int = 1
) -> Program:
    """The same plan of a micro-batch, trained in some way, with scores that are written."""
    written = Fused(attention=False)
    repeats = repeats_of(network, program.workload, *way, gather, reduced, fused=written)
    workload = with_repeats(program.workload, repeats)
    return Program(workload, program.rows, program.hierarchy)


def by_layer(
    rng: random.Random, network: ho.Network, words: Sequence[str] = SHARDED
) -> tuple[Words, Words]:
    """What is recomputed and sharded of each layer; of weights that layers share all alike."""
    names = [layer.name for layer in network.layers]
    shard = {name: rng.choice(words) for name in names}
    tied = {layer.name: getattr(layer, "tied", None) for layer in network.layers}
    shard |= {name: shard[owner] for name, owner in tied.items() if owner}
    inside = {names[n] for block in segments(network) for n in block}
    again = {name: rng.choice(RECOMPUTED if name in inside else RECOMPUTED[:2]) for name in names}
    return again, shard


def program_of(network: ho.Network, way: Way, rows: list[list[int]], *sizes: int) -> Program:
    workload = workload_of(network, 12, CHOICES, shared_tensors=True)
    return trained(network, Program(workload, rows, Hierarchy(sizes)), way)


@pytest.mark.parametrize("seed", slow_after(10, dict.fromkeys((134, 97, *range(720)))))
def test_any_plan_trains_in_any_way_as_the_whole_batch_does_on_one_device(seed: int) -> None:
    way: Way = WAYS[seed % len(WAYS)]
    network = drawn_network(seed)
    (program,) = drawn_programs(network, seed, 1, HIERARCHIES, uneven=seed % 2 == 1)
    if seed % 5 < 3:
        words = words_in(program.hierarchy.levels) if seed % 5 else SHARDED
        way = way[0], *by_layer(random.Random(seed), network, words)
    rng = random.Random(seed)
    gather = {layer.name: rng.choice(GATHERED) for layer in network.layers}
    words_of_tensors: list[Words] = [*GATHERED, gather]
    more = rng.choice(words_of_tensors), rng.choice([1, 2, 4])
    with suppress(RefusedError):  # parts of other sizes than those modelled
        run_as_one_device(network, trained(network, program, way, *more), seed)


# Each network is sharded in every way, recomputed in another each time; then the other pairs.
BY_STRUCTURE = [
    (name, RECOMPUTED[(n + s + other) % len(RECOMPUTED)], shard)
    for other in range(len(RECOMPUTED))
    for n, name in enumerate(NETWORKS)
    for s, shard in enumerate(SHARDED)
]


@pytest.mark.parametrize(("name", "recompute", "shard"), slow_after(16, BY_STRUCTURE))
def test_networks_of_every_structure_train_in_every_way(
    name: str, recompute: str, shard: str
) -> None:
    network = NETWORKS[name]
    rng = random.Random(recompute + shard + network.name)
    way, sizes = (rng.randint(1, 3), recompute, shard), rng.choice(HIERARCHIES)
    workload = workload_of(network, 12, CHOICES, shared_tensors=True)
    rows = [random_row(rng, workload) for _ in sizes]
    run_as_one_device(network, trained(network, Program(workload, rows, Hierarchy(sizes)), way))


@pytest.mark.parametrize(("micro_batches", "shard"), [*product((1, 3), SHARDED)])
def test_data_parallelism_moves_what_zero_says(micro_batches: int, shard: str) -> None:
    """Per device (n - 1) / n of the weights in each reduce-scatter and all-gather, and no more."""
    network, devices = NETWORKS["tied"], 4
    way = micro_batches, "full", shard
    nodes = len(workload_of(network, 12, CHOICES, shared_tensors=True).nodes)
    rows = [[0] * nodes] * 2
    program = program_of(network, way, rows, 2, 2)
    moved: Counter[tuple[str | None, str]] = Counter()
    for row in run_program(network, program, element_bytes=Fraction(1)).exchanges:
        moved[row.phase, row.kind] += int(row.counted)
    stored = sum(program.workload.stored)
    table = 32 * 16  # read by the embedding and by the head
    half, passes = (devices - 1) * stored, (devices - 1) * (stored + table)
    assert (
        moved
        == {
            "none": {("gradient", "all-reduce"): 2 * half},
            "state": {("gradient", "reduce-scatter"): half, ("gradient", "all-gather"): half},
            "gradients": {
                ("gradient", "reduce-scatter"): micro_batches * half,
                ("gradient", "all-gather"): half,
            },
            "weights": {
                ("gradient", "reduce-scatter"): micro_batches * half,
                ("forward", "all-gather"): micro_batches * passes,
                ("backward", "all-gather"): micro_batches * passes,
            },
        }[shard]
    )


def test_within_a_node_weights_are_split_and_between_nodes_their_shards_reduced() -> None:
    """Gathers stay inside; across H1 each device sends and receives its shard's gradient, once."""
    network, count = NETWORKS["chain"], 3
    nodes = len(workload_of(network, 12, CHOICES, shared_tensors=True).nodes)
    moved: dict[str, Counter[tuple[int, str]]] = {}
    for word in ("none", "weights@H2", "state+weights@H2", "weights"):
        program = program_of(network, (count, "none", word), [[0] * nodes] * 2, 2, 2)
        moved[word] = Counter()
        for row in run_program(network, program, element_bytes=Fraction(1)).exchanges:
            moved[word][row.level, row.kind] += int(row.counted)
    half = sum(program.workload.stored)  # across H1, of a shard of a half each; across H2 twice
    inside = {(2, "reduce-scatter"): count * 2 * half, (2, "all-gather"): 2 * count * 2 * half}
    assert moved["none"] == {(1, "all-reduce"): 2 * half, (2, "all-reduce"): 2 * 2 * half}
    assert moved["weights@H2"] == {(1, "all-reduce"): 2 * half, **inside}
    between = {(1, "reduce-scatter"): half, (1, "all-gather"): half}
    assert moved["state+weights@H2"] == {**between, **inside}
    outside = {(1, "reduce-scatter"): count * half, (1, "all-gather"): 2 * count * half}
    assert moved["weights"] == {**outside, **inside}


def test_sharded_weights_are_gone_between_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the all-gather of the backward pass there are no numbers to compute with."""
    used = TrainedWeights.used

    def once(self: TrainedWeights, node: int, by: int, phase: str) -> Any:
        blocks = used(self, node, by, phase)  # type: ignore[arg-type]
        return blocks if phase == "forward" else [0 * own * float("nan") for own in blocks]

    monkeypatch.setattr(TrainedWeights, "used", once)
    network = NETWORKS["chain"]
    compared = run_program(network, program_of(network, (1, "none", "weights"), [[0] * 4], 2))
    assert compared.values == 0.0
    assert not compared.gradients <= 1  # type: ignore[operator]


def test_micro_batches_average_to_the_batch_of_batch_norms_that_see_the_same_images() -> None:
    """A norm of a batch is of a device's images of a micro-batch; one device norms these."""
    described = NETWORKS["graph"].model_dump(mode="json", by_alias=True, exclude_none=True)
    described["layer"][1]["norm"] = "batch"
    network = ho.Network.model_validate(described)
    workload = workload_of(network, 12, CHOICES, shared_tensors=True)
    run_as_one_device(
        network, program_of(network, (3, "full", "weights"), [[0] * len(workload.nodes)], 3)
    )


def test_a_plan_that_trains_runs_as_it_is_priced(tmp_path: Path) -> None:
    gpt = ho.gpt(layers=2, hidden=64, heads=8, tokens=32, vocabulary=128)
    asked: dict[str, Any] = {"batch": 16, "array": "h100-8", "solver": "data"}
    way = {"micro_batches": 2, "recompute": "full", "shard": "weights"}
    plan = ho.solve(gpt, **asked, training=way)
    result = ho.run(plan)
    assert result.agrees
    assert result.counted == result.modelled == result.priced
    assert {row.tensor for row in result.exchanges} == {"weights", "gradient"}
    assert ho.run(plan, scale_down=True).agrees
    ho.write_plan(plan, tmp_path / "plan.json")
    done = command(["run", "plan.json", "--scale-down"], tmp_path)
    assert done.status == 0
    assert "batch 16 -> 16" in done.output


def test_a_micro_batch_that_is_split_too_often_is_refused(tmp_path: Path) -> None:
    plan = ho.solve(
        "lenet-c",
        batch=16,
        array="h100-8",
        solver="data",
        training={"micro_batches": 4},
        constraints={"runnable": False},
    )
    with pytest.raises(
        RefusedError, match="batch: should be at least 8 in each of 4 micro-batches"
    ):
        ho.run(plan)
    result = ho.run(plan, scale_down=True)
    assert result.agrees
    assert any("4 images for 8 parts" in note for note in result.notes)
