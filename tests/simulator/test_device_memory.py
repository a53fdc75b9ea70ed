"""What a device holds in a training step, against published formulas and values."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.plan.problem import ArrayRecord
from hypar_opt.simulator.device_memory import DeviceMemory
from hypar_opt.simulator.pipeline_order import in_flight, orders
from hypar_opt.step.holds import WeightBytes
from hypar_opt.studies.validation.calculated import _plan
from hypar_opt.studies.validation.machines import array_of, known_machines
from tests.cli.shell import Shell

HIDDEN, HEADS, TOKENS, BATCH = 128, 8, 64, 8
ELEMENTS = TOKENS * BATCH * HIDDEN
"""s b h: the elements of a residual stream."""

GPT = ho.gpt(layers=2, hidden=HIDDEN, heads=HEADS, tokens=TOKENS, vocabulary=512, dropout=True)


def megatron(
    network: ho.Network, degree: int, *, sequence: bool, batch: int, fused: bool = False
) -> ho.Plan:
    """Return Megatron-LM's plan of tensor parallelism alone."""
    array = array_of(known_machines(), "selene", degree, fused=fused)
    plan = _plan(network, array.hierarchy().sizes, degree, sequence_parallel=sequence)
    placed = {"array": ArrayRecord.of(array), "placement": tuple(range(plan.levels))[::-1]}
    return plan.model_copy(update={**placed, "batch": batch})


def of_block(held: DeviceMemory, number: int = 1) -> int:
    return sum(row.saved for row in held.layers if row.layer.startswith(f"decoder.{number}."))


@pytest.mark.parametrize("degree", [1, 2, 4, 8])
@pytest.mark.parametrize("sequence", [False, True])
def test_a_block_saves_what_korthikanti_says(degree: int, sequence: bool) -> None:
    """Korthikanti et al., MLSys 2023, equations 1, 2 and 4."""
    scores = 5 * HEADS * TOKENS**2 * BATCH
    held = ho.memory(megatron(GPT, degree, sequence=sequence, batch=BATCH), exact_shares=True)
    whole = 34 if sequence else 10 * degree + 24
    assert degree * of_block(held) == ELEMENTS * whole + scores


@pytest.mark.parametrize("degree", [1, 2, 4, 8])
def test_selective_recomputation_drops_the_scores(degree: int) -> None:
    plan = megatron(GPT, degree, sequence=True, batch=BATCH)
    held = ho.memory(plan, exact_shares=True, recompute="selective")
    assert degree * of_block(held) == 34 * ELEMENTS
    assert {row.moment for row in held.layers if row.layer.endswith("attention")} == {
        row.moment + 5 * HEADS * TOKENS**2 * BATCH // degree
        for row in ho.memory(plan, exact_shares=True).layers
        if row.layer.endswith("attention")
    }


def test_full_recomputation_keeps_a_blocks_input_and_computes_one_block_at_a_time() -> None:
    plan = megatron(GPT, 1, sequence=False, batch=BATCH)
    kept, full = ho.memory(plan), ho.memory(plan, recompute="full")
    assert [of_block(full, n) for n in (0, 1)] == [2 * ELEMENTS] * 2
    outside = [
        sum(row.saved for row in held.layers if not row.layer.startswith("decoder."))
        for held in (kept, full)
    ]
    assert outside[0] == outside[1]
    moments = {row.layer: row.moment for row in full.layers}
    again = of_block(kept) - 2 * ELEMENTS
    for before, after in zip(kept.layers, full.layers, strict=True):
        inside = before.layer.startswith("decoder.")
        assert moments[before.layer] == before.moment + again * inside
        assert after.weights == before.weights
    assert full.moment.recomputed == again


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "batch", "stages", "chunks", "gibibytes"),
    [
        (48, 6144, 64, 4, 1, 1, (45.5625, 59.25, 9.5625)),
        (96, 12288, 96, 1, 8, 3, (45.5625, 66.84375, 12.3515625)),
        (105, 20480, 128, 1, 35, 3, (31.640625, 114.0234375, 23.076171875)),
        (128, 25600, 160, 1, 64, 1, (32.958984375, 131.25, 26.5625)),
    ],
    ids=["22B", "175B", "530B", "1T"],
)
def test_all_values_of_korthikantis_figure_1(
    layers: int,
    hidden: int,
    heads: int,
    batch: int,
    stages: int,
    chunks: int,
    gibibytes: tuple[float, float, float],
) -> None:
    """GiB of weights and optimizer, and of activations, all and selectively recomputed.

    Two of the blocks are counted, in which the figure leaves norms out, a part in 10,000. Of p
    stages the first holds the activations of L (1 + (p - 1) / (p v)) blocks, v chunks a device.
    """
    network = ho.gpt(layers=2, hidden=hidden, heads=heads, dropout=True)
    whole = megatron(network, 8, sequence=False, batch=batch)
    split = megatron(network, 8, sequence=True, batch=batch)
    held = ho.memory(whole, exact_shares=True, optimizer="adam")
    states = sum(
        row.weights + row.gradients + row.state
        for row in held.layers
        if row.layer.rpartition(".")[2] in ("qkv", "proj", "up", "down")
    )
    first, *_ = orders("1f1b", stages, 4 * stages, chunks)
    held_chunks = sum(in_flight(first, [1] * chunks))
    assert held_chunks == stages * chunks + (stages - 1) * (chunks > 1)
    blocks = Fraction(held_chunks * layers, stages * chunks)
    selective = ho.memory(split, exact_shares=True, recompute="selective")
    counted = (
        Fraction(states * layers, 2 * stages),
        blocks * of_block(held, 1),
        blocks * of_block(selective, 0),
    )
    assert tuple(float(own / 2**30) for own in counted) == gibibytes


