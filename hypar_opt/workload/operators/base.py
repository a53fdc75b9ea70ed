"""What every kind of layer says of itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from hypar_opt.documents import Document, Name
from hypar_opt.workload.operators.axes import Choice, Contraction


class FeatureMap(NamedTuple):
    """The size of one image's feature map; a vector has height and width 1."""

    channels: int
    height: int = 1
    width: int = 1

    @property
    def elements(self) -> int:
        return self.channels * self.height * self.width


class LayerMaps(NamedTuple):
    """What one layer reads and writes for one image."""

    input: FeatureMap
    output: FeatureMap
    pooled: FeatureMap
    """What the next layer reads: the output after pooling, where there is a pool."""


class Operator(Document):
    """A layer as a network file describes it; a subclass is a kind of layer.

    What a layer communicates, computes, and keeps in memory under each choice is derived from
    `contraction` and `choices` alone (see `hypar_opt.workload.operators.axes`).
    """

    name: Name
    kind: str

    contraction: ClassVar[Contraction]
    """Its tensors' axes; the batch's is ``b``."""

    choices: ClassVar[tuple[Choice, ...]]
    """What it may choose from, data parallelism first: in the order of a table's columns."""

    trick: ClassVar[str]
    """The choice of the "one weird trick": data for what has few weights, else the second."""

    reads_images: ClassVar[bool] = False
    """Whether it needs channels, height and width, which a vector does not have."""

    writes_vectors: ClassVar[bool] = False
    """Whether what it writes has lost height and width."""

    @abstractmethod
    def maps(self, read: FeatureMap) -> LayerMaps:
        """Return what the layer makes of a feature map; raise a `rule` where it does not fit."""

    @abstractmethod
    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        """Return the size of every axis but the batch's."""
