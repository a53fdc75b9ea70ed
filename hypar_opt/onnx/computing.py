"""Operators on constants, computed in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from hypar_opt.onnx.budget import MAX_ELEMENT_BYTES
from hypar_opt.onnx.constant import Array, of_tensor

Attributes = dict[str, Any]


def _ints(array: Array | None, attributes: Attributes, name: str) -> list[int] | None:
    """Return integers that are an attribute in older opsets and an input in newer ones."""
    if array is not None:
        return [int(value) for value in array.ravel()]
    return attributes.get(name)


def reshape_target(shape: Sequence[int], target: Sequence[int], *, allow_zero: bool) -> list[int]:
    """Return the shape after Reshape, with 0 (unchanged) and -1 (the rest) resolved.

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
        Where an axis does not exist, or is not of size 1.
    """
    if op == "Squeeze":
        if axes is None:
            return [size for size in shape if size != 1]
        if any(not -len(shape) <= axis < len(shape) for axis in axes):
            raise ValueError("its axes do not exist")
        dropped = {axis % len(shape) for axis in axes}
        if any(shape[axis] != 1 for axis in dropped):
            raise ValueError("only dimensions of size 1 can be squeezed")
        return [size for axis, size in enumerate(shape) if axis not in dropped]
    rank = len(shape) + len(set(axes or ()))
    if any(not -rank <= axis < rank for axis in axes or ()):
        raise ValueError("its axes do not exist")
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
    value = of_tensor(attributes["value"]).value.flat[0] if "value" in attributes else 0.0
    # Broadcast, so that the weights of a model without weights take no memory.
    return np.broadcast_to(value, tuple(int(size) for size in shape.ravel()))


def _expand(inputs: list[Array | None], _: Attributes) -> Array:
    data, shape = inputs
    assert data is not None
    assert shape is not None
    target = np.broadcast_shapes(data.shape, tuple(int(size) for size in shape.ravel()))
    return np.broadcast_to(data, target)


def _slice(inputs: list[Array | None], attributes: Attributes) -> Array:
    data = inputs[0]
    assert data is not None
    return data[tuple(slice_cuts(data.shape, inputs, attributes))]


def slice_cuts(
    shape: Sequence[int], inputs: Sequence[Array | None], attributes: Attributes
) -> list[slice]:
    """Return the range of each dimension that Slice reads, by its inputs or attributes."""
    arrays = [*inputs[1:], None, None, None, None][:4]
    names = ("starts", "ends", "axes", "steps")
    starts, ends, axes, steps = (
        _ints(array, attributes, name) for array, name in zip(arrays, names, strict=True)
    )
    cuts = [slice(None)] * len(shape)
    for position, (start, end) in enumerate(zip(starts or [], ends or [], strict=True)):
        axis = axes[position] if axes else position
        step = steps[position] if steps else 1
        # To read backwards to the beginning, numpy's bound is None and ONNX's is very low.
        stop = None if step < 0 and end < -shape[axis] else end
        cuts[axis] = slice(start, stop, step)
    return cuts


def split(inputs: list[Array | None], attributes: Attributes, parts: int) -> list[Array]:
    data = inputs[0]
    assert data is not None
    axis = attributes.get("axis", 0)
    size = data.shape[axis]
    sizes = _ints(inputs[1] if len(inputs) > 1 else None, attributes, "split")
    step = -(-size // parts)
    starts = [n * step for n in range(1, parts)] if sizes is None else np.cumsum(sizes)[:-1]
    return np.split(data, starts, axis)


def _cast(inputs: list[Array | None], attributes: Attributes) -> Array:
    from onnx import helper

    data = inputs[0]
    assert data is not None
    dtype = helper.tensor_dtype_to_np_dtype(attributes["to"])
    if dtype.itemsize > MAX_ELEMENT_BYTES or dtype.kind in "OSU":
        raise ValueError("is not a number")
    result: Array = data.astype(dtype)
    return result


def _range(inputs: list[Array | None], _: Attributes) -> Array:
    bounds: list[Any] = [array.reshape(())[()] for array in inputs if array is not None]
    result: Array = np.arange(*bounds)
    return result


def steps(start: Any, limit: Any, delta: Any) -> float:
    return max(0.0, math.ceil((float(limit) - float(start)) / float(delta)))


def _divide(a: Array, b: Array) -> Array:
    if np.issubdtype(a.dtype, np.integer) and np.issubdtype(b.dtype, np.integer):
        # ONNX rounds towards zero; quotients by zero are never used.
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


def _unary(function: Callable[..., Array]) -> Callable[[list[Array | None], Attributes], Array]:
    return lambda inputs, _: np.asarray(function(not_none(inputs[0])))


def _binary(function: Callable[..., Array]) -> Callable[[list[Array | None], Attributes], Array]:
    def fold_binary(inputs: list[Array | None], _: Attributes) -> Array:
        return np.asarray(reduce(function, [not_none(array) for array in inputs]))

    return fold_binary


def concatenated(inputs: list[Array | None], attributes: Attributes) -> Array:
    return np.concatenate([not_none(x) for x in inputs], axis=attributes["axis"])


def not_none(array: Array | None) -> Array:
    assert array is not None
    return array


# Operators that only view their input in another way, so that a placeholder stays one.
VIEWS: dict[str, Callable[[list[Array | None], Attributes], Array]] = {
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Shape": lambda i, a: np.asarray(
        not_none(i[0]).shape[a.get("start", 0) : a.get("end")], np.int64
    ),
    "Size": lambda i, a: np.asarray(not_none(i[0]).size, np.int64),
    "Reshape": _reshape,
    "Squeeze": _squeeze("Squeeze"),
    "Unsqueeze": _squeeze("Unsqueeze"),
    "Transpose": lambda i, a: np.transpose(not_none(i[0]), a.get("perm")),
    "Expand": _expand,
    "Slice": _slice,
    "Range": _range,
}


def _clip(inputs: list[Array | None], attributes: Attributes) -> Array:
    data, low, high = [*inputs, None, None][:3]
    low = attributes.get("min") if low is None else low
    high = attributes.get("max") if high is None else high
    return np.asarray(np.clip(not_none(data), low, high))


def triangle(inputs: list[Array | None], attributes: Attributes) -> Array:
    data, offset = [*inputs, None][:2]
    shift = 0 if offset is None else int(offset.reshape(()))
    part = np.triu if attributes.get("upper", 1) else np.tril
    return part(not_none(data), shift)


# Operators that write a result as large as their broadcast inputs.
BROADCAST: dict[str, Callable[[list[Array | None], Attributes], Array]] = {
    **{op: _unary(function) for op, function in _UNARY.items()},
    **{op: _binary(function) for op, function in _BINARY.items()},
    "Cast": _cast,
    "Clip": _clip,
    "Mod": lambda i, a: (np.fmod if a.get("fmod") else np.mod)(not_none(i[0]), not_none(i[1])),
    "Where": lambda i, a: np.where(not_none(i[0]), not_none(i[1]), not_none(i[2])),
}
