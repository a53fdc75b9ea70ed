"""The values of masks: computed of the sizes and small tensors that they are made of.

Masks are constants too, but unlike weights it is their values that count. So what `constants`
leaves hollow is computed here, on one image, and a small tensor that is kept in a file beside the
model is read. What is not known says why.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.onnx.budget import MAX_ELEMENT_BYTES, MAX_ELEMENTS, Budget
from hypar_opt.onnx.constant import Array, Constant, of_tensor
from hypar_opt.onnx.folding import fold
from hypar_opt.onnx.model import OnnxGraph, OnnxNode

if TYPE_CHECKING:
    from onnx import TensorProto

    from hypar_opt.onnx.constants import Constants

MAX_MASK_ELEMENTS = 2**24
"""The most elements of a mask: of 4,096 by 4,096 tokens."""

MAX_READ_BYTES = 2**29
"""The most bytes of masks that are read from files beside a model, of all its masks together."""

MAX_NODES = 1000
"""The most nodes that a mask may be made of."""

MAX_BYTES_AT_ONCE = 2**28
"""The most bytes of all that a mask is made of."""

MAX_COMPUTED_BYTES = 2**31
"""The most bytes that are computed for all masks of a model, one after the other."""


STEP = 2**14
"""What a node takes, in time as bytes."""


class Unknown(NamedTuple):
    """A tensor whose values are not known: why, and its shape where that is known."""

    why: str
    shape: tuple[int, ...] | None = None


SPENT = Unknown("takes too long, after the masks before it")

Known = Array | Unknown


class MaskValues:
    """The values of a graph's constants, for what is used as a mask alone.

    Parameters
    ----------
    folder
        That of the model; None reads no file.
    """

    def __init__(self, graph: OnnxGraph, constants: Constants, folder: Path | None) -> None:
        self._graph, self._constants, self._folder = graph, constants, folder
        self._left, self._work = MAX_READ_BYTES, MAX_COMPUTED_BYTES
        self.shown: dict[Hashable, str] = {}
        """What each mask shows that has been looked at."""

    def get(self, name: str) -> Known:
        """Return the value of a tensor that depends on sizes and constants alone."""
        made: dict[str, Known] = {}
        room = min(MAX_BYTES_AT_ONCE, self._work)
        waiting, steps = [name], 0
        while waiting:
            if self._work <= 0:
                return SPENT
            wanted = waiting[-1]
            if wanted in made:
                waiting.pop()
                continue
            steps += 1
            if steps > 2 * MAX_NODES:
                return Unknown(f"is made of more than {MAX_NODES} nodes")
            if wanted in self._graph.initialisers:
                made[wanted] = self._tensor(self._graph.initialisers[wanted])
                continue
            node = self._constants.node(wanted)
            if node is None:
                made[wanted] = self._given(wanted)
                continue
            before = [n for n in node.inputs if n and n not in made]
            waiting += before
            if not before:
                inputs = [made[n] if n else None for n in node.inputs]
                outputs = _computed(node, inputs, room)
                taken = sum(_held(one) for one in outputs)
                looked = sum(one.size for one in inputs if isinstance(one, np.ndarray))
                self._work -= taken + STEP + (looked if node.op in _PICKS else 0)
                room -= taken
                for place, output in enumerate(node.outputs):
                    lacks = Unknown(f"comes of node {node.label!r} ({node.op})")
                    made[output] = outputs[place] if place < len(outputs) else lacks
        return made[name]

    def _given(self, name: str) -> Known:
        """Return a further input of the model, or the sizes of a feature map."""
        constant = self._constants.get(name)
        if constant.one_image is not None:
            return constant.one_image
        if not constant.known:
            return Unknown(f"is {name!r}, an input of the model", constant.shape)
        return constant.value

    def _tensor(self, tensor: TensorProto) -> Known:
        constant = of_tensor(tensor)
        if constant.elements > MAX_MASK_ELEMENTS:
            return Unknown(_too_large(constant.shape), constant.shape)
        if constant.known:
            return constant.value
        if not tensor.external_data:
            return Unknown(_too_large(constant.shape), constant.shape)
        value = self._read(tensor, constant.shape)
        return value if not isinstance(value, str) else Unknown(value, constant.shape)

    def _read(self, tensor: TensorProto, shape: tuple[int, ...]) -> Array | str:
        """Return a tensor in a file beside the model, or why it is not read."""
        from onnx import helper

        where = {entry.key: entry.value for entry in tensor.external_data}
        location = where.get("location", "")
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
        """Return a regular file in the model's folder, whatever links and dots a name has."""
        if self._folder is None or not location:
            return None
        folder = self._folder.resolve()
        file = (folder / location).resolve()
        return file if file.is_relative_to(folder) and file.is_file() else None


