"""Constants of a graph: weights by their shape alone, small tensors by their values.

Weights are never read, and files beside the model are never opened. A value that is not known, or
too large to compute with, is *hollow*: an array of the right shape that takes no memory.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import InputError
from hypar_opt.onnx.budget import MOST_ELEMENTS, Budget
from hypar_opt.onnx.inference import concrete_shapes, inferred
from hypar_opt.onnx.model import MOST_DIMENSION, MOST_RANK, Graph, Node
from hypar_opt.onnx.regions import Regions, regions_of, whole

if TYPE_CHECKING:
    from onnx import TensorProto

Array = NDArray[Any]

MOST_INTEGERS = 2**16
"""The most integers that say a shape, or which indices are read."""

_REGION = 2**9
"""What a region of an initializer takes, that a constant is made of, in time as bytes."""

_LISTED = 64
"""What an integer of a list takes, in bytes and time."""

_INFERENCE = 2**13
"""What the inference of a shape takes, in time as bytes."""

_INT64 = 7

_NO_NUMBERS = frozenset((8, 14, 15, *range(17, 32)))
"""Types that no constant is computed of: texts, complex numbers, floats of 8 bits and fewer."""


@dataclass(frozen=True)
class Constant:
    """A tensor that depends on no input of the network.

    Parameters
    ----------
    shape
        Its dimensions.
    load
        Returns its value, hollow where it is not known.
    known
        Whether the value is the real one.
    regions
        The elements of the file's initializers that it is made of: one region, but for sums.
    is_input
        Whether it stands for a further input of the model, such as a mask of padding.
    one_image
        Its value for a batch of one, where it depends on a batch that the model leaves open.
    """

    shape: tuple[int, ...]
    load: Callable[[], Array]
    known: bool = True
    regions: Regions = ()
    is_input: bool = False
    one_image: Array | None = None

    @cached_property
    def value(self) -> Array:
        return self.load()

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def is_number(self) -> bool:
        """Whether it is one number of the file at most, or computed of none."""
        return sum(region.elements for region in self.regions) < 2

    @property
    def weights(self) -> tuple[str, ...]:
        """The initializers that it is made of, by name."""
        return tuple(dict.fromkeys(region.name for region in self.regions))


def hollow(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Return an array of ones that takes no memory."""
    return np.broadcast_to(np.ones((), dtype), shape)


