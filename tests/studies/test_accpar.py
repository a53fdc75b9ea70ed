"""AccPar's order of types between two groups: a prototype's, equal groups, and its row."""

from __future__ import annotations

import itertools
from fractions import Fraction
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_plans, total_cost
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import problem_of
from hypar_opt.planning.search import solve_problem
from hypar_opt.search.shares import GAP
from hypar_opt.studies.accpar import accpar_order, with_accpar_types
from hypar_opt.workload.parallelism import CHOICES
from tests.slow import slow_after
from tests.strategies.groups import nodes, of_accpar
from tests.strategies.problems import random_network

ORACLES: dict[tuple[str, float, float], tuple[str, str, float]] = {
    # Types, the ratios of the last three layers (.3 before), and milliseconds of a step.
    ("alexnet", 1, 2): ("dddddmmm", ".3333 .3333 .3333", 10.7558),
    ("vgg-a", 1, 2): ("ddddddddmmm", ".1765 .3 .3", 78.4448),
    ("vgg-e", 1, 2): ("d" * 16 + "mmm", ".1765 .3 .3", 161.6047),
    ("lenet-c", 1, 2): ("dddd", ".3 .3 .3", 0.8727),
    ("alexnet", 8, 8): ("dddddmmm", ".3 .3 .3", 2.9905),
    ("vgg-a", 8, 8): ("ddddddddmmm", ".3 .3 .3", 44.2589),
    ("vgg-e", 8, 8): ("d" * 16 + "mmm", ".3 .3 .3", 108.5168),
    ("lenet-c", 8, 8): ("dddd", ".3 .3 .3", 0.1194),
    ("alexnet", 62.5, 82): ("dddddmmm", ".3 .3 .3", 1.7582),
    ("vgg-e", 62.5, 82): ("d" * 16 + "mmm", ".3 .3 .3", 101.5152),
}
"""TPU v2 and v3 as in `tests.costs.test_group_time`; all passes of all layers are charged.

Source: a greedy search over types and a grid of ratios for each layer, in floating point, with
partial sums scattered in their layer's own ratio; docs/algorithms.md.
"""


@pytest.mark.parametrize(("name", "first", "second"), ORACLES)
def test_types_and_ratios_are_those_of_the_prototype(
    name: str, first: float, second: float
) -> None:
    types, ratios, milliseconds = ORACLES[name, first, second]
    instance = of_accpar(name, (first, second), 0.3)
    found = accpar_order(instance)
    assert "".join("dmo"[choice] for choice in found.types) == types
    expected = [0.3] * (len(types) - 3) + list(map(float, ratios.split()))
    assert found.ratios == pytest.approx(expected, abs=6e-5)
    assert found.seconds * 1e3 == pytest.approx(milliseconds, abs=6e-5)
    # With one ratio the types take as long, within 2 %, and as long where all are .3, but for
    # amounts, which are rounded to half a byte.
    one = float(total_cost(instance, (found.types,))) / 1e12
    alike = set(found.ratios) == {0.3}
    assert one == pytest.approx(found.seconds * 1e3, rel=1e-7 if alike else 0.02)


def _costs(instance: Instance) -> dict[tuple[int, ...], Fraction]:
    """The cost of every plan of one level, each priced by itself."""
    layers = len(instance.workload.layers)
    plans = [(row,) for row in itertools.product(range(len(CHOICES)), repeat=layers)]
    levels = price_plans(instance.workload, instance.cost, plans, [None] * len(plans))
    return {row: total for (row,), (total,) in zip(plans, levels, strict=True)}


@pytest.mark.parametrize("seed", slow_after(3, range(40)))
def test_types_are_priced_at_their_best_ratio_and_never_beat_the_optimum_there(seed: int) -> None:
    rng = Random(seed)
    network = random_network(rng, 4)
    dram = rng.choice(["1 GB/s", "1 TB/s"])
    array = nodes(1, latency=rng.choice(["0 s", "1 us"]), dram=dram)
    batch = rng.choice([8, 48])
    # At any shares: some leave a part no image.
    problem = problem_of(network, array=array, cost="time", batch=batch, runnable=False)
    problem = problem.model_copy(update={"choices": CHOICES})
    stated = with_accpar_types(network, problem)
    plan = solve_problem(network, stated, search="joint")
    (row,) = plan.assignments()
    instance = Instance(network, problem)
    assert stated.share is not None
    costs = _costs(instance.with_share(stated.share))
    assert plan.cost.total == costs[row] >= min(costs.values())
    for share in range(5, 100, 5):
        assert costs[row] * (1 - GAP) <= total_cost(instance.with_share(share / 100), (row,))


@pytest.mark.parametrize("seed", range(12))
def test_on_equal_groups_it_is_the_optimum_of_equal_parts(seed: int) -> None:
    rng = Random(seed)
    array = nodes(1, ("2 TFLOPS", "2 TFLOPS"), latency="0 s", dram="1e6 TB/s")
    network = random_network(rng, 4)
    problem = problem_of(network, array=array, cost="time", batch=48, share=0.5)
    problem = problem.model_copy(update={"choices": CHOICES})
    instance = Instance(network, problem)
    found = accpar_order(instance)
    assert set(found.ratios) == {0.5}
    costs = _costs(instance)
    assert costs[found.types] == min(costs.values())


@pytest.mark.parametrize("name", slow_after(2, ["alexnet", "resnet-18", "gpt-2"]))
def test_levels_below_the_groups_are_chosen_one_after_the_other(name: str) -> None:
    array = nodes(4, ("2 TFLOPS", "2 TFLOPS"), latency="0 s")
    network = find_network(name)
    problem = problem_of(network, array=array, cost="time", batch=64)
    problem = problem.model_copy(update={"choices": CHOICES})
    stated = with_accpar_types(network, problem)
    assert stated.share == 0.5
    halves = problem.model_copy(update={"share": 0.5})
    levelwise = solve_problem(network, halves, search="levelwise")
    assert solve_problem(network, stated).assignments() == levelwise.assignments()


def test_its_row_keeps_to_the_constraints_or_says_why_not() -> None:
    asked: dict[str, Any] = {"batches": 64, "cost": "time"}
    kept = ho.compare("lenet-c", nodes(2), constraints={"fix": ["fc1=data"]}, **asked)
    row = next(row for row in kept if row.plan == "accpar")
    least = next(row for row in kept if row.plan == "joint")
    assert least.seconds is not None
    assert row.seconds is not None
    assert row.seconds >= least.seconds
    sided = ho.compare("lenet-c", nodes(2), constraints={"fix": ["fc1@H1=first"]}, **asked)
    assert all((row.plan == "joint") == (row.reason is None) for row in sided if row.plan != "data")
