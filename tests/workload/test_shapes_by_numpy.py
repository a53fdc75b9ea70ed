"""A network's shapes are those that a numpy forward pass computes, for networks of every kind."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from jsonschema import Draft202012Validator
from pydantic import ValidationError

import hypar_opt as ho
from hypar_opt.workload.network import json_schema
from hypar_opt.workload.operators.maps import Map
from tests.slow import examples
from tests.strategies.drawn_networks import DrawnNetwork, array_of, drawn_networks
from tests.workload.forward import Layer, UndefinedError, forward


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(json_schema())


def shape_of(over: Map) -> tuple[int, ...]:
    """Return a map as numpy has it; a vector as an image of one pixel."""
    return tuple(over)


def as_map(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape, 1, 1) if len(shape) == 1 else shape


@examples(200)
@given(drawn_networks())
def test_every_layer_reads_and_writes_what_numpy_computes(drawn: DrawnNetwork) -> None:
    network = ho.Network.model_validate(drawn.description)
    assert {layer.name for layer in network.layers} == set(drawn.computed)
    for layer, maps in zip(network.layers, network.maps(), strict=True):
        computed = drawn.computed[layer.name]
        assert shape_of(maps.output) == as_map(computed.output)
        assert shape_of(maps.pooled) == as_map(computed.pooled)
        source = computed.reads[0] if computed.reads else "input"
        if source in drawn.computed:
            read = shape_of(maps.input)
            if len(computed.reads) < len(maps.inputs):  # operands side by side
                read = (*read[:-1], sum(over.channels for over in maps.inputs))
            assert read == as_map(drawn.computed[source].pooled)


@examples(60)
@given(drawn_networks())
def test_layers_follow_those_that_they_read_in_the_order_of_their_inputs(
    drawn: DrawnNetwork,
) -> None:
    network = ho.Network.model_validate(drawn.description)
    names = [layer.name for layer in network.layers]
    for position, (name, reads) in enumerate(zip(names, network.sources, strict=True)):
        assert all(read < position for read in reads)
        named = tuple(network.source_names[read] for read in reads)
        assert named == drawn.computed[name].reads


@examples(60)
@given(drawn_networks())
def test_a_description_of_any_kind_reads_back_as_the_same_network(drawn: DrawnNetwork) -> None:
    network = ho.Network.model_validate(drawn.description)
    validator().validate(drawn.description)
    validator().validate(network.description())
    again = ho.Network.model_validate(network.description())
    assert again == network
    assert again.digest() == network.digest()
    assert list(again.maps()) == list(network.maps())


INPUTS: list[dict[str, int]] = [
    {"channels": 6, "height": 5, "width": 4},
    {"channels": 6, "height": 1, "width": 1},
    {"features": 6},
    {"tokens": 5, "features": 6},
    {"tokens": 1, "features": 6},
    {"tokens": 5, "vocabulary": 6},
]

LAYERS: list[dict[str, Any]] = [
    *({"kind": "conv", "filters": 4, "kernel": size} for size in (1, 4, 5, [5, 4])),
    {"kind": "conv", "filters": 4, "kernel": 3, "dilation": 2},
    {"kind": "conv", "filters": 4, "kernel": 3, "padding": [0, 0, 2, 2], "stride": 2},
    *({"kind": "conv", "filters": f, "kernel": 1, "groups": g} for f in (4, 6) for g in (2, 3, 4)),
    {"kind": "conv", "filters": 4, "kernel": 2, "pool": {"kind": "max", "size": 4}},
    *({"kind": "pool", "pool": {"kind": "max", "size": size}} for size in (1, 4, 5)),
    *(
        {"kind": "pool", "pool": {"kind": "max", "size": 2, "rounding": "up"} | more}
        for more in ({"stride": s, "padding": p} for s in (1, 2, 3, 4) for p in (0, 1))
    ),
    {"kind": "fc", "units": 3},
    {"kind": "linear", "units": 3},
    {"kind": "embedding", "features": 4},
    {"kind": "embedding", "features": 4, "vocabulary": 7},
    *({"kind": "attention", "heads": h, "kv_heads": g} for h in (1, 2, 4) for g in (1, 2, 4)),
    *({"kind": "norm", "norm": norm} for norm in ("layer", "rms", "batch", "affine")),
    *({"kind": "global_pool", "over": over} for over in ("average", "max", "first", "last")),
    *({"kind": "flatten", "to": to} for to in ("features", "tokens")),
    *({"kind": "shuffle", "groups": groups} for groups in (1, 3, 4)),
    *({"kind": "output", "loss": loss} for loss in ("softmax", "none")),
]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("stated", INPUTS, ids=str)
def test_a_layer_is_refused_where_numpy_has_no_result(stated: dict[str, int], layer: Layer) -> None:
    description = {
        "name": "one layer",
        "schema": "hypar-opt/network/2",
        "input": stated,
        "layer": [{"name": "layer"} | layer],
    }
    try:
        with np.errstate(all="ignore"):
            _, pooled = forward(layer, array_of(stated))
    except UndefinedError:
        with pytest.raises(ValidationError, match="layer 'layer', "):
            ho.Network.model_validate(description)
    else:
        (maps,) = ho.Network.model_validate(description).maps()
        assert shape_of(maps.pooled) == as_map(pooled.shape)
