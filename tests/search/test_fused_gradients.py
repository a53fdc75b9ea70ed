"""Gradients in buckets: the plan of least time and its bound, against every plan there is."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.base import CostModel
from hypar_opt.costs.buckets import buckets_of
from hypar_opt.costs.state_charges import nodes_by_state
from hypar_opt.costs.state_classes import ChargeCache
from hypar_opt.deadline import NEVER
from hypar_opt.errors import RefusedError
from hypar_opt.hardware.array import COLLECTIVES
from hypar_opt.instance.instance import Instance
from hypar_opt.integers import Integers
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.baselines import BASELINES
from hypar_opt.studies.alternatives import best_plans, regrets
from hypar_opt.studies.simulation import per_second
from hypar_opt.workload.parallelism import CHOICES
from tests.slow import slow_after
from tests.strategies.arrays import random_array
from tests.strategies.graph_problems import priced_graph_plans
from tests.strategies.problems import random_network
from tests.strategies.written_plans import with_collective

MOST_PLANS = 2**9


def drawn(seed: int) -> tuple[ho.Network, dict[str, Any]]:
    """A chain on an array whose buckets hold a part of its gradients, or all of them."""
    rng = Random(seed)
    while True:
        network, array = random_network(rng, 5), random_array(rng, rng.randint(1, 3))
        choices = CHOICES[: rng.randint(2, 3)]
        if len(choices) ** (len(network.layers) * array.levels) <= MOST_PLANS:
            break
    collective = rng.choice(COLLECTIVES)
    return network, {
        "array": with_collective(array, collective),
        "bucket": rng.randint(20, 99) * 10 ** rng.randint(0, 4),
        "batch": rng.randint(1, 64),
        "cost": "time",
        "choices": choices,
        "constraints": {"runnable": False},
        # Else the search shards what is updated, and micro-batches may gain by rounding.
        "training": {"micro_batches": 1, "shard": "none"},
    }


@pytest.mark.parametrize("seed", slow_after(3, range(400)))
def test_no_plan_takes_less_than_the_bound_nor_a_baseline_less_than_the_plan(seed: int) -> None:
    """Of all plans, each priced as it runs: the time of its step in closed form."""
    network, asked = drawn(seed)
    plan = ho.solve(network, **asked)
    bound, total = plan.solver.bound, plan.cost.total
    least, _ = priced_graph_plans(network, asked)[0]
    assert bound is not None
    assert bound <= least <= total
    assert (plan.solver.status == "optimal") == (bound == total)
    assert plan.solver.gap == ((total - bound) / total if total else 0)
    for name in BASELINES.values():
        assert total <= ho.solve(network, solver=name, **asked).cost.total
    closed_form = ho.simulate(plan).closed_form
    assert total / per_second(plan) == pytest.approx(closed_form, rel=1e-6, abs=1e-12)


def test_a_limit_that_does_not_come_leaves_the_plan_and_its_bound() -> None:
    """With a limit each round looks for a plan level by level, too, by shares of all levels."""
    asked: Any = {"array": "h100-8", "cost": "time", "overlap": "none"}
    plan = ho.solve("lenet-c", **asked)
    limited = ho.solve("lenet-c", options=SolverOptions(time_limit=1e6), **asked)
    assert (limited.cost, limited.parallelism) == (plan.cost, plan.parallelism)
    assert (limited.solver.status, limited.solver.bound) == (plan.solver.status, plan.solver.bound)


@pytest.mark.parametrize("vocabulary", [64, 65])
def test_what_rounds_know_of_boundaries_is_what_they_find(
    vocabulary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the weights that a GPT's ends share are charged anew, by what their node is."""
    network = ho.gpt(layers=1, hidden=32, heads=2, tokens=8, vocabulary=vocabulary)
    asked: Any = {"array": "h100-8", "cost": "time", "batch": 4, "overlap": "none"}
    plan = ho.solve(network, **asked)
    costs: list[CostModel | None] = []

    def nothing_known(_: ChargeCache, cost: CostModel | None) -> dict[int, tuple[Integers, int]]:
        costs.append(cost)
        return {}

    monkeypatch.setattr(ChargeCache, "of", nothing_known)
    again = ho.solve(network, **asked)
    assert (again.parallelism, again.cost) == (plan.parallelism, plan.cost)
    assert again.solver.bound == plan.solver.bound
    assert len(costs) > 2
    assert costs[0] is not None
    assert costs == [costs[0]] * len(costs)


