"""Unequal parts compute, send and hold whole indices of what H1 divides, as a run rounds them."""

from __future__ import annotations

import itertools
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.groups import GroupTime
from hypar_opt.hardware.array import Array
from hypar_opt.hierarchy import parts_by_share
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_plans
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.share_of_group import SHARES
from hypar_opt.proofs.certificate import check_price
from hypar_opt.search.joint import joint
from hypar_opt.search.result import SearchRequest
from hypar_opt.search.shares import LEAST
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from hypar_opt.step.shares import Share
from hypar_opt.workload.parallelism import CHOICES
from tests.slow import slow_after
from tests.strategies.groups import of_counts

Shares = tuple[float, ...]


def star(rates: list[float], bandwidth: str = "1000000 TB/s") -> Array:
    """One accelerator of each group around a switch; or two, and the link between them."""
    groups = [
        {
            "name": f"g{number}",
            "count": 1,
            "units": 1,
            "operations": f"{rate} GOPS",
            "utilisation": 0.5,
            "dram_bandwidth": "1000000 TB/s",
            "dram_capacity": "64 GB",
        }
        for number, rate in enumerate(rates)
    ]
    count = len(rates)
    nodes = [{"id": number, "accelerator": number} for number in range(count)]
    ends = [(0, 1)] if count == 2 else [(number, count) for number in range(count)]
    graph = {
        "nodes": nodes if count == 2 else [*nodes, {"id": count}],
        "edges": [{"source": a, "target": b, "bandwidth": bandwidth} for a, b in ends],
    }
    topology = {"kind": "graph", "graph": graph}
    return Array.model_validate({"name": "star", "accelerator": groups, "topology": topology})


def fc_layers(features: int, *units: int) -> ho.Network:
    layers = [{"name": f"fc{n}", "kind": "fc", "units": own} for n, own in enumerate(units)]
    return ho.Network.model_validate(
        {"name": "layers", "input": {"features": features}, "layer": layers}
    )


