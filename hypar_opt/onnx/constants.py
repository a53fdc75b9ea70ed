"""The constants of a graph: weights by their shape alone, small tensors by their values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from hypar_opt.onnx.constant import Array, Constant, of_tensor, placeholder
from hypar_opt.onnx.folding import Budget, fold
from hypar_opt.onnx.inference import concrete_shapes, inferred
from hypar_opt.onnx.model import MAX_DIMENSION, MAX_RANK, OnnxGraph, OnnxNode
from hypar_opt.onnx.provenance import regions_of

if TYPE_CHECKING:
    from onnx import TensorProto

MAX_INTEGERS = 2**16
"""Longer lists of integers, as shapes or indices, are not read."""

_REGION = 2**11
"""Cost of a region that a constant is made of: time, counted as bytes."""

_LISTED = 64
"""Cost of an integer in a list: memory and time, counted as bytes."""

_INFERENCE = 2**13
"""Cost of inferring a shape: time, counted as bytes."""


class Constants:
    """The constants of a graph, computed when they are first needed."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph
        self._made: dict[str, Constant] = {}
        self._nodes: dict[str, OnnxNode] = {}
        self._budget = Budget()
        self.read_integers: Callable[[TensorProto], Array | None] = lambda tensor: None
        """Returns a small tensor of integers, such as positions, from a file beside the model."""

    @cached_property
    def _declared(self) -> dict[str, tuple[int, ...]]:
        """The shapes that the file states, for tensors whose shape is not inferred."""
        return concrete_shapes(self._graph.proto.graph.value_info)

    def __contains__(self, name: str) -> bool:
        return name in self._made or name in self._nodes or name in self._graph.initialisers

    def add(self, name: str, constant: Constant) -> None:
        self._made[name] = constant

    def defer(self, node: OnnxNode) -> None:
        """Remember a node that reads only constants."""
        for name in node.outputs:
            self._nodes[name] = node

    def node(self, name: str) -> OnnxNode | None:
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
        # A stack rather than recursion: a file may chain any number of nodes.
        waiting = [name]
        while waiting:
            wanted = waiting[-1]
            if wanted in self._made:
                waiting.pop()
            elif wanted in self._graph.initialisers:
                self._made[wanted] = self._of_tensor(self._graph.initialisers[wanted])
            else:
                node = self._nodes[wanted]
                before = [n for n in node.inputs if n and n not in self._made]
                waiting += before
                if not before:
                    self._compute(node)
        return self._made[name]

    def _of_tensor(self, tensor: TensorProto) -> Constant:
        constant = of_tensor(tensor)
        value = None if constant.has_values else self.read_integers(tensor)
        return (
            constant if value is None else replace(constant, load=_returns(value), has_values=True)
        )

    def integers(self, name: str) -> list[int] | None:
        """Return the values of a list of integers; None where they are unknown or too many."""
        constant = self.get(name)
        if not constant.has_values or constant.elements > MAX_INTEGERS:
            return None
        if not self._budget.take(_LISTED * constant.elements):
            return None
        return [int(value) for value in constant.value.ravel().tolist()]

    def _compute(self, node: OnnxNode) -> None:
        inputs = [self._made[name] if name else None for name in node.inputs]
        folded = fold(node, inputs, self._budget)
        read = [constant for constant in inputs if constant is not None]
        # Shapes are known even where the values are in another file.
        has_values = node.op in ("Shape", "Size") or all(constant.has_values for constant in read)
        has_values = has_values and folded is not None and folded.has_values
        is_input = any(constant.is_input for constant in read)
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
                array, has_values = placeholder(self._shape(node, name, shapes)), False
            names.append(name)
            arrays.append(array)
        if not self._budget.take(_REGION * sum(len(constant.regions) for constant in read)):
            raise node.refuse("is made of too many weights, together with the constants before it")
        regions = regions_of(node, inputs, [array.shape for array in arrays])
        for name, array, sources in zip(names, arrays, regions, strict=False):
            self._made[name] = Constant(array.shape, _returns(array), has_values, sources, is_input)

    def _shapes(self, node: OnnxNode, inputs: list[Constant | None]) -> dict[str, tuple[int, ...]]:
        """Return shapes by ONNX's own inference, which runs only where ours has no answer."""
        if not self._budget.take(_INFERENCE):
            raise node.refuse("computes more constants than a network's shapes need")
        return inferred(self._graph, node, inputs)

    def _shape(
        self, node: OnnxNode, name: str, shapes: dict[str, tuple[int, ...]]
    ) -> tuple[int, ...]:
        shape = shapes.get(name, self._declared.get(name))
        if shape is None or len(shape) > MAX_RANK or math.prod(shape) > MAX_DIMENSION**2:
            raise node.refuse(f"the shape of {name!r} is not known")
        return shape


def _returns(array: Array) -> Callable[[], Array]:
    return lambda: array
