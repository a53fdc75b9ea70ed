"""Small ONNX graphs for tests, written node by node."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import hypar_opt as ho
from hypar_opt.models.imported import read_model
from hypar_opt.workload.description import describe

LIGHT = Path(os.path.dirname(onnx.__file__)) / "backend/test/data/light"  # noqa: PTH120
EXPORTED = Path(__file__).parents[1] / "data/onnx"

MASKS = {
    "gpt2": ("gpt2_dyn.onnx.data", (214164992, 214197760)),
    "llama-gqa": ("llama_dyn.onnx.data", (67143680, 78481408)),
}
"""The files of the weights of exported models, and where in them the masks of two blocks are."""

Shape = Sequence[int | str]


def write_masks(folder: Path, name: str) -> None:
    """Write causal masks to the file of a model's weights, with holes where those would be."""
    file, offsets = MASKS[name]
    with (folder / file).open("wb") as stream:
        for offset in offsets:
            stream.seek(offset)
            stream.write(np.triu(np.full((2, 64, 64), -np.inf, "<f4"), 1).tobytes())


class GraphWriter:
    """A graph that is written one node after the other; weights have shapes and no data."""

    def __init__(self, *inputs: tuple[str, Shape], ids: bool | Sequence[str] = False) -> None:
        whole = [name for name, _ in inputs] if ids is True else ids or ()
        kinds = dict.fromkeys(whole, TensorProto.INT64)
        self.inputs = [
            helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), list(shape))
            for name, shape in inputs
        ]
        self.nodes: list[Any] = []
        self.initialisers: list[Any] = []

    def weight(self, name: str, *shape: int) -> str:
        """Add weights whose data is in another file, which does not exist."""
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", "weights.bin"
        self.initialisers.append(tensor)
        return name

    def value(self, array: object) -> str:
        """Add a constant with its values."""
        name = f"value_{len(self.initialisers)}"
        data = np.asarray(array)
        if data.dtype == np.float64:
            data = data.astype(np.float32)
        self.initialisers.append(numpy_helper.from_array(data, name))
        return name

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node and return its output, or its outputs."""
        domain = attributes.pop("domain", "")
        name = attributes.pop("name", f"{op}_{len(self.nodes)}")
        number = f"t{len(self.nodes)}"
        out = [number] if outputs == 1 else [f"{number}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, out, name=name, domain=domain, **attributes))
        return out[0] if outputs == 1 else out

    def model(self, *outputs: str) -> Any:
        graph = helper.make_graph(
            self.nodes,
            "graph",
            self.inputs,
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            self.initialisers,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])

    def content(self, folder: Path, *outputs: str, **dims: int) -> dict[str, Any]:
        """Write the model, and read it as the content of a network file."""
        path = folder / "model.onnx"
        onnx.save(self.model(*outputs), path)
        return read_model(path, dims)[0]

    def network(self, folder: Path, *outputs: str, **dims: int) -> ho.Network:
        return ho.Network.model_validate(self.content(folder, *outputs, **dims))

    # What several graphs have in common.

    def linear(self, x: str, name: str, features: int, units: int, *, bias: bool = False) -> str:
        out: str = self("MatMul", x, self.weight(f"{name}.weight", features, units))
        return self("Add", out, self.weight(f"{name}.bias", units)) if bias else out

    def heads(self, x: str, batch: int, tokens: int, heads: int, size: int) -> str:
        apart = self("Reshape", x, self.value([batch, tokens, heads, size]))
        out: str = self("Transpose", apart, perm=[0, 2, 1, 3])
        return out

    def core(self, q: str, k: str, v: str, mask: str | None = None, *, size: int = 6) -> str:
        """Attention of three tensors [batch, heads, tokens, size]."""
        scores = self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self("Div", scores, self.value(np.float32(size**0.5)))
        if mask is not None:
            scores = self("Add", scores, mask)
        out: str = self("MatMul", self("Softmax", scores, axis=-1), v)
        return out

    def together(self, x: str, batch: int, tokens: int, features: int) -> str:
        rows = self("Transpose", x, perm=[0, 2, 1, 3])
        out: str = self("Reshape", rows, self.value([batch, tokens, features]))
        return out


def kinds(network: ho.Network) -> list[str]:
    return [layer.kind for layer in network.layers]


def parameters(network: ho.Network) -> int:
    total: int = describe(network, 1)["total"]["parameters"]
    return total


def attributes(network: Any, kind: str) -> list[dict[str, Any]]:
    """The keys of all layers of a kind, without names and inputs."""
    return [
        layer.model_dump(exclude_none=True, exclude={"name", "kind", "inputs"})
        for layer in network.layers
        if layer.kind == kind
    ]
