"""The interface of a kind of layer."""

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
    """The axes of its tensors; the batch's is ``b``."""

    choices: ClassVar[tuple[Choice, ...]]
    """Its choices in the order of a cost table's columns; data parallelism is the first."""

    trick: ClassVar[str]
    """Its choice in the baseline "one weird trick": data for few weights, else the second."""

    reads_images: ClassVar[bool] = False
    """Whether its input needs channels, height and width; a vector has none of them."""

    writes_vectors: ClassVar[bool] = False
    """Whether its output is a vector, without height and width."""

    @abstractmethod
    def maps(self, read: FeatureMap) -> LayerMaps:
        """Return the layer's maps for an input; raise a `rule` where that does not fit."""

    @abstractmethod
    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        """Return the size of every axis but the batch's."""
