"""A model's outputs as onnx's reference evaluator computes them, in double precision.

Tensors of single and half precision, and what casts to it, are of double precision, so that
differences are those of models rather than of rounding. Batch norms take the statistics of the
batch, as in training, where the operator's version has that (14 and later).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import InputError
from hypar_opt.onnx.functions import line_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto

    from hypar_opt.onnx.features import Features
    from hypar_opt.onnx.import_state import ImportState
    from hypar_opt.onnx.inputs import InputAxes

    Array = NDArray[Any]

_NARROW, _DOUBLE = frozenset({1, 10, 16}), 11
"""The types of single and half precision, and that of double precision."""


def outputs_of(
    state: ImportState, model: ModelProto, inputs_by_source: Mapping[int, Array]
) -> list[Array]:
    """Return the outputs of a model for the inputs of its network.

    Others of the model are ones, as the import takes them. A model of a fixed batch runs once for
    each part of the inputs of that size.

    Parameters
    ----------
    model
        With its weights.
    inputs_by_source
        By the sources of the import: ``(images, tokens)`` of ids, or the map in the network's order
        after the images.

    Raises
    ------
    InputError
        If the evaluator cannot run the model, or the images do not divide into its batches.
    """
    from onnx.reference import ReferenceEvaluator

    batch, fixed = len(inputs_by_source[-1]), state.batch
    if state.graph.open_batch:
        fixed = batch
    if batch % fixed:
        raise InputError(f"its batch is {fixed}, and {batch} is not a multiple of it")
    try:
        evaluator = ReferenceEvaluator(in_double(model))
    except Exception as error:
        raise _cannot_run(error) from None  # an operator that it does not have
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    parts = []
    arrays = {
        axes.name: _as_input(axes, inputs_by_source[source])
        for source, axes in state.inputs.items()
        if source in inputs_by_source
    }
    for first in range(0, batch, fixed):
        feed = {}
        for value in state.graph.inputs:
            shape = (fixed, *value.shape[1:])
            part = (
                arrays[value.name][first : first + fixed]
                if value.name in arrays
                else np.ones(shape)
            )
            feed[value.name] = part.reshape(shape).astype(_type_of(kinds[value.name]))
        try:
            parts.append(evaluator.run(None, feed))
        except Exception as error:
            raise _cannot_run(error) from None  # whatever an operator's reference raises
    return [np.concatenate(outputs) for outputs in zip(*parts, strict=True)]


def _cannot_run(error: Exception) -> InputError:
    return InputError(f"onnx's reference evaluator cannot run it: {line_of(error)}")


def in_order(features: Features, output: Array) -> Array | None:
    """Return an output of the model in the order of its layer's map; None if that has no order."""
    order = _order(features)
    return None if order is None else output.transpose(order)


def _as_input(axes: InputAxes, whole: Array) -> Array:
    """Return images in the order of the model's input."""
    if axes.is_tokens:
        return whole
    features = axes.settled(axes.features())
    order = _order(features)
    assert order is not None  # each dimension of an input is an axis
    shape = [len(whole), *(features.shape[place] for place in order[1:])]
    return whole.reshape(shape).transpose(np.argsort(order))


def _order(features: Features) -> list[int] | None:
    """Return the dimensions of a tensor in the order of a network's map, the images first.

    None if any is of several axes.
    """
    axes = [{str(digit.axis) for digit in dim} for dim in features.dims[1:]]
    if any(len(letters) > 1 for letters in axes):
        return None
    places = ["tchw".find("".join(letters)) for letters in axes]
    return [0, *(1 + n for n in sorted(range(len(places)), key=places.__getitem__))]


def _type_of(kind: int) -> np.dtype[Any]:
    from onnx import helper

    return np.dtype(np.float64) if kind in _NARROW else helper.tensor_dtype_to_np_dtype(kind)


def in_double(model: ModelProto) -> ModelProto:
    """Return a copy of a model whose numbers are of double precision."""
    copy = type(model)()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    version = max((o.version for o in copy.opset_import if o.domain in ("", "ai.onnx")), default=0)
    _widen(copy.graph, training=version >= 14)
    return copy


def _widen(graph: GraphProto, *, training: bool) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in _NARROW:
            value.type.tensor_type.elem_type = _DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if (node.op_type, attribute.name) == ("Cast", "to") and attribute.i in _NARROW:
                attribute.i = _DOUBLE
        if node.op_type == "BatchNormalization" and training:
            _train(node)


def _train(node: Any) -> None:
    """Let a batch norm take the statistics of the batch."""
    from onnx import helper

    attributes = [attribute for attribute in node.attribute if attribute.name != "training_mode"]
    del node.attribute[:]
    node.attribute.extend([*attributes, helper.make_attribute("training_mode", 1)])
    first = node.output[0]
    node.output.extend(f"{first} {what}" for what in ("mean", "variance")[len(node.output) - 1 :])


def _widen_tensor(tensor: TensorProto) -> None:
    from onnx import numpy_helper

    if tensor.data_type in _NARROW:
        wide = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
