"""Shapes of constants that are not computed, by ONNX's inference of one node at a time.

Inference of a whole graph with the values of shapes takes unbounded memory, since each node may
double the last one's. For one node, whose inputs' shapes and small values are known, it takes no
more than they do, except where an input's elements are an output's dimensions; such inputs are
limited to the length of a shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hypar_opt.onnx.functions import line_of
from hypar_opt.onnx.model import MAX_RANK, OnnxGraph, OnnxNode

if TYPE_CHECKING:
    from hypar_opt.onnx.constant import Constant

Shape = tuple[int, ...]

_FLOAT = 1
"""The type of unknown values; no shape depends on it."""

_SHAPE_INPUT = frozenset(("ConstantOfShape", "Expand", "Reshape", "Tile"))
"""Operators whose last input has one element per dimension of the output."""

_MAX_SHAPE_VALUES = 2**10
"""Inputs of more elements are not shapes, and are passed without their values."""


def inferred(
    graph: OnnxGraph, node: OnnxNode, inputs: Sequence[Constant | None]
) -> dict[str, Shape]:
    """Return the shapes of a node's outputs, as far as its inputs determine them.

    Raises
    ------
    InputError
        Where the operator cannot have these inputs.
    """
    from onnx import helper, numpy_helper, shape_inference

    last = inputs[-1] if inputs else None
    if node.op in _SHAPE_INPUT and last is not None and last.elements > MAX_RANK:
        return {}
    values, tensors = [], []
    try:
        for name, constant in dict(zip(node.inputs, inputs, strict=True)).items():
            if constant is None:
                continue
            if constant.has_values and constant.elements <= _MAX_SHAPE_VALUES:
                tensors.append(numpy_helper.from_array(constant.value, name))
            else:
                values.append(helper.make_tensor_value_info(name, _FLOAT, constant.shape))
        model = helper.make_model(
            helper.make_graph([node.proto], "node", values, [], tensors),
            opset_imports=list(graph.proto.opset_import),
        )
        outputs = shape_inference.infer_shapes(model).graph.value_info
    except Exception as error:
        # Its C++ side may raise anything.
        raise node.refuse(f"its shapes cannot be inferred: {line_of(error)}") from None
    return concrete_shapes(outputs)


def concrete_shapes(values: Sequence[Any]) -> dict[str, Shape]:
    """Return the shapes of those tensors whose sizes are all known."""
    shapes = {}
    for value in values:
        dims = value.type.tensor_type.shape.dim
        is_tensor = value.type.tensor_type.HasField("shape")
        if is_tensor and all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims):
            shapes[value.name] = tuple(dim.dim_value for dim in dims)
    return shapes
