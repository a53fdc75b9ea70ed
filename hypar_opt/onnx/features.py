"""The content of a tensor of the graph: a view of a layer's feature map.

Most ONNX nodes are not layers of a network: they are views of a feature map, or elementwise
operators. So a tensor is described by the layer that it comes from, where the digits of that
layer's axes lie, and what is pending: elementwise operators, the first nodes of a norm, a mean over
positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from hypar_opt.onnx.axes import DigitRange, Dim, extent, without
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.regions import LayerWeights, Regions
from hypar_opt.onnx.samples import IDENTITY, Function
from hypar_opt.workload.activations import ACTIVATIONS
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.operators.base import Operator
from hypar_opt.workload.operators.weightless import Weightless


@dataclass(frozen=True)
class PendingNorm:
    """A norm, or a scale and shift, whose first nodes have been read.

    Parameters
    ----------
    over
        The axes of its statistics; none for a scale and shift alone.
    centred
        Whether the mean is subtracted.
    scale, shift
        The names of the constants that scale and shift each channel.
    epsilon
        The number that is added to a statistic, as text; ``?`` where it is unknown.
    node
        The last node that scales or shifts.
    of
        What it is a norm of.
    divides
        The last node that joins a map with its statistics.
    is_plain
        Whether its scale and shift are ones and zeros, in the place of which others may follow.
    """

    over: frozenset[str] = frozenset()
    centred: bool = False
    scale: str = ""
    shift: str = ""
    epsilon: str = ""
    node: OnnxNode | None = field(default=None, compare=False)
    of: Function = field(default=IDENTITY, compare=False)
    divides: OnnxNode | None = field(default=None, compare=False)
    is_plain: bool = False


@dataclass(frozen=True)
class AddedBorder:
    """The border that ``Pad`` added to an image.

    Parameters
    ----------
    widths
        The numbers of rows and columns: top, left, bottom and right.
    value
        What they are filled with; None where it is unknown, or varies.
    of
        What had been made of the map before.
    node
        The node.
    """

    widths: tuple[int, int, int, int]
    value: float | None
    of: Function = field(compare=False)
    node: OnnxNode = field(compare=False)


class Features(NamedTuple):
    """A tensor that depends on the network's input.

    Parameters
    ----------
    source
        The layer whose feature map it holds; below zero, an input of the network.
    dims
        Where the digits of that map's axes lie.
    operators
        The names of the elementwise operators that were applied to it, and of what they did with
        constants, by which masks and rotations are known.
    function
        What they make of it.
    taken
        The ranges of axes that slices took, where it is not the whole map.
    pooled
        The axes that a reduction has replaced by one number: ``pool`` says which.
    unpooled
        What was made of it before that reduction.
    norm
        A norm that is not a layer yet.
    only
        Whether it is the only reader of each tensor between its layer and itself.
    border
        What ``Pad`` put round the image.
    """

    source: int
    dims: tuple[Dim, ...]
    operators: frozenset[str] = frozenset()
    function: Function = IDENTITY
    taken: frozenset[DigitRange] = frozenset()
    pooled: frozenset[str] = frozenset()
    pool: str = "average"
    unpooled: Function = IDENTITY
    norm: PendingNorm | None = None
    only: bool = False
    border: AddedBorder | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent(dim) for dim in self.dims)

    def after(self, *operators: str) -> Features:
        """Return the tensor after operators whose values are not computed."""
        function = self.function.unknown(*operators)
        return self._replace(operators=self.operators.union(operators), function=function)

    @property
    def border_value(self) -> float | None:
        """What its border is filled with, after what has been made of it; None if unknown."""
        if self.border is None or self.border.of is self.function:
            return None if self.border is None else self.border.value
        word = self.function.activation
        of_zero = self.border.value == 0 and self.border.of.is_identity and not self.function.rest
        return float(ACTIVATIONS[word or "identity"][0](np.zeros(1))[0]) if of_zero else None

    def without_copies(self) -> Features:
        return self._replace(dims=tuple(without(dim, "r") for dim in self.dims))


_PENDING = ("input", "scores")
"""Placeholders among layers for tensors that are not, or not yet, layers of a network."""


@dataclass
class Layer:
    """A layer of the network while the graph is read."""

    kind: str
    keys: dict[str, Any]
    inputs: list[int]
    sizes: Mapping[str, int]
    """The size of each axis of its output map."""
    node: OnnxNode | None = None
    weights: LayerWeights = LayerWeights()  # noqa: RUF009 - frozen
    """The elements of the file's initializers that it learns."""
    read_as: set[str | None] = field(default_factory=set)
    """The activations through which its readers see it."""
    scaled_by: dict[float | None, list[OnnxNode]] = field(default_factory=dict)
    """The nodes that read a table's rows times a number, by that number; None for others."""
    pooled_as: str | None = None
    """The activation before its pool, where it has one."""
    dims: tuple[Dim, ...] = ()
    """The dimensions in which it writes its map."""
    operands: tuple[Features, ...] = ()
    """The queries and keys of scores."""
    orders: tuple[Regions, ...] = ()
    """The channels of each input in the order that it reads them in, where that is another one."""
    order: Regions = ()
    """The channels of its node's output in the order of the network's, where that is another."""
    name: str = ""
    """Its name in the network, set last."""
    is_nameless: bool = False
    """Whether its node is another layer's, or one of several, so that it does not name it."""

    def add_bias(self, bias: Regions) -> None:
        """Give the layer a bias."""
        self.keys["bias"] = True
        self.weights = replace(self.weights, vectors=(*self.weights.vectors, *bias))

    @property
    def operator(self) -> type[Operator]:
        """The declarations of its kind; none for a placeholder."""
        return Weightless if self.kind in _PENDING else OPERATORS[self.kind]

    @property
    def is_scores(self) -> bool:
        """Whether it is the first product of decomposed attention."""
        return self.kind == "scores"

    @property
    def is_slice(self) -> bool:
        """Whether it is a slice of a layer's channels; the layer is divided later if possible."""
        return self.kind == "slice"

    @property
    def looks_up(self) -> bool:
        """Whether it is a table indexed by ids, of the first input or its own."""
        return self.operator.reads_ids and (bool(self.inputs) or "ids" in self.keys)

    @property
    def is_image(self) -> bool:
        return "h" in self.sizes

    @property
    def is_tokens(self) -> bool:
        return "t" in self.sizes

    @property
    def channels(self) -> int:
        return self.sizes.get("c", 1)
