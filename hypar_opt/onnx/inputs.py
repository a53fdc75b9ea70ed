"""The network's inputs: which of the model's inputs they are, and what their axes are.

A model may have inputs that a network does not, such as padding masks. The network's are those
that index tables, and those that layers of weights read; the first of the file's is its ``input``.
Their axes have provisional names until a layer determines which are channels, rows and columns.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hypar_opt.errors import InputError
from hypar_opt.onnx.axes import Digit, Dim, whole_dim
from hypar_opt.onnx.features import Features, Layer

if TYPE_CHECKING:
    from hypar_opt.onnx.model import Input, OnnxGraph

# Operators whose outputs are token ids if their inputs are.
_KEEPS_IDS = frozenset(
    ("Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "CumSum", "Clip", "Add")
)

PRODUCTS = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
"""Operators that multiply features with weights."""

# The axes of an input by its rank, unless a convolution reads it.
_BY_RANK = {1: (), 2: ("c",), 3: ("t", "c"), 4: ("c", "h", "w")}


def network_inputs(graph: OnnxGraph) -> dict[int, InputAxes]:
    """Return the network's inputs by their sources, from -1 downwards."""
    if not graph.inputs:
        raise InputError("has no input; a network needs one")
    ids, features = _token_inputs(graph), _feature_inputs(graph)
    first = () if ids else _first(graph)
    values = [value for value in graph.inputs if value.name in ids | features | {*first}]
    values.sort(key=lambda value: value.name not in first)
    inputs = {
        ~n: InputAxes(value, ~n, is_tokens=value.name in ids) for n, value in enumerate(values)
    }
    for axes in inputs.values():
        if axes.batch != inputs[-1].batch:
            raise InputError(
                f"its leading dimension is {axes.batch}, that of {inputs[-1].name!r}"
                f" {inputs[-1].batch}; it should be the batch",
                where=f"input {axes.name!r}",
            )
    return inputs


class InputAxes:
    """An input of the network, with the names of its axes as far as they are known.

    Parameters
    ----------
    source
        Its number among the sources of layers.
    is_tokens
        Whether it is ids.
    """

    def __init__(self, value: Input, source: int, *, is_tokens: bool) -> None:
        self.name, self.source, self.is_tokens = value.name, source, is_tokens
        self.is_whole = not value.is_float and not is_tokens
        """Whether it is of whole numbers that are no ids, as time steps may be."""
        self.stated = ""
        """Its name in the network, or that of the embedding whose ids it is; empty if unread."""
        self.shape = value.shape
        if len(self.shape) not in _BY_RANK or (self.is_tokens and len(self.shape) > 2):
            problem = f"should have a batch and at most 3 dimensions, got {list(self.shape)}"
            raise InputError(problem, where=f"input {self.name!r}")
        self.batch = self.shape[0]
        self._names: dict[str, str] | None = None
        self.layer = Layer("input", {}, [], {f"i{n}": s for n, s in self._axes()})
        if self.is_tokens:
            self._name({"i1": "t"})

    @property
    def is_number(self) -> bool:
        """Whether it is one number of each image, as a time step is."""
        return not self.is_tokens and math.prod(self.shape[1:]) == 1

    def _axes(self) -> list[tuple[int, int]]:
        return [(n, size) for n, size in enumerate(self.shape) if n]

    def features(self) -> Features:
        """Return the features that it is."""
        batch = (Digit("b", self.batch),)
        return Features(self.source, (batch, *(whole_dim(f"i{n}", s) for n, s in self._axes())))

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
            names = _BY_RANK[len(self.shape)]
            self._name({f"i{n}": axis for n, axis in enumerate(names, start=1)})
        return self.renamed(features)

    def name_image(self, dims: tuple[Dim, ...]) -> None:
        """Name the axes as a convolution reads them: channels, rows, columns."""
        if self._names is not None or len(dims) != len(self.shape):
            return
        names = ("c", "w") if len(dims) == 3 else ("c", "h", "w")
        named: dict[str, str] = {}
        free = [f"i{n}" for n, _ in self._axes()]
        for dim in dims[1:]:
            if len(dim) > 1 or (dim and dim[0].axis not in free):
                return
        # Dimensions of size 1 have no digit: they get the remaining axes in order.
        spare = [axis for axis in free if all(axis != d.axis for dim in dims for d in dim)]
        for dim, name in zip(dims[1:], names, strict=True):
            axis = dim[0].axis if dim else spare.pop(0)
            assert isinstance(axis, str)
            named[axis] = name
        self._name(named)

    def _name(self, names: dict[str, str]) -> None:
        self._names = names
        sizes = {names[axis]: size for axis, size in self.layer.sizes.items() if axis in names}
        if "w" in sizes:
            sizes.setdefault("h", 1)
        self.layer.sizes = sizes


def _token_inputs(graph: OnnxGraph) -> frozenset[str]:
    """Return the inputs that index the rows of a table."""
    ids = {value.name: value.name for value in graph.inputs if not value.is_float}
    if not ids:
        return frozenset()
    changing = {value.name for value in graph.inputs}
    inputs: set[str] = set()
    for node in graph.nodes:
        if not node.inputs:
            continue
        if node.op == "Gather" and node.inputs[-1] in ids and node.inputs[0] not in changing:
            inputs.add(ids[node.inputs[-1]])
        if node.op in _KEEPS_IDS and node.inputs[0] in ids and node.outputs:
            ids[node.outputs[0]] = ids[node.inputs[0]]
        if node.op != "Shape" and not changing.isdisjoint(node.inputs):
            changing.update(node.outputs)
    return frozenset(inputs)


def _feature_inputs(graph: OnnxGraph) -> frozenset[str]:
    """Return the inputs that are multiplied with weights, whatever is made of each before.

    Masks are not: they are joined with what is made of other inputs. Whole numbers are features
    where there is one for each image, as of a time step.
    """
    of: dict[str, frozenset[str]] = {value.name: frozenset((value.name,)) for value in graph.inputs}
    numbers = {v.name for v in graph.inputs if v.is_float or math.prod(v.shape[1:]) == 1}
    multiplied: set[str] = set()
    none: frozenset[str] = frozenset()
    for node in graph.nodes:
        read = none.union(*(of[name] for name in node.inputs if name in of))
        weights = of.keys().isdisjoint(node.inputs[1:])
        if node.op in PRODUCTS and weights and len(read) == 1:
            multiplied |= read & numbers
        if read and node.op != "Shape":
            of.update(dict.fromkeys(node.outputs, read))
    return frozenset(multiplied)


def _first(graph: OnnxGraph) -> tuple[str, ...]:
    floats = [value.name for value in graph.inputs if value.is_float]
    # Models that take an image as bytes, and cast them, have no input of floats.
    return tuple((floats or [value.name for value in graph.inputs])[:1])