class Constants:
    """The constants of a graph, computed when they are first needed."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._made: dict[str, Constant] = {}
        self._nodes: dict[str, Node] = {}
        self._budget = Budget()

    @cached_property
    def _declared(self) -> dict[str, tuple[int, ...]]:
        """The shapes that the file says of tensors which no node's inference does."""
        return concrete_shapes(self._graph.proto.graph.value_info)

    def __contains__(self, name: str) -> bool:
        return name in self._made or name in self._nodes or name in self._graph.initialisers

    def add(self, name: str, constant: Constant) -> None:
        self._made[name] = constant

    def defer(self, node: Node) -> None:
        """Remember a node that reads constants alone."""
        for name in node.outputs:
            self._nodes[name] = node

    def node(self, name: str) -> Node | None:
        """Return the node that computes a constant, if any does."""
        return self._nodes.get(name)

    def get(self, name: str) -> Constant:
        """Return a constant by its tensor's name.

        Raises
        ------
        InputError
            Where its shape cannot be found.
        """
        if name in self._made:
            return self._made[name]
        # A stack and no recursion: a file may chain any number of nodes.
        waiting = [name]
        while waiting:
            wanted = waiting[-1]
            if wanted in self._made:
                waiting.pop()
            elif wanted in self._graph.initialisers:
                self._made[wanted] = of_tensor(self._graph.initialisers[wanted])
            else:
                node = self._nodes[wanted]
                if node.op == "ConstantOfShape" and self._fill(node):
                    continue
                before = [n for n in node.inputs if n and n not in self._made]
                waiting += before
                if not before:
                    self._compute(node)
        return self._made[name]

    def integers(self, name: str) -> list[int] | None:
        """Return the values of a list of integers; None where they are not known, or too many."""
        constant = self.get(name)
        if not constant.known or constant.elements > MOST_INTEGERS:
            return None
        if not self._budget.take(_LISTED * constant.elements):
            return None
        return [int(value) for value in constant.value.ravel().tolist()]

    def _fill(self, node: Node) -> bool:
        """Make the weights of a model without weights, whose shape is all that is read."""
        tensor = self._graph.initialisers.get(node.inputs[0])
        if tensor is None or tensor.data_type != _INT64 or len(tensor.raw_data) % 8:
            return False
        data = tensor.raw_data
        shape = struct.unpack(f"<{len(data) // 8}q", data)
        if not 0 < len(shape) == math.prod(tensor.dims) <= MOST_RANK or min(shape) < 0:
            return False
        name = node.outputs[0]
        self._made[name] = Constant(
            shape, lambda: self._filled(node, shape), regions=(whole(name, shape),)
        )
        return True

    def _filled(self, node: Node, shape: tuple[int, ...]) -> Array:
        from hypar_opt.onnx.folding import fold

        shapes: list[Constant | None] = [of_tensor(self._graph.initialisers[node.inputs[0]])]
        folded = fold(node, shapes, self._budget)
        return folded.arrays[0] if folded else hollow(shape)

    def _compute(self, node: Node) -> None:
        from hypar_opt.onnx.folding import fold

        inputs = [self._made[name] if name else None for name in node.inputs]
        folded = fold(node, inputs, self._budget)
        given = [constant for constant in inputs if constant is not None]
        # A shape is known where the values are in another file.
        known = node.op in ("Shape", "Size") or all(constant.known for constant in given)
        known = known and folded is not None and folded.known
        is_input = any(constant.is_input for constant in given)
        folded_arrays = folded.arrays if folded else []
        names: list[str] = []
        arrays: list[Array] = []
        shapes = None
        for index, name in enumerate(node.outputs):
            if not name:
                continue
            if index < len(folded_arrays):
                array = folded_arrays[index]
            else:
                shapes = self._shapes(node, inputs) if shapes is None else shapes
                array, known = hollow(self._shape(node, name, shapes)), False
            names.append(name)
            arrays.append(array)
        if not self._budget.take(_REGION * sum(len(constant.regions) for constant in given)):
            raise node.refuse("is made of too many weights, with those before it")
        regions = regions_of(node, inputs, [array.shape for array in arrays])
        for name, array, held in zip(names, arrays, regions, strict=False):
            self._made[name] = Constant(array.shape, _returns(array), known, held, is_input)

    def _shapes(self, node: Node, inputs: list[Constant | None]) -> dict[str, tuple[int, ...]]:
        """Return shapes by ONNX's own inference, which runs only where ours does not get there."""
        if not self._budget.take(_INFERENCE):
            raise node.refuse("computes more constants than a network's shapes need")
        return inferred(self._graph, node, inputs)

    def _shape(self, node: Node, name: str, shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
        shape = shapes.get(name, self._declared.get(name))
        if shape is None or len(shape) > MOST_RANK or math.prod(shape) > MOST_DIMENSION**2:
            raise node.refuse(f"the shape of {name!r} is not known")
        return shape


def _returns(array: Array) -> Callable[[], Array]:
    return lambda: array


def of_tensor(tensor: TensorProto) -> Constant:
    """Return the constant of an initialiser; its value is read when it is needed, if ever.

    Raises
    ------
    InputError
        Where its shape is no shape.
    """
    shape = tuple(tensor.dims)
    if any(size < 0 for size in shape) or len(shape) > MOST_RANK:
        raise InputError(
            f"should have a shape, got {list(shape)}", where=f"initializer {tensor.name!r}"
        )
    regions = (whole(tensor.name, shape),)
    hidden = tensor.external_data or tensor.data_location == 1 or tensor.data_type in _NO_NUMBERS
    if hidden or math.prod(shape) > MOST_ELEMENTS:
        return Constant(shape, lambda: hollow(shape), known=False, regions=regions)

    def load() -> Array:
        if tensor.data_type == _INT64:
            # Shapes, of which a model has hundreds.
            data = tensor.raw_data
            values = np.frombuffer(data, "<i8") if data else np.array(tensor.int64_data, np.int64)
            if values.size == math.prod(shape):
                return values.reshape(shape)
        from onnx import numpy_helper

        try:
            return np.asarray(numpy_helper.to_array(tensor))
        except (TypeError, ValueError) as error:
            problem = (str(error).splitlines() or ["broken"])[0]
            raise InputError(
                f"cannot be read: {problem}", where=f"initializer {tensor.name!r}"
            ) from None

    return Constant(shape, load, regions=regions)
