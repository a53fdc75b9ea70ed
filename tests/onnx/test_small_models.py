"""What is done to a map of a small model is computed, or named, or refused by its node.

Of what is computed, outputs and gradients are the model's; what is named is missing in them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from hypar_opt.models.imported import import_
from hypar_opt.studies.model_weights import with_weights
from tests.onnx.attention_graphs import Way, attention
from tests.onnx.test_refused import refusal
from tests.onnx.with_weights import (
    COMPUTED,
    SIZE,
    TOKENS,
    WIDTH,
    Refused,
    WeightedGraph,
    assert_computes_its_model,
    one_device,
)

Write = Callable[[WeightedGraph, str], str]

Row = tuple[Write, str]


def by(op: str, *numbers: float, **how: Any) -> Write:
    """An operator with constants of one number each."""
    return lambda g, x: str(g(op, x, *(g.value(np.float32(number)) for number in numbers), **how))


def then(*steps: Write) -> Write:
    def write(g: WeightedGraph, x: str) -> str:
        for step in steps:
            x = step(g, x)
        return x

    return write


def times(gate: Write) -> Write:
    """A map times what is made of it."""
    return lambda g, x: str(g("Mul", x, gate(g, x)))


def gated(gate: Write, scale: float = 0.5) -> Write:
    return then(times(then(gate, by("Add", 1.0))), by("Mul", scale))


def cubed(g: WeightedGraph, x: str) -> str:
    """What the approximation of gelu takes the tanh of."""
    cube = then(by("Pow", 3.0), by("Mul", 0.044715))(g, x)
    return by("Mul", 0.7978846)(g, str(g("Add", x, cube)))


def rolled(g: WeightedGraph, x: str) -> str:
    ends = [
        g("Slice", x, *map(g.value, ([start], [end], [1]))) for start, end in ((-1, 99), (0, -1))
    ]
    return str(g("Concat", *ends, axis=1))


def less_a_mean(axis: int) -> Write:
    return lambda g, x: str(g("Sub", x, g("ReduceMean", x, g.value([axis]))))


RELU, TANH, SIGMOID = by("Relu"), by("Tanh"), by("Sigmoid")
MISH = times(then(by("Softplus"), TANH))
GELU = gated(then(by("Div", 2**0.5), by("Erf")))

FEATURES: dict[str, Row] = {
    **{op: (by(op), COMPUTED) for op in ("Identity", "Dropout", "Abs", "Exp", "Elu", "Gelu")},
    **{op: (by(op), COMPUTED) for op in ("Relu", "Tanh", "Selu", "Mish", "Softplus", "HardSwish")},
    **{op: (by(op), f"{op} of what it reads") for op in ("Softmax", "Sqrt", "Neg", "Cos", "Sin")},
    "gelu by tanh": (by("Gelu", approximate="tanh"), COMPUTED),
    "gelu by tanh, written out": (gated(then(cubed, TANH)), COMPUTED),
    "gelu by erf, written out": (GELU, COMPUTED),
    "half a gelu": (gated(then(cubed, TANH), 0.25), "by 0.25"),
    "silu": (times(SIGMOID), COMPUTED),
    "quick gelu": (times(then(by("Mul", 1.702), SIGMOID)), COMPUTED),
    "a swish by 2": (times(then(by("Mul", 2.0), SIGMOID)), "multiplication by 2"),
    "hardswish, written out": (
        then(times(then(by("Add", 3.0), by("Clip", 0.0, 6.0))), by("Div", 6.0)),
        COMPUTED,
    ),
    "hardswish, divided by 3": (
        then(times(then(by("Add", 3.0), by("Clip", 0.0, 6.0))), by("Div", 3.0)),
        "division by 3",
    ),
    "hardswish of another sigmoid": (
        times(by("HardSigmoid", alpha=1 / 6, beta=0.3)),
        "HardSigmoid (alpha = 0.1667, beta = 0.3)",
    ),
    "hardswish of what is scaled": (then(by("Mul", 2.0), by("HardSwish")), "multiplication by 2"),
    "mish, written out": (MISH, COMPUTED),
    "relu of six": (by("Clip", 0.0, 6.0), COMPUTED),
    "hard tanh": (by("Clip", -1.0, 1.0), COMPUTED),
    "a clip": (by("Clip", -2.0, 1.0), "bound -2"),
    "a clip between 0 and 1": (by("Clip", 0.0, 1.0), "bound 1"),
    "a square": (lambda g, x: g("Mul", x, x), COMPUTED),
    "a square of relu": (then(RELU, by("Pow", 2.0)), COMPUTED),
    "a cube": (by("Pow", 3.0), "power 3"),
    "a sum of powers": (lambda g, x: g("Add", x, g("Mul", x, x)), "itself"),
    "a root of a square and 1": (
        then(by("Pow", 2.0), by("Add", 1.0), by("Sqrt")),
        "addition of 1",
    ),
    "a map times its tanh": (times(TANH), "Tanh"),
    "a tanh's absolute value": (then(TANH, by("Abs")), "Abs"),
    "a logarithm of a sigmoid": (then(SIGMOID, by("Log")), COMPUTED),
    "softsign": (lambda g, x: g("Div", x, by("Add", 1.0)(g, g("Abs", x))), COMPUTED),
    "celu": (by("Celu", alpha=1.0), COMPUTED),
    "celu of 2": (by("Celu", alpha=2.0), "Celu (alpha = 2)"),
    "elu of a half": (by("Elu", alpha=0.5), "Elu (alpha = 0.5)"),
    "leaky relu": (by("LeakyRelu", alpha=0.01), COMPUTED),
    "leaky relu of another slope": (by("LeakyRelu", alpha=0.3), "LeakyRelu (alpha = 0.3)"),
    "selu of another scale": (by("Selu", gamma=2.0), "Selu (gamma = 2)"),
    "hard sigmoid": (by("HardSigmoid", alpha=1 / 6), COMPUTED),
    "hard sigmoid of a fifth": (by("HardSigmoid", alpha=0.2), "HardSigmoid (alpha = 0.2)"),
    "relu beyond 0.7": (by("ThresholdedRelu", alpha=0.7), "ThresholdedRelu (alpha = 0.7)"),
    "a factor of 1": (by("Mul", 1.0), COMPUTED),
    "a factor": (by("Mul", 0.5), "multiplication by 0.5"),
    "a sum": (by("Add", 0.5), "addition of 0.5"),
    # A number next to an activation.
    **{
        f"{name}, scaled": (then(write, by("Mul", 0.8)), "multiplication by 0.8")
        for name, write in {
            **{op: by(op) for op in ("Relu", "Tanh", "HardSwish", "Gelu", "Mish", "Softplus")},
            "hard sigmoid": by("HardSigmoid", alpha=1 / 6),
            "silu": times(SIGMOID),
            "gelu, written out": GELU,
            "mish, written out": MISH,
        }.items()
    },
    **{
        f"{name}, shifted": (then(write, by("Add", 0.8)), "addition of 0.8")
        for name, write in {
            "relu": RELU,
            "HardSwish": by("HardSwish"),
            "hard sigmoid": by("HardSigmoid", alpha=1 / 6),
        }.items()
    },
    "relu, divided": (then(RELU, by("Div", 0.8)), "division by 0.8"),
    "a tanh of what is scaled": (then(by("Mul", 0.8), TANH), "multiplication by 0.8"),
    # Between tokens.
    "less the tokens' mean": (less_a_mean(1), "ReduceMean"),
    "less the mean of channels": (less_a_mean(-1), "ReduceMean"),
    "sums of earlier tokens": (lambda g, x: g("CumSum", x, g.value(1)), "CumSum"),
    "tokens in turn": (rolled, "the roll of the output's positions"),
    "tokens backwards": (
        lambda g, x: g("Slice", x, *map(g.value, ([-1], [-99], [1], [-1]))),
        Refused("(Slice): reads a dimension backwards, which is not supported"),
    ),
    "one map twice": (
        lambda g, x: g("Slice", g("Concat", x, x, axis=-1), *map(g.value, ([WIDTH], [99], [2]))),
        Refused("(Concat): joins a map with itself, which a network has no layer for"),
    ),
    "one map alone": (by("Concat", axis=-1), COMPUTED),
    "over the largest": (
        lambda g, x: g("Div", x, by("Add", 1.0)(g, g("ReduceMax", g("Abs", x), g.value([-1])))),
        "a norm without a scale is counted with one",
    ),
    "over its length": (
        lambda g, x: g("Div", x, g("ReduceL2", x, g.value([-1]))),
        "a norm without a scale is counted with one",
    ),
    "a constant map": (
        lambda g, x: g("Mul", x, g.value(np.full((1, TOKENS, 1), 2.0))),
        "constant of each place",
    ),
    "dropout in training": (
        lambda g, x: g("Dropout", x, g.value(np.float32(0.5)), g.value(np.array(True))),
        "dropout",
    ),
    "a slope of each channel": (lambda g, x: g("PRelu", x, g.weight("slope", WIDTH)), "PRelu"),
    "a slope": (lambda g, x: g("PRelu", x, g.weight("slope", 1)), "PRelu"),
}
"""What is done to a sequence between two products."""


def pooled(op: str = "AveragePool", **how: Any) -> Write:
    return by(op, **({"kernel_shape": [2, 2], "strides": [2, 2]} | how))


def bordered(value: float | None = None, **how: Any) -> Write:
    def write(g: WeightedGraph, x: str) -> str:
        filling = [] if value is None else [g.value(np.float32(value))]
        return str(g("Pad", x, g.value([0, 0, 1, 1, 0, 0, 1, 1]), *filling, **how))

    return write


def enlarged(**how: Any) -> Write:
    scales = np.array([1, 1, 3, 3], np.float32)
    return lambda g, x: str(g("Resize", x, "", g.value(scales), **how))


ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric"}
OUTSIDE = "a border of 0, which is left out of its windows"

IMAGES: dict[str, Row] = {
    "zeros": (bordered(), COMPUTED),
    "zeros, and relu": (then(bordered(), RELU), COMPUTED),
    "zeros, and a sigmoid": (then(bordered(), SIGMOID), "a border of 0.5"),
    "ones": (bordered(1.0), "a border of 1, which is taken as zeros"),
    "edges": (bordered(mode="edge"), "(mode = edge), which is taken as zeros"),
    "reflected": (bordered(mode="reflect"), "(mode = reflect)"),
    "a mean without its border": (pooled(pads=[1] * 4), COMPUTED),
    "a mean with its border": (pooled(pads=[1] * 4, count_include_pad=1), "count_include_pad = 1"),
    "a mean with no border": (pooled(count_include_pad=1), COMPUTED),
    "a mean with a border of its own": (then(bordered(), pooled()), OUTSIDE),
    "a maximum with zeros": (then(bordered(), pooled("MaxPool")), OUTSIDE),
    "a maximum with zeros of what is not below": (
        then(RELU, bordered(), pooled("MaxPool")),
        COMPUTED,
    ),
    "a maximum with what is below all": (then(bordered(-np.inf), pooled("MaxPool")), COMPUTED),
    "a maximum of parts of windows": (
        pooled("MaxPool", kernel_shape=[3, 3], strides=[4, 4], ceil_mode=1),
        COMPUTED,
    ),
    "a root mean square": (pooled("LpPool", p=2), "LpPool (kernel_shape"),
    "relu behind a maximum": (then(pooled("MaxPool"), RELU), COMPUTED),
    "relu behind a mean": (then(pooled(), RELU), "the activation 'relu' behind a pool"),
    "gelu behind a maximum": (
        then(pooled("MaxPool"), by("Gelu")),
        "the activation 'gelu_erf' behind a pool",
    ),
    "each pixel three times": (enlarged(), COMPUTED),
    "pixels from the left": (enlarged(nearest_mode="floor", **ASYMMETRIC), COMPUTED),
    "pixels rounded from the left": (
        enlarged(**ASYMMETRIC),
        "which pixels are repeated: Resize (coordinate_transformation_mode = asymmetric)",
    ),
    "a slope of each channel": (lambda g, x: g("PRelu", x, g.weight("slope", 3, 1, 1)), "PRelu"),
}
"""What is done to an image between two convolutions."""


ATTENTION: dict[tuple[str, str], Row] = {
    **{(place, "relu"): (RELU, COMPUTED) for place in "qk"},
    **{(place, "tanh"): (TANH, COMPUTED) for place in "qk"},
    ("q", "elu and 1"): (then(by("Elu"), by("Add", 1.0)), "addition of 1 of what it reads"),
    ("scores", "a square"): (lambda g, x: g("Mul", x, x), "Mul of attention's scores"),
    ("scores", "a factor of each head"): (
        lambda g, x: g("Mul", x, g.weight("temperature", WIDTH // SIZE, 1, 1)),
        "attention's mask: it is read by Mul",
    ),
    ("probabilities", "a relu beyond 0.06"): (then(by("Sub", 0.06), RELU), "Relu of attention's"),
    ("probabilities", "tanh"): (TANH, "Tanh of attention's probabilities"),
    ("probabilities", "a square"): (
        lambda g, x: g("Mul", x, x),
        "Mul of attention's probabilities",
    ),
    ("probabilities", "less their mean"): (less_a_mean(-1), Refused("reduces the scores of")),
    ("output", "gelu"): (GELU, "'gelu_erf' after a layer of kind 'attention'"),
    ("output", "tanh"): (TANH, "'tanh' after a layer of kind 'attention'"),
}
"""What is done within attention, at one of its places, beyond what test_attention asks of."""


def vector(write: Write, *shape: int | str, head: int = 8) -> Any:
    """Return a model of a vector, or an image, that ends in a product."""
    g = WeightedGraph(("x", ["batch", *shape]))
    return g.model(g.linear(write(g, "x"), "head", head, 5))


def linear(g: WeightedGraph, x: str) -> str:
    return g.linear(x, "first", 6, 8)


def gemm(**how: Any) -> Write:
    return lambda g, x: g("Gemm", x, g.weight("w", 8, 6), g.weight("b", 8), transB=1, **how)


def conv(*shape: int, **how: Any) -> Write:
    return lambda g, x: g("Conv", x, g.weight(f"w{len(g.nodes)}", *shape), **how)


def reflected_signal(g: WeightedGraph, x: str) -> str:
    x = g("Pad", x, g.value([0, 0, 2, 0, 0, 2]), mode="reflect")
    return str(g("Flatten", conv(3, 1, 4, strides=[4])(g, x)))


def squeezed(g: WeightedGraph, x: str) -> str:
    """As PP-LCNet ends, whose dropout is a factor in inference."""
    x = g("GlobalAveragePool", conv(8, 3, 3, 3)(g, x))
    x = then(conv(8, 8, 1, 1), by("HardSwish"), by("Mul", 0.8))(g, x)
    return str(g("Flatten", x))


def pooled_by_attention(g: WeightedGraph, x: str) -> str:
    hidden = g("Relu", g.linear(x, "hidden", 6, 8))
    shares = g("Softmax", g.linear(hidden, "scores", 8, 1), axis=1)
    return str(g("ReduceSum", g("Mul", hidden, shares), g.value([1]), keepdims=0))


MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "a product with factors": (lambda: vector(gemm(alpha=0.5, beta=2.0), 6), "alpha = 0.5"),
    "a product": (lambda: vector(then(gemm(), RELU), 6), COMPUTED),
    "a sum before a bias": (
        lambda: vector(then(linear, by("Add", 0.5), RELU), 6),
        "addition of 0.5",
    ),
    "an input that is scaled": (
        lambda: vector(then(by("Div", 255.0), by("Sub", 0.5), linear), 6),
        "division by 255",
    ),
    "a factor behind a pool": (lambda: vector(squeezed, 3, 8, 8), "multiplication by 0.8"),
    "a signal reflected": (lambda: vector(reflected_signal, 1, 16, head=15), "(mode = reflect)"),
    "windows as far as images": (
        lambda: vector(
            then(
                conv(4, 3, 3, 3, strides=[2, 2], auto_pad="SAME_UPPER"),
                pooled("MaxPool", kernel_shape=[3, 3], auto_pad="SAME_UPPER"),
                by("Flatten"),
            ),
            *(3, 7, 7),
            head=16,
        ),
        COMPUTED,
    ),
    "a volume": (
        lambda: vector(then(conv(8, 1, 3, 3, 3), by("Flatten")), 1, 4, 4, 3, head=32),
        Refused("input 'x': should have a batch and at most 3 dimensions, got [7, 1, 4, 4, 3]"),
    ),
    "attention as a pool": (
        lambda: vector(pooled_by_attention, TOKENS, 6),
        Refused("(Mul): weighs a map by a softmax of another, as pooling by attention without"),
    ),
}


def of_features(write: Write) -> Any:
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    return g.model(g.linear(write(g, g.linear("x", "first", WIDTH, WIDTH)), "second", WIDTH, 5))


def of_images(write: Write) -> Any:
    g = WeightedGraph(("x", ["batch", 2, 12, 12]))
    x = write(g, g("Conv", "x", g.weight("a", 3, 2, 3, 3)))
    return g.model(g("Conv", x, g.weight("b", 4, 3, 3, 3)))


def of_attention(place: str, write: Write) -> Any:
    return attention(Way(), {place: lambda g, x, _: write(g, x)})


ROWS: dict[str, tuple[Callable[[], Any], str]] = {
    **{f"{name}": (partial(of_features, write), said) for name, (write, said) in FEATURES.items()},
    **{f"image: {name}": (partial(of_images, write), s) for name, (write, s) in IMAGES.items()},
    **{
        f"{place}: {name}": (partial(of_attention, place, write), said)
        for (place, name), (write, said) in ATTENTION.items()
    },
    **MODELS,
}


@pytest.mark.parametrize("row", ROWS)
def test_a_model_is_computed_or_what_is_not_is_said(row: str, tmp_path: Path) -> None:
    write, said = ROWS[row]
    model, path = write(), tmp_path / "model.onnx"
    if isinstance(said, Refused):
        assert said in refusal(tmp_path, model)
        return
    onnx.save(model, path)
    network = import_(path, loss="squared-error")
    if said == COMPUTED:
        assert not network.not_kept
        assert_computes_its_model(network, path)
    else:
        assert said in "".join(network.not_kept or ())
        with np.errstate(invalid="ignore"):  # roots of negative numbers
            step = with_weights(path, None, network, one_device(network), seed=0)
        assert not step.difference < 1e-3
