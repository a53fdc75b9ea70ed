"""The operators that compute constants, in numpy; ONNX's reference evaluator for the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hypar_opt.workload.onnx.constants import (
    MOST_ELEMENTS,
    MOST_RANK,
    Array,
    Constant,
    hollow,
    of_tensor,
)
from hypar_opt.workload.onnx.model import Node

Attributes = dict[str, Any]


def _ints(array: Array | None, attributes: Attributes, name: str) -> list[int] | None:
    """Return integers that older opsets have as an attribute, newer ones as an input."""
    if array is not None:
        return [int(value) for value in array.ravel()]
    return attributes.get(name)


def reshape_target(shape: Sequence[int], target: Sequence[int], *, allow_zero: bool) -> list[int]:
    """Return the shape of a reshape, with 0 (as it was) and -1 (the rest) resolved.

    Raises
    ------
    ValueError
        Where the elements do not fit.
    """
    sizes = [
        shape[axis] if size == 0 and not allow_zero else size for axis, size in enumerate(target)
    ]
    if sizes.count(-1) == 1:
        known = -math.prod(sizes)
        rest, remainder = divmod(math.prod(shape), known) if known else (0, 0)
        if remainder:
            raise ValueError("the elements do not fit")
        sizes[sizes.index(-1)] = rest
    if math.prod(sizes) != math.prod(shape) or any(size < 0 for size in sizes):
        raise ValueError("the elements do not fit")
    return sizes


def squeezed_shape(op: str, shape: Sequence[int], axes: Sequence[int] | None) -> list[int]:
    """Return the shape after Squeeze or Unsqueeze.

    Raises
    ------
    ValueError
        Where an axis is not there, or is not of size 1.
    """
    if op == "Squeeze":
        if axes is None:
            return [size for size in shape if size != 1]
        if any(not -len(shape) <= axis < len(shape) for axis in axes):
            raise ValueError("its axes are not there")
        dropped = {axis % len(shape) for axis in axes}
        if any(shape[axis] != 1 for axis in dropped):
            raise ValueError("only dimensions of size 1 can be squeezed")
        return [size for axis, size in enumerate(shape) if axis not in dropped]
    rank = len(shape) + len(set(axes or ()))
    if any(not -rank <= axis < rank for axis in axes or ()):
        raise ValueError("its axes are not there")
    new = {axis % rank for axis in axes or ()}
    rest = iter(shape)
    return [1 if axis in new else next(rest) for axis in range(rank)]


def slice_bounds(size: int, start: int, end: int, step: int) -> tuple[int, int]:
    """Return start and size of a slice with a positive step, bounds clamped as ONNX does."""
    start, end, step = slice(start, end, step).indices(size)
    return start, max(0, -(-(end - start) // step))


def _reshape(inputs: list[Array | None], attributes: Attributes) -> Array:
    data, target = inputs[0], _ints(inputs[1] if len(inputs) > 1 else None, attributes, "shape")
    assert data is not None
    allow_zero = bool(attributes.get("allowzero"))
    return data.reshape(reshape_target(data.shape, target or [], allow_zero=allow_zero))


def _squeeze(op: str) -> Callable[[list[Array | None], Attributes], Array]:
    def fold_squeeze(inputs: list[Array | None], attributes: Attributes) -> Array:
        data = inputs[0]
        assert data is not None
        axes = _ints(inputs[1] if len(inputs) > 1 else None, attributes, "axes")
        return data.reshape(squeezed_shape(op, data.shape, axes))

    return fold_squeeze


def _constant(_: list[Array | None], attributes: Attributes) -> Array:
    for name, value in attributes.items():
        if name == "value":
            return of_tensor(value).value
        if name in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
        if name in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
    raise ValueError("has no value")


def _filled(inputs: list[Array | None], attributes: Attributes) -> Array:
    shape = inputs[0]
    assert shape is not None
    value = of_tensor(attributes["value"]).value.ravel()[0] if "value" in attributes else 0.0
    # Broadcast: the weights of a model without weights are made so, and take no memory.
    return np.broadcast_to(value, tuple(int(size) for size in shape.ravel()))


def _expand(inputs: list[Array | None], _: Attributes) -> Array:
    data, shape = inputs
    assert data is not None
    assert shape is not None
    target = np.broadcast_shapes(data.shape, tuple(int(size) for size in shape.ravel()))
    return np.broadcast_to(data, target)


def _gather(inputs: list[Array | None], attributes: Attributes) -> Array:
    data, indices = inputs
    assert data is not None
    assert indices is not None
    axis = attributes.get("axis", 0) % data.ndim
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    if math.prod(shape) > MOST_ELEMENTS:
        return hollow(shape, data.dtype)
    if math.prod(data.shape) > MOST_ELEMENTS:
        return hollow(shape, data.dtype)
    return np.take(data, indices.astype(np.int64), axis=axis)


def _slice(inputs: list[Array | None], attributes: Attributes) -> Array:
    data = inputs[0]
    assert data is not None
    return data[tuple(slice_cuts(data.shape, inputs, attributes))]


def slice_cuts(
    shape: Sequence[int], inputs: Sequence[Array | None], attributes: Attributes
) -> list[slice]:
    """Return the range of each dimension that Slice reads, of its inputs' values or attributes."""
    given = [*inputs[1:], None, None, None, None][:4]
    names = ("starts", "ends", "axes", "steps")
    starts, ends, axes, steps = (
        _ints(array, attributes, name) for array, name in zip(given, names, strict=True)
    )
    cuts = [slice(None)] * len(shape)
    for position, (start, end) in enumerate(zip(starts or [], ends or [], strict=True)):
        axis = axes[position] if axes else position
        step = steps[position] if steps else 1
        # Beyond the beginning, going backwards, numpy's bound is none and ONNX's is very low.
        stop = None if step < 0 and end < -shape[axis] else end
        cuts[axis] = slice(start, stop, step)
    return cuts


