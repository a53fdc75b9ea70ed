"""The paper's figures of time and energy, against simulated steps on its arrays."""

from __future__ import annotations

import tomllib
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt import paper
from hypar_opt.hardware import arrays
from hypar_opt.models import find_network
from hypar_opt.simulator.result import StepResult

PRINTED: dict[str, Any] = tomllib.loads((Path(__file__).parent / "paper.toml").read_text())
NETWORKS = list(PRINTED)
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
    described = arrays.load("hmc-htree-16").description()
    described["accelerator"]["dram_bandwidth"] = "1e6 TB/s"
    free = ho.Array.model_validate(described)
    plan = ho.solve("sconv", solver="model", reading="figures", array="hmc-htree-16")
    bound, unbound = ho.simulate(plan), ho.simulate(plan, free, other_array=True)
    assert 1 < bound.seconds / unbound.seconds < 1.001
