"""Activations and their derivatives, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array

Function = Callable[["Array"], "Array"]


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
    # Python's numbers take four times the memory: a few at a time.
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


def _between(low: float, high: float, slope: float) -> Function:
    return lambda x: ((x > low) & (x < high)) * slope


_RELU: tuple[Function, Function] = (lambda x: np.maximum(x, 0.0), lambda x: (x > 0) * 1.0)
_SILU: tuple[Function, Function] = (
    lambda x: x * _sigmoid(x),
    lambda x: _sigmoid(x) + x * _sigmoid_slope(x),
)
_HARD_SIGMOID: tuple[Function, Function] = (
    lambda x: np.clip(x / 6 + 0.5, 0.0, 1.0),
    _between(-3.0, 3.0, 1 / 6),
)

ACTIVATIONS = MappingProxyType[str, tuple[Function, Function]](
    {
        "relu": _RELU,
        "relu6": (lambda x: np.clip(x, 0.0, 6.0), _between(0.0, 6.0, 1.0)),
        "clip": (lambda x: np.clip(x, 0.0, 6.0), _between(0.0, 6.0, 1.0)),
        "leaky_relu": (lambda x: np.where(x > 0, x, 0.01 * x), lambda x: np.where(x > 0, 1, 0.01)),
        "leakyrelu": (lambda x: np.where(x > 0, x, 0.01 * x), lambda x: np.where(x > 0, 1, 0.01)),
        "elu": (
            lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
            lambda x: np.exp(np.minimum(x, 0.0)),
        ),
        "gelu": (_gelu, _gelu_slope),
        "gelu_erf": (_gelu_by_erf, _gelu_by_erf_slope),
        "silu": _SILU,
        "swish": _SILU,
        "sigmoid": (_sigmoid, _sigmoid_slope),
        "hardsigmoid": _HARD_SIGMOID,
        "hardswish": (
            lambda x: x * _HARD_SIGMOID[0](x),
            lambda x: _HARD_SIGMOID[0](x) + x * _HARD_SIGMOID[1](x),
        ),
        "tanh": (np.tanh, lambda x: 1.0 - np.tanh(x) ** 2),
        "softplus": (lambda x: np.logaddexp(x, 0.0), _sigmoid),
        "identity": (lambda x: x, np.ones_like),
    }
)
"""Each activation and its derivative, as functions of its input. ``gelu`` is the tanh form.

Source: D. Hendrycks and K. Gimpel, "Gaussian Error Linear Units (GELUs)", arXiv:1606.08415,
section 2.
"""
