"""Sines and cosines of an input of one number, such as a time step, recognised by their values.

Exporters write them in many ways. So the nodes between such an input and the first product with
weights are run for some numbers, and what comes of these says whether they are a `sinusoid`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.onnx.axes import whole_dim
from hypar_opt.onnx.features import Features, Layer
from hypar_opt.onnx.inputs import PRODUCTS, InputAxes
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.rotary import proto_of
from hypar_opt.workload.operators.sinusoid import SINUSOID_BASE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.onnx.import_state import ImportState

    Array = NDArray[Any]

MAX_NODES = 100
"""The maximum number of nodes between an input and its sines and cosines."""

_REALS, _WHOLE = (0.0, 1e-3, 0.5, 1.0, 3.0, 20.0), (0.0, 1.0, 2.0, 3.0, 7.0, 20.0)
"""The numbers of which sines and cosines are compared; the second has small angles."""

_TOLERANCE, _PRECISION = 5e-6, 2e-7
"""The tolerances of a sine (absolute) and an angle (relative), in single precision."""


class StepNodes(NamedTuple):
    """The nodes between an input of one number and a product with weights."""

    axes: InputAxes
    nodes: tuple[OnnxNode, ...]


def spans_of(state: ImportState) -> dict[str, StepNodes]:
    """Return the nodes behind inputs of one number, by the last tensor that they write."""
    return {
        name: StepNodes(axes, tuple(nodes))
        for axes in state.inputs.values()
        if axes.is_number
        for name in _ends(state, axes)
        if (nodes := _between(state, axes.name, name))
    }


def sinusoid(state: ImportState, span: StepNodes) -> Features | None:
    """Return the output of a sinusoid layer that equals the nodes; None if there is none."""
    axes, nodes = span
    values = _values(state, axes, nodes)
    keys = None if values is None else _keys(values, _numbers(axes))
    if values is None or keys is None:
        return None
    features = keys["features"]
    batch, *_ = state.tensors[axes.name].dims
    dims = (batch, *[()] * (values.ndim - 2), whole_dim("c", features))
    layer = Layer("sinusoid", keys, [axes.source], {"c": features}, nodes[-1], dims=dims)
    read = {name for node in nodes for name in node.inputs if name}
    state.fixed.update(name for name in read if state.is_constant(name) and name != axes.name)
    return Features(state.emit_unique(layer).source, dims)


def _ends(state: ImportState, axes: InputAxes) -> list[str]:
    """Return the tensors made of an input alone that are multiplied with weights."""
    foreign = {value.name for value in state.graph.inputs} - {axes.name}
    derived, ends = {axes.name}, dict[str, None]()
    for node in state.graph.nodes:
        mixed = not foreign.isdisjoint(node.inputs)
        if node.op in PRODUCTS and node.inputs[0] in derived:
            ends[node.inputs[0]] = None
            mixed = True
        if mixed:
            foreign.update(node.outputs)
        elif not derived.isdisjoint(node.inputs):
            derived.update(node.outputs)
    return [*ends]


def _between(state: ImportState, first: str, last: str) -> list[OnnxNode]:
    """Return the nodes from an input to a tensor; none where others read what they write."""
    writers, nodes = state.graph.writers, dict[int, OnnxNode]()
    waiting = [last]
    while waiting:
        place = writers.get(waiting.pop())
        if place is None or place in nodes:
            continue
        node = nodes[place] = state.graph.nodes[place]
        waiting += [name for name in node.inputs if name and name != first]
        if len(nodes) > MAX_NODES:
            return []
    # Constants that nodes compute are known by themselves.
    changing = {first}
    chain = []
    for _, node in sorted(nodes.items()):
        if not changing.isdisjoint(node.inputs):
            changing.update(node.outputs)
            chain.append(node)
    inner = {name for node in chain for name in node.outputs} - {last}
    places = {id(node) for node in chain}
    outside = [
        node
        for name in inner
        for node in state.graph.readers.get(name, ())
        if id(node) not in places
    ]
    return [] if outside or inner & {*state.graph.outputs} else chain


def _numbers(axes: InputAxes) -> Array:
    return np.array(_WHOLE if axes.is_whole else _REALS)


def _values(state: ImportState, axes: InputAxes, nodes: Sequence[OnnxNode]) -> Array | None:
    """Return the nodes' output for some numbers, ``(numbers, .., features)``."""
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    name, written = nodes[-1].outputs[0], {tensor for node in nodes for tensor in node.outputs}
    read = {tensor for node in nodes for tensor in node.inputs if tensor} - written - {axes.name}
    constants = {tensor: state.constant(tensor) for tensor in sorted(read)}
    if not all(one.has_values and not one.is_input for one in constants.values()):
        return None
    kinds = {
        value.name: value.type.tensor_type.elem_type for value in state.graph.proto.graph.input
    }
    graph = helper.make_graph(
        [proto_of(node) for node in nodes],
        "sinusoid",
        [helper.make_tensor_value_info(axes.name, kinds[axes.name], None)],
        [helper.make_tensor_value_info(name, 1, None)],
        [
            numpy_helper.from_array(np.asarray(one.value), tensor)
            for tensor, one in constants.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=state.graph.proto.opset_import)
    numbers, parts = _numbers(axes), []
    kind = helper.tensor_dtype_to_np_dtype(kinds[axes.name])
    try:
        evaluator = ReferenceEvaluator(model)
        for first in range(0, len(numbers), state.batch):
            part = np.resize(numbers[first : first + state.batch], state.batch)
            positions = part.reshape(axes.shape).astype(kind)
            (output,) = evaluator.run(None, {axes.name: positions})
            parts.append(np.asarray(output, np.float64))
    except Exception:
        # Whatever does not run is not recognised, and read node by node.
        return None
    shape = parts[0].shape
    if len(shape) < 2 or shape[0] != state.batch or math.prod(shape[1:]) != shape[-1]:
        return None
    return np.concatenate(parts)[: len(numbers)]


def _keys(values: Array, numbers: Array) -> dict[str, Any] | None:
    """Return the keys of the sinusoid that made some values; None if none did."""
    values = values.reshape(len(values), -1)
    features = values.shape[1]
    if features % 2 or not np.isfinite(values).all():
        return None
    half = features // 2
    # Of zero: a cosine is 1, a sine 0.
    first = "cos" if round(values[0, 0]) else "sin"
    parts = values[:, :half], values[:, half:]
    cosines, sines = parts if first == "cos" else parts[::-1]
    # Angles of a small number are not yet a turn.
    angles = np.arctan2(sines[1], cosines[1]) / numbers[1]
    if (angles <= 0).any():
        return None
    scale = float(f"{angles[0]:.5g}")
    bases = [SINUSOID_BASE]
    if half > 1:
        base = float((angles[-1] / angles[0]) ** (-half / (half - 1)))
        # The last angle's exponent may be 1, as of a table of half - 1 steps.
        stated = float(f"{base ** ((half - 1) / half):.4g}")
        bases = [float(f"{base:.4g}"), stated ** (half / (half - 1)), base]
    for base in bases:
        expected = numbers[:, None] * scale * base ** (-np.arange(half) / half)
        difference = np.abs([np.cos(expected) - cosines, np.sin(expected) - sines]).max()
        if difference <= _TOLERANCE + _PRECISION * expected.max():
            keys: dict[str, Any] = {"features": features}
            keys |= {} if base == SINUSOID_BASE else {"base": base}
            keys |= {} if scale == 1.0 else {"scale": scale}
            return keys | ({} if first == "cos" else {"first": first})
    return None
