"""Time on two unequal groups: equal ones, published machines, brute force, and what is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.groups import GroupTime
from hypar_opt.costs.time import TimeCost
from hypar_opt.errors import HyparError
from hypar_opt.hardware.array import Array
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_plans, total_cost
from hypar_opt.integers import Integers
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.share_of_group import SHARES
from hypar_opt.search.joint import joint
from hypar_opt.search.result import SearchRequest
from hypar_opt.search.shares import GAP, best_share
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from hypar_opt.step.states import exact_sum
from hypar_opt.workload.parallelism import CHOICES, PAPERS_CHOICES, PART_WORDS
from tests.slow import slow_after
from tests.strategies.groups import described, nodes, of_accpar, pair
from tests.strategies.problems import random_network


def both(share: int) -> tuple[int, int]:
    return share, SHARES - share


def request(instance: Instance) -> SearchRequest:
    return SearchRequest(instance, DynamicProgramming())


@pytest.mark.parametrize("choices", [PAPERS_CHOICES, CHOICES])
@pytest.mark.parametrize("name", ["vgg-a", "resnet-18", "gpt-2"])
def test_equal_groups_in_halves_cost_what_one_array_does(
    name: str, choices: tuple[str, ...]
) -> None:
    groups = nodes(operations=("2 TFLOPS", "2 TFLOPS"))
    description = groups.description()
    own = {k: v for k, v in description["accelerator"][0].items() if k not in ("name", "count")}
    plain = Array.model_validate({**description, "accelerator": own})
    network = find_network(name)
    asked: dict[str, Any] = {"cost": "time", "batch": 64, "choices": choices}
    unequal, equal = (
        Instance(network, problem_of(network, array=array, **asked)) for array in (groups, plain)
    )
    cost = unequal.cost
    assert isinstance(cost, GroupTime)
    assert isinstance(equal.cost, TimeCost)
    # Exchanges of groups are by exact shares, and 3 channels or 50257 words are uneven.
    ours = replace(equal.cost, by_largest_shard=False).in_units(cost.per_unit, equal.workload)
    workload, rng = equal.workload, np.random.default_rng(0)
    levels, count = equal.problem.levels, len(workload.nodes)
    states = rng.integers(0, len(choices), (levels, count, 20))
    states[:, workload.forbidden[:, -1]] = 0
    every_node, ends = np.arange(count)[:, None], workload.ends
    boundaries = np.arange(len(ends))[:, None]
    pairs = [states[:, ends[:, 0]]], [states[:, ends[:, 1]]]

    def of_nodes(model: TimeCost) -> Integers:
        return exact_sum(model.node(workload, every_node, [states]))

    for one, other in zip(
        # Of groups H1 is charged some of the compute.
        (of_nodes(cost), *cost.edge(workload, boundaries, *pairs)),
        (of_nodes(ours), *ours.edge(workload, boundaries, *pairs)),
        strict=True,
    ):
        assert (one == other).all()


SIDES = tuple(PART_WORDS)[:2]

ORACLES: dict[tuple[str, float, float], tuple[float, ...]] = {
    # Milliseconds of a step: in halves, in the compute ratio, with layers on one side; and a bound
    # on all plans, with a ratio for each layer.
    ("alexnet", 1, 2): (12.1234, 10.9447, 2.2761, 2.2731),
    ("vgg-a", 1, 2): (105.6240, 78.0671, 55.6551, 55.5549),
    ("vgg-e", 1, 2): (229.8224, 161.2270, 143.5945, 143.5400),
    ("lenet-c", 1, 2): (0.8806, 0.8727, 0.0168, 0.0167),
    ("alexnet", 8, 8): (3.8390, 2.9905, 2.2179, 2.2153),
    ("vgg-a", 8, 8): (70.0175, 44.2589, 43.4610, 43.3882),
    ("vgg-e", 8, 8): (175.3139, 108.5168, 107.7189, 107.5721),
    ("lenet-c", 8, 8): (0.1272, 0.1194, 0.0168, 0.0167),
    ("alexnet", 62.5, 82): (2.8070, 1.7582, 1.6979, 1.6954),
    ("vgg-a", 62.5, 82): (65.5820, 39.6119, 39.5902, 39.5251),
    ("vgg-e", 62.5, 82): (168.5237, 101.5152, 101.4935, 101.4283),
    ("lenet-c", 62.5, 82): (0.0333, 0.0255, 0.0168, 0.0167),
}
"""TPU v2 and v3, 180 and 420 Tflop/s, with what each receives in GB/s: batch 512, two bytes.

