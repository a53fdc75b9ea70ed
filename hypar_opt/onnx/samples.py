"""Elementwise operators on a layer's map, evaluated on sample numbers.

A feature map carries the values that the operators on it have made of `SAMPLE`. Where these are
the values of an activation, the operators are that activation, however they are written; else each
is named. So an operator, or a constant, that a network does not compute cannot pass for a part of
one that it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from hypar_opt.onnx.axes import is_part, part_size
from hypar_opt.onnx.computing import BROADCAST, Attributes, Compute
from hypar_opt.onnx.constant import Array, Constant
from hypar_opt.workload.activations import ACTIVATIONS

IMAGES, ROWS, COLUMNS, CHANNELS = range(4)
"""The dimensions of `SAMPLE`; tokens take the place of rows and columns."""

TOLERANCE = 1e-6
"""The tolerance of values: absolute, or relative to values larger than 1."""

_REACHES = (0.3, 1.0, 2.0, 5.0, 7.0, 9.0, 40.0, 1e4)
"""The largest number at each position: near zero, around bounds of activations, and far out."""

_SHAPE = (2, 2, 2, 16)

HEAD = len(_SHAPE)
"""The dimension of a head's channels, where those of `SAMPLE` are in heads."""

_HEADS_SHAPE = (*_SHAPE[:CHANNELS], 4, 4)


def _sample() -> Array:
    """Return numbers whose signs and sizes vary in each dimension, none of them a round one."""
    rng = np.random.default_rng(20)
    rows = [rng.uniform(-reach, reach, _SHAPE[CHANNELS]) for reach in _REACHES]
    return np.array(rows).reshape(_SHAPE)


SAMPLE = _sample()
"""``(images, rows, columns, channels)``: what a layer writes, in place of its map."""

_ENOUGH = 0.75
"""The share of values that have to be finite: written out, an exponential leaves no number."""


@dataclass(frozen=True, eq=False)
class Function:
    """The function that operators compute of a layer's map.

    Parameters
    ----------
    values
        What they make of `SAMPLE`, with size 1 in dimensions that are reduced; None if unknown.
    activation
        The activation that they were when they last were one; None for none.
    rest
        What has been done since.
    tolerance
        The precision of the constants among them.
    """

    values: Array | None = None
    activation: str | None = None
    rest: frozenset[str] = frozenset()
    tolerance: float = TOLERANCE

    def rounded(self, precision: float) -> Function:
        """Return the function with the tolerance of a constant's precision."""
        return self if precision <= self.tolerance else replace(self, tolerance=precision)

    @property
    def is_identity(self) -> bool:
        return self.activation is None and not self.rest

    def unknown(self, *done: str) -> Function:
        """Return an unknown function, after an operator that is not computed."""
        return Function(None, self.activation, self.rest.union(done), self.tolerance)

    def is_like(self, other: Function) -> bool:
        """Return whether another function is the same, as far as both are known."""
        if self is other or (self.is_identity and other.is_identity):
            return True
        return other.values is not None and self.agrees(other.values)

    def agrees(self, expected: Array) -> bool:
        """Whether the values are these, to the precision of the constants."""
        if self.values is None or self.values.shape != expected.shape:
            return False
        return bool(_distances(self.values, expected[None])[0] <= self.tolerance)


IDENTITY = Function(SAMPLE)


def factor_of(function: Function) -> float | None:
    """Return the positive number that a function multiplies by; None if it does anything else."""
    if function.is_identity:
        return 1.0
    if function.values is None or function.values.shape != SAMPLE.shape:
        return None
    factor = float(f"{np.median(function.values / SAMPLE):.9g}")
    return factor if factor > 0 and function.agrees(factor * SAMPLE) else None


Operand = Function | Array | None
"""An operator's input: a function of a map, or numbers that fit `SAMPLE`; None if unknown."""

_WORDS = tuple(ACTIVATIONS)
"""The first is none: the map as it is."""


