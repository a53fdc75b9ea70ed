"""What the paper prints, against what the model gives."""

from __future__ import annotations

import tomllib
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt import paper
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.level_tables import level_table
from hypar_opt.costs.table import CostTable
from hypar_opt.hardware import arrays
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price
from hypar_opt.models import find_network
from hypar_opt.plan.problem import Problem
from hypar_opt.simulator.result import StepResult

PRINTED: dict[str, Any] = tomllib.loads((Path(__file__).parent / "paper.toml").read_text())
NETWORKS = list(PRINTED)


def digits(plan: ho.Plan) -> list[str]:
    return ["".join(map(str, row)) for row in plan.assignments()]


def top_table(workload: ho.Workload) -> CostTable:
    """The table of level H1, in the default reading."""
    return level_table(CommunicationCost("text"), workload)


def test_where_the_text_differs_from_figure_5_our_row_costs_less() -> None:
    ours = ho.solve("cifar-c", reading="text")
    instance = Instance(ho.load("cifar-c"), Problem(batch=256, levels=4))
    rows = [[int(digit) for digit in row] for row in PRINTED["Cifar-c"]["fig5"]]
    printed = price(instance, rows)
    assert ours.cost.per_level[:2] == (1_163_008, 1_965_568)
    assert printed.per_level[:2] == (1_163_008, 2_326_016)
    # The levels below pay for it: level by level is greedy, and the printed rows together
    # cost 0.26 % less (docs/decisions/0003-readings.md).
    assert ours.cost.total == 12_542_208
    assert printed.total == 12_509_440


def test_section_6_5_2_fc3_at_batch_4096_is_settled_by_the_boundary() -> None:
    workload = ho.Workload.of(ho.layer_graph(ho.load("vgg-e")), 4096)
    assert workload.layers[-1].name == "fc3"
    assert workload.weights[-1] == workload.pooled[-1] == 4_096_000
    table = top_table(workload)
    data, model = range(2)
    assert table.node[-1, data] == table.node[-1, model]
    assert table.edge[-1, data, data] == 0
    assert (table.edge[-1].reshape(-1)[1:] > 0).all()
    assert digits(ho.solve("vgg-e", batch=4096))[0].endswith("0")
    assert digits(ho.solve("vgg-e", batch=4096, solver="trick"))[0].endswith("1")


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("reading", ["text", "tables", "figures", "executed"])
def test_section_3_4_inference_is_best_in_data_parallelism(name: str, reading: str) -> None:
    plan = ho.solve(name, reading=reading, inference=True)
    assert not np.array(plan.assignments()).any()
    assert plan.cost.total == 0
    assert plan.cost.baselines.model > 0
    assert plan.cost.ratios.model is None


def test_a_plan_that_would_move_more_than_data_parallelism_is_flagged() -> None:
    plan = ho.solve("cifar-c", batch=256, levels=4, reading="text")
    assert plan.cost.executed_bytes is not None
    assert plan.cost.executed_bytes / 1e6 == pytest.approx(20.3, abs=0.05)
    assert plan.cost.data_parallel_bytes / 1e6 == pytest.approx(17.4, abs=0.05)
    better = ho.better_reading(plan)
    assert better is not None
    reading, moved = better
    assert reading == "executed"
    assert moved == ho.solve("cifar-c", reading="executed").cost.executed_bytes
    assert moved < plan.cost.data_parallel_bytes


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "Cifar-c"])
def test_the_other_networks_plans_are_better_than_data_parallelism_when_run(name: str) -> None:
    plan = ho.solve(name)
    assert plan.cost.executed_bytes is not None
    assert plan.cost.executed_bytes <= plan.cost.data_parallel_bytes
    assert ho.better_reading(plan) is None


ALEXNETS = {"conv1": 224, "conv2": 55, "conv3": 27, "conv4": 13, "conv5": 13}
"""Input sizes that the authors counted AlexNet's multiply-accumulates with."""


@cache
def step(network: str, solver: str, array: str = "hmc-htree-16", batch: int = 256) -> StepResult:
    plan = ho.solve(network, solver=solver, reading="figures", array=array, batch=batch)
    sizes = {name: (side, side) for name, side in ALEXNETS.items()} if network == "AlexNet" else {}
    return ho.simulate(plan, input_sizes=sizes)


def test_the_torus_takes_twice_as_long_to_communicate_at_every_level() -> None:
    for network in NETWORKS:
        tree, torus = step(network, "dp"), step(network, "dp", "hmc-torus-16")
        for ours, theirs in zip(torus.levels, tree.levels, strict=True):
            assert ours.bytes == theirs.bytes
            assert ours.seconds == pytest.approx(2 * theirs.seconds, rel=1e-9)
        assert torus.compute == pytest.approx(tree.compute)


def test_figure_11s_one_accelerator_computes_alone() -> None:
    """By hand: 6 B K K C_in C_out H_in W_in operations at 80 % of 16 x 84 GOPS, no DRAM-bound pass.

    64 accelerators with all the weights each wait for their DRAM, and one does not.
    """
    layers = ho.Workload.of(ho.layer_graph(find_network("vgg-e")), 256).layers
    macs = sum(256 * prod(layer.weight) * prod(layer.input[2:]) for layer in layers)
    one = 6 * macs / (0.8 * 16 * 84e9)
    many = step("VGG-E", "data", "hmc-htree-64")
    rows = {(row.label, row.reading): row.ours for row in paper.reproduce(["fig11"])["fig11"]}
    assert rows["VGG-E data gain 64", "figures"] == pytest.approx(one / many.seconds, rel=1e-9)
    assert one < 0.996 * 64 * many.compute


def test_the_papers_dram_binds_now_and_then_and_hardly_matters() -> None:
    described = arrays.load("hmc-htree-16").description() | {"source": "but for its DRAM"}
    like = ho.Array.model_validate(described)
    described["accelerator"]["dram_bandwidth"] = "1e6 TB/s"
    free = ho.Array.model_validate(described)
    plan = ho.solve("cifar-c", solver="model", reading="figures", array="hmc-htree-16")
    bound, unbound = (ho.simulate(plan, one, other_array=True) for one in (like, free))
    assert 1 < bound.seconds / unbound.seconds < 1.001
