"""The weights of a model in the order of its network: each layer's array, from the initializers.

Initializers have the orders of their operators: the outputs of a convolution come first, those of a
product last, and the rows of a matrix in the order of the map that the model multiplies with it. A
network's weights have the axes of its kind of layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import InputError
from hypar_opt.onnx.axes import extent
from hypar_opt.onnx.computing import BROADCAST
from hypar_opt.onnx.functions import inlined, line_of
from hypar_opt.onnx.provenance import NO_WEIGHTS, SAME_VALUES
from hypar_opt.onnx.regions import Region

if TYPE_CHECKING:
    from onnx import ModelProto

    from hypar_opt.onnx import ImportedModel
    from hypar_opt.onnx.axes import Dim
    from hypar_opt.onnx.features import Layer
    from hypar_opt.onnx.import_state import ImportState
    from hypar_opt.onnx.model import OnnxNode
    from hypar_opt.onnx.regions import Regions
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.maps import LayerMaps

    Array = NDArray[np.float64]


class ModelWeights(NamedTuple):
    """A model's weights, in double precision.

    Parameters
    ----------
    weights
        By the name of the layer that has its own: ``(inputs, outputs)`` of an ``fc``, ``(rows,
        columns, inputs, outputs)`` of a ``conv``, with its groups before the inputs if it has
        several, ``(words, features)`` of an ``embedding``, ``(scale and shift, channels)`` of a
        ``norm``, with its groups before the channels of one if it has several.
    biases : (outputs,)
        By the layer's name.
    """

    weights: Mapping[str, Array]
    biases: Mapping[str, Array]


def complete_model(path: str | Path) -> ModelProto:
    """Return a model with its weights, also those in files beside it, without functions.

    Raises
    ------
    InputError
        Where a file of weights is missing or broken.
    """
    import onnx

    try:
        return inlined(onnx.load(path))
    except InputError:
        raise
    except Exception as error:
        # protobuf, or onnx' C++ side: a missing file, a broken one.
        raise InputError(f"its weights cannot be read: {line_of(error)}", file=str(path)) from None


def weights_of(imported: ImportedModel, model: ModelProto) -> ModelWeights:
    """Return the weights of a model's layers.

    Parameters
    ----------
    model
        With its weights, as `complete_model` returns it.

    Raises
    ------
    InputError
        Names the layer whose weights are not elements of the file in an order that is known.
    """
    values = _Values(imported.state, model)
    weights: dict[str, Array] = {}
    biases: dict[str, Array] = {}
    operators = {layer.name: layer for layer in imported.network.layers}
    maps = dict(zip(operators, imported.network.maps(), strict=True))
    for layer in imported.layers:
        operator = operators[layer.name]
        if operator.has_bias:
            bias = values.vector(layer, maps[layer.name].output.channels)
            biases[layer.name] = bias[_output_order(layer, bias.size)]
        if operator.shares_weights_with is None and operator.weights(maps[layer.name]):
            weights[layer.name] = _weights(values, layer, operator, maps[layer.name])
    return ModelWeights(weights, biases)


class _Values:
    """The values of a file's initializers, and of its Constant nodes."""

    def __init__(self, state: ImportState, model: ModelProto) -> None:
        self._state = state
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant" and node.attribute[0].HasField("t"):
                self._tensors[node.output[0]] = node.attribute[0].t
        self._arrays: dict[str, NDArray[Any] | None] = {}

    def _flat(self, name: str) -> NDArray[Any] | None:
        if name not in self._arrays:
            array = self._as_read(name)
            self._arrays[name] = None if array is None else array.reshape(-1)
        return self._arrays[name]

    def _as_read(self, name: str) -> NDArray[Any] | None:
        """Return a tensor as layers read it, after what nodes make of it with numbers.

        As Gemma's norms add one to their scales. Results of several tensors are ignored, such as a
        table of biases plus a mask, which were recognised by value. None where layers read it in
        different ways.
        """
        from onnx import numpy_helper

        array = numpy_helper.to_array(self._tensors[name])
        read, waiting = list[NDArray[Any]](), [(name, array)]
        while waiting:
            name, value = waiting.pop()
            for node in self._state.graph.readers.get(name, ()):
                if node.op in NO_WEIGHTS or not node.outputs:
                    continue
                if not self._state.is_constant(node.outputs[0]):
                    read.append(value)
                    continue
                result = value if node.op in SAME_VALUES else self._evaluated(node, name, value)
                if result is not None:
                    waiting += [(output, result) for output in node.outputs if output]
        first = read[0] if read else array
        return (
            first
            if all(values is first or np.array_equal(values, first) for values in read)
            else None
        )

    def _evaluated(self, node: OnnxNode, name: str, array: NDArray[Any]) -> NDArray[Any] | None:
        """Return what a node makes of a tensor and numbers; None where it reads anything else."""
        if node.op not in BROADCAST or not all(node.inputs):
            return None
        operands = []
        for input_name in node.inputs:
            number = None if input_name == name else self._state.constant(input_name)
            if number is not None and not (number.has_values and number.elements == 1):
                return None
            operands.append(array if number is None else number.value.reshape(()))
        return BROADCAST[node.op](node.attributes(), *operands)

    def of(self, layer: Layer, regions: Regions) -> Array:
        """Return the elements of one region, arranged as it is."""
        if len(regions) != 1 or regions[0].name not in self._tensors:
            raise _unknown(layer)
        flat, indices = self._flat(regions[0].name), _indices(regions[0])
        if flat is None or flat.dtype.kind not in "fV" or int(indices.max(initial=0)) >= flat.size:
            raise _unknown(layer)
        return flat[indices].astype(np.float64)

    def vector(self, layer: Layer, size: int) -> Array:
        """Return a layer's bias."""
        vector = self.of(layer, layer.weights.stated).reshape(-1)
        if vector.size != size:
            raise _unknown(layer)
        return vector


