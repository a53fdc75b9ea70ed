"""What elementwise operators compute that no layer of the network does.

A feature map remembers the operators that it has been through, by name; beside these what they
did with constants, as ``*0.5`` for a multiplication by a number. Where a layer reads the map, all
that is no part of an activation is said to be left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hypar_opt.onnx.table import ELEMENTWISE, activation

if TYPE_CHECKING:
    from hypar_opt.onnx.constants import Constant
    from hypar_opt.onnx.features import Features
    from hypar_opt.onnx.model import Node
    from hypar_opt.onnx.trace import Trace

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

# What an operator's attribute is in the step, where the model may have another.
_ATTRIBUTES: dict[str, tuple[str, object, object]] = {
    "Celu": ("alpha", 1.0, 1.0),
    "Elu": ("alpha", 1.0, 1.0),
    "HardSigmoid": ("alpha", 0.2, 1 / 6),
    "LeakyRelu": ("alpha", 0.01, 0.01),
    "Swish": ("alpha", 1.0, 1.0),
}


_GELU = "gelu by erf, which is computed by its approximation by tanh"


def with_constant(node: Node, constant: Constant, *, absorbed: bool) -> frozenset[str]:
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


def of_itself(node: Node, a: Features, b: Features) -> frozenset[str]:
    """Return what is to be remembered of a map that is joined to itself, such as a square."""
    return frozenset({SELF} if node.op in ("Mul", "Add") and a.operators == b.operators else ())


def check_attributes(state: Trace, node: Node) -> None:
    """Say where an activation has another form than a step computes."""
    attributes = node.attributes()
    name, default, kept = _ATTRIBUTES.get(node.op, ("", None, None))
    value = attributes.get(name, default)
    same = value == kept
    if isinstance(value, float) and isinstance(kept, float):
        same = math.isclose(value, kept, rel_tol=1e-3)
    if name and not same:
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        form = f"{kept:.4g}" if isinstance(kept, float) else str(kept)
        state.note(node, f"{name} {shown} of {node.op}, which is taken with {form}")
    if node.op == "Gelu" and attributes.get("approximate", "none") == "none":
        state.note(node, _GELU)
    if node.op == "Clip" and (attributes.get("min", 0.0), attributes.get("max", 6.0)) != (0.0, 6.0):
        state.note(node, "bounds of a clip, which are taken as 0 and 6")
    training = node.inputs[2] if node.op == "Dropout" and len(node.inputs) > 2 else ""
    if training and not (state.constant(training).value == 0).all():
        state.note(node, "dropout")


def word_of(state: Trace, node: Node, features: Features) -> str | None:
    """Return the activation through which a map is read, and say what else is left out."""
    word = activation(features.operators)
    if not (features.source < 0 and state.input.is_tokens):
        for phrase in left_out(features.operators):
            state.note(node, f"{phrase} of what it reads")
        if "Erf" in features.operators:
            state.note(node, _GELU)
    return word


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


# Attention: its scale, and rotary positions.

_ROTATES = frozenset({"Neg", "Sub"})


def check_scores(state: Trace, node: Node, operands: Iterable[Features], scores: Features) -> None:
    """Say what is done to queries, keys and scores but a scale by the root of a head's size."""
    queries, keys = operands
    size = queries.shape[-1]
    scale: float | None = 1.0
    done = ""
    for features in (queries, keys, scores):
        operators = features.operators
        if "RotaryEmbedding" in operators or (MAP in operators and operators & _ROTATES):
            done = "rotary positions"
            operators -= {MAP, SELF, "RotaryEmbedding", "Neg"}
        operators -= {"Softmax", "IsNaN", "Where"} if features is scores else frozenset()
        numbers = [one for one in operators if one[0] in "*/"]
        for phrase in left_out(frozenset(operators).difference(numbers)):
            state.note(node, f"{phrase} of attention's queries, keys or scores")
        for one in numbers:
            number = None if one[1:] == "?" else float(one[1:])
            if scale is None or not number:
                scale = None
            else:
                scale = scale * number if one[0] == "*" else scale / number
    if done:
        state.note(node, done)
    check_scale(state, node, scale, size)


def check_scale(state: Trace, node: Node, scale: float | None, size: int) -> None:
    """Say where attention's scale is another than one over the root of a head's size."""
    if scale is None:
        state.note(node, f"attention's scale, which is not known; 1/sqrt({size}) is taken")
    elif not math.isclose(scale, size**-0.5, rel_tol=1e-3):
        state.note(node, f"attention's scale of {scale:.4g}; 1/sqrt({size}) is taken")