def _cast(inputs: list[Array | None], attributes: Attributes) -> Array:
    from onnx import helper

    data = inputs[0]
    assert data is not None
    result: Array = data.astype(helper.tensor_dtype_to_np_dtype(attributes["to"]))
    return result


def _range(inputs: list[Array | None], _: Attributes) -> Array:
    start, limit, delta = (array.ravel()[0] for array in inputs if array is not None)
    if not delta or abs(limit - start) / abs(delta) > MOST_ELEMENTS:
        raise ValueError("is too long")
    return np.arange(start, limit, delta)


def _divide(a: Array, b: Array) -> Array:
    if np.issubdtype(a.dtype, np.integer) and np.issubdtype(b.dtype, np.integer):
        # ONNX rounds towards zero; a division by nothing is of what is never used.
        quotient = np.abs(a) // np.maximum(np.abs(b), 1)
        return np.asarray(np.sign(a) * np.sign(b) * quotient, a.dtype)
    return np.asarray(np.divide(a, b))


_BINARY: dict[str, Callable[..., Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _divide,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Max": np.maximum,
    "Min": np.minimum,
    "Pow": np.power,
}

_UNARY: dict[str, Callable[..., Array]] = {
    "Identity": lambda a: a,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Floor": np.floor,
    "Sqrt": np.sqrt,
    "Cos": np.cos,
    "Sin": np.sin,
    "Exp": np.exp,
    "Reciprocal": np.reciprocal,
    "IsNaN": np.isnan,
    "Dropout": lambda a: a,
}

# Those that only look at their input another way, so that a hollow array stays hollow.
_VIEWS: dict[str, Callable[[list[Array | None], Attributes], Array]] = {
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Shape": lambda i, a: np.asarray(
        _not_none(i[0]).shape[a.get("start", 0) : a.get("end")], np.int64
    ),
    "Size": lambda i, a: np.asarray(_not_none(i[0]).size, np.int64),
    "Reshape": _reshape,
    "Squeeze": _squeeze("Squeeze"),
    "Unsqueeze": _squeeze("Unsqueeze"),
    "Transpose": lambda i, a: np.transpose(_not_none(i[0]), a.get("perm")),
    "Expand": _expand,
    "Slice": _slice,
    "Gather": _gather,
    "Range": _range,
}

_COMPUTED: dict[str, Callable[[list[Array | None], Attributes], Array]] = {
    "Cast": _cast,
    "Concat": lambda i, a: np.concatenate([_not_none(x) for x in i], axis=a["axis"]),
    "Where": lambda i, a: np.where(_not_none(i[0]), _not_none(i[1]), _not_none(i[2])),
}


def _not_none(array: Array | None) -> Array:
    assert array is not None
    return array


def fold(node: Node, inputs: list[Constant | None]) -> list[Array] | None:
    """Return the outputs of a node that reads constants alone; None where they are not known.

    Errors of an operator's own (shapes that do not fit, an index out of range) are found by ONNX's
    shape inference, where anything needs the result.
    """
    op = node.op
    try:
        with np.errstate(all="ignore"):
            return _fold(node, op, inputs)
    except Exception:
        # What a broken file computes is refused where it is needed, by name.
        return None


def _fold(node: Node, op: str, inputs: list[Constant | None]) -> list[Array] | None:
    if op in _VIEWS:
        # Their shape depends on values, all but the data's.
        shapes = inputs if op in ("ConstantOfShape", "Range") else inputs[1:]
        if op != "Gather" and any(c is not None and not c.known for c in shapes):
            return None
        result = _VIEWS[op]([None if c is None else c.value for c in inputs], node.attributes())
        return [result] if result.ndim <= MOST_RANK else None
    given = [constant for constant in inputs if constant is not None]
    if op in _BINARY or op in _UNARY:
        shape = np.broadcast_shapes(*(constant.shape for constant in given))
        if math.prod(shape) > MOST_ELEMENTS or not all(c.known or c.is_input for c in given):
            return [hollow(shape)]
        arrays = [constant.value for constant in given]
        if op in _UNARY:
            return [_UNARY[op](arrays[0])]
        result = arrays[0]
        for array in arrays[1:]:
            result = _BINARY[op](result, array)
        return [np.asarray(result)]
    total = sum(constant.elements for constant in given)
    if total > MOST_ELEMENTS:
        return None
    if op in _COMPUTED:
        values = [None if c is None else c.value for c in inputs]
        return [np.asarray(_COMPUTED[op](values, node.attributes()))]
    return _by_reference(node, inputs)


# Of operators that are rare in constants: those whose outputs are no larger than their inputs.
_BY_REFERENCE = frozenset(
    (
        *("ArgMax", "CastLike", "Clip", "CumSum", "EyeLike", "Flatten", "GatherElements"),
        *("GatherND", "Mod", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"),
        *("Round", "ScatterElements", "ScatterND", "Sign", "Split", "Trilu"),
    )
)


def _by_reference(node: Node, inputs: list[Constant | None]) -> list[Array] | None:
    """Return what ONNX's reference evaluator computes of small, known inputs."""
    if node.op not in _BY_REFERENCE or any(c is not None and not c.known for c in inputs):
        return None
    from onnx.reference import ReferenceEvaluator

    feeds = {
        name: constant.value
        for name, constant in zip(node.inputs, inputs, strict=True)
        if constant is not None
    }
    outputs = ReferenceEvaluator(node.proto).run(None, feeds)
    return [np.asarray(output) for output in outputs]
