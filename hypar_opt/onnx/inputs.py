"""The network's input: which of the model's inputs it is, and what its axes are.

A model may have inputs that a network does not: padding masks, token types, positions. The
network's input is the one that embeddings or the first layer read; its axes have provisional names
until that layer determines which are channels, rows and columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.errors import InputError
from hypar_opt.onnx.axes import Digit, Dim, whole_dim
from hypar_opt.onnx.features import INPUT, Features, Layer

if TYPE_CHECKING:
    from hypar_opt.onnx.model import Input, OnnxGraph

# Operators whose outputs are token ids if their inputs are.
_KEEPS_IDS = frozenset(
    ("Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "CumSum", "Clip", "Add")
)

# The axes of an input by its rank, unless a convolution reads it.
_BY_RANK = {1: (), 2: ("c",), 3: ("t", "c"), 4: ("c", "h", "w")}


class InputAxes:
    """The network's input, with the names of its axes as far as they are known."""

    def __init__(self, graph: OnnxGraph) -> None:
        if not graph.inputs:
            raise InputError("has no input; a network needs one")
        ids = _token_inputs(graph)
        self.is_tokens = bool(ids)
        self._main = ids or _first(graph)
        self.others = {value.name: value.shape for value in graph.inputs if value not in self._main}
        shapes = {value.shape for value in self._main}
        if len(shapes) > 1:
            names = " and ".join(repr(value.name) for value in self._main)
            raise InputError(f"has token ids of several sizes, {names}; a network has one input")
        (self._shape,) = shapes
        if len(self._shape) not in _BY_RANK or (self.is_tokens and len(self._shape) > 2):
            problem = f"should have a batch and at most 3 dimensions, got {list(self._shape)}"
            raise InputError(problem, where=f"input {self._main[0].name!r}")
        self.batch = self._shape[0]
        self._names: dict[str, str] | None = None
        self.layer = Layer("input", {}, [], {f"i{n}": s for n, s in self._axes()})
        if self.is_tokens:
            self._name({"i1": "t"})

    def _axes(self) -> list[tuple[int, int]]:
        return [(n, size) for n, size in enumerate(self._shape) if n]

    def tensors(self) -> dict[str, Features]:
        """Return the features of the inputs that are the network's."""
        batch = (Digit("b", self.batch),)
        dims = tuple(whole_dim(f"i{n}", size) for n, size in self._axes())
        features = Features(INPUT, (batch, *dims))
        return {value.name: features for value in self._main}

    def renamed(self, features: Features) -> Features:
        """Return features of the input with the axes' names, once a layer has determined them."""
        names = self._names
        if names is None:
            return features

        def named(digit: Digit) -> Digit:
            axis = digit.axis
            return digit._replace(axis=names.get(axis, axis)) if isinstance(axis, str) else digit

        return features._replace(dims=tuple(tuple(map(named, dim)) for dim in features.dims))

    def settled(self, features: Features) -> Features:
        """Return features of the input with the axes' names, by its rank unless a layer said."""
        if self._names is None:
            names = _BY_RANK[len(self._shape)]
            self._name({f"i{n}": axis for n, axis in enumerate(names, start=1)})
        return self.renamed(features)

    def name_image(self, dims: tuple[Dim, ...]) -> None:
        """Name the axes as a convolution reads them: channels, rows, columns."""
        if self._names is not None or len(dims) != len(self._shape):
            return
        names = ("c", "w") if len(dims) == 3 else ("c", "h", "w")
        named: dict[str, str] = {}
        free = [f"i{n}" for n, _ in self._axes()]
        for dim in dims[1:]:
            if len(dim) > 1 or (dim and dim[0].axis not in free):
                return
        # Dimensions of size 1 have no digit: they get the remaining axes in order.
        left = [axis for axis in free if all(axis != d.axis for dim in dims for d in dim)]
        for dim, name in zip(dims[1:], names, strict=True):
            axis = dim[0].axis if dim else left.pop(0)
            assert isinstance(axis, str)
            named[axis] = name
        self._name(named)

    def _name(self, names: dict[str, str]) -> None:
        self._names = names
        sizes = {names[axis]: size for axis, size in self.layer.sizes.items() if axis in names}
        if "w" in sizes:
            sizes.setdefault("h", 1)
        self.layer.sizes = sizes


def _token_inputs(graph: OnnxGraph) -> tuple[Input, ...]:
    """Return the inputs that index the rows of a table."""
    ids = {value.name: value for value in graph.inputs if not value.is_float}
    if not ids:
        return ()
    changing = {value.name for value in graph.inputs}
    inputs: dict[str, Input] = {}
    for node in graph.nodes:
        if not node.inputs:
            continue
        if node.op == "Gather" and node.inputs[-1] in ids and node.inputs[0] not in changing:
            value = ids[node.inputs[-1]]
            inputs[value.name] = value
        if node.op in _KEEPS_IDS and node.inputs[0] in ids and node.outputs:
            ids[node.outputs[0]] = ids[node.inputs[0]]
        if node.op != "Shape" and not changing.isdisjoint(node.inputs):
            changing.update(node.outputs)
    return tuple(inputs.values())


def _first(graph: OnnxGraph) -> tuple[Input, ...]:
    floats = [value for value in graph.inputs if value.is_float]
    # Models that take an image as bytes, and cast them, have no input of floats.
    return tuple((floats or list(graph.inputs))[:1])
