"""Channels that a view puts in another order: every sequence of a few operators on one map.

The channels of a shuffle are those of another map's, of a norm's scale, of a group's statistics.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from hypar_opt.errors import InputError
from hypar_opt.onnx import imported_model
from hypar_opt.studies.model_weights import with_weights
from tests.onnx.with_weights import WeightedGraph, one_device
from tests.slow import slow_after

CHANNELS, SIDE = 4, 4
MAP = [0, CHANNELS, SIDE, SIDE]
FIRST = "t0"
"""The output of the first node, which a residual and a gate read again."""


def vector(g: WeightedGraph, *shape: int) -> str:
    return g.weight(f"w{len(g.initialisers)}", CHANNELS, *shape)


def shuffled(g: WeightedGraph, x: str) -> str:
    grouped = g("Reshape", x, g.value([0, 2, CHANNELS // 2, SIDE, SIDE]))
    return str(g("Reshape", g("Transpose", grouped, perm=[0, 2, 1, 3, 4]), g.value(MAP)))


def group_norm(g: WeightedGraph, x: str) -> str:
    groups = g("Reshape", x, g.value([0, 2, -1]))
    plain = g.value(np.ones(2, np.float32)), g.value(np.zeros(2, np.float32))
    x = g("Reshape", g("InstanceNormalization", groups, *plain), g.value(MAP))
    return str(g("Add", g("Mul", x, vector(g, 1, 1)), vector(g, 1, 1)))


def batch_norm(g: WeightedGraph, x: str) -> str:
    mean, variance = (g.value(fill(CHANNELS, np.float32)) for fill in (np.zeros, np.ones))
    return str(g("BatchNormalization", x, vector(g), vector(g), mean, variance))


def layer_norm(g: WeightedGraph, x: str) -> str:
    tokens = g("Transpose", g("Reshape", x, g.value([0, CHANNELS, -1])), perm=[0, 2, 1])
    normed = g("LayerNormalization", tokens, vector(g), vector(g), axis=-1)
    return str(g("Reshape", g("Transpose", normed, perm=[0, 2, 1]), g.value(MAP)))


Write = Callable[[WeightedGraph, str], str]
OPERATORS: dict[str, Write] = {
    "shuffle": shuffled,
    "scale": lambda g, x: str(g("Mul", x, vector(g, 1, 1))),
    "convolution": lambda g, x: str(g("Conv", x, vector(g, CHANNELS, 1, 1))),
    "instance norm": lambda g, x: str(g("InstanceNormalization", x, vector(g), vector(g))),
    "layer norm": layer_norm,
    "pool": lambda g, x: str(g("MaxPool", x, kernel_shape=[1, 1])),
    "residual": lambda g, x: str(g("Add", x, FIRST)),
    "by channel": lambda g, x: str(g("Conv", x, vector(g, 1, 1, 1), group=CHANNELS)),
    "relu": lambda g, x: str(g("Relu", x)),
    "gate": lambda g, x: str(g("Mul", x, FIRST)),
    "group norm": group_norm,
    "batch norm": batch_norm,
}
QUICK = 7
CASES = [
    *((first, [*OPERATORS][:QUICK]) for first in [*OPERATORS][:QUICK]),
    *((first, [*OPERATORS]) for first in OPERATORS),
]


@pytest.mark.parametrize(("first", "others"), slow_after(QUICK, CASES))
def test_channels_in_another_order_are_those_of_the_model(
    first: str, others: list[str], tmp_path: Path
) -> None:
    assert_computed(tmp_path, ["convolution", "convolution", first], others)


@pytest.mark.parametrize("first", ["shuffle", "instance norm", "group norm", "batch norm"])
def test_channels_of_the_input_are_those_of_the_model(first: str, tmp_path: Path) -> None:
    assert_computed(tmp_path, [first], ["shuffle", "scale", "convolution", "instance norm"])


def assert_computed(folder: Path, begin: list[str], others: list[str]) -> None:
    """Assert that models that begin so, and have two other operators, are computed or refused."""
    path, computed = folder / "model.onnx", 0
    for names in itertools.product(*([name] for name in begin), others, others):
        if "shuffle" not in names:
            continue
        g, x = WeightedGraph(("image", ["batch", *MAP[1:]])), "image"
        for name in names:
            x = OPERATORS[name](g, x)
        onnx.save(g.model(x), path)
        try:
            network = imported_model(path).network
        except InputError:
            continue  # a gate of channels in another order
        if network.not_kept is None:
            step = with_weights(path, None, network, one_device(network), seed=0)
            assert step.difference < 1e-5, names
            computed += 1
    assert computed > 2