@pytest.mark.parametrize(
    ("shard", "gigabytes"),
    [
        ("none", 120.0),
        ("state", 31.4),
        ("gradients", 16.6),
        ("weights", 1.9),
        # Eight nodes of eight devices: everything over eight, or the state over 64.
        ("weights@H4-H6", 15.0),
        ("state+weights@H4-H6", 5.2),
    ],
)
def test_zero_shards_what_rajbhandari_says(shard: str, gigabytes: float) -> None:
    """Rajbhandari et al., SC20, figure 1: 7.5e9 parameters, 64 devices, 2 + 2 + 12 bytes."""
    network = ho.Network.model_validate(
        {
            "name": "one",
            "input": {"features": 75_000},
            "layer": [{"name": "fc", "kind": "fc", "units": 100_000}],
        }
    )
    plan = ho.solve(
        network,
        levels=6,
        batch=64,
        element_bytes=2,
        solver="data",
        constraints={"optimizer": "adam"},
    )
    held = ho.memory(plan, shard=shard, reduce_bytes=2).categories
    bytes_ = held["weights"] + held["gradients"] + held["state"]
    assert round(bytes_ / 1e9, 1 if gigabytes < 100 else 0) == gigabytes


@pytest.mark.parametrize(
    ("element", "optimizer", "gradient", "expected"),
    [
        (2, "adam", None, (2, 4, 12)),
        (2, "adam", 2, (2, 2, 12)),
        (2, "momentum", None, (2, 4, 8)),
        (2, "sgd", None, (2, 4, 4)),
        (2, 7, None, (2, 4, 7)),
        (4, "sgd", None, (4, 4, 0)),
        (4, "momentum", None, (4, 4, 4)),
        (4, "adam", None, (4, 4, 8)),
        (8, "adam", None, (8, 8, 16)),
    ],
)
def test_bytes_of_a_weight_follow_from_precision_and_optimizer(
    element: int, optimizer: str | int, gradient: int | None, expected: tuple[int, int, int]
) -> None:
    assert WeightBytes.of(element, optimizer, gradient) == expected


def layers(*described: dict[str, Any], **input_: Any) -> ho.Network:
    return ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "small",
            "input": input_ or {"channels": 3, "height": 8, "width": 8},
            "layer": list(described),
        }
    )


def conv(name: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "kind": "conv", "filters": 5, "kernel": 3, "padding": 1, **keys}