Source: a dynamic programme over intervals of ratios, in floating point; docs/algorithms.md.
"""


@pytest.mark.parametrize(  # each network, and each machine
    ("name", "first", "second"),
    slow_after(4, [key for start in range(3) for key in [*ORACLES][start::3]]),
)
def test_published_groups_take_the_time_of_the_prototype(
    name: str, first: float, second: float
) -> None:
    *expected, of_all = ORACLES[name, first, second]
    asked = [(0.5, ()), (0.3, ()), (0.3, SIDES)]
    for milliseconds, (share, sides) in zip(expected, asked, strict=True):
        search = request(of_accpar(name, (first, second), share, *sides))
        found = joint(search)
        assert float(search.total(found.assignments)) / 1e12 == pytest.approx(
            milliseconds, abs=6e-5
        )
    # One ratio for all layers is within .2 % of a ratio for each of them.
    assert expected[-1] <= of_all * 1.0021 + 1e-4
    _, least, _ = best_share(search, joint)
    assert least is not None
    bound, at_best = float(least) / 1e12, expected[-1]
    assert bound <= at_best + 6e-5
    assert at_best <= bound * (1 + 1.1 * float(GAP)) + 1e-4
    assert isinstance(share, float)
    assert abs(share - 0.3) < 0.01


def _every_plan(instance: Instance) -> list[tuple[tuple[int, ...], ...]]:
    choices, sides = instance.problem.choices, len(SIDES)
    layers, levels = len(instance.workload.layers), instance.problem.levels
    of_level = [range(len(choices) - (sides if level else 0)) for level in range(levels)]
    rows = [list(itertools.product(own, repeat=layers)) for own in of_level]
    return list(itertools.product(*rows))


@pytest.mark.parametrize("seed", slow_after(1, range(40)))
def test_no_plan_at_a_share_is_cheaper_than_the_search_or_its_bound(seed: int) -> None:
    rng = Random(seed)
    per_node = rng.choice([1, 1, 2])
    array = nodes(
        per_node, latency=rng.choice(["0 s", "1 us"]), dram=rng.choice(["1 GB/s", "1 TB/s"])
    )
    network = random_network(rng, 3 if per_node == 1 else 2)
    choices = CHOICES if per_node == 1 else PAPERS_CHOICES
    problem = problem_of(
        network,
        array=array,
        cost="time",
        batch=rng.choice([8, 48]),
        choices=choices,
        share=0.25,
        constraints={"runnable": False},
    )
    instance = Instance(network, problem)
    cost = instance.cost
    assert isinstance(cost, GroupTime)
    plans = _every_plan(instance)

    def cheapest(own: Instance) -> Fraction:
        """The least cost of all plans, each priced by itself."""
        levels = price_plans(own.workload, own.cost, plans, [None] * len(plans))
        return min(sum(rows, Fraction()) for rows in levels)

    corners = [
        joint(request(instance.with_cost(own))) for own in cost.between(both(1000), both(4000))
    ]
    bound = min(own.bound or Fraction() for own in corners)
    for parts in (1000, 1700, 2500, 3333, 4000):
        own = instance.with_cost(cost.at(both(parts)))
        least = cheapest(own)
        found = joint(request(own))
        assert total_cost(own, found.assignments) == least == found.bound
        assert bound <= least
    share, proved, _ = best_share(request(instance), joint)
    assert proved is not None
    assert isinstance(share, float)
    at_best = cheapest(instance.with_cost(cost.at(both(round(share * SHARES)))))
    assert proved <= at_best <= proved / (1 - 2 * GAP)
    for parts in range(500, SHARES, 500):
        assert proved <= cheapest(instance.with_cost(cost.at(both(parts))))


def test_a_layer_in_data_parallelism_by_hand() -> None:
    network = ho.Network.model_validate(
        {
            "name": "one",
            "input": {"features": 1000},
            "layer": [{"name": "fc", "kind": "fc", "units": 500}],
        }
    )
    plan = ho.solve(
        network, array=pair(), cost="time", batch=200, share=0.4, constraints={"fix": ["fc=data"]}
    )
    operations, weights = 2 * 200 * 1000 * 500, 4 * 1000 * 500
    compute = 3 * max(0.4 * operations / 180e12, 0.6 * operations / 420e12)
    # Either receives the other's addends of its part, and the other's part: the gradient once.
    assert plan.cost.total / 1e15 == pytest.approx(compute + weights / 8e9, rel=1e-9)
    assert plan.cost.executed_bytes == 2 * weights
    assert plan["fc"] == {"H1": "data"}


def test_a_step_is_simulated_as_it_is_priced() -> None:
    array = nodes()
    for name, share in (("alexnet", 0.1), ("alexnet", 0.5), ("vgg-a", 0.25), ("resnet-18", 0.3)):
        plan = ho.solve(name, array=array, cost="time", batch=32, share=share)
        step = ho.simulate(plan)
        assert step.closed_form == pytest.approx(plan.cost.total / 1e15, rel=1e-9)
        assert step.lower_bound * (1 - 1e-9) <= step.seconds
        # One group may get ahead: it waits for less, or its messages share the other's links.
        assert step.seconds == pytest.approx(step.closed_form, rel=0.05)
        moved = sum(level.bytes for level in step.levels)
        assert moved == pytest.approx(plan.cost.executed_bytes, rel=1e-9)


def test_a_plan_file_has_the_share_and_its_search_can_be_repeated(tmp_path: Any) -> None:
    plan = ho.solve("lenet-c", array=nodes(1), cost="time")
    ho.write_plan(plan, tmp_path / "plan.json")
    read = ho.read_plan(tmp_path / "plan.json")
    assert read == plan
    assert read.share is not None
    assert read.document()["schema"] == "hypar-opt/plan/4"
    assert read.choices == (*CHOICES, *SIDES)


def _unequal(**changes: Any) -> dict[str, Any]:
    topology = {"kind": "htree", "accelerators": 4, "link": {"bandwidth": "1 GB/s"}}
    description = described({"a": "1 TFLOPS", "b": "2 TFLOPS"}, topology) | changes
    for group, count in zip(
        description["accelerator"], changes.pop("counts", (2, 2)), strict=False
    ):
        group["count"] = count
    description.pop("counts", None)
    return description


def test_groups_are_refused_by_name() -> None:
    assert Array.model_validate(_unequal()).groups[1].count == 2
    one = [{**_unequal()["accelerator"][0], "count": 4}]
    ring = {"kind": "torus", "shape": [11], "link": {"bandwidth": "1 GB/s"}}
    pairs = nodes(2).description()["topology"]
    for changes, problem in (
        ({"counts": (2, 1)}, "should have the topology's 4 accelerators together, got 2 a, 1 b"),
        ({"accelerator": one}, "should be one table or several groups, got one group"),
        ({"topology": ring, "counts": (1, 10)}, "at most 8 equal parts together, got 11 of 1"),
        ({"whole_levels": True, "topology": pairs, "counts": (3, 1)}, "no parts of H1, of 2 acc"),
    ):
        with pytest.raises(ValueError, match=problem):
            Array.model_validate(_unequal(**changes))


def test_options_that_groups_lack_are_refused_by_name() -> None:
    asked: dict[str, Any] = {"array": nodes(1), "cost": "time"}
    refused: list[tuple[dict[str, Any], str]] = [
        (
            {"constraints": {"memory": 1000}, "share": 0.25, "training": {"micro_batches": 1}},
            "nothing fits; the least that was ",
        ),
        ({"reading": "text"}, "unequal groups of accelerators need"),
        ({"constraints": {"fix": ["fc1@H2=first"]}}, "choice at H1 alone"),
        ({"share": 1.5}, "between 0 and 1"),
        ({"cost": "energy"}, "has no energies"),
        ({"share": (0.2, 0.3, 0.5)}, "should be one share, the first group's"),
        ({"share": (0.2, 0.3, 0.6)}, "should add up to 1 over all groups"),
        ({"choices": (*CHOICES, "third")}, "third should be one of H1's 2 parts"),
        ({"array": "h100-8", "share": 0.3}, "an array of groups"),
    ]
    for changes, problem in refused:
        changes = {"array": nodes(2)} | changes if "constraints" in changes else changes
        with pytest.raises(HyparError, match=problem):
            ho.solve("lenet-c", **(asked | changes))
    with pytest.raises(HyparError, match="unequal groups"):
        ho.pareto("lenet-c", **asked)
    plan = ho.solve("lenet-c", **asked, share=0.25)
    for to in ("jax", "torch", "jax-shardings"):
        with pytest.raises(HyparError, match="to='json' says which part of each tensor"):
            ho.export(plan, to=to)


def test_bytes_keep_equal_parts() -> None:
    plan = ho.solve("lenet-c", array=nodes(2), cost="bytes")
    assert plan.share is None
    assert plan.choices == CHOICES
    asked: dict[str, Any] = {"reading": "executed", "choices": CHOICES}
    assert plan.cost.total == ho.solve("lenet-c", levels=2, **asked).cost.total
