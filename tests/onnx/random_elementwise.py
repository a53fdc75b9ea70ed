"""Random graphs of elementwise operators, to be put between the layers of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tests.onnx.graph_writer import GraphWriter

Draw = np.random.Generator


def _number(rng: Draw) -> np.float32:
    few = [-2.0, -1.0, 0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 6.0, 1 / 6]
    return np.float32(few[rng.integers(len(few))] if rng.random() < 0.7 else rng.normal())


def constant(rng: Draw, g: GraphWriter, shape: Sequence[int]) -> str:
    """Add a number, a vector along one of the dimensions but the batch, or a map of numbers."""
    kind = rng.choice(["number", "one", "along", "map"], p=[0.5, 0.2, 0.2, 0.1])
    if kind == "number":
        return g.value(_number(rng))
    if kind == "one":
        return g.value(np.array([_number(rng)]))
    axis = int(rng.integers(1, len(shape)))
    sizes = [size if kind == "map" or n == axis else 1 for n, size in enumerate(shape)]
    values = rng.normal(1.0, 0.5, [1, *sizes[1:]]).astype(np.float32)
    if rng.random() < 0.3:
        # As learned scales and shifts are: an initializer without leading dimensions of one.
        values = np.squeeze(values, tuple(range(axis)) if kind == "along" else 0)
    return g.value(values)


def _by(op: str, g: GraphWriter, x: str, *numbers: float, flip: bool = False) -> str:
    constants = [g.value(np.float32(number)) for number in numbers]
    return str(g(op, *constants, x) if flip else g(op, x, *constants))


def gelu_by_erf(g: GraphWriter, x: str, half: float, root: float) -> str:
    gate = _by("Add", g, g("Erf", _by("Div", g, x, root)), 1.0)
    return _by("Mul", g, g("Mul", x, gate), half)


def gelu_by_tanh(g: GraphWriter, x: str, half: float, cube: float) -> str:
    inner = g("Add", x, _by("Mul", g, _by("Pow", g, x, 3.0), cube))
    gate = _by("Add", g, g("Tanh", _by("Mul", g, inner, (2 / np.pi) ** 0.5)), 1.0)
    return _by("Mul", g, g("Mul", x, gate), half)


def hardswish(g: GraphWriter, x: str, shift: float, bound: float) -> str:
    gate = _by("Clip", g, _by("Add", g, x, shift), 0.0, bound)
    return _by("Div", g, g("Mul", x, gate), 6.0)


def swish(g: GraphWriter, x: str, by: float, _: float) -> str:
    return str(g("Mul", x, g("Sigmoid", x if by == 1 else _by("Mul", g, x, by))))


def mish(g: GraphWriter, x: str, by: float, _: float) -> str:
    return _by("Mul", g, g("Mul", x, g("Tanh", g("Softplus", x))), by)


WRITTEN: Mapping[str, tuple[Callable[[GraphWriter, str, float, float], str], float, float]] = {
    "gelu by erf": (gelu_by_erf, 0.5, 2**0.5),
    "gelu by tanh": (gelu_by_tanh, 0.5, 0.044715),
    "hardswish": (hardswish, 3.0, 6.0),
    "swish": (swish, 1.0, 0.0),
    "mish": (mish, 1.0, 0.0),
}
"""Activations in several operators, and the numbers with which they are these activations."""


def _written(rng: Draw, g: GraphWriter, x: str) -> str:
    write, first, second = WRITTEN[str(rng.choice([*WRITTEN]))]
    return write(
        g,
        x,
        first if rng.random() < 0.6 else first * 1.5,
        second if rng.random() < 0.8 else second * 1.5,
    )


def _centred(rng: Draw, g: GraphWriter, x: str, shape: Sequence[int]) -> str:
    """Combine a map with a statistic of it, as norms do."""
    axes = g.value([int(rng.integers(1, len(shape)))])
    kind = str(rng.choice(["ReduceMean", "ReduceMean", "ReduceMax", "ReduceL2"]))
    statistic = g(kind, x, axes, keepdims=1)
    if rng.random() < 0.5:
        return str(g("Sub", x, statistic))
    return str(g("Div", x, _by("Add", g, g("Abs", statistic), 0.5)))


_SINGLE: Mapping[str, Mapping[str, Sequence[Any]]] = {
    **{
        op: {}
        for op in (
            *("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSwish", "Mish", "Erf"),
            *("Abs", "Neg", "Exp", "Cos", "Sin", "Sign", "Floor", "Identity", "Dropout", "Ceil"),
            *("Round", "Atan", "CumSum"),
        )
    },
    "Elu": {"alpha": [1.0, 0.5]},
    "Celu": {"alpha": [1.0, 2.0]},
    "Selu": {"alpha": [1.6732632, 1.0], "gamma": [1.0507010, 1.0]},
    "LeakyRelu": {"alpha": [0.01, 0.2]},
    "ThresholdedRelu": {"alpha": [1.0, 0.3]},
    "HardSigmoid": {"alpha": [0.2, 1 / 6], "beta": [0.5, 0.3]},
    "Gelu": {"approximate": ["none", "tanh"]},
    "Shrink": {"lambd": [0.5, 0.1], "bias": [0.0, 0.1]},
    "LogSoftmax": {"axis": [-1]},
    "Softmax": {"axis": [-1, 1]},
}
"""Operators on one map, and values of their attributes."""


def _single(rng: Draw, g: GraphWriter, x: str) -> str:
    op = str(rng.choice([*_SINGLE]))
    given = {}
    for name, values in _SINGLE[op].items():
        if rng.random() < 0.7:
            given[name] = values[int(rng.integers(len(values)))]
    return str(g(op, x, g.value(1)) if op == "CumSum" else g(op, x, **given))


def _constant(rng: Draw, g: GraphWriter, x: str, shape: Sequence[int]) -> str:
    op = str(rng.choice(["Add", "Mul", "Sub", "Div", "Max", "Min", "PRelu", "Where"]))
    other = constant(rng, g, shape)
    if op == "PRelu":
        return str(g(op, x, other))
    if op == "Where":
        return str(g(op, g("Greater", x, g.value(_number(rng))), x, other))
    if op == "Div":
        other = g.value(np.float32(rng.choice([0.5, 1.0, 2.0, 3.0, -1.5])))
    operands = [x, other] if op in ("Div", "Max", "Min") or rng.random() < 0.6 else [other, x]
    return str(g(op, *operands))


def _bounded(rng: Draw, g: GraphWriter, x: str) -> str:
    low, high = [(0.0, 6.0), (0.0, None), (None, 1.0), (-1.0, 1.0), (None, None)][rng.integers(5)]
    low_name = "" if low is None else g.value(np.float32(low))
    if high is None:
        return str(g("Clip", x, low_name) if low_name else g("Clip", x))
    return str(g("Clip", x, low_name, g.value(np.float32(high))))


def _several(rng: Draw, g: GraphWriter, x: str) -> str:
    """An operator with a domain of its own, so that no output is undefined."""
    kind = rng.integers(5)
    if kind == 0:
        return str(g("Sqrt", g("Abs", x)))
    if kind == 1:
        return str(g("Log", _by("Add", g, g("Abs", x), 1.0)))
    if kind == 2:
        return str(g("Reciprocal", _by("Add", g, g("Mul", x, x), 1.0)))
    if kind == 3:
        return _by("Pow", g, x, float(rng.choice([1.0, 2.0, 3.0])))
    return _by("Sub", g, x, float(rng.choice([0.0, 1.0])), flip=True)


def _views(g: GraphWriter, x: str, shape: Sequence[int]) -> str:
    """Reshape a map to a vector, and back."""
    flat = g("Reshape", x, g.value([0, -1]))
    return str(g("Reshape", flat, g.value([0, *shape[1:]])))


def elementwise(rng: Draw, g: GraphWriter, x: str, shape: Sequence[int]) -> str:
    """Write a random graph of elementwise operators on a map, and return its output.

    Parameters
    ----------
    rng
        Draws the graph.
    g
        Its nodes and constants are added to this graph.
    x
        The map's name.
    shape
        The sizes of its dimensions; that of the first, the batch, is not read.
    """
    tensors = [x]
    for _ in range(int(rng.integers(1, 4))):
        last = tensors[-1] if rng.random() < 0.8 else tensors[rng.integers(len(tensors))]
        draws: list[tuple[float, Callable[[], str]]] = [
            (0.3, partial(_single, rng, g, last)),
            (0.22, partial(_constant, rng, g, last, shape)),
            (0.15, partial(_written, rng, g, last)),
            (0.08, partial(_bounded, rng, g, last)),
            (0.1, partial(_several, rng, g, last)),
            (0.08, partial(_centred, rng, g, last, shape)),
            (0.05, partial(_views, g, last, shape)),
        ]
        chance = rng.random()
        for weight, draw in draws:
            chance -= weight
            if chance < 0:
                tensors.append(draw())
                break
        if rng.random() < 0.25:
            one, other = (tensors[rng.integers(len(tensors))] for _ in range(2))
            op = str(rng.choice(["Add", "Mul", "Sub", "Max", "Min"]))
            tensors.append(str(g(op, one, other)))
    return tensors[-1]
