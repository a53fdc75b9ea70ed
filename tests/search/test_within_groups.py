"""Groups of accelerators: what each holds, and the fastest training that fits all of them."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.device_load import PartLoad
from hypar_opt.errors import InfeasibleError, NoAnswerError
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.proofs.certificate import check_price
from hypar_opt.simulator.memory import counted_memory
from hypar_opt.step.holds import KEPT, WeightBytes, step_holds
from hypar_opt.step.shares import Share
from hypar_opt.step.states import states_from_rows
from hypar_opt.studies.simulation import per_second
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.parallelism import PART_WORDS
from tests.slow import slow_after
from tests.strategies.groups import of_counts, some_share
from tests.strategies.problems import random_network
from tests.strategies.ways_of_training import every_trained
from tests.strategies.written_plans import choosing

GPT = ho.gpt(layers=2, hidden=64, heads=8, tokens=32, vocabulary=128)
NOTHING = r"nothing fits|no plan was found that fits"
WAYS: list[dict[str, Any]] = [
    {},
    {"micro_batches": 2, "shard": "state"},
    {"micro_batches": 4, "shard": "gradients", "recompute": "full"},
    {"micro_batches": 2, "shard": {"*": "state", "decoder.0": "weights"}},
    {"shard": "weights@H2"},
]


@pytest.mark.parametrize(
    ("counts", "training"),
    [*product([(2, 2)], WAYS), *slow_after(1, product([(2, 2, 2)], reversed(WAYS[:4])))],
    ids=str,
)
def test_a_step_that_trains_takes_what_its_plan_says_and_a_second_price(
    counts: tuple[int, ...], training: dict[str, Any]
) -> None:
    for kernels, bucket in ((False, "1 B"), (True, "100 kB")):
        array = of_counts(counts, kernels=kernels, bucket=bucket)
        share = some_share(Random(len(counts)), array)
        plan = ho.solve(GPT, batch=48, array=array, share=share, training=training)
        taken, units = plan.cost.total / per_second(plan), float(per_second(plan))
        rounded = 100 * len(plan.layers) * (plan.training.micro_batches or 1) / units
        assert ho.simulate(plan).closed_form == pytest.approx(taken, rel=1e-9, abs=rounded)
        check_price(plan)


@pytest.mark.parametrize("counts", [(2, 2), (2, 2, 2)])
def test_what_states_hold_is_what_each_part_holds_where_everything_divides(
    counts: tuple[int, ...],
) -> None:
    share = (0.25, 0.25, 0.5) if len(counts) == 3 else 0.25
    array = of_counts(counts, element_bytes=2)
    rng = np.random.default_rng(0)
    for training in WAYS:
        constraints = {"optimizer": "adam", "runnable": False, "fix": ["*=data"]}
        way = {"micro_batches": 1} | training
        asked: dict[str, Any] = {"share": share, "training": way, "constraints": constraints}
        plan = ho.solve(GPT, batch=192, array=array, **asked)
        problem, network = plan.problem, plan.network.description
        layers, sides = len(plan.layers), len(array.groups)
        for _ in range(4):
            rows = rng.integers(0, 2, (plan.levels, layers))
            rows[0] = np.where(rng.random(layers) < 0.3, 3 + rng.integers(0, sides), rows[0])
            own = choosing(plan, tuple(map(tuple, rows.tolist())))
            workload = Instance.of_plan(own).workload
            nodes = rows_of_plan(own, workload)
            every = np.arange(len(workload.nodes))
            asked_of_step = (network, workload, plan.hierarchy, plan.element_bytes)
            each = WeightBytes.of(plan.element_bytes, "adam")
            kept = step_holds(*asked_of_step, each, Fused()).of(*KEPT)
            for part, one in zip(
                Share.of_parts(plan.part_shares), array.groups_of_parts, strict=True
            ):
                held = PartLoad(kept, workload, plan.hierarchy, part)
                total = sum(held.of(every, states_from_rows(nodes, len(every))).tolist())
                asked_of_part = (problem, network, workload, nodes, one)
                found, _ = counted_memory(*asked_of_part, share=part)
                exact = sum(n.weights + n.gradients + n.state + n.saved for n in found)
                assert total / plan.accelerators <= exact
                assert exact == pytest.approx(total / plan.accelerators, rel=1e-3)


@pytest.mark.parametrize("seed", slow_after(1, [*range(2, 100), 0, 1]))
def test_no_way_of_training_is_faster_in_all_groups(seed: int) -> None:
    rng = Random(seed)
    counts = (1, 1) if seed < 4 else rng.choice([(1, 1), (1, 1, 2)])
    array = of_counts(counts, kernels=rng.random() < 0.5, bucket="1 B")
    network = random_network(rng, 2)
    sides = tuple(PART_WORDS)[:2]
    batch = rng.randint(2, 4)
    asked: dict[str, Any] = {
        "array": array,
        "batch": batch,
        "share": 0.4 if len(counts) == 2 else (0.2, 0.3, 0.5),
        "choices": ("data", "model", *sides),
        "constraints": {"runnable": False},
    }
    problem = problem_of(network, **asked)
    every = every_trained(problem, network)
    sizes = sorted({held for _, held in every})
    for limit in (sizes[0] - 1, *rng.sample(sizes, min(2, len(sizes)))):
        own = {**asked, "constraints": {**asked["constraints"], "memory": limit}}
        fitting = [seconds for seconds, held in every if held <= limit]
        if not fitting:
            with pytest.raises((InfeasibleError, NoAnswerError), match=NOTHING):
                ho.solve(network, **own)
            continue
        plan = ho.solve(network, **own)
        check_price(plan)
        assert ho.memory(plan).tensors <= limit
        taken, bound = (
            Fraction(own or 0) / per_second(plan) for own in (plan.cost.total, plan.solver.bound)
        )
        rounded = Fraction(100 * batch * len(plan.layers), per_second(plan))
        if plan.training.stated:  # else the batch at once fits
            assert bound <= min(fitting) + rounded
            assert min(fitting) - rounded <= taken
            if plan.solver.status == "optimal":
                assert taken <= min(fitting) + rounded


def test_where_no_plan_fits_at_the_shares_of_the_fastest_one_those_that_fit_are_found() -> None:
    network = "lenet-c"
    asked: dict[str, Any] = {
        "array": of_counts((1, 1)),
        "batch": 48,
        "training": {"micro_batches": 1, "recompute": "none", "shard": "none"},
    }
    fix = ["*=data"]  # whose copies of weights no shares change
    fastest = ho.solve(network, constraints={"fix": fix}, **asked)
    stated, equal = (
        ho.solve(network, share=share, constraints={"fix": fix}, **asked) for share in (0.45, 0.5)
    )
    within: dict[str, Any] = {"fix": fix, "memory": ho.simulate(stated).memory}
    with pytest.raises((InfeasibleError, NoAnswerError)):
        ho.solve(network, share=fastest.share, constraints=within, **asked)
    found = ho.solve(network, constraints=within, **asked)
    assert ho.memory(found).total <= within["memory"]
    taken, at_least = (own.cost.total / per_second(own) for own in (found, fastest))
    assert at_least < taken <= stated.cost.total / per_second(stated)
    # Equal parts hold least.
    with pytest.raises((InfeasibleError, NoAnswerError), match=NOTHING):
        ho.solve(network, constraints=within | {"memory": ho.simulate(equal).memory - 1}, **asked)
