"""Constant folding: what nodes compute from constants, counted before it is made."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hypar_opt.onnx.computing import (
    BROADCAST,
    OMITS,
    VIEWS,
    Attributes,
    concatenated,
    split,
    steps,
    triangle,
)
from hypar_opt.onnx.constant import (
    MAX_ELEMENT_BYTES,
    MAX_ELEMENTS,
    Array,
    Constant,
    of_tensor,
    placeholder,
)
from hypar_opt.onnx.model import MAX_RANK, OnnxNode

# Left to ONNX's reference evaluator: outputs are no larger than all inputs together.
_BY_REFERENCE = frozenset(
    (
        *("ArgMax", "CastLike", "CumSum", "EyeLike", "Flatten", "GatherElements", "GatherND"),
        *("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Round"),
        *("ScatterElements", "ScatterND", "Sign"),
    )
)

# Operators computed in Python, and the cost per element: time, counted as bytes.
_BY_ELEMENT = dict.fromkeys(("GatherElements", "GatherND", "ScatterElements", "ScatterND"), 128)

_REFERENCE = 2**13
"""Cost of a call of the reference evaluator: time, counted as bytes."""


MAX_BYTES = 2**28
"""All computed constants together take at most this many bytes."""


class Budget:
    """Bytes left for constants; work that takes time counts as bytes too."""

    def __init__(self, left: int = MAX_BYTES) -> None:
        self._left = left

    def take(self, count: int) -> bool:
        """Take ``count`` bytes, and return whether they were left."""
        if count > self._left:
            return False
        self._left -= count
        return True

    def give_back(self, count: int) -> None:
        """Return bytes that were not needed after all."""
        self._left += count


class Folded(NamedTuple):
    """The outputs of a node that reads constants, and whether they are the real values."""

    arrays: list[Array]
    has_values: bool = True


def fold(node: OnnxNode, inputs: list[Constant | None], budget: Budget) -> Folded | None:
    """Return the outputs of a node that reads only constants; None where they are unknown.

    A node's output is counted before it is written. Errors of the operator (shapes that do not fit,
    an index out of range) are found by ONNX's shape inference where anything needs the result.
    """
    try:
        with np.errstate(all="ignore"):
            return _fold(node, inputs, budget)
    except Exception:
        # The node of a broken file is refused by name where its output is needed.
        return None


def _fold(node: OnnxNode, inputs: list[Constant | None], budget: Budget) -> Folded | None:
    op, attributes = node.op, node.attributes()
    read = [constant for constant in inputs if constant is not None]
    if op in BROADCAST:
        shape = np.broadcast_shapes(*(constant.shape for constant in read))
        work = math.prod(shape) * max(1, len(read) - 1)
        has_values = all(constant.has_values or constant.is_input for constant in read)
        if not has_values or not _may_write(work, budget):
            return Folded([placeholder(shape)], has_values=False)
        if len(read) < len(inputs) and op not in OMITS:
            return None
        return _written(BROADCAST[op](attributes, *map(_value, inputs)), budget)
    if op == "Gather":
        return _gathered(inputs, attributes, budget)
    if op in VIEWS or op == "Split":
        # Their shape depends on the values of all inputs but the data, and these are few.
        shapes = inputs if op in ("ConstantOfShape", "Range") else inputs[1:]
        limit = max(MAX_RANK, len(node.outputs))
        if any(c is not None and not (c.has_values and c.elements <= limit) for c in shapes):
            return None
        values = [_value(constant) for constant in inputs]
        if op == "Split":
            return Folded(split(len(node.outputs), attributes, *values))
        if not _may_write(_copied(op, values), budget):
            return None
        result = VIEWS[op](attributes, *values)
        tensor = attributes.get("value")
        has_values = tensor is None or of_tensor(tensor).has_values
        return Folded([result], has_values) if result.ndim <= MAX_RANK else None
    has_values = all(constant.has_values for constant in read)
    total = sum(constant.elements for constant in read)
    if op in ("Concat", "Trilu"):
        if not has_values or not _may_write(total, budget):
            return Folded([placeholder(_joined(read, attributes))], has_values=False)
        compute = triangle if op == "Trilu" else concatenated
        return _written(compute(attributes, *map(_value, inputs)), budget)
    return _by_reference(node, inputs, budget) if has_values and total <= MAX_ELEMENTS else None


def _value(constant: Constant | None) -> Any:
    """Return an input's value, None if it is omitted."""
    return None if constant is None else constant.value


def _may_write(elements: int, budget: Budget) -> bool:
    return elements <= MAX_ELEMENTS and budget.take(MAX_ELEMENT_BYTES * elements)


def _written(array: Array, budget: Budget) -> Folded:
    """Return a written array, and give back what its elements take less than was counted."""
    budget.give_back((MAX_ELEMENT_BYTES - array.itemsize) * array.size)
    return Folded([np.asarray(array)])


def _copied(op: str, values: list[Any]) -> int:
    """Return how many elements a view has to copy."""
    if op == "Range":
        return max(1, math.ceil(steps(*(number.reshape(())[()] for number in values))))
    if op != "Reshape" or values[0].flags.c_contiguous or not any(values[0].strides):
        return 0
    return int(values[0].size)


def _joined(parts: list[Constant], attributes: Attributes) -> tuple[int, ...]:
    """Return the shape of a concatenation; for Trilu, which has no axis, its data's."""
    shape = list(parts[0].shape)
    if "axis" in attributes:
        shape[attributes["axis"]] = sum(part.shape[attributes["axis"]] for part in parts)
    return tuple(shape)


def _gathered(inputs: list[Any], attributes: Attributes, budget: Budget) -> Folded | None:
    data, indices = inputs
    axis = attributes.get("axis", 0) % len(data.shape)
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    if len(shape) > MAX_RANK:
        return None
    has_values = data.has_values and indices.has_values
    if not has_values or not _may_write(max(math.prod(shape), indices.elements), budget):
        return Folded([placeholder(shape)], has_values=False)
    return _written(np.take(data.value, indices.value.astype(np.int64), axis=axis), budget)


def _by_reference(node: OnnxNode, inputs: list[Constant | None], budget: Budget) -> Folded | None:
    """Return what ONNX's reference evaluator computes from small, known inputs."""
    if node.op not in _BY_REFERENCE:
        return None
    elements = 2 * sum(constant.elements for constant in inputs if constant is not None)
    if node.op == "GatherND":
        elements += _gathered_parts(inputs, node.attributes())
    per_element = _BY_ELEMENT.get(node.op, MAX_ELEMENT_BYTES)
    if elements > 2 * MAX_ELEMENTS or not budget.take(_REFERENCE + per_element * elements):
        return None
    from onnx.reference import ReferenceEvaluator

    feeds = {
        name: constant.value
        for name, constant in zip(node.inputs, inputs, strict=True)
        if constant is not None
    }
    outputs = ReferenceEvaluator(node.proto).run(None, feeds)
    return Folded([np.asarray(output) for output in outputs])


def _gathered_parts(inputs: list[Any], attributes: Attributes) -> int:
    """Return how many elements GatherND writes: per index, the dimensions that it leaves."""
    data, indices = inputs
    *places, depth = indices.shape
    return math.prod((*places, *data.shape[attributes.get("batch_dims", 0) + depth :]))
