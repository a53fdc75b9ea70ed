"""Plans of least time within the memory of a device, against every plan and way of training."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.device_load import device_load
from hypar_opt.costs.states import of_rows
from hypar_opt.errors import InfeasibleError, RefusedError
from hypar_opt.hardware import arrays
from hypar_opt.instance.instance import Instance
from hypar_opt.pipeline import search_again
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.proofs.certificate import check_price
from hypar_opt.simulator.memory import WeightBytes
from hypar_opt.studies.alternatives import best_plans
from hypar_opt.studies.simulation import per_second
from hypar_opt.workload.parallelism import RECOMPUTED, SHARDED
from tests.commands import command
from tests.slow import slow_after
from tests.strategies.arrays import random_array
from tests.strategies.graph_problems import priced_graph_plans
from tests.strategies.problems import random_network
from tests.strategies.written_plans import choosing, with_collective

GPT = ho.gpt(layers=2, hidden=64, heads=8, tokens=32, vocabulary=128)
WAYS = [*product(RECOMPUTED, SHARDED)]


def drawn(seed: int) -> tuple[ho.Network, dict[str, Any]]:
    """A chain on a small array of one's own."""
    rng = Random(seed)
    while True:
        network, array = random_network(rng, 4), random_array(rng, rng.randint(1, 2))
        if 2 ** (len(network.layers) * array.levels) <= 2**4:
            break
    return network, {
        "array": with_collective(array, rng.choice(["pairwise", "ring", "hierarchical"])),
        "bucket": rng.choice([0, 10**3, 10**6]),
        "batch": rng.randint(2, 4),
        "cost": "time",
        "reading": "executed",
        "choices": ("data", "model"),
        "constraints": {"runnable": False},
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("array", ["h100-8", "tpu-v4-8"])
def test_a_plan_for_time_is_charged_what_its_step_takes(way: tuple[str, str], array: str) -> None:
    recompute, shard = way
    for micro_batches, bucket, solver in ((1, 10**5, "data"), (2, 10**5, "model"), (2, 0, "data")):
        training = {"micro_batches": micro_batches, "recompute": recompute, "shard": shard}
        plan = ho.solve(GPT, batch=16, array=array, bucket=bucket, training=training, solver=solver)
        step = ho.simulate(plan)
        assert step.of_training == plan.training.unlike_defaults
        # Charges are whole units, rounded each.
        rounded = 20 * micro_batches * len(plan.layers)
        taken = plan.cost.total / per_second(plan)
        assert abs(step.closed_form - taken) <= rounded / per_second(plan)


@pytest.mark.parametrize("way", WAYS)
def test_what_states_hold_is_what_a_device_holds_where_everything_divides(
    way: tuple[str, str],
) -> None:
    recompute, shard = way
    training = {"micro_batches": 2, "recompute": recompute, "shard": shard}
    for choices, rows in ((2, (1, 0, 0)), (3, (2, 0, 1)), (3, (1, 2, 2))):
        plan = ho.solve(
            GPT,
            batch=16,
            array="h100-8",
            training=training,
            choices=("data", "model", "output")[:choices],
            constraints={"optimizer": "adam", "runnable": False},
        )
        plan = choosing(plan, tuple((column,) * len(plan.layers) for column in rows))
        instance = Instance.of_plan(plan)
        workload = instance.workload
        held = ho.memory(plan)
        load = device_load(
            *(instance.network, workload, plan.hierarchy, plan.element_bytes),
            WeightBytes.of(plan.element_bytes, "adam"),
            recompute,
            fused=True,
        )
        nodes = of_rows(rows_of_plan(plan, workload), len(workload.nodes))
        total = sum(load.of(np.arange(len(workload.nodes)), nodes).tolist())
        assert Fraction(total, plan.accelerators) == held.total - held.moment.total


@pytest.mark.parametrize("seed", slow_after(2, range(500)))
def test_no_way_of_training_has_a_faster_plan_within_the_memory(seed: int) -> None:
    """Of all plans, ways and micro-batches; the bound is below what is best, and proves it."""
    network, asked = drawn(seed)
    counted = []
    batch = asked["batch"]
    for count in (n for n in range(1, batch + 1) if batch % n == 0):
        for recompute, shard in WAYS:
            way = {"micro_batches": count, "recompute": recompute, "shard": shard}
            own = {**asked, "training": way}
            any_plan = ho.solve(network, **own, solver="data", search="levelwise")
            for total, rows in priced_graph_plans(network, own):
                plan = choosing(any_plan, rows)
                counted.append((total / per_second(any_plan), ho.memory(plan).total, way))
    sizes = sorted({held for _, held, _ in counted})
    rng = Random(seed)
    for limit in (sizes[0] - 1, *rng.sample(sizes, min(2, len(sizes)))):
        constraints = {**asked["constraints"], "memory": limit}
        fitting = [own for own in counted if own[1] <= limit]
        if not fitting:
            with pytest.raises(InfeasibleError, match="no plan that was found fits"):
                ho.solve(network, **{**asked, "constraints": constraints})
            continue
        plan = ho.solve(network, **{**asked, "constraints": constraints})
        if not plan.training.stated:  # the batch at once fits
            at_once = {"micro_batches": 1, "recompute": "none", "shard": "none"}
            fitting = [own for own in fitting if own[2] == at_once]
        least = min(seconds for seconds, *_ in fitting)
        taken = Fraction(plan.cost.total) / per_second(plan)
        assert ho.memory(plan).total <= limit
        assert plan.solver.bound is not None
        rounded = Fraction(100 * batch * len(plan.layers), per_second(plan))
        assert Fraction(plan.solver.bound) / per_second(plan) <= least + rounded
        assert least <= taken + rounded
        if plan.solver.status == "optimal":
            assert taken <= least + rounded


@pytest.fixture(scope="module")
def llama() -> ho.Plan:
    return ho.solve("llama-7b", batch=64, array="h100-8", constraints={"optimizer": "adam"})


def test_llama_7b_trains_on_eight_accelerators_of_80_gb(llama: ho.Plan) -> None:
    held = ho.memory(llama)
    assert held.fits
    assert llama.solver.status == "optimal"
    assert dict(llama.training) == {"micro_batches": 8, "recompute": "none", "shard": "state"}
    # One sequence at a time in each of eight parts: as fast as without a limit but for latencies.
    free = ho.solve(
        "llama-7b",
        batch=64,
        array="h100-8",
        training={"micro_batches": 1, "recompute": "none", "shard": "none"},
    )
    assert not ho.memory(free).fits
    least, taken = (plan.cost.total / per_second(plan) for plan in (free, llama))
    assert least <= taken < 1.02 * least


def test_a_plan_file_says_how_it_trains_and_is_searched_again(
    llama: ho.Plan, tmp_path: Path
) -> None:
    ho.write_plan(llama, tmp_path / "plan.json")
    read = ho.read_plan(tmp_path / "plan.json")
    assert read.training == llama.training
    assert ho.memory(read).total == ho.memory(llama).total
    again = search_again(read)
    assert (again.training, again.cost.total) == (llama.training, llama.cost.total)


def test_what_knows_no_repeated_passes_refuses_by_name(llama: ho.Plan) -> None:
    for asked in (ho.regrets, lambda plan: best_plans(plan, 2)):
        with pytest.raises(RefusedError, match="micro_batches 8, shard state"):
            asked(llama)


def test_the_chosen_plan_of_llama_7b_is_priced_again_and_runs_in_small(llama: ho.Plan) -> None:
    check_price(llama)
    assert ho.run(llama, scale_down=True).agrees


def test_what_is_stated_is_kept_and_the_rest_is_searched() -> None:
    asked: dict[str, Any] = {"batch": 512, "array": "h100-8"}
    for stated in ({"shard": "weights"}, {"recompute": "full"}, {"micro_batches": 8}):
        plan = ho.solve("gpt2", **asked, training=stated, constraints={"memory": "12GB"})
        assert stated.items() <= dict(plan.training).items()
        assert ho.memory(plan).total <= 12 * 10**9


def test_without_a_limit_that_was_stated_a_plan_that_does_not_fit_is_said_so(
    tmp_path: Path,
) -> None:
    preset = Path(arrays.__file__).with_name("h100-8.toml").read_text()
    small = preset.replace('dram_capacity = "80 GB"', 'dram_capacity = "100 MB"')
    (tmp_path / "small.toml").write_text(small)
    done = command(["solve", "gpt2", "--array", "small.toml", "--batch", "8"], tmp_path)
    assert done.status == 0
    assert "which has 100 MB; no micro-batches, recomputation and shards were found" in done.errors
    stated = ["solve", "gpt2", "--array", "h100-8", "--memory", "100MB"]
    done = command(stated, tmp_path)
    assert done.status == 4
    assert "no plan that was found fits 100 MB of a device" in done.errors


def test_how_a_plan_trains_is_said_in_a_sentence(tmp_path: Path) -> None:
    asked = ["solve", "gpt2", "--array", "h100-8", "--batch", "512"]
    done = command(asked, tmp_path)
    assert "Trains by" not in done.output
    typed = ["--memory", "20GB", "--optimizer", "adam"]
    done = command([*asked, *typed], tmp_path)
    assert "Trains by 4 micro-batches, state sharded: " in done.output
    wrong = [
        (["--micro-batches", "7"], "micro_batches: should divide the batch of 512, got 7"),
        (["--shard", "wights"], "shard: should be none, state, gradients or weights"),
        (["--cost", "energy", "--shard", "state"], "is not supported for a plan that trains by"),
        (["--recompute", "half"], "recompute: should be none, selective or full"),
    ]
    for options, message in wrong:
        done = command(["solve", "gpt2", "--array", "h100-8", "--batch", "512", *options], tmp_path)
        assert (done.status, message in done.errors) == (2, True)
