"""Layers of vision models that enlarge or rearrange images: numbers and sizes are the model's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from hypar_opt.models.imported import import_
from hypar_opt.onnx import imported_model
from hypar_opt.onnx.weights import complete_model, weights_of
from tests.onnx.graph_writer import attributes
from tests.onnx.test_refused import refusal
from tests.onnx.with_weights import WeightedGraph, assert_computes_its_model, initialisers


def imported(folder: Path, model: Any) -> Any:
    """Return the network of a model, whose numbers are the model's."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    network = import_(path)
    assert not network.not_kept
    assert_computes_its_model(network, path)
    return network


def transposed(*weight: int, **stated: Any) -> Any:
    g = WeightedGraph(("image", ["batch", 4, 5, 6]))
    x = g("ConvTranspose", "image", g.weight("a", *weight), **stated)
    return g.model(
        g("Conv", g("Relu", x), g.weight("b", 2, stated.get("group", 1) * weight[1], 1, 1))
    )


@pytest.mark.parametrize(
    ("weight", "stated", "keys"),
    [
        ((4, 3, 2, 2), {"strides": [2, 2]}, {"stride": (2, 2)}),
        ((4, 3, 3, 4), {"strides": [2, 3], "dilations": [2, 1]}, {"dilation": (2, 1)}),
        (
            (4, 3, 3, 3),
            {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
            {"padding": (1, 1, 0, 0)},
        ),
        ((4, 3, 4, 4), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, {"padding": (1, 1)}),
        ((4, 1, 2, 2), {"strides": [2, 2], "group": 4}, {"groups": 4, "filters": 4}),
    ],
    ids=["twice", "dilated", "output padding", "same", "depthwise"],
)
def test_a_transposed_convolution(
    weight: tuple[int, ...], stated: Any, keys: Any, tmp_path: Path
) -> None:
    own, _ = attributes(imported(tmp_path, transposed(*weight, **stated)), "conv")
    assert own["transposed"]
    assert own | keys == own


def test_the_weights_of_a_transposed_convolution_in_groups(tmp_path: Path) -> None:
    """They are ``(inputs, outputs of a group, rows, columns)``, one group after the other.

    The reference evaluator refuses it.
    """
    model, path = transposed(4, 3, 3, 2, group=2), tmp_path / "model.onnx"
    onnx.save(model, path)
    file = initialisers(model)["a"].reshape(2, 2, 3, 3, 2)
    network = import_(path)
    assert attributes(network, "conv")[0]["filters"] == 6
    own = weights_of(imported_model(path), complete_model(path)).weights[network.layers[0].name]
    assert np.array_equal(own, np.einsum("giokl->klgio", file))


def test_what_no_transposed_convolution_writes_is_refused(tmp_path: Path) -> None:
    for stated, said in {
        "beyond its windows": {"strides": [2, 2], "output_padding": [1, 1]},
        "an odd number of rows": {"strides": [2, 2], "output_shape": [9, 11]},
    }.items():
        assert stated in refusal(tmp_path, transposed(4, 3, 2, 2, **said))