@pytest.mark.parametrize("seed", slow_after(10, range(20)))
def test_equal_shares_charge_no_plan_more_and_equal_gradients_alike(seed: int) -> None:
    """In every state of every node: what plans within a memory are bounded by."""
    network, asked = drawn(seed)
    instance = Instance.of_plan(ho.solve(network, **asked, solver="data"))
    exact, workload = instance.cost.time, instance.workload
    bound = exact.with_equal_shares(workload)
    nodes, levels = np.arange(len(workload.nodes)), instance.problem.levels
    charged, more = (
        nodes_by_state(cost, workload, nodes, levels, NEVER) for cost in (bound, exact)
    )
    assert (charged <= more).all()
    for bucket in buckets_of(workload, exact.bucket_elements):
        shares = {(workload.stored[node], *bound.latencies.node_keys[node]) for node in bucket}
        assert len(shares) == len({workload.stored[node] for node in bucket})
        if len(bucket) == 1:
            assert (charged[list(bucket)] == more[list(bucket)]).all()


@pytest.mark.parametrize("seed", slow_after(2, range(20)))
def test_solvers_agree_on_what_they_are_given(seed: int) -> None:
    network, asked = drawn(seed)
    plan = ho.solve(network, **asked)
    for solver in ("cut", "ilp", "cpsat", "brute"):
        try:
            other = ho.solve(network, solver=solver, search="joint", **asked)
        except RefusedError:
            assert solver != "ilp"  # by the choices, the number of plans, or 64 bits
            continue
        assert other.parallelism == plan.parallelism
        assert (other.cost, other.solver.bound) == (plan.cost, plan.solver.bound)


@pytest.mark.parametrize(
    ("network", "array", "batch"),
    slow_after(
        1,
        [
            ("lenet-c", "a100-4x8", 256),
            ("alexnet", "h100-8x8", 256),
            ("lenet-c", "h100-8x8", 256),
            ("gpt2", "h100-8x8", 64),
            ("vgg-a", "h100-8x8", 256),
            ("resnet-50", "h100-8x8", 64),
            ("vit-b16", "h100-8x8", 64),
        ],
    ),
)
def test_presets_have_buckets_of_25_mb_and_plans_that_are_proved(
    network: str, array: str, batch: int
) -> None:
    """With each latency shared out in one way, Lenet-c's took 70 us, and Data Parallelism 39."""
    plan = ho.solve(network, array=array, batch=batch, overlap="none")
    assert plan.array is not None
    assert plan.array.description.bucket == 25_000_000
    assert plan.solver.status == "optimal"
    seconds = plan.cost.total / per_second(plan)
    assert ho.simulate(plan, overlap="none").seconds == pytest.approx(seconds, rel=1e-9)
    data = ho.solve(network, solver="data", array=array, batch=batch)
    assert ho.simulate(data, overlap="none").seconds >= seconds * (1 - 1e-9)
    # With overlap, too, the plan for time is no slower than either.
    fast = ho.simulate(ho.solve(network, array=array, batch=batch)).seconds
    for other in (plan, data):
        assert fast <= ho.simulate(other).seconds * (1 + 1e-9)


def test_bytes_and_apart_are_as_without_buckets() -> None:
    """An array without the key, and one whose key is replaced by 0, are one."""
    apart, together = (
        ho.solve("lenet-c", array="h100-8x8", cost="time", bucket=size, overlap="none")
        for size in (0, "25 MB")
    )
    assert apart.solver.status == "optimal"
    assert apart.array is not None
    assert apart.array.description.bucket is None
    assert together.cost.total < apart.cost.total
    of_bytes = [
        ho.solve("lenet-c", array="h100-8x8", cost="bytes", bucket=size) for size in (0, "25 MB")
    ]
    assert of_bytes[0].cost == of_bytes[1].cost


def test_what_compares_plans_by_sums_of_charges_is_refused_by_name() -> None:
    plan = ho.solve("lenet-c", array="h100-8", cost="time", overlap="none")
    for asked in (
        lambda: regrets(plan),
        lambda: best_plans(plan, 3),
        lambda: ho.explore(plan, "H1"),
    ):
        with pytest.raises(RefusedError, match=r"share their latencies.*bucket.*0"):
            asked()
