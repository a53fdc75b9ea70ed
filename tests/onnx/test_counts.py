"""Parameters of an imported network are the elements of initializers that its operators read.

Each graph is one way in which frameworks write weights that are fused, sliced, shared, transposed
or tied. The tests have an account of their own: every element of every weight is numbered, ONNX's
reference evaluator computes the constants of the graph with these numbers, and those that reach a
node that reads a feature map are what the graph learns. Import counts as many, but for what it
says that it leaves out, and says nothing else; or it refuses the graph, naming the operators that
read the weights.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import hypar_opt as ho
from hypar_opt.errors import InputError
from hypar_opt.models.imported import import_
from tests.onnx.graph_writer import attributes, kinds, parameters
from tests.onnx.patterns import PATTERNS

FIRST = 10**6
"""The number of the first element; the graphs' other constants are smaller."""


def numbered(model: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    """Return all initializers, those without values with a number for each element."""
    values, first = {}, FIRST
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            shape = tuple(tensor.dims)
            values[tensor.name] = np.arange(first, first + np.prod(shape), dtype=np.float64)
            values[tensor.name] = values[tensor.name].reshape(shape)
            first += int(np.prod(shape))
        else:
            values[tensor.name] = numpy_helper.to_array(tensor)
    return values


def read_elements(model: onnx.ModelProto) -> set[float]:
    """Return the numbers of the elements that nodes read beside a feature map."""
    values = numbered(model)
    changing = {value.name for value in model.graph.input}
    read: set[float] = set()
    for node in model.graph.node:
        if changing.isdisjoint(node.input):
            feeds = {name: values[name] for name in node.input}
            outputs = ReferenceEvaluator(node).run(None, feeds)
            values.update(zip(node.output, map(np.asarray, outputs), strict=True))
            continue
        changing.update(node.output)
        for name in node.input:
            if name in values and values[name].dtype.kind == "f":
                read.update(values[name].ravel().tolist())
    return {number for number in read if number >= FIRST}


_OF_OTHERS = ("the biases of queries", "the cross-entropy of", "its end is", "its loss is")
"""What is said of other things than counts."""


def imported(model: onnx.ModelProto, folder: Path) -> ho.Network:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return import_(path)


def check_last_map(model: onnx.ModelProto, network: ho.Network) -> None:
    """Compare the size of the only output with what ONNX infers, where it knows the operators."""
    if any(node.domain for node in model.graph.node) or len(model.graph.output) > 1:
        return
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    dims = inferred.graph.output[0].type.tensor_type.shape.dim
    *_, last = network.maps()
    sizes = [dim.dim_value for dim in dims[1:]]
    assert not all(sizes) or not sizes or last.pooled.elements == math.prod(sizes)


@pytest.mark.parametrize("name", [name for name, one in PATTERNS.items() if not one.refused])
def test_what_operators_read_is_counted(name: str, tmp_path: Path) -> None:
    pattern = PATTERNS[name]
    model = pattern.model()
    read = pattern.read if pattern.read is not None else len(read_elements(model))
    network = imported(model, tmp_path)
    assert parameters(network) == read - pattern.left_out + pattern.added
    said = [
        sentence
        for sentence in (*(network.not_kept or ()), *(network.remarks or ()))
        if not sentence.startswith(_OF_OTHERS)
    ]
    assert all(any(part in sentence for part in pattern.said) for sentence in said), said
    assert all(any(part in sentence for sentence in said) for part in pattern.said), said
    assert not pattern.kinds or kinds(network) == pattern.kinds.split()
    for kind, expected in pattern.keys.items():
        assert attributes(network, kind) == expected
    check_last_map(model, network)


@pytest.mark.parametrize("name", [name for name, one in PATTERNS.items() if one.refused])
def test_what_a_network_cannot_say_is_refused(name: str, tmp_path: Path) -> None:
    pattern = PATTERNS[name]
    with pytest.raises(InputError) as caught:
        imported(pattern.model(), tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/model.onnx: ")
    assert "\n" not in str(caught.value)
    assert pattern.refused in str(caught.value)


def test_there_are_ninety_patterns_and_they_differ() -> None:
    assert len(PATTERNS) >= 90
    assert len({pattern.model().SerializeToString() for pattern in PATTERNS.values()}) == len(
        PATTERNS
    )
