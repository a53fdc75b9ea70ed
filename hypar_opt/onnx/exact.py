"""What elementwise operators compute that no layer of the network does.

A feature map remembers the operators that it has been through, by name; beside these what they
did with constants, as ``*0.5`` for a multiplication by a number. Where a layer reads the map, all
that is no part of an activation is said to be left out.
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

# They change no value, or what they do with constants and other maps is remembered beside them.
_PLAIN = frozenset(
    (
        *("Cast", "CastLike", "Identity", "Dropout", "SimplifiedDropout"),
        *("Add", "Sum", "BiasAdd", "Sub", "Mul", "Div"),
    )
)

# Of activations that are written out: what else is among their operators.
_PARTS = {
    "gelu": frozenset({"Erf", "Tanh", "Pow", "Gelu", "FastGelu", *_NUMBER, SELF}),
    "mish": frozenset({"Mish", "Tanh", "Softplus"}),
    "silu": frozenset({"Swish", "Sigmoid"}),
    "hardswish": frozenset({"HardSwish", "HardSigmoid", "Clip", *_NUMBER}),
}

# Of norms: their mean, variance, root and epsilon.
_NORM = frozenset(
    (
        *("Pow", "Sqrt", "Reciprocal", "Neg", "Clip", "Abs", "ReduceSum", "ReduceSumSquare"),
        *("ReduceL2", "Max", MAP, SELF, *_NUMBER),
    )
)

GELU_BY_ERF = "gelu by erf, which is computed by its approximation by tanh"


def with_constant(node: OnnxNode, constant: Constant, *, absorbed: bool) -> frozenset[str]:
    """Return what a node does with a constant, to remember; nothing where a layer has it."""
    if absorbed or constant.is_input:
        return frozenset()
    if constant.elements != 1:
        return frozenset({MAP})
    if node.op == "Clip" and len([name for name in node.inputs if name]) < 3:
        return frozenset({"|none"})
    sign = _OF_A_NUMBER.get(node.op)
    if sign is None or not constant.known:
        return frozenset({f"{sign}?"} if sign else ())
    return frozenset({f"{sign}{float(constant.value.ravel()[0]):.6g}"})


def of_itself(node: OnnxNode, a: Features, b: Features) -> frozenset[str]:
    """Return what is to be remembered of a map that is joined to itself, such as a square."""
    return frozenset({SELF} if node.op in ("Mul", "Add") and a.operators == b.operators else ())


def left_out(operators: frozenset[str]) -> list[str]:
    """Return what no activation is made of, in words."""
    word = activation(operators)
    kept = _PARTS.get(word or "", frozenset(ELEMENTWISE))
    return _phrases(operators - _PLAIN - kept, kept)


def without_norm(operators: frozenset[str]) -> frozenset[str]:
    """Return operators without those that norms are made of."""
    return frozenset(one for one in operators if not {one, one[0]} & _NORM)


def _phrases(operators: Iterable[str], kept: frozenset[str]) -> list[str]:
    words = dict(zip(_NUMBER, ("multiplication by", "division by", "addition of"), strict=False))
    words |= {"^": "power", "|": "bounds of a clip from 0 to 6:"}
    out = []
    for one in sorted(operators):
        sign = one[0]
        if sign not in words:
            out.append(one if one != MAP else f"{_OPERATION} {MAP}")
        elif sign not in kept and one not in _NOTHING:
            number = one[1:] if one[1:] != "?" else "a number"
            out.append(f"{words[sign]} {number}")
    return out


_NOTHING = frozenset(("*1", "/1", "^1", "+0", "+-0", "|0", "|6"))

_OPERATION = "an operation with"
