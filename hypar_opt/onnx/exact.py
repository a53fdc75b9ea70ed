"""Elementwise operators that no layer of the network computes.

A feature map remembers the names of the operators that were applied to it, and what these did with
constants, as ``*0.5`` for a multiplication by a number. Where a layer reads the map, operators
that are not part of an activation are reported as left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hypar_opt.onnx.table import ELEMENTWISE, activation

if TYPE_CHECKING:
    from hypar_opt.onnx.constant import Constant
    from hypar_opt.onnx.features import Features
    from hypar_opt.onnx.model import OnnxNode

_NUMBER = ("*", "/", "+", "^", "|")
_OF_A_NUMBER = {"Clip": "|", "Mul": "*", "Div": "/", "Add": "+", "Sub": "+", "Sum": "+", "Pow": "^"}

MAP = "a constant of each place"
SELF = "itself"
MIXED = "a sum of its parts"
REORDERED = "its channels in another order"

# These change no value, or what they do with constants and other maps is remembered separately.
_PLAIN = frozenset(
    (
        *("Cast", "CastLike", "Identity", "Dropout", "SimplifiedDropout"),
        *("Add", "Sum", "BiasAdd", "Sub", "Mul", "Div"),
    )
)

# Activations written out, and which other operators they may contain.
_PARTS = {
    "gelu": frozenset({"Tanh", "Pow", "FastGelu", *_NUMBER, SELF}),
    "gelu_erf": frozenset({"Erf", "Gelu", *_NUMBER, SELF}),
    "mish": frozenset({"Mish", "Tanh", "Softplus"}),
    "silu": frozenset({"Swish", "Sigmoid"}),
    "hardswish": frozenset({"HardSwish", "HardSigmoid", "Clip", *_NUMBER}),
}

# The mean, variance, root and epsilon of norms.
_NORM = frozenset(
    (
        *("Pow", "Sqrt", "Reciprocal", "Neg", "Clip", "Abs", "ReduceSum", "ReduceSumSquare"),
        *("ReduceL2", "Max", MAP, SELF, *_NUMBER),
    )
)


def with_constant(node: OnnxNode, constant: Constant, *, absorbed: bool) -> frozenset[str]:
    """Return what a node does with a constant; nothing where a layer learns the constant."""
    if absorbed or constant.is_input:
        return frozenset()
    if constant.elements != 1:
        return frozenset({MAP})
    if node.op == "Clip" and len([name for name in node.inputs if name]) < 3:
        return frozenset({"|none"})
    sign = _OF_A_NUMBER.get(node.op)
    if sign is None or not constant.known:
        return frozenset({f"{sign}?"} if sign else ())
    return frozenset({f"{sign}{float(constant.value.ravel()[0]):.9g}"})


def of_itself(node: OnnxNode, a: Features, b: Features) -> frozenset[str]:
    """Return a mark for a map that is combined with itself, as in a square."""
    return frozenset({SELF} if node.op in ("Mul", "Add") and a.operators == b.operators else ())


def left_out(operators: frozenset[str]) -> list[str]:
    """Return phrases for the operators that are not part of an activation."""
    word = activation(operators)
    kept = _PARTS.get(word or "", frozenset(ELEMENTWISE))
    return _phrases(operators - _PLAIN - kept, kept)


def without_norm(operators: frozenset[str]) -> frozenset[str]:
    """Return operators without those that make up norms."""
    return frozenset(name for name in operators if not {name, name[0]} & _NORM)


def _phrases(operators: Iterable[str], kept: frozenset[str]) -> list[str]:
    words = dict(zip(_NUMBER, ("multiplication by", "division by", "addition of"), strict=False))
    words |= {"^": "power", "|": "bounds of a clip from 0 to 6:"}
    out = []
    for name in sorted(operators):
        sign = name[0]
        if sign not in words:
            out.append(name if name != MAP else f"an operation with {MAP}")
        elif sign not in kept and name not in _NEUTRAL:
            number = f"{float(name[1:]):.6g}" if name[1:] not in ("?", "none") else "a number"
            out.append(f"{words[sign]} {number}")
    return out


_NEUTRAL = frozenset(("*1", "/1", "^1", "+0", "+-0", "|0", "|6"))