def _unknown(layer: Layer) -> InputError:
    where = f"layer {layer.name!r}"
    return InputError("its weights are not elements of the file in a known order", where=where)


def _indices(region: Region) -> NDArray[np.intp]:
    """Return the flat indices of a region's elements, in its shape."""
    indices = np.array(region.first, np.intp)
    for dim in region.dims:
        offsets = np.zeros(1, np.intp)
        for axis, size, stride in dim:
            steps = np.arange(size) * (stride if axis == "e" else 0)
            offsets = (offsets[:, None] + steps).reshape(-1)
        indices = indices[..., None] + offsets
    return indices


def _weights(values: _Values, layer: Layer, operator: Operator, maps: LayerMaps) -> Array:
    sizes = operator.sizes(maps)
    if operator.kind == "norm":
        channels = sizes.get("e", maps.output.channels)  # of one head
        learned = _scale_and_shift(values, layer, sizes["s"], channels)
        return learned.reshape([sizes[axis] for axis in operator.axes.weight if axis in sizes])
    matrix = values.of(layer, layer.weights.matrix)
    if operator.kind == "embedding":
        table = _table(layer, matrix, maps)
        return _shaped(layer, table, *(sizes[axis] for axis in operator.axes.weight))
    rows = layer.weights.rows
    if rows or operator.kind == "fc":
        matrix = _shaped(layer, matrix, sizes["i"], sizes["o"])
        matrix = _rows_in_order(layer, matrix, rows, maps)
    if operator.kind == "conv":
        groups, outputs = sizes.get("g", 1), sizes["o"]
        if layer.keys.get("transposed"):
            # (groups, inputs of a group, rows, columns, outputs of a group)
            shape = groups, sizes["i"], sizes["k"], sizes["l"], outputs
            ordered = _shaped(layer, matrix, *shape).transpose(2, 3, 0, 1, 4)
        else:
            # (inputs, rows, columns, groups, outputs of a group)
            shape = sizes["i"], sizes["k"], sizes["l"], groups, outputs
            ordered = _shaped(layer, matrix, *shape).transpose(1, 2, 3, 0, 4)
        if groups > 1:
            return ordered
        return ordered[:, :, 0][..., _output_order(layer, outputs)]
    if operator.kind != "fc":
        raise _unknown(layer)
    return matrix[:, _output_order(layer, sizes["o"])]


def _table(layer: Layer, matrix: Array, maps: LayerMaps) -> Array:
    """Return a table with its rows in order, where it is added to a map in the map's dimensions."""
    dims = layer.dims[len(layer.dims) - matrix.ndim :]
    if layer.looks_up or tuple(extent(dim) for dim in dims) != matrix.shape:
        return matrix
    rows = tuple(digit for dim in dims for digit in dim)
    return _rows_in_order(layer, matrix.reshape(-1), rows, maps)


def _rows_in_order(layer: Layer, rows: Array, digits: Dim, maps: LayerMaps) -> Array:
    """Return rows in the network's order; they come in the order of digits."""
    order = _row_order(digits, maps)
    if not _is_permutation(order, len(rows)):
        raise _unknown(layer)
    ordered = np.full_like(rows, np.nan)
    ordered[order] = rows
    return ordered


def _output_order(layer: Layer, outputs: int) -> NDArray[np.intp]:
    """Return the place in the file's order of each output of a layer."""
    if not layer.order:
        return np.arange(outputs)
    order = np.concatenate([_indices(region).reshape(-1) for region in layer.order])
    if not _is_permutation(order, outputs):
        raise _unknown(layer)
    return order


def _is_permutation(order: NDArray[np.intp], count: int) -> bool:
    return len(order) == count and np.array_equal(np.sort(order), np.arange(count))


def _shaped(layer: Layer, array: Array, *shape: int) -> Array:
    """Return an array in another shape, where its dimensions are merged or divided alone."""
    if array.size != math.prod(shape):
        raise _unknown(layer)
    return array.reshape(shape)


def _scale_and_shift(values: _Values, layer: Layer, rows: int, channels: int) -> Array:
    """Return a norm's scale and shift; a scale that the file lacks is one."""
    weights = layer.weights
    vectors = [values.of(layer, (region,)).reshape(-1) for region in weights.stated]
    if len(vectors) < rows:
        vectors = [np.ones(channels), *vectors]
    if len(vectors) != rows or any(len(vector) != channels for vector in vectors):
        raise _unknown(layer)
    return np.stack(vectors)


def _row_order(rows: Dim, maps: LayerMaps) -> NDArray[np.intp]:
    """Return the place in the network's order of each row of a matrix.

    A map's features are flattened channels first, those of a sequence tokens first.
    """
    sizes: dict[str, int] = {}
    for digit in rows:
        reach = digit.size * digit.stride
        sizes[str(digit.axis)] = max(sizes.get(str(digit.axis), 1), reach)
    strides = {"w": 1, "h": sizes.get("w", 1)}
    strides["c"] = sizes.get("h", 1) * sizes.get("w", 1)
    if "t" in sizes:
        strides = {"c": 1, "t": sizes.get("c", 1)}
    order = np.zeros(1, np.intp)
    for digit in rows:
        steps = np.arange(digit.size) * digit.stride * strides[str(digit.axis)]
        order = (order[:, None] + steps).reshape(-1)
    return order if rows else np.arange(maps.input.elements)