@cache
def _table() -> Array:
    with np.errstate(all="ignore"):
        return np.stack([ACTIVATIONS[word][0](SAMPLE) for word in _WORDS])


def _distances(values: Array, references: Array) -> Array:
    """Return how far some values are from each of several others; an overflow is no difference."""
    finite = np.isfinite(values)
    if finite.mean() < _ENOUGH:
        return np.full(len(references), np.inf)
    with np.errstate(all="ignore"):
        distances = np.abs(values - references) / np.maximum(1.0, np.abs(references))
    distances[(values == references) | ~finite] = 0.0
    largest: Array = np.nan_to_num(distances, nan=np.inf, posinf=np.inf).max(
        tuple(range(1, references.ndim))
    )
    return largest


def applied(
    op: str,
    attributes: Attributes,
    operands: Sequence[Operand],
    marks: Iterable[str],
    all_marks: frozenset[str],
) -> Function:
    """Return an operator's function of a map, or of several functions of one.

    Parameters
    ----------
    operands
        Functions of the map, and constants as numbers that fit `SAMPLE`; None for unknown ones.
    marks
        The marks of the operator if it is not part of an activation.
    all_marks
        The marks of all operands.
    """
    functions = [one for one in operands if isinstance(one, Function)]
    tolerance = max(one.tolerance for one in functions)
    values = computed(op, attributes, [_values(one) for one in operands])
    word = _word(values, tolerance)
    if word is not None:
        return Function(values, None if word == "identity" else word, tolerance=tolerance)
    words = {one.activation for one in functions}
    rest = frozenset().union(*(one.rest for one in functions)) if len(words) == 1 else all_marks
    activation = next(iter(words)) if len(words) == 1 else None
    return Function(values, activation, rest.union(marks), tolerance)


def _values(operand: Operand) -> Array | None:
    return operand.values if isinstance(operand, Function) else operand


def _word(values: Array | None, tolerance: float) -> str | None:
    """Return the activation whose values these are."""
    if values is None or values.shape != SAMPLE.shape or values.dtype.kind != "f":
        return None
    distances = _distances(values, _table())
    nearest = int(distances.argmin())
    return _WORDS[nearest] if distances[nearest] <= tolerance else None


def computed(op: str, attributes: Attributes, operands: Sequence[Array | None]) -> Array | None:
    """Return an elementwise operator's output; None where it, or an input, is unknown."""
    compute = COMPUTED.get(op)
    if compute is None or any(one is None for one in operands):
        return None
    try:
        with np.errstate(all="ignore"):
            return np.asarray(compute(attributes, *operands))
    except (TypeError, ValueError):  # an attribute of another type, or inputs that do not fit
        return None


def operand_of(constant: Constant, *, by_channel: bool) -> Array | None:
    """Return a constant as a number, or as stand-ins for the numbers of each channel.

    None if it is neither, or unknown.
    """
    if constant.has_values and constant.elements == 1:
        value = constant.value.reshape(())
        return value.astype(np.float64) if value.dtype.kind in "fiuV" else value
    if constant.has_values and constant.is_input and constant.elements:
        value = constant.value
        return value.flat[0].astype(np.float64) if (value == value.flat[0]).all() else None
    return stand_in(constant) if by_channel else None


def stand_in(constant: Constant) -> Array:
    """Return numbers for a constant of each channel, the same for the same weights."""
    from zlib import crc32

    seed = crc32(repr([(one.name, one.first) for one in constant.regions]).encode())
    return np.random.default_rng(seed).uniform(0.5, 2.0, _SHAPE[CHANNELS])


def precision(constant: Constant) -> float:
    """Return the tolerance of what is computed with a number: more for half precision."""
    kind = (
        constant.value.dtype if constant.has_values and constant.elements == 1 else np.dtype(float)
    )
    if kind.itemsize != 2 or kind.kind not in "fV":
        return TOLERANCE
    return 2.0**-7 if kind.kind == "V" else 2.0**-9


# Reductions and norms.