def random_shares(rng: Random, groups: int) -> Shares:
    """Shares in steps of a twentieth, or of any size."""
    step = rng.choice([SHARES // 20, 1])
    cuts = sorted(rng.sample(range(step, SHARES, step), groups - 1))
    ends = [0, *cuts, SHARES]
    return tuple((end - begin) / SHARES for begin, end in itertools.pairwise(ends))


def indices_by_hand(size: int, shares: Shares) -> list[int]:
    """Whole indices: a part ends at the integer that is nearest to where its share ends."""
    ends = [round(size * sum(Fraction(str(own)) for own in shares[:n])) for n in range(len(shares))]
    return [end - begin for begin, end in itertools.pairwise([*ends, size])]


def stated(shares: Shares) -> float | Shares:
    return shares[0] if len(shares) == 2 else shares


TABLE: list[tuple[list[float], int, Shares, str, int, list[int]]] = [
    # Rates, the batch, shares, the choice, channels that are read; and what each part has.
    ([10, 40], 5, (0.2, 0.8), "data", 64, [1, 4]),
    ([10, 40], 5, (0.4, 0.6), "data", 64, [2, 3]),
    ([10, 40], 15, (0.2, 0.8), "data", 64, [3, 12]),
    ([10, 40], 25, (0.2, 0.8), "data", 64, [5, 20]),
    ([10, 40], 45, (0.2, 0.8), "data", 64, [9, 36]),
    ([10, 40], 10, (0.2, 0.8), "data", 64, [2, 8]),
    ([10, 40], 64, (0.25, 0.75), "data", 64, [16, 48]),
    ([10, 40], 40, (0.2, 0.8), "model", 65, [13, 52]),
    ([25, 15, 10], 40, (0.5, 0.3, 0.2), "data", 64, [20, 12, 8]),
    ([25, 15, 10], 40, (0.5, 0.3, 0.2), "model", 160, [80, 48, 32]),
    ([25, 15, 10], 40, (0.5, 0.3, 0.2), "model", 240, [120, 72, 48]),
    ([10, 40], 7, (0.3, 0.7), "data", 64, [2, 5]),
    ([25, 15, 10], 7, (0.5, 0.3, 0.2), "data", 64, [4, 2, 1]),
]


@pytest.mark.parametrize(("rates", "batch", "shares", "choice", "channels", "each"), TABLE)
def test_a_layer_takes_its_longest_part_by_hand(
    rates: list[float], batch: int, shares: Shares, choice: str, channels: int, each: list[int]
) -> None:
    """Three passes of two operations a multiply-accumulate, at half of the peak."""
    network = fc_layers(channels, 128)
    plan = ho.solve(
        network,
        array=star(rates),
        batch=batch,
        share=stated(shares),
        cost="time",
        constraints={"fix": [f"fc0@H1={choice}"]},
    )
    per_index = 2 * 3 * 128 * (channels if choice == "data" else batch)
    seconds = max(per_index * own / (rate * 0.5e9) for own, rate in zip(each, rates, strict=True))
    assert plan.cost.total / 1e15 == pytest.approx(seconds, rel=1e-6)
    step = ho.simulate(plan)
    assert step.seconds == pytest.approx(seconds, rel=1e-6)
    assert step.closed_form == pytest.approx(seconds, rel=1e-6)
    check_price(plan)
    assert ho.run(plan).agrees


@pytest.mark.parametrize("seed", slow_after(6, range(300)))
def test_price_events_and_second_price_of_random_shares_are_those_by_hand(seed: int) -> None:
    """One layer, whose operations alone take time, of any batch and channels at any shares."""
    rng = Random(seed)
    groups = rng.choice([2, 3, 4])
    rates = [float(rng.randrange(1, 50)) for _ in range(groups)]
    shares = random_shares(rng, groups)
    choice = rng.choice(CHOICES)
    batch, read, written = (rng.choice([7, 13, 30, 45, 64, 99]) for _ in range(3))
    size = {"data": batch, "model": read, "output": written}[choice]
    each = indices_by_hand(size, shares)
    plan = ho.solve(
        fc_layers(read, written),
        array=star(rates),
        batch=batch,
        share=stated(shares),
        cost="time",
        constraints={"fix": [f"fc0@H1={choice}"], "runnable": False},
        training={"micro_batches": 1},
    )
    macs = batch * read * written // size
    seconds = max(6 * macs * own / (rate * 0.5e9) for own, rate in zip(each, rates, strict=True))
    assert plan.cost.total / 1e15 == pytest.approx(seconds, rel=1e-5)
    step = ho.simulate(plan)
    assert step.seconds == pytest.approx(plan.cost.total / 1e15, rel=1e-9)
    assert step.closed_form == pytest.approx(plan.cost.total / 1e15, rel=1e-9)
    check_price(plan)


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_fewest_and_most_indices_hold_for_all_shares_between_corners(parts: int) -> None:
    rng = Random(parts)
    for _ in range(60):
        corners = [
            tuple(round(SHARES * own) for own in random_shares(rng, parts)) for _ in range(parts)
        ]
        size = np.array([rng.randrange(1, 60)])
        for _ in range(20):
            weights = [rng.randrange(5) for _ in corners]
            weights[0] += 1
            mean = [
                sum(w * own[n] for w, own in zip(weights, corners, strict=True)) // sum(weights)
                for n in range(parts)
            ]
            shares = (*mean[:-1], SHARES - sum(mean[:-1]))
            around = (*corners, shares)  # whole shares need not lie quite between the corners
            for side, own in enumerate(parts_by_share(size, shares)):
                share = Share(side, corners[0], around)
                assert share.min_indices(size) <= own <= share.max_indices(size)


@pytest.mark.parametrize("seed", slow_after(3, range(60)))
def test_the_least_of_all_shares_is_the_least_of_all_counts_by_hand(seed: int) -> None:
    """Where operations alone take time: each number of indices that the first part may have."""
    rng = Random(seed)
    rates = [10.0, float(rng.choice([10, 20, 30, 40]))]
    choice, size = rng.choice(["data", "model"]), rng.choice([5, 7, 9, 15, 25])
    batch, read = (size, 64) if choice == "data" else (40, size)
    plan = ho.solve(
        fc_layers(read, 128),
        array=star(rates),
        batch=batch,
        cost="time",
        constraints={"fix": [f"fc0@H1={choice}"]},
        training={"micro_batches": 1},
    )
    per_index = 6 * 128 * batch * read // size
    best = min(
        max(per_index * own / (rate * 0.5e9) for own, rate in zip(parts, rates, strict=True))
        for parts in ((first, size - first) for first in range(1, size))
    )
    (least,) = (row[LEAST] for row in plan.solver.statistics if LEAST in row)
    assert plan.cost.total / 1e15 == pytest.approx(best, rel=1e-5)
    assert least / 1e15 <= best * (1 + 1e-5)
    assert least == pytest.approx(plan.cost.total, rel=1e-5)


@pytest.mark.parametrize("seed", slow_after(1, range(80)))
def test_the_bound_over_all_shares_is_the_least_of_all_plans_at_all_shares(seed: int) -> None:
    """Every plan at every share at which any part has another number of indices of an axis."""
    rng = Random(seed)
    batch, features, units = rng.choice([3, 5, 7, 9]), rng.choice([4, 5]), rng.choice([3, 6])
    array = star([10.0, float(rng.choice([10, 20, 40]))], rng.choice(["100 MB/s", "1 TB/s"]))
    network = fc_layers(features, units)
    asked: dict[str, Any] = {
        "array": array,
        "cost": "time",
        "batch": batch,
        "choices": CHOICES,
        "constraints": {"runnable": False},
        "training": {"micro_batches": 1, "shard": "none"},
    }
    plan = ho.solve(network, **asked)
    (claimed,) = (row[LEAST] for row in plan.solver.statistics if LEAST in row)
    instance = Instance(network, problem_of(network, share=0.5, **asked))
    cost = instance.cost
    assert isinstance(cost, GroupTime)
    plans = [((choice,),) for choice in range(len(instance.problem.choices))]
    shares = {1, SHARES - 1}
    for size in (batch, features, units):  # an exchange's own share is linear between these
        for half in range(1, 2 * size):
            at = SHARES * half // (2 * size)
            shares |= {own for own in (at - 1, at, at + 1) if 0 < own < SHARES}
    resolution = Fraction(plan.cost.total) / _own_total(instance, plan)
    least = min(
        sum(rows, Fraction())
        for own in shares
        for rows in price_plans(
            instance.workload, cost.at((own, SHARES - own)), plans, [None] * len(plans)
        )
    )
    least *= resolution
    assert claimed <= least * (1 + Fraction(1, 10**9))
    assert least <= plan.cost.total * (1 + Fraction(1, 10**9))
    # The search ends within a thousandth of its bound.
    assert plan.cost.total <= claimed / (1 - 1e-3)
    # Between shares the linear bounds hold, too.
    for low, high in itertools.pairwise(sorted(rng.sample(sorted(shares), 4))):
        request = SearchRequest(instance, DynamicProgramming())
        bound = min(
            found
            for linear in cost.between((low, SHARES - low), (high, SHARES - high))
            if (found := joint(_with_cost(request, linear)).bound) is not None
        )
        for own in (own for own in shares if low <= own <= high):
            levels = price_plans(
                instance.workload, cost.at((own, SHARES - own)), plans, [None] * len(plans)
            )
            assert bound <= min(sum(rows, Fraction()) for rows in levels)


def _own_total(instance: Instance, plan: ho.Plan) -> Fraction:
    """What the instance's cost says of a plan, in its own units."""
    cost, share = instance.cost, plan.share
    assert isinstance(cost, GroupTime)
    assert isinstance(share, float)
    own = round(SHARES * share)
    rows = ((instance.problem.choices.index(plan["fc0"]["H1"]),),)
    (levels,) = price_plans(instance.workload, cost.at((own, SHARES - own)), [rows], [None])
    return sum(levels, Fraction())


def _with_cost(request: SearchRequest, cost: GroupTime) -> SearchRequest:
    return SearchRequest(request.instance.with_cost(cost), DynamicProgramming())


@pytest.mark.parametrize(
    "shares",
    [
        (0.3333, 0.3333, 0.3334),
        (0.3, 0.3, 0.4),
        (0.2, 0.3, 0.5),
        (0.25, 0.25, 0.5),
        (0.1, 0.3, 0.6),
        (0.05, 0.15, 0.8),
    ],
)
def test_rounds_between_three_groups_take_as_long_as_their_longest_messages(
    shares: Shares,
) -> None:
    """A reduce-scatter and an all-gather of two rounds each: four times the largest share."""
    plan = ho.solve(
        fc_layers(60, 500),
        array=star([1e6, 1e6, 1e6], "1 GB/s"),
        batch=120,
        share=shares,
        cost="time",
        constraints={"fix": ["fc0@H1=model"]},
        training={"micro_batches": 1},
    )
    of_output = 4 * 120 * 500 / 1e9
    assert plan.cost.total / 1e15 == pytest.approx(4 * max(shares) * of_output, rel=1e-3)
    step = ho.simulate(plan)
    assert step.seconds == pytest.approx(plan.cost.total / 1e15, rel=1e-6)
    moved = sum(level.bytes for level in step.levels)
    assert moved == pytest.approx(plan.cost.executed_bytes, rel=1e-6)
    # Of a link both directions: what a part sends to the others, and what it receives.
    assert sum(link.bytes for link in step.links) == pytest.approx(2 * moved, rel=1e-6)


@pytest.mark.parametrize("seed", slow_after(4, range(200)))
def test_a_step_of_groups_takes_no_longer_than_its_price(seed: int) -> None:
    """Groups begin a round together; below H1 one that is ahead need not wait."""
    rng = Random(seed)
    counts = rng.choice([(1, 1), (2, 2), (1, 1, 2), (2, 2, 2), (4, 2), (3, 1)])
    array = of_counts(counts, collective="pairwise", kernels=seed % 2 == 1)
    network = fc_layers(
        rng.choice([60, 121]), *(rng.choice([40, 250, 333]) for _ in range(rng.randrange(1, 5)))
    )
    at_h1 = [f"{layer.name}@H1={rng.choice(CHOICES)}" for layer in network.layers]
    plan = ho.solve(
        network,
        array=array,
        batch=rng.choice([480, 931]),
        share=stated(random_shares(rng, len(counts))),
        cost="time",
        choices=CHOICES,
        constraints={"fix": at_h1, "runnable": False},
        training={"micro_batches": 1, "shard": "none"},
    )
    step = ho.simulate(plan)
    assert step.seconds <= step.closed_form * (1 + 1e-9)
    one_each = len(counts) == array.hierarchy().accelerators
    assert step.seconds >= step.closed_form * (0.99 if one_each else 0.85)
    check_price(plan)
