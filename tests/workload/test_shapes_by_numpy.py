"""A network's shapes are those that a numpy forward pass computes, for networks of every kind."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from jsonschema import Draft202012Validator

import hypar_opt as ho
from hypar_opt.workload.network import json_schema
from hypar_opt.workload.operators.maps import Map
from tests.workload.drawn_networks import DrawnNetwork, drawn_networks


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(json_schema())


def shape_of(over: Map) -> tuple[int, ...]:
    """Return a map as numpy has it; a vector as an image of one pixel."""
    return tuple(over)


def as_map(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape, 1, 1) if len(shape) == 1 else shape


@settings(max_examples=200)
@given(drawn_networks())
def test_every_layer_reads_and_writes_what_numpy_computes(drawn: DrawnNetwork) -> None:
    network = ho.Network.model_validate(drawn.description)
    assert {layer.name for layer in network.layers} == set(drawn.computed)
    for layer, maps in zip(network.layers, network.maps(), strict=True):
        computed = drawn.computed[layer.name]
        assert shape_of(maps.output) == as_map(computed.output)
        assert shape_of(maps.pooled) == as_map(computed.pooled)
        source = computed.reads[0] if computed.reads else "input"
        if source != "input":
            assert shape_of(maps.input) == as_map(drawn.computed[source].pooled)


@settings(max_examples=60)
@given(drawn_networks())
def test_layers_follow_those_that_they_read_in_the_order_of_their_inputs(
    drawn: DrawnNetwork,
) -> None:
    network = ho.Network.model_validate(drawn.description)
    names = [layer.name for layer in network.layers]
    for position, (name, reads) in enumerate(zip(names, network.sources, strict=True)):
        assert all(read < position for read in reads)
        named = tuple("input" if read == -1 else names[read] for read in reads)
        assert named == drawn.computed[name].reads


@settings(max_examples=60)
@given(drawn_networks())
def test_a_description_of_any_kind_reads_back_as_the_same_network(drawn: DrawnNetwork) -> None:
    network = ho.Network.model_validate(drawn.description)
    validator().validate(drawn.description)
    validator().validate(network.description())
    again = ho.Network.model_validate(network.description())
    assert again == network
    assert again.digest() == network.digest()
    assert list(again.maps()) == list(network.maps())
