"""Reading an ONNX model as a network, against loading it and inferring its shapes in C++."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.measure import judged, needs, size
from hypar_opt.models.imported import import_

needs("onnx")

import onnx  # noqa: E402
from onnx import numpy_helper  # noqa: E402

LIGHT = Path(os.path.dirname(onnx.__file__)) / "backend/test/data/light"  # noqa: PTH120
NETWORK = size("resnet50", "squeezenet")
ROUNDS = size(15, 1)
TARGET = 3.0


def with_weights(light: Path, path: Path) -> None:
    """Write a network as it is published, ResNet-50 with its 100 MB of weights (zeros here).

    The file of the package onnx writes each as a node ConstantOfShape instead.
    """
    model = onnx.load(light)
    given = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes, weights = [], []
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            shape = numpy_helper.to_array(given.pop(node.input[0]))
            weights.append(numpy_helper.from_array(np.zeros(shape, np.float32), node.output[0]))
        else:
            nodes.append(node)
    graph = onnx.helper.make_graph(
        nodes,
        model.graph.name,
        [value for value in model.graph.input if value.name not in given],
        model.graph.output,
        [*given.values(), *weights],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=model.opset_import), path)


def seconds(call: Callable[[], object]) -> float:
    # Of the process: another's work beside this one would count on one side alone.
    started = time.process_time()
    call()
    return time.process_time() - started


def ratio(name: str, path: Path) -> float:
    def bare() -> object:
        model = onnx.load(path, load_external_data=False)
        return onnx.shape_inference.infer_shapes(model, data_prop=True)

    import_(path), bare()  # warm up
    pairs = [(seconds(lambda: import_(path)), seconds(bare)) for _ in range(ROUNDS)]
    # The least disturbed of each.
    ours, theirs = min(a for a, _ in pairs), min(b for _, b in pairs)
    print(f"{name} as a network: {ours:.4f} s; load and infer_shapes: {theirs:.4f} s")
    return ours / theirs


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        light, path = LIGHT / f"light_{NETWORK}.onnx", Path(folder) / f"{NETWORK}.onnx"
        with_weights(light, path)
        missed = judged("published", ratio(path.name, path), TARGET)
    # Without weights there is little to load, and reading is all.
    print(f"ratio {ratio(f'{path.name} without weights', light):.2f}")
    sys.exit(missed)


if __name__ == "__main__":
    main()