def dims_over(axes: Collection[str], sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return the dimensions of `SAMPLE` that are reduced over axes of a map of these sizes.

    `HEAD` for the channels of a head, or of a group; None where only another part of an axis is.
    """
    has_part = any(map(is_part, axes))
    if has_part and part_size(axes) is None:
        return None
    places = {"h": ROWS, "w": COLUMNS}
    long = [axis for axis in places if sizes.get(axis, 1) > 1]
    over: set[int] = set()
    if "t" in axes or ("b" in axes and sizes.get("t", 1) == 1 and not long):
        over |= {ROWS, COLUMNS}  # of a map of one position, both belong to the batch
    elif long and all(axis in axes for axis in long):
        over |= {ROWS, COLUMNS}
    else:
        over |= {places[axis] for axis in long if axis in axes}
    over |= {IMAGES} if "b" in axes else set()
    over |= {CHANNELS} if "c" in axes else set()
    over |= {HEAD} if has_part else set()
    return tuple(sorted(over))


def reduced(
    op: str, attributes: Attributes, values: Array | None, over: Sequence[int] | None, count: int
) -> Array | None:
    """Return a reduction of values over dimensions of `SAMPLE`; None if it is unknown.

    Parameters
    ----------
    op
        The operator, or the word of a pool.
    count
        How many elements of the map it reduces to one.
    """
    compute = _REDUCTIONS.get(op.removeprefix("Reduce").removeprefix("Global"))
    if values is None or over is None or compute is None:
        return None
    whole = values.shape
    if HEAD in over:
        if whole != _SHAPE:
            return None
        values = values.reshape(_HEADS_SHAPE)

    def mean(array: Array) -> Array:
        return np.asarray(array.mean(tuple(over), keepdims=True))

    with np.errstate(all="ignore"):
        result = np.asarray(compute(values, mean, tuple(over), count, attributes.get("p", 2)))
    return np.broadcast_to(result, values.shape).reshape(whole) if HEAD in over else result


_REDUCTIONS: dict[str, Callable[..., Array]] = {
    **dict.fromkeys(("Mean", "AveragePool", "average"), lambda x, mean, *_: mean(x)),
    **dict.fromkeys(("Max", "MaxPool", "max"), lambda x, _, over, *__: x.max(over, keepdims=True)),
    "Min": lambda x, _, over, *__: x.min(over, keepdims=True),
    "Sum": lambda x, mean, _, count, __: mean(x) * count,
    "SumSquare": lambda x, mean, _, count, __: mean(x**2) * count,
    "L1": lambda x, mean, _, count, __: mean(np.abs(x)) * count,
    "L2": lambda x, mean, _, count, __: np.sqrt(mean(x**2) * count),
    "LpPool": lambda x, mean, _, count, power: (mean(np.abs(x) ** power) * count) ** (1 / power),
    "LogSumExp": lambda x, mean, _, count, __: np.log(mean(np.exp(x)) * count),
}


def normed(
    values: Array,
    kind: str,
    epsilon: float,
    scale: Array | None = None,
    shift: Array | None = None,
    *,
    over: Sequence[int] | None = None,
) -> Array:
    """Return a network's norm of values.

    Parameters
    ----------
    kind
        As in a network file.
    scale, shift : (channels,)
        Those of the channels.
    over
        The dimensions of its statistics; by default those of a batch norm, or all channels.
    """
    if kind != "affine":
        default = (IMAGES, ROWS, COLUMNS) if kind == "batch" else (CHANNELS,)
        axes = default if over is None else tuple(over)
        whole = values.shape
        values = values.reshape(_HEADS_SHAPE) if HEAD in axes else values
        if kind != "rms":
            values = values - values.mean(axes, keepdims=True)
        with np.errstate(all="ignore"):
            values = values / np.sqrt((values**2).mean(axes, keepdims=True) + epsilon)
        values = values.reshape(whole)
    values = values if scale is None else values * scale
    return values if shift is None else values + shift


def soft_cap_of(function: Function) -> float | None:
    """Return the soft cap of a function of a map; None if it has none, or one beyond `SAMPLE`."""
    if function.values is None or function.is_identity or function.activation:
        return None
    cap = float(f"{np.abs(function.values).max():.7g}")
    with np.errstate(all="ignore"):
        return cap if cap > 0 and function.agrees(cap * np.tanh(SAMPLE / cap)) else None


# Operators.


def _sigmoid(x: Array) -> Array:
    # Precise where it is small, so that its logarithm is.
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _gelu(attributes: Attributes, x: Array) -> Array:
    by_tanh = attributes.get("approximate", "none") == "tanh"
    return np.asarray(ACTIVATIONS["gelu" if by_tanh else "gelu_erf"][0](x))


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def _cast(attributes: Attributes, x: Array) -> Array:
    # Among floating-point types the values are the same, to the precision of their types.
    floats = (1, 10, 11, 16)
    if attributes.get("to") in floats:
        return x.astype(np.float64)
    return BROADCAST["Cast"](attributes, x)


def _celu(a: Attributes, x: Array) -> Array:
    alpha = a.get("alpha", 1.0)
    below = alpha * np.expm1(np.minimum(x, 0) / alpha)
    return np.asarray(np.maximum(x, 0) + np.minimum(0, below))


def _selu(a: Attributes, x: Array) -> Array:
    alpha, gamma = a.get("alpha", 1.67326319217681884765625), a.get("gamma", 1.05070102214813232)
    return np.asarray(gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))))


def _shrink(a: Attributes, x: Array) -> Array:
    bias, bound = a.get("bias", 0.0), a.get("lambd", 0.5)
    return np.where(x < -bound, x + bias, np.where(x > bound, x - bias, 0.0))


def _activation_operator(word: str) -> Compute:
    """Return an operator that is an activation of network files."""
    return lambda _, x: np.asarray(ACTIVATIONS[word][0](x))


def _plain(function: Any) -> Compute:
    return lambda _, x: np.asarray(function(x))


COMPUTED: dict[str, Compute] = {
    **BROADCAST,
    **{
        op: _activation_operator(word)
        for op, word in {
            "Relu": "relu",
            "HardSwish": "hardswish",
            "Tanh": "tanh",
            "Softplus": "softplus",
            "Softsign": "softsign",
            "Mish": "mish",
            "FastGelu": "gelu",
        }.items()
    },
    **{
        op: _plain(function)
        for op, function in {
            "Erf": _erf,
            "Sigmoid": _sigmoid,
            "Log": np.log,
            "Sign": np.sign,
            "Round": np.round,
            "Acos": np.arccos,
            "Asin": np.arcsin,
            "Atan": np.arctan,
            "Cosh": np.cosh,
            "Sinh": np.sinh,
            "Tan": np.tan,
        }.items()
    },
    "Cast": _cast,
    "SimplifiedDropout": lambda _, x, *__: x,
    "LeakyRelu": lambda a, x: np.where(x > 0, x, a.get("alpha", 0.01) * x),
    "Elu": lambda a, x: np.where(x > 0, x, a.get("alpha", 1.0) * np.expm1(np.minimum(x, 0))),
    "Celu": _celu,
    "Selu": _selu,
    "Gelu": _gelu,
    "QuickGelu": lambda a, x: x * _sigmoid(a.get("alpha", 1.702) * x),
    "Swish": lambda a, x: x * _sigmoid(a.get("alpha", 1.0) * x),
    "HardSigmoid": lambda a, x: np.clip(a.get("alpha", 0.2) * x + a.get("beta", 0.5), 0, 1),
    "ThresholdedRelu": lambda a, x: np.where(x > a.get("alpha", 1.0), x, 0.0),
    "Shrink": _shrink,
    "PRelu": lambda _, x, slope: np.where(x > 0, x, slope * x),
    "Sum": lambda _, *inputs: sum(inputs[1:], start=inputs[0]),
    "Mean": lambda _, *inputs: sum(inputs[1:], start=inputs[0]) / len(inputs),
}
"""Elementwise operators in double precision, by their attributes and inputs."""
