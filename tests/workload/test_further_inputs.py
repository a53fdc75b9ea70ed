"""Inputs beside a network's first: features that layers read by name."""

from __future__ import annotations

from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.errors import InputError
from tests.choices import WITH_TOKENS
from tests.execution.drawn import drawn_programs, run_as_one_device
from tests.execution.small_networks import conditioned
from tests.execution.virtual.test_arithmetic import assert_gradients_are_slopes
from tests.slow import slow_after

CHAIN: dict[str, Any] = {
    "schema": "hypar-opt/network/2",
    "name": "two inputs",
    "input": {"features": 8},
    "inputs": {"other": {"features": 6}},
    "layer": [
        {"name": "one", "kind": "fc", "inputs": ["input"], "units": 4},
        {"name": "two", "kind": "fc", "inputs": ["other"], "units": 4},
        {"name": "sum", "kind": "add", "inputs": ["one", "two"]},
    ],
}


def test_gradients_are_slopes() -> None:
    assert_gradients_are_slopes(conditioned(), seed=0)


@pytest.mark.parametrize("seed", slow_after(3, range(6)))
def test_bytes_and_numbers_are_those_modelled_and_of_one_device(seed: int) -> None:
    """Each device reads its part of each input, in the layout of the reader."""
    for program in drawn_programs(conditioned(), seed, 3, ((2,), (2, 2)), choices=WITH_TOKENS):
        run_as_one_device(conditioned(), program, seed)


def test_which_input_is_the_first_changes_neither_costs_nor_memory() -> None:
    def swapped(name: str) -> str:
        return {"input": "other", "other": "input"}[name]

    layers = [
        {**layer, "inputs": [swapped(n) if n in ("input", "other") else n for n in layer["inputs"]]}
        for layer in CHAIN["layer"]
    ]
    other = {
        "input": CHAIN["inputs"]["other"],
        "inputs": {"other": CHAIN["input"]},
        "layer": layers,
    }
    networks = [validate(ho.Network, described) for described in (CHAIN, CHAIN | other)]
    asked: dict[str, Any] = {"batch": 8, "array": "h100-8", "cost": "time", "overlap": "none"}
    plans = [ho.solve(network, **asked) for network in networks]
    assert plans[0].cost.total == plans[1].cost.total
    held, other_held = (ho.memory(plan) for plan in plans)
    assert held.categories == other_held.categories


def test_each_input_is_held_for_the_backward_passes_of_its_readers() -> None:
    """Of 4 samples a device: 8 and 6 features of the inputs, in 4 bytes."""
    held = ho.memory(validate(ho.Network, CHAIN), batch=8, levels=1, solver="dp")
    assert held.categories["saved"] == 4 * (8 + 6) * 4


def test_the_order_of_a_table_of_inputs_is_no_part_of_a_network() -> None:
    network = conditioned()
    inputs = dict(reversed(network.description()["inputs"].items()))
    again = ho.Network.model_validate(network.description() | {"inputs": inputs})
    assert again == network
    assert again.digest() == network.digest()
    assert again.sources == network.sources
    assert network.input_names == ("input", "states", "time")


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"inputs": {"input": {"features": 6}}}, "inputs, 'input': is the first input's name"),
        (
            {"inputs": CHAIN["inputs"] | {"one": {"features": 6}}},
            "layer 'one', name: is an input of the network",
        ),
        ({"inputs": {}}, "inputs: should have at least one entry"),
        (
            {"inputs": {"other": {"tokens": 4, "vocabulary": 6}}},
            "inputs, \"other\", vocabulary: an 'embedding' states further ids itself",
        ),
        (
            {"inputs": CHAIN["inputs"] | {"third": {"features": 6}}},
            'inputs, "third": no layer reads it; remove it',
        ),
        ({"schema": "hypar-opt/network/1"}, "which has inputs"),
    ],
)
def test_what_is_no_further_input_is_refused(change: dict[str, Any], refused: str) -> None:
    with pytest.raises(InputError) as caught:
        validate(ho.Network, CHAIN | change)
    assert refused in str(caught.value)
