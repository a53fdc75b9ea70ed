"""Operators on constants, computed in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from hypar_opt.onnx.constant import MAX_ELEMENT_BYTES, Array, of_tensor

Attributes = dict[str, Any]

Compute = Callable[..., Array]
"""Computes an operator from its attributes and its inputs, None for those that are omitted."""


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
        divisor = -math.prod(sizes)
        rest, remainder = divmod(math.prod(shape), divisor) if divisor else (0, 0)
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


def _reshape(attributes: Attributes, data: Array, shape: Array | None = None) -> Array:
    target = _ints(shape, attributes, "shape") or []
    allow_zero = bool(attributes.get("allowzero"))
    return data.reshape(reshape_target(data.shape, target, allow_zero=allow_zero))


def _squeeze(op: str, attributes: Attributes, data: Array, axes: Array | None = None) -> Array:
    return data.reshape(squeezed_shape(op, data.shape, _ints(axes, attributes, "axes")))


def _constant(attributes: Attributes) -> Array:
    for name, value in attributes.items():
        if name == "value":
            return of_tensor(value).value
        if name in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
        if name in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
    raise ValueError("has no value")


def _filled(attributes: Attributes, shape: Array) -> Array:
    value = of_tensor(attributes["value"]).value.flat[0] if "value" in attributes else 0.0
    # Broadcast, so that the weights of a model without weights take no memory.
    return np.broadcast_to(value, tuple(int(size) for size in shape.ravel()))


def _expand(_: Attributes, data: Array, shape: Array) -> Array:
    target = np.broadcast_shapes(data.shape, tuple(int(size) for size in shape.ravel()))
    return np.broadcast_to(data, target)


def _tile(_: Attributes, data: Array, repeats: Array) -> Array:
    counts = [int(count) for count in repeats]
    if any(count != 1 and size != 1 for count, size in zip(counts, data.shape, strict=True)):
        raise ValueError("copies of several elements are no view")
    return np.broadcast_to(data, [a * b for a, b in zip(counts, data.shape, strict=True)])


def _slice(attributes: Attributes, data: Array, *bounds: Array | None) -> Array:
    return data[tuple(slice_cuts(data.shape, bounds, attributes))]


def slice_cuts(
    shape: Sequence[int], bounds: Sequence[Array | None], attributes: Attributes
) -> list[slice]:
    """Return the range of each dimension that Slice reads, by its other inputs or attributes."""
    arrays = [*bounds, None, None, None, None][:4]
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


def split(
    parts: int, attributes: Attributes, data: Array, lengths: Array | None = None
) -> list[Array]:
    """Return the ranges of a dimension."""
    axis = attributes.get("axis", 0)
    sizes = _ints(lengths, attributes, "split")
    step = -(-data.shape[axis] // parts)
    starts = [n * step for n in range(1, parts)] if sizes is None else np.cumsum(sizes)[:-1]
    return np.split(data, starts, axis)


def _cast(attributes: Attributes, data: Array) -> Array:
    from onnx import helper

    dtype = helper.tensor_dtype_to_np_dtype(attributes["to"])
    if dtype.itemsize > MAX_ELEMENT_BYTES or dtype.kind in "OSU":
        raise ValueError("is not a number")
    result: Array = data.astype(dtype)
    return result


def steps(start: Any, limit: Any, delta: Any) -> float:
    """Return how many numbers Range makes."""
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
    "Identity": np.asarray,
    "Dropout": np.asarray,
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
}


def _unary(function: Callable[..., Array], _: Attributes, data: Array, *__: Array) -> Array:
    return np.asarray(function(data))


def _binary(function: Callable[..., Array], _: Attributes, *inputs: Array) -> Array:
    return np.asarray(reduce(function, inputs))


def _clip(
    attributes: Attributes, data: Array, low: Array | None = None, high: Array | None = None
) -> Array:
    minimum = attributes.get("min") if low is None else low
    maximum = attributes.get("max") if high is None else high
    return np.asarray(np.clip(data, minimum, maximum))


def _modulo(attributes: Attributes, a: Array, b: Array) -> Array:
    return np.asarray(np.fmod(a, b) if attributes.get("fmod") else np.mod(a, b))


def _shape(attributes: Attributes, data: Array) -> Array:
    return np.asarray(data.shape[attributes.get("start", 0) : attributes.get("end")], np.int64)


def concatenated(attributes: Attributes, *inputs: Array) -> Array:
    """Return the inputs of Concat, joined."""
    return np.concatenate(inputs, axis=attributes["axis"])


def triangle(attributes: Attributes, data: Array, offset: Array | None = None) -> Array:
    """Return what Trilu leaves of its input."""
    part = np.triu if attributes.get("upper", 1) else np.tril
    return part(data, 0 if offset is None else int(offset.reshape(())))


VIEWS: dict[str, Compute] = {
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Shape": _shape,
    "Size": lambda _, data: np.asarray(data.size, np.int64),
    "Reshape": _reshape,
    "Squeeze": partial(_squeeze, "Squeeze"),
    "Unsqueeze": partial(_squeeze, "Unsqueeze"),
    "Transpose": lambda attributes, data: np.transpose(data, attributes.get("perm")),
    "Expand": _expand,
    "Tile": _tile,
    "Slice": _slice,
    "Range": lambda _, *bounds: np.arange(*(bound.reshape(())[()] for bound in bounds)),
}
"""Operators that only view their input in another way, so that a placeholder stays one."""

BROADCAST: dict[str, Compute] = {
    **{op: partial(_unary, function) for op, function in _UNARY.items()},
    **{op: partial(_binary, function) for op, function in _BINARY.items()},
    "Cast": _cast,
    "Clip": _clip,
    "Mod": _modulo,
    "Where": lambda _, *inputs: np.where(*inputs),
}
"""Operators that write a result as large as their broadcast inputs."""

OMITS = frozenset({"Clip", "Dropout"})
"""Operators with inputs that may be omitted."""
