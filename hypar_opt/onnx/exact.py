"""The names of elementwise operators that no layer of the network computes.

A feature map remembers the names of the operators that were applied to it, and what these did with
constants, as ``*0.5`` for a multiplication by a number. Where a layer reads the map, those that are
not an activation, as `samples` computes it, are reported as left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypar_opt.onnx.constant import Constant
    from hypar_opt.onnx.features import Features
    from hypar_opt.onnx.model import OnnxNode

_WITH_ONE_NUMBER = {
    "Clip": "|",
    "Mul": "*",
    "Div": "/",
    "Add": "+",
    "Sub": "-",
    "Sum": "+",
    "Pow": "^",
}
_WORDS = {
    "*": "multiplication by",
    "/": "division by",
    "+": "addition of",
    "-": "a difference with",
    "^": "power",
    "|": "bound",
}
_NEUTRAL = frozenset(("*1", "/1", "^1", "+0", "-0"))

MAP = "a constant of each place"
SELF = "itself"
MIXED = "a sum of its parts"
REORDERED = "its channels in another order"
REJOINED = "parts of it, each in another way"

# These change no value, or what they do with constants and other maps is remembered separately.
_PLAIN = frozenset(
    (
        *("Cast", "CastLike", "Identity", "Dropout", "SimplifiedDropout"),
        *("Add", "Sum", "BiasAdd", "Sub", "Mul", "Div"),
    )
)


def with_constant(op: str, constant: Constant, *, absorbed: bool) -> frozenset[str]:
    """Return what a node does with a constant; nothing where a layer learns the constant."""
    if absorbed or constant.is_input:
        return frozenset()
    if constant.elements != 1:
        return frozenset({MAP})
    sign = _WITH_ONE_NUMBER.get(op)
    if sign is None or not constant.has_values:
        return frozenset({f"{sign}?"} if sign else ())
    return frozenset({f"{sign}{float(constant.value.ravel()[0]):.9g}"})


def self_combination(node: OnnxNode, maps: Sequence[Features]) -> frozenset[str]:
    """Return a mark for a map that is combined with itself, as in a square."""
    same = len(maps) > 1 and len({features.operators for features in maps}) == 1
    return frozenset({SELF} if node.op in ("Mul", "Add") and same else ())


def phrases(rest: frozenset[str]) -> list[str]:
    """Return phrases for what has been done to a map that no layer does, at least one if any."""
    out = []
    for name in sorted(rest - _PLAIN):
        sign = name[0]
        if sign not in _WORDS:
            out.append(name if name != MAP else f"an operation with {MAP}")
        elif name not in _NEUTRAL:
            number = f"{float(name[1:]):.6g}" if name[1:] not in ("?", "none") else "a number"
            out.append(f"{_WORDS[sign]} {number}")
    if out or not rest:
        return out
    return sorted(name for name in rest if name[0] not in _WORDS) or ["an elementwise operator"]
