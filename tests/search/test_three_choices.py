"""Three choices in the reading ``executed``: what is whole couples the levels of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.costs.shared_nodes import level_tables
from hypar_opt.costs.state_table import StateTable
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_levels, price_table
from hypar_opt.plan.arguments import problem_of
from hypar_opt.search.plan_file import repriced
from hypar_opt.sharding.passes import INFERENCE, TRAINING
from hypar_opt.sharding.program import Program
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.parallelism import CHOICES
from tests.slow import slow_after

THREE: dict[str, Any] = {"choices": CHOICES, "reading": "executed"}


@pytest.mark.parametrize(
    ("network", "three", "two"),
    [
        ("sfc", 201_633_792, 680_800_000),
        ("lenet-c", 12_790_240, None),
        ("alexnet", 207_447_936, None),
        ("vgg-a", 1_366_354_432, 1_491_300_000),
        ("vgg-e", 2_662_492_672, None),
    ],
)
def test_optima_on_sixteen_accelerators(network: str, three: int, two: int | None) -> None:
    """At batch 256; of two choices to 0.1 MB."""
    plan = ho.solve(network, levels=4, search="joint", **THREE)
    assert (plan.cost.total, plan.solver.status) == (three, "optimal")
    assert plan.cost.executed_bytes == three
    if two is not None:
        plan = ho.solve(network, levels=4, search="joint", reading="executed")
        assert abs(plan.cost.total - two) < 50_000


@pytest.mark.slow
def test_cp_sat_finds_the_optimum_on_sixteen_accelerators() -> None:
    plan = ho.solve("sfc", levels=4, search="joint", solver="cpsat", **THREE)
    assert (plan.cost.total, plan.solver.status) == (201_633_792, "optimal")
    assert plan.cost.executed_bytes == 201_633_792


def _random(seed: int, most: int = 5) -> tuple[Instance, tuple[tuple[int, ...], ...], Random]:
    """A random graph of random sizes, and a random plan of it."""
    rng = Random(seed)
    network = random_graph(rng, most=most)
    levels = rng.randint(1, 3)
    asked: dict[str, Any] = {"inference": rng.random() < 0.2}
    asked["element_bytes"] = rng.choice([1, 2, 4])
    problem = problem_of(network, batch=rng.randint(1, 9), levels=levels, **asked, **THREE)
    instance = Instance(network, problem)
    # What a layer is as a last resort is no choice of a random plan.
    nodes = instance.workload.choices_of_nodes[instance.workload.shared :]
    choices = [[n for n, own in enumerate(of) if own and not own.last_resort] for of in nodes]
    rows = tuple(tuple(map(rng.choice, choices)) for _ in range(levels))
    return instance, rows, rng


@pytest.mark.parametrize("seed", slow_after(40, range(150)))
def test_a_plan_is_priced_by_what_each_step_of_its_run_moves(seed: int) -> None:
    """By level as the program's exchanges, in all as one state a node and as levels appended."""
    instance, rows, rng = _random(seed)
    workload = instance.workload
    weights = set(workload.weight_users)
    tensors = [
        {node: rng.randrange(3) for node in range(workload.shared) if node not in weights}
        for _ in rows
    ]
    _check_price(instance, rows, tensors)


def _check_price(
    instance: Instance,
    rows: Sequence[Sequence[int]],
    tensors: Sequence[Mapping[int, int]],
) -> None:
    workload, cost = instance.workload, instance.cost
    tables = list(level_tables(workload, cost, rows, tensors))
    full = [row for _, row in tables]
    phases = INFERENCE if instance.problem.inference else TRAINING
    program = Program(workload, full, instance.problem.hierarchy)
    moved = [Fraction()] * len(rows)
    for exchange in exchanges_of_step(program, phases):
        moved[exchange.level] += exchange.elements * instance.problem.element_bytes
    assert price_levels(workload, cost, rows, tensors) == tuple(moved)
    appended = sum(price_table(*table) for table in tables)
    assert Fraction(appended, cost.resolution) == sum(moved)


def test_whole_is_a_choice_of_what_runs() -> None:
    """The paper's readings have no charge for it, and refuse it by name."""
    asked: dict[str, Any] = {"choices": CHOICES, "levels": 1}
    pinned: dict[str, Any] = {"constraints": {"fix": ("*.add=whole",)}}
    with pytest.raises(ho.HyparError, match=r"whole is not among the choices of stage2.0.add"):
        ho.solve("resnet-18", reading="text", **asked, **pinned)
    plan = ho.solve("resnet-18", reading="executed", **asked, **pinned)
    assert plan.parallelism[0][plan.layers.index("stage2.0.add")] == "whole"
    with pytest.raises(ho.HyparError, match="whole needs the reading executed"):
        repriced(plan, "text")


def test_replicas_repeat_the_exchanges_above_them() -> None:
    """A tensor that is whole at H2 and moves from batch to channel at H1 moves twice there."""
    network = ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "pair",
            "input": {"channels": 4, "height": 2, "width": 2},
            "layer": [
                {"name": "norm", "kind": "norm", "norm": "affine"},
                {"name": "conv", "kind": "conv", "filters": 8, "kernel": 1},
            ],
        }
    )
    instance = Instance(network, problem_of(network, batch=4, levels=2, **THREE))
    norm, maps, output = 2 * 4, 4 * 4 * 4, 4 * 8 * 4
    # At H1 data and model, at H2 whole and output; all-reduces and all-to-alls both ways.
    h1, h2 = price_levels(instance.workload, instance.cost, [(0, 1), (2, 2)])
    assert h1 == 4 * (2 * norm + 2 * maps + 2 * output)
    assert h2 == 4 * (2 * 2 * norm)
    table = StateTable.of(instance.cost, instance.workload, 2).dense()
    assert table.choices == 9


@pytest.mark.parametrize("inference", [True, False])
def test_replicas_repeat_the_sums_of_a_loss_above_them(inference: bool) -> None:
    """They do where no tensor that another layer reads is whole, too."""
    network = ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "loss",
            "input": {"tokens": 9, "features": 9},
            "layer": [
                {"name": "first", "kind": "fc", "units": 9},
                {"name": "second", "kind": "fc", "units": 9},
                {"name": "loss", "kind": "output", "loss": "softmax"},
            ],
        }
    )
    asked: dict[str, Any] = {"choices": ("data", "model", "output"), "reading": "executed"}
    problem = problem_of(network, batch=4, levels=3, inference=inference, **asked)
    instance = Instance(network, problem)
    assert instance.workload.words[-1] == ("data", "channel", "whole")
    for states in product(range(3), repeat=3):
        rows = [(0, 0, state) for state in states]
        _check_price(instance, rows, [{}] * 3)