def saved(network: ho.Network, **options: Any) -> dict[str, int]:
    """Return the elements that each layer saves of one image on one accelerator."""
    plan = ho.solve(network, levels=0, batch=1, reading="executed", element_bytes=4)
    return {row.layer: row.saved // 4 for row in ho.memory(plan, **options).layers}


def test_a_tensor_that_three_layers_read_is_saved_once() -> None:
    network = layers(
        conv("a"),
        conv("b", inputs=["a"]),
        conv("c", inputs=["a"]),
        {"name": "sum", "kind": "add", "inputs": ["a", "b", "c"]},
        conv("last"),
    )
    image, written = 3 * 64, 5 * 64
    assert saved(network) == {"a": image, "b": written, "c": 0, "sum": 0, "last": written}


def test_an_activation_saves_its_output_or_what_it_reads() -> None:
    image, written = 3 * 64, 5 * 64

    def first(**keys: Any) -> tuple[int, int]:
        amounts = saved(layers(conv("a", **keys), conv("b")))
        return amounts["a"] - image, amounts["b"]

    assert first() == (0, written)
    # The output of a ReLU is what the next layer saves, and so of its writer alone.
    assert first(activation="relu") == (written, 0)
    assert first(activation="gelu") == (written, written)
    largest = {"kind": "max", "size": 2}
    assert first(activation="relu", pool=largest) == (written, written // 4)
    assert first(pool=largest) == (written, written // 4)
    assert first(pool={"kind": "average", "size": 2}) == (0, written // 4)


def test_layers_without_weights_save_what_their_slopes_need() -> None:
    written = 5 * 64
    pool = {"name": "p", "kind": "pool"}
    ends: list[tuple[dict[str, Any], int]] = [
        ({"name": "p", "kind": "norm", "norm": "batch"}, written),
        (pool | {"pool": {"kind": "max", "size": 2}}, written),
        (pool | {"pool": {"kind": "average", "size": 2}}, 0),
        ({"name": "p", "kind": "global_pool", "over": "max"}, written),
        ({"name": "p", "kind": "global_pool"}, 0),
        ({"name": "p", "kind": "flatten"}, 0),
        ({"name": "p", "kind": "add", "inputs": ["a", "b"]}, 0),
        ({"name": "p", "kind": "concat", "inputs": ["a", "b"]}, 0),
        # b's input is a's output, too.
        ({"name": "p", "kind": "mul", "inputs": ["a", "b"]}, written),
    ]
    for end, expected in ends:
        assert saved(layers(conv("a"), conv("b"), end))["p"] == expected


@pytest.mark.parametrize(
    ("words", "extent"), [(("rows", "rows"), (2 + 2) * 8), (("rows", "columns"), (4 + 2) * (4 + 2))]
)
def test_a_part_of_an_image_has_what_it_reads_of_others(words: list[str], extent: int) -> None:
    """A row, or column, of either neighbour: saved with its own, and as errors for a moment."""
    fix = [f"*@H{level}={word}" for level, word in enumerate(words, 1)]
    average = {"name": "p", "kind": "pool", "pool": {"kind": "average", "size": 3, "stride": 1}}
    average["pool"] |= {"padding": 1}  # type: ignore[operator]
    plan = ho.solve(
        layers(conv("a"), conv("b"), average),
        levels=2,
        batch=1,
        choices=("data", "model", "output", "rows", "columns"),
        constraints={"fix": fix},
    )
    held = ho.memory(plan).layers
    assert [row.saved for row in held] == [4 * 3 * extent, 4 * 5 * extent, 0]
    borders = [4 * count * (extent - 16) for count in (0, 5, 5)]
    live = [4 * 5 * 16 * count for count in (1, 2, 1)]
    assert [row.moment for row in held] == list(map(sum, zip(live, borders, strict=True)))


def test_fused_attention_saves_its_output_and_a_number_for_each_row_of_scores() -> None:
    plans = [megatron(GPT, 1, sequence=False, batch=BATCH, fused=fused) for fused in (True, False)]
    fused, unfused = (of_block(ho.memory(plan)) for plan in plans)
    rows = BATCH * HEADS * TOKENS
    # Its output is the next layer's input: once.
    assert unfused - fused == 5 * rows * TOKENS - 4 * rows


@pytest.mark.parametrize(
    ("loss", "loss_bytes"), [("in-place-eager", 4), ("in-place", 4), ("eager", 12), ("fused", -2)]
)
def test_logits_take_two_bytes_and_what_their_loss_works_in(loss: str, loss_bytes: int) -> None:
    """Of Megatron-LM a copy in single precision; of a fused loss nothing at all."""
    plan = megatron(GPT, 1, sequence=False, batch=BATCH)
    assert plan.array is not None
    array = plan.array.description
    assert array.accelerator.loss == "in-place-eager"
    described = array.description()
    described["accelerator"]["loss"] = loss
    array = ho.Array.model_validate(described)
    memory = ho.memory(plan.model_copy(update={"array": ArrayRecord.of(array)}))
    last = memory.layers[-1]
    assert last.saved + last.moment == (2 + loss_bytes) * BATCH * TOKENS * 512
    assert (memory.moment.layer == "loss") == (loss == "eager")


def test_logits_in_single_precision_take_twelve_bytes_in_all() -> None:
    single = ho.memory(ho.solve(GPT, levels=0, batch=BATCH, element_bytes=4)).layers[-1]
    assert (single.saved + single.moment) == 12 * BATCH * TOKENS * 512


def test_micro_batches_divide_what_is_saved_and_nothing_else() -> None:
    plan = ho.solve("resnet-18", levels=2, batch=64, reading="executed")
    one, four = ho.memory(plan).categories, ho.memory(plan, micro_batches=4).categories
    assert one["saved"] == 4 * four["saved"]
    assert one["moment"] == 4 * four["moment"]
    assert one["weights"] == four["weights"]
    with pytest.raises(ho.HyparError, match="micro_batches should divide the batch of 64, got 5"):
        ho.memory(plan, micro_batches=5)


def test_sharded_weights_are_gathered_layer_by_layer() -> None:
    network = layers(
        {"name": "a", "kind": "fc", "units": 5}, {"name": "b", "kind": "fc", "units": 7}, features=9
    )
    plan = ho.solve(network, levels=2, batch=8, solver="data", element_bytes=4)
    rows = {row.layer: row for row in ho.memory(plan, shard="weights").layers}
    whole = {row.layer: row for row in ho.memory(plan).layers}
    for name, elements in (("a", 45), ("b", 35)):
        # The largest of uneven parts; weights and gradient whole for the moment.
        assert rows[name].weights == rows[name].gradients == 4 * -(-elements // 4)
        assert rows[name].moment - whole[name].moment == 2 * 4 * elements


def test_inference_holds_weights_and_the_maps_between_layers() -> None:
    network = layers(conv("a"), conv("b"), conv("c"))
    plan = ho.solve(network, levels=0, batch=2, inference=True, element_bytes=4)
    held = ho.memory(plan).categories
    assert held["gradients"] == held["state"] == held["saved"] == 0
    assert held["moment"] == 2 * 4 * 2 * (5 * 64)  # what b reads and writes


def test_the_reserve_counts_against_the_capacity() -> None:
    described = array_of(known_machines(), "selene", 8).description()
    plan = ho.solve("gpt2", batch=8, array=validate(ho.Array, described))
    described["accelerator"] |= {"reserve": "10 GB"}
    array = validate(ho.Array, described)
    without, held = ho.memory(plan), ho.memory(plan, array)
    assert held.total == without.total + 10**10
    assert held.capacity == 80 * 10**9
    assert held.fits
    step = ho.simulate(plan, array, other_array=True)
    assert (step.memory, step.device_memory) == (held.total, held)
    described["accelerator"]["reserve"] = "80 GB"
    with pytest.raises(ho.HyparError, match="reserve: should be less than dram_capacity"):
        validate(ho.Array, described)


def test_a_paper_array_keeps_the_papers_count_in_a_step() -> None:
    plan = ho.solve("lenet-c", array="hmc-htree-4")
    assert ho.simulate(plan).device_memory is None


def test_between_groups_the_fullest_is_shown_by_its_name() -> None:
    plan = ho.solve("lenet-c", array="tpu-v2-v3-16", batch=1600, share=0.3, micro_batches=1)
    held = ho.memory(plan)
    assert held.group in ("v2", "v3")
    step = ho.simulate(plan)
    assert (step.memory, step.device_memory) == (held.total, held)
    assert held.per_accelerator == f"per accelerator of {held.group}"


def test_the_command_prints_a_table_and_the_peak(tmp_path: Path, shell: Shell) -> None:
    network = "gpt:layers=4,hidden=64,heads=8,tokens=32,vocabulary=1024"
    call = ["memory", network, "--array", "h100-8", "--batch", "8", "--optimizer", "adam"]
    printed = shell.output(*call, "--recompute", "full", "--shard", "state")
    assert "full recomputation, optimizer state sharded (ZeRO-1)" in printed
    assert "decoder.0-3.attention x4" in printed
    assert "Peak at loss, with " in printed
    assert "GB of 85 GB per accelerator, 80 GB to spare; reserve 5 GB." in printed
    picture, file = tmp_path / "m.svg", tmp_path / "plan.json"
    document = shell.document(*call, "--picture", picture)
    assert picture.read_text().startswith("<svg")
    assert document["bytes"] == sum(document["categories"].values())
    assert document["fits"] is True
    for name in ("weights", "gradients", "state", "saved"):
        assert sum(row[name] for row in document["layers"]) == document["categories"][name]
    plan = ho.solve(network, batch=8, array="h100-8", constraints={"optimizer": "adam"})
    ho.write_plan(plan, file)
    assert shell.document("memory", file, "--optimizer", "adam") == document
    shell.refused("memory", file, "--recompute", "some")
