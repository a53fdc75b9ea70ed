"""Sines and cosines of a time step, however they are written, are one layer with their keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from hypar_opt.errors import InputError
from hypar_opt.onnx import imported_model
from hypar_opt.workload.operators.sinusoid import Sinusoid
from tests.onnx.with_weights import WeightedGraph, assert_computes_its_model

HALF = 6
PLACES = np.arange(HALF) / HALF


def model(rates: Any, first: str = "cos", *, whole: bool = False, turned: bool = False) -> Any:
    """A layer of weights behind the sines and cosines of a step times some rates."""
    g = WeightedGraph(("step", ["batch"]))
    step = "step"
    if whole:
        g.inputs = [helper.make_tensor_value_info("step", TensorProto.INT64, ["batch"])]
        step = g("Cast", "step", to=1)
    angles = g("Mul", g("Unsqueeze", step, g.value([1])), g.value(rates[None]))
    halves = [g("Cos", angles), g("Sin", angles)]
    if (first == "sin") != turned:
        halves.reverse()
    x = g("Concat", *halves, axis=-1)
    if turned:
        cut = [g.value([n]) for n in (0, HALF, 2 * HALF, 1)]
        back = g("Slice", x, cut[1], cut[2], cut[3], cut[3])
        x = g("Concat", back, g("Slice", x, cut[0], cut[1], cut[3], cut[3]), axis=-1)
    return g.model(g.linear(x, "fc", 2 * HALF, 5, bias=True))


@pytest.mark.parametrize("way", [{}, {"turned": True}, {"whole": True}])
@pytest.mark.parametrize(
    ("rates", "keys"),
    [
        (1e4**-PLACES, {}),
        (50**-PLACES, {"base": 50.0}),
        (1e3 * 1e4**-PLACES, {"scale": 1e3}),
        (1e4 ** -(np.arange(HALF) / (HALF - 1)), {"base": 1e4 ** (HALF / (HALF - 1))}),
    ],
)
@pytest.mark.parametrize("first", ["cos", "sin"])
def test_a_step_is_a_sinusoid(
    tmp_path: Path, rates: Any, keys: dict[str, float], first: str, way: dict[str, bool]
) -> None:
    if way.get("whole") and "scale" in keys:
        rates, keys = rates / 1e3, {}  # whole numbers turn too far to tell scales by
    path = tmp_path / "model.onnx"
    onnx.save(model(rates, first, **way), path)
    network = imported_model(path).network
    layer, *_ = network.layers
    assert isinstance(layer, Sinusoid)
    assert (layer.features, layer.first) == (2 * HALF, first)
    found = {"base": layer.base, "scale": layer.scale}
    assert {key: value for key, value in found.items() if value} == pytest.approx(keys, rel=1e-7)
    assert network.not_kept is None
    assert_computes_its_model(network, path)


def test_other_rates_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model(np.linspace(1.0, 0.1, HALF)), path)
    with pytest.raises(InputError, match="Concat"):
        imported_model(path)
