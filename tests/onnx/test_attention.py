"""Attention written out is what the model computes, or what it is beside is named, or refused.

The oracle is onnx's reference evaluator on the whole model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from hypar_opt.errors import InputError
from hypar_opt.onnx import imported_model
from hypar_opt.studies.model_weights import with_weights
from tests.onnx.attention_graphs import PLACES, Way, attention, ways
from tests.onnx.random_elementwise import elementwise
from tests.onnx.with_weights import WeightedGraph, assert_computes_its_model, one_device
from tests.slow import slow_after


@pytest.mark.parametrize("way", ways(), ids=lambda way: "-".join(map(str, way)))
def test_heads_in_any_order_are_those_of_the_model(way: Way, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(attention(way), path)
    network = imported_model(path).network
    assert network.not_kept is None
    (layer,) = (layer for layer in network.layers if layer.kind == "attention")
    assert (layer.heads, layer.kv_heads or layer.heads) == (4, way.kv_heads)
    assert_computes_its_model(network, path)


def said_of(model: Any, path: Path) -> str | tuple[str, ...]:
    """Return why a model is refused, or what is not kept; fail where it differs and is neither."""
    onnx.save(model, path)
    try:
        network = imported_model(path).network
        step = with_weights(path, None, network, one_device(network), seed=0)
    except InputError as error:
        return str(error)
    assert network.not_kept or step.difference <= 1e-5, step.difference
    return network.not_kept or ()


@pytest.mark.parametrize("seed", slow_after(40, range(1000)))
def test_what_lies_between_is_kept_or_named(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    place = PLACES[seed % len(PLACES)]
    way = ways()[rng.integers(len(ways()))]

    def between(g: WeightedGraph, x: str, shape: list[Any]) -> str:
        return elementwise(rng, g, x, shape)

    said = said_of(attention(way, {place: between}), tmp_path / "model.onnx")
    assert not isinstance(said, str) or ("node '" in said and "\n" not in said)
