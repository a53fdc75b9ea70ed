"""The values of masks, computed from the sizes and small tensors that they are made of.

Masks are constants too, but unlike those of weights their values matter. So what `constants` leaves
a placeholder is computed here, for one image, and a small tensor in a file beside the model is
read. Unknown values carry the reason.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.onnx.computing import BROADCAST
from hypar_opt.onnx.constant import MAX_ELEMENT_BYTES, MAX_ELEMENTS, Array, Constant, of_tensor
from hypar_opt.onnx.constants import MAX_INTEGERS
from hypar_opt.onnx.folding import Budget, fold
from hypar_opt.onnx.model import OnnxGraph, OnnxNode

if TYPE_CHECKING:
    from onnx import TensorProto

    from hypar_opt.onnx.constants import Constants

MAX_MASK_ELEMENTS = 2**24
"""A mask has at most this many elements: 4,096 by 4,096 tokens."""

MAX_READ_BYTES = 2**29
"""Bytes of masks that are read from files beside a model, for all its masks together."""

MAX_NODES = 1000
"""A mask is made of at most this many nodes."""

MAX_BYTES_AT_ONCE = 2**28
"""Bytes of all arrays that a mask is made of."""

MAX_COMPUTED_BYTES = 2**31
"""Bytes that are computed for all masks of a model, one after the other."""

_INTEGERS = frozenset({6, 7})
"""The types INT32 and INT64."""

NODE_COST = 2**16
"""Cost of a node: time, counted as bytes."""


class Unknown(NamedTuple):
    """A tensor of unknown values: the reason, and its shape if known."""

    why: str
    shape: tuple[int, ...] | None = None


class Mask(NamedTuple):
    """What a constant shows of the scores that it is applied to.

    Parameters
    ----------
    shown
        A word of `masks`, or why it is none of them; None where it zeroes later scores.
    is_bias
        Whether it also adds to the scores that it shows.
    lowers
        By how much hidden scores are lower than others, at least; negative.
    """

    shown: str | None
    is_bias: bool = False
    lowers: float = -math.inf


SPENT = Unknown("takes too long, after the masks before it")

Known = Array | Unknown


class MaskValues:
    """The values of those constants of a graph that are used as masks.

    Parameters
    ----------
    folder
        The model's folder; None to read no files.
    """

    def __init__(self, graph: OnnxGraph, constants: Constants, folder: Path | None) -> None:
        self._graph, self._constants, self._folder = graph, constants, folder
        self._left, self._work = MAX_READ_BYTES, MAX_COMPUTED_BYTES
        self.shown: dict[Hashable, Mask] = {}
        """What each mask shows, by its use, once that is known."""

    def get(self, name: str, overrides: Mapping[str, Array] = MappingProxyType({})) -> Known:
        """Return the value of a tensor that depends only on sizes and constants.

        Parameters
        ----------
        overrides
            Values to take in place of those of some tensors.
        """
        values: dict[str, Known] = {**overrides}
        room = min(MAX_BYTES_AT_ONCE, self._work)
        waiting, steps = [name], 0
        while waiting:
            if self._work <= 0:
                return SPENT
            wanted = waiting[-1]
            if wanted in values:
                waiting.pop()
                continue
            steps += 1
            if steps > 2 * MAX_NODES:
                return Unknown(f"is made of more than {MAX_NODES} nodes")
            if wanted in self._graph.initialisers:
                values[wanted] = self._tensor(self._graph.initialisers[wanted])
                continue
            node = self._constants.node(wanted)
            if node is None:
                values[wanted] = self._input_or_sizes(wanted)
                continue
            before = [n for n in node.inputs if n and n not in values]
            waiting += before
            if not before:
                inputs = [values[n] if n else None for n in node.inputs]
                outputs = _computed(node, inputs, room)
                taken = sum(map(_bytes_of, outputs))
                looked = sum(array.size for array in inputs if isinstance(array, np.ndarray))
                self._work -= taken + NODE_COST + (looked if node.op in _PICKS else 0)
                room -= taken
                missing = len(node.outputs) - len(outputs)
                outputs += [_not_computed(node)] * missing
                values.update(zip(node.outputs, outputs, strict=False))
        return values[name]

    def _input_or_sizes(self, name: str) -> Known:
        """Return an additional input of the model, or the sizes of a feature map."""
        constant = self._constants.get(name)
        if constant.one_image is not None:
            return constant.one_image
        if not constant.has_values:
            return Unknown(f"is {name!r}, an input of the model", constant.shape)
        return constant.value

    def integers(self, tensor: TensorProto) -> Array | None:
        """Return a small tensor of integers that is in a file in the model's folder."""
        shape = tuple(tensor.dims)
        if tensor.data_type not in _INTEGERS or not 0 < math.prod(shape) <= MAX_INTEGERS:
            return None
        value = self._tensor(tensor)
        return value if isinstance(value, np.ndarray) else None

    def _tensor(self, tensor: TensorProto) -> Known:
        constant = of_tensor(tensor)
        if constant.elements > MAX_MASK_ELEMENTS:
            return Unknown(_too_large(constant.shape), constant.shape)
        if constant.has_values:
            return constant.value
        if not tensor.external_data:
            return Unknown(_too_large(constant.shape), constant.shape)
        value = self._read(tensor, constant.shape)
        return value if not isinstance(value, str) else Unknown(value, constant.shape)

    def _read(self, tensor: TensorProto, shape: tuple[int, ...]) -> Array | str:
        """Return a tensor from a file in the model's folder, or the reason why it is not read."""
        from onnx import helper

        where = {entry.key: entry.value for entry in tensor.external_data}
        location = where.get("location", "")
        if not location:
            return "has no values"
        shown = repr(location[:80])
        try:
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
            start = int(where.get("offset") or 0)
            file = self._file(location)
            size = dtype.itemsize * math.prod(shape)
            if file is None:
                return f"is in {shown}, which is not a file in the model's folder"
            if not 0 <= start <= file.stat().st_size - size:
                return f"is in {shown}, which is too short"
            if size > self._left:
                return f"is in {shown}, of which {MAX_READ_BYTES >> 20} MiB are read"
            self._left -= size
            with file.open("rb") as stream:
                stream.seek(start)
                data = stream.read(size)
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            return f"is in {shown}, and cannot be read"
        if len(data) != size:
            return f"is in {shown}, which is too short"
        return np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape)

    def _file(self, location: str) -> Path | None:
        """Return a regular file in the model's folder, with links and dots resolved."""
        if self._folder is None or not location:
            return None
        folder = self._folder.resolve()
        file = (folder / location).resolve()
        return file if file.is_relative_to(folder) and file.is_file() else None


