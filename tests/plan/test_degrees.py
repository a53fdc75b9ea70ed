"""A plan's parallelism in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.models import find_network
from hypar_opt.plan.degrees import degrees
from hypar_opt.plan.strategies import strategy_pins

CHOICES = ("data", "model", "output")


def pinned(network: str, levels: int, *pins: str, **problem: Any) -> str:
    of = {"batch": 64, "levels": levels, "choices": CHOICES, "reading": "executed"}
    return degrees(ho.solve(network, **{**of, **problem}, constraints={"fix": pins}))


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_degrees_multiply_to_the_number_of_accelerators(tensor: int) -> None:
    pins = strategy_pins(find_network("llama-7b"), (2,) * 4, "megatron", tensor)
    said = {
        1: "data parallelism 16",
        2: "tensor parallelism 2, data parallelism 8; head by vocabulary",
        8: "tensor parallelism 8, data parallelism 2; head by vocabulary",
    }
    assert pinned("llama-7b", 4, *pins) == said[tensor]


def test_levels_are_inside_the_nodes_of_an_array_or_between_them() -> None:
    pins = strategy_pins(find_network("llama-7b"), (2,) * 6, "megatron", 8)
    assert pinned("llama-7b", 6, *pins, array="h100-8x8", cost="bytes", element_bytes=2) == (
        "tensor parallelism 8 inside the nodes, data parallelism 8 between the nodes;"
        " head by vocabulary"
    )


@pytest.mark.parametrize(
    ("kinds", "rest"), [(4, None), (5, None), (6, "2 layers split in other ways")]
)
def test_a_single_layer_is_named_and_more_are_counted(kinds: int, rest: str | None) -> None:
    layers = [{"name": f"fc{n}", "kind": "fc", "units": 64} for n in range(8)]
    content = {"name": "eight", "input": {"features": 64}, "layer": layers}
    # Of as many layers as there are kinds each has model parallelism at another number of levels.
    pins = [
        f"fc{n}@H{level}={'model' if level <= n < kinds else 'data'}"
        for n in range(8)
        for level in range(1, 6)
    ]
    network = ho.Network.model_validate(content)
    said = degrees(ho.solve(network, batch=64, levels=5, fix=pins)).split("; ")
    named = [part for part in said if "parallelism" in part]
    assert len(named) == kinds - (rest is not None) * 2
    assert said[len(named) :] == ([rest] if rest else [])


def test_layers_that_are_split_otherwise_are_named() -> None:
    by_batch = [f"{name}=data" for name in ("conv1", "conv2", "conv3", "fc2")]
    assert pinned("cifar-c", 2, *by_batch, "fc1=model") == (
        "most layers: data parallelism 4; fc1: tensor parallelism 4"
    )
    assert pinned("cifar-c", 2, *by_batch[:2], "conv3=model", "fc1=model", "fc2=model") == (
        "conv3 to fc2: tensor parallelism 4; conv1, conv2: data parallelism 4"
    )


def test_phrases_that_are_alike_are_said_once_whatever_the_levels() -> None:
    pins = ("conv1=data", "conv2@H1=data", "conv2@H2=model", "conv3@H1=model", "conv3@H2=data")
    assert pinned("cifar-c", 2, *pins, "fc1=model", "fc2=model") == (
        "conv2, conv3: tensor parallelism 2, data parallelism 2; fc1, fc2: tensor parallelism 4;"
        " conv1: data parallelism 4"
    )


def test_one_accelerator_has_no_parallelism() -> None:
    assert degrees(ho.solve("lenet-c", levels=0)) == ""