def _too_large(shape: Sequence[int]) -> str:
    return f"has {math.prod(shape):,} values, more than {MAX_MASK_ELEMENTS:,}"


# Those that are computed beyond what other constants may have.
_LARGE: dict[str, Any] = {
    "Add": np.add,
    "And": np.logical_and,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Sub": np.subtract,
    "Where": np.where,
}

_PICKS = frozenset({"Gather", "GatherElements", "GatherND"})


def _held(value: Known) -> int:
    """Return the bytes of an array; copies along a dimension of a broadcast take none."""
    if isinstance(value, Unknown):
        return 0
    own = [size for size, stride in zip(value.shape, value.strides, strict=True) if stride]
    taken: int = value.itemsize * math.prod(own)
    return taken


def _computed(node: OnnxNode, inputs: Sequence[Known | None], room: int) -> list[Known]:
    """Return the outputs of a node: as many as are known, and one that says why not.

    Parameters
    ----------
    room
        The bytes that they may take.
    """
    shape = _shape_of_picked(node, inputs)
    if shape is not None:
        data = inputs[0]
        assert isinstance(data, np.ndarray)
        # Of equal values it does not matter which are read: a mask of padding, without padding.
        return [np.broadcast_to(data.ravel()[:1].reshape(()), shape)]
    if node.op == "Concat" and any(
        one is not None and math.prod(one.shape or (0,)) > MAX_ELEMENTS // 2 for one in inputs
    ):
        return [_joined(node, inputs)]
    if node.op == "Shape" and isinstance(inputs[0], Unknown) and inputs[0].shape is not None:
        return [np.asarray(inputs[0].shape, np.int64)]
    unknown = next((one for one in inputs if isinstance(one, Unknown)), None)
    if unknown is not None:
        return [Unknown(unknown.why)] * len(node.outputs)
    arrays = [one for one in inputs if isinstance(one, np.ndarray)]
    try:
        if node.op in _LARGE:
            sizes = np.broadcast_shapes(*(one.shape for one in arrays))
            if math.prod(sizes) > min(MAX_MASK_ELEMENTS, room // MAX_ELEMENT_BYTES):
                return [Unknown(_too_large(sizes), sizes)]
            return [np.asarray(_LARGE[node.op](*arrays))]
        folded = fold(
            node, [None if one is None else _constant(one) for one in inputs], Budget(room)
        )
    except (ValueError, TypeError):
        folded = None
    if folded is None or not folded.known:
        return [Unknown(f"comes of node {node.label!r} ({node.op})")] * len(node.outputs)
    return [np.asarray(one) for one in folded.arrays]


def _constant(value: Known) -> Constant:
    assert isinstance(value, np.ndarray)
    return Constant(value.shape, lambda: value)


def _shape_of_picked(node: OnnxNode, inputs: Sequence[Known | None]) -> tuple[int, ...] | None:
    """Return the shape of what is gathered of a small tensor of equal values; else None."""
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
    """Return indices that are too many to be joined, of which the shape alone is needed."""
    shapes = [one.shape for one in inputs if one is not None and one.shape]
    axis = node.attributes().get("axis", 0)
    if len(shapes) != len(inputs) or not -len(shapes[0]) <= axis < len(shapes[0]):
        return Unknown(f"comes of node {node.label!r} ({node.op})")
    first = list(shapes[0])
    first[axis] = sum(shape[axis] for shape in shapes)
    return Unknown(_too_large(first), tuple(first))
