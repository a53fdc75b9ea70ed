"""What a tensor of the graph holds: a layer's feature map, seen in some way.

Most ONNX nodes are no layers of ours: they look at a feature map another way (views), or do the
same to each of its elements. So a tensor is described by the layer that it comes from, where the
digits of that layer's axes lie, and what is pending: elementwise operators, a norm of which only
some nodes have been read, positions that have been averaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hypar_opt.onnx.axes import DigitRange, Dim, extent
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.regions import LayerWeights, Regions

INPUT = -1
"""The position of the network's input, among layers."""


@dataclass(frozen=True)
class PendingNorm:
    """A norm, or a scale and shift, of which a feature map has been through the first nodes.

    Parameters
    ----------
    over
        The axes whose statistics it takes; none for a scale and shift alone.
    centred
        Whether the mean is subtracted.
    scale, shift
        The constants that scale and shift each channel, by name.
    """

    over: frozenset[str] = frozenset()
    centred: bool = False
    scale: str = ""
    shift: str = ""


class Features(NamedTuple):
    """A tensor that depends on the network's input.

    Parameters
    ----------
    source
        The layer whose feature map it holds; -1 is the network's input.
    dims
        Where the digits of that map's axes lie.
    operators
        The elementwise operators that it has been through.
    taken
        The shares that slices took of axes, where it is not all of the map.
    pooled
        The axes that a reduction has taken, of which it holds one number: ``pool`` says which.
    norm
        A norm that no layer stands for yet.
    only
        Whether nothing else reads any of the tensors on the way from its layer.
    border
        The zeros that ``Pad`` put round the image: top, left, bottom, right.
    """

    source: int
    dims: tuple[Dim, ...]
    operators: frozenset[str] = frozenset()
    taken: frozenset[DigitRange] = frozenset()
    pooled: frozenset[str] = frozenset()
    pool: str = "average"
    norm: PendingNorm | None = None
    only: bool = False
    border: tuple[int, int, int, int] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent(dim) for dim in self.dims)

    def same_map(self, other: Features) -> bool:
        """Whether two tensors hold the same elements of one map, in the same places."""
        return self.source == other.source and self.taken == other.taken


@dataclass
class Layer:
    """A layer of the network, while the graph is read."""

    kind: str
    keys: dict[str, Any]
    inputs: list[int]
    sizes: Mapping[str, int]
    """The size of each axis of its output map."""
    node: OnnxNode | None = None
    weights: LayerWeights = LayerWeights()  # noqa: RUF009 - frozen
    """What of the file's initializers it learns."""
    read_as: set[str | None] = field(default_factory=set)
    """The activations through which its readers see it."""
    dims: tuple[Dim, ...] = ()
    """How it writes its map."""
    operands: tuple[Features, ...] = ()
    """Of a score: the queries and keys."""
    name: str = ""
    """Its name in the network, once it has one."""

    def add_bias(self, bias: Regions) -> None:
        """Give the layer a bias."""
        self.keys["bias"] = True
        self.weights = replace(self.weights, vectors=(*self.weights.vectors, *bias))

    @property
    def is_image(self) -> bool:
        return "h" in self.sizes

    @property
    def is_tokens(self) -> bool:
        return "t" in self.sizes

    @property
    def channels(self) -> int:
        return self.sizes.get("c", 1)