def _too_large(shape: Sequence[int]) -> str:
    return f"has {math.prod(shape):,} values, more than {MAX_MASK_ELEMENTS:,}"


# Operators that are computed for masks larger than other constants may be.
_LARGE = frozenset(
    ("Add", "And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mul", "Not", "Or")
).union(("Sub", "Where"))

_PICKS = frozenset({"Gather", "GatherElements", "GatherND"})


def _bytes_of(value: Known) -> int:
    """Return the bytes of an array; the copies of a broadcast take no memory."""
    if isinstance(value, Unknown):
        return 0
    sizes = (size for size, stride in zip(value.shape, value.strides, strict=True) if stride)
    return int(value.itemsize * math.prod(sizes))


def _computed(node: OnnxNode, inputs: Sequence[Known | None], room: int) -> list[Known]:
    """Return the outputs of a node, or the reason why they are unknown.

    Parameters
    ----------
    room
        The bytes that the outputs may take.
    """
    shape = _shape_of_picked(node, inputs)
    if shape is not None:
        data = inputs[0]
        assert isinstance(data, np.ndarray)
        # Indices do not matter if all values are equal: a padding mask without padding.
        return [np.broadcast_to(data.ravel()[:1].reshape(()), shape)]
    if node.op == "Concat" and any(
        value is not None and math.prod(value.shape or (0,)) > MAX_ELEMENTS // 2 for value in inputs
    ):
        return [_joined(node, inputs)]
    if node.op == "Shape" and isinstance(inputs[0], Unknown) and inputs[0].shape is not None:
        return [np.asarray(inputs[0].shape, np.int64)]
    unknown = next((value for value in inputs if isinstance(value, Unknown)), None)
    if unknown is not None:
        return [Unknown(unknown.why)] * len(node.outputs)
    arrays = [value for value in inputs if isinstance(value, np.ndarray)]
    try:
        if node.op in _LARGE:
            sizes = np.broadcast_shapes(*(array.shape for array in arrays))
            if math.prod(sizes) > min(MAX_MASK_ELEMENTS, room // MAX_ELEMENT_BYTES):
                return [Unknown(_too_large(sizes), sizes)]
            return [BROADCAST[node.op](node.attributes(), *arrays)]
        constants = [None if value is None else _constant(value) for value in inputs]
        folded = fold(node, constants, Budget(room))
    except (ValueError, TypeError):
        folded = None
    if folded is None or not folded.has_values:
        return [_not_computed(node)] * len(node.outputs)
    return [np.asarray(array) for array in folded.arrays]


def _not_computed(node: OnnxNode) -> Unknown:
    return Unknown(f"comes of node {node.label!r} ({node.op})")


def _constant(value: Known) -> Constant:
    assert isinstance(value, np.ndarray)
    return Constant(value.shape, lambda: value)


def _shape_of_picked(node: OnnxNode, inputs: Sequence[Known | None]) -> tuple[int, ...] | None:
    """Return the shape of a gather from a small tensor of equal values; else None."""
    if node.op not in _PICKS or len(inputs) != 2:
        return None
    data, indices = inputs
    if not isinstance(data, np.ndarray) or indices is None or indices.shape is None:
        return None
    if not 0 < data.size <= MAX_ELEMENTS or not (data == data.ravel()[0]).all():
        return None
    attributes = node.attributes()
    if node.op == "GatherElements":
        return indices.shape
    if node.op == "Gather":
        axis = attributes.get("axis", 0) % max(data.ndim, 1)
        return (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    if attributes.get("batch_dims") or not indices.shape:
        return None
    return (*indices.shape[:-1], *data.shape[indices.shape[-1] :])


def _joined(node: OnnxNode, inputs: Sequence[Known | None]) -> Unknown:
    """Return the shape of a concatenation too large to compute."""
    shapes = [value.shape for value in inputs if value is not None and value.shape]
    axis = node.attributes().get("axis", 0)
    if len(shapes) != len(inputs) or not -len(shapes[0]) <= axis < len(shapes[0]):
        return _not_computed(node)
    first = list(shapes[0])
    first[axis] = sum(shape[axis] for shape in shapes)
    return Unknown(_too_large(first), tuple(first))
