"""Activations and their derivatives, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

Function = Callable[[Array], Array]


def _sigmoid(x: Array) -> Array:
    # Through tanh, which does not overflow.
    y: Array = 0.5 * (1.0 + np.tanh(0.5 * x))
    return y


def _sigmoid_slope(x: Array) -> Array:
    y = _sigmoid(x)
    return y * (1.0 - y)


_GELU = np.sqrt(2.0 / np.pi)


def _gelu(x: Array) -> Array:
    y: Array = 0.5 * x * (1.0 + np.tanh(_GELU * (x + 0.044715 * x**3)))
    return y


def _gelu_slope(x: Array) -> Array:
    t = np.tanh(_GELU * (x + 0.044715 * x**3))
    inner = _GELU * (1.0 + 3 * 0.044715 * x**2)
    y: Array = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t**2) * inner
    return y


def _erf(x: Array) -> Array:
    flat, y = x.reshape(-1), np.empty(x.size)
    # In chunks, as Python's numbers take four times the memory.
    for start in range(0, x.size, _MANY):
        y[start : start + _MANY] = _ERF(flat[start : start + _MANY])
    return y.reshape(x.shape)


_ERF = np.frompyfunc(math.erf, 1, 1)
_MANY = 2**16


def _gelu_by_erf(x: Array) -> Array:
    y: Array = 0.5 * x * (1.0 + _erf(x / np.sqrt(2.0)))
    return y


def _gelu_by_erf_slope(x: Array) -> Array:
    density = np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi)
    y: Array = 0.5 * (1.0 + _erf(x / np.sqrt(2.0))) + x * density
    return y


def _mish(x: Array) -> Array:
    y: Array = x * np.tanh(np.logaddexp(x, 0.0))
    return y


def _mish_slope(x: Array) -> Array:
    t = np.tanh(np.logaddexp(x, 0.0))
    y: Array = t + x * _sigmoid(x) * (1.0 - t**2)
    return y


_ALPHA, _GAMMA = 1.6732632423543772, 1.0507009873554805
"""The constants of selu."""


def _selu(x: Array) -> Array:
    y: Array = _GAMMA * np.where(x > 0, x, _ALPHA * np.expm1(np.minimum(x, 0.0)))
    return y


def _selu_slope(x: Array) -> Array:
    y: Array = _GAMMA * np.where(x > 0, 1.0, _ALPHA * np.exp(np.minimum(x, 0.0)))
    return y


def _leaky(x: Array) -> Array:
    return np.where(x > 0, x, 0.01 * x)


def _elu(x: Array) -> Array:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))


def _hard_sigmoid(x: Array) -> Array:
    y: Array = np.clip(x / 6 + 0.5, 0.0, 1.0)
    return y


def _hard_swish_slope(x: Array) -> Array:
    y: Array = _hard_sigmoid(x) + x * _between(-3.0, 3.0, 1 / 6)(x)
    return y


def _between(low: float, high: float, slope: float = 1.0) -> Function:
    return lambda x: ((x > low) & (x < high)) * slope


def _clipped(low: float, high: float) -> tuple[Function, Function]:
    return lambda x: np.clip(x, low, high), _between(low, high)


def _quick_gelu(x: Array) -> Array:
    y: Array = x * _sigmoid(1.702 * x)
    return y


def _quick_gelu_slope(x: Array) -> Array:
    y: Array = _sigmoid(1.702 * x) + 1.702 * x * _sigmoid_slope(1.702 * x)
    return y


ACTIVATIONS = MappingProxyType[str, tuple[Function, Function]](
    {
        "identity": (lambda x: x, np.ones_like),
        "relu": (lambda x: np.maximum(x, 0.0), lambda x: (x > 0) * 1.0),
        "relu6": _clipped(0.0, 6.0),
        "leaky_relu": (_leaky, lambda x: np.where(x > 0, 1, 0.01)),
        "elu": (_elu, lambda x: np.exp(np.minimum(x, 0.0))),
        "selu": (_selu, _selu_slope),
        "gelu": (_gelu, _gelu_slope),
        "gelu_erf": (_gelu_by_erf, _gelu_by_erf_slope),
        "quick_gelu": (_quick_gelu, _quick_gelu_slope),
        "clipped_quick_gelu": (
            lambda x: _quick_gelu(np.minimum(x, 7.0)),
            lambda x: (x < 7.0) * _quick_gelu_slope(np.minimum(x, 7.0)),
        ),
        "clipped_plus_one": (lambda x: np.clip(x, -7.0, 7.0) + 1.0, _between(-7.0, 7.0)),
        "silu": (lambda x: x * _sigmoid(x), lambda x: _sigmoid(x) + x * _sigmoid_slope(x)),
        "mish": (_mish, _mish_slope),
        "sigmoid": (_sigmoid, _sigmoid_slope),
        "log_sigmoid": (lambda x: -np.logaddexp(-x, 0.0), lambda x: _sigmoid(-x)),
        "hardsigmoid": (_hard_sigmoid, _between(-3.0, 3.0, 1 / 6)),
        "hardswish": (lambda x: x * _hard_sigmoid(x), _hard_swish_slope),
        "tanh": (np.tanh, lambda x: 1.0 - np.tanh(x) ** 2),
        "hard_tanh": _clipped(-1.0, 1.0),
        "softplus": (lambda x: np.logaddexp(x, 0.0), _sigmoid),
        "softsign": (lambda x: x / (1.0 + np.abs(x)), lambda x: (1.0 + np.abs(x)) ** -2),
        "thresholded_relu": (lambda x: np.where(x > 1.0, x, 0.0), lambda x: (x > 1.0) * 1.0),
        "squared_relu": (lambda x: np.maximum(x, 0.0) ** 2, lambda x: 2 * np.maximum(x, 0.0)),
        "square": (np.square, lambda x: 2 * x),
        "abs": (np.abs, np.sign),
        "exp": (np.exp, np.exp),
    }
)
"""Each activation and its derivative, as functions of its input. ``gelu`` is the tanh form.

Source: D. Hendrycks and K. Gimpel, "Gaussian Error Linear Units (GELUs)", arXiv:1606.08415,
section 2; G. Klambauer et al., "Self-Normalizing Neural Networks", NIPS 2017, for ``selu``; D.
Misra, "Mish", arXiv:1908.08681; D. So et al., "Primer", NeurIPS 2021, for ``squared_relu``.
"""

NEVER_FALLING = frozenset(ACTIVATIONS) - {
    *("gelu", "gelu_erf", "quick_gelu", "clipped_quick_gelu", "silu", "mish", "hardswish"),
    *("abs", "square"),
}
"""Activations that are monotonically non-decreasing."""
