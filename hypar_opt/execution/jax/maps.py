"""The arrays that a network's layers read and write."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from hypar_opt.execution.index_labels import levels_by
from hypar_opt.sharding.layouts import COLUMN, EXPERT, ROW, TOKEN
from hypar_opt.workload.mirrored import are_mirrored
from hypar_opt.workload.operators.maps import ExpertMap, FeatureMap, TokenMap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.sharding.layouts import Layout
    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.maps import LayerMaps, Map

BETWEEN: Mapping[int, tuple[Layout, ...]] = MappingProxyType(
    {0: (), 1: (TOKEN,), 2: (ROW, COLUMN), 3: (TOKEN, EXPERT)}
)
"""The layouts that may split the dimensions between batch and channels, by their number; slots are
never split."""


@dataclass(frozen=True, eq=False)
class NetworkMaps:
    """A plan's network, and the dimensions of the arrays of its layers, by position."""

    network: Network
    program: Program

    @property
    def hierarchy(self) -> Hierarchy:
        """The parts of each level, an axis of the mesh each."""
        return self.program.hierarchy

    @property
    def levels(self) -> int:
        return len(self.program.rows)

    @property
    def shared(self) -> int:
        return self.program.workload.shared

    @cached_property
    def splits_images(self) -> bool:
        """Whether levels split rows or columns of any image."""
        return any(levels_by(self.program, layout) for layout in BETWEEN[2])

    @cached_property
    def mirrors_tokens(self) -> bool:
        """Whether parts of sequences are mirrored, to balance a causal mask."""
        of_tokens = bool(levels_by(self.program, TOKEN)) and self.program.shares is None
        return of_tokens and are_mirrored(self.program.workload, self.hierarchy.accelerators)

    @cached_property
    def layer_maps(self) -> list[LayerMaps]:
        """The maps that each layer reads and writes."""
        return list(self.network.maps())

    @cached_property
    def maps(self) -> tuple[Map, ...]:
        """The map that each layer passes on."""
        return tuple(maps.pooled for maps in self.layer_maps)

    @cached_property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """The dimensions of each layer's output between batch and channels."""
        dimensions: list[tuple[int, ...]] = []
        for layer, reads, written in zip(
            self.network.layers, self.network.sources, self.maps, strict=True
        ):
            if isinstance(written, TokenMap):
                dimensions.append((written.tokens,))
                continue
            if isinstance(written, ExpertMap):
                dimensions.append((written.groups, written.experts, written.slots))
                continue
            read = (
                self.input_positions(source) if source < 0 else dimensions[source]
                for source in reads
            )
            image = (layer.reads_images or layer.writes_images) or (
                not layer.writes_vectors and any(len(dims) == 2 for dims in read)
            )
            if image and isinstance(written, FeatureMap):
                dimensions.append((written.height, written.width))
            else:
                dimensions.append(())
        return tuple(dimensions)

    def input_positions(self, source: int) -> tuple[int, ...]:
        """Return the dimensions of an input of the network between batch and channels."""
        stated = self.network.input_of(source).feature_map()
        if isinstance(stated, TokenMap):
            return (stated.tokens,)
        is_image = "height" in type(self.network.input_of(source)).model_fields
        return (stated.height, stated.width) if is_image else ()

    def read_positions(self, source: int) -> tuple[int, ...]:
        """Return the dimensions between batch and channels of a layer's output, or an input."""
        return self.input_positions(source) if source < 0 else self.positions[source]

    def unpooled(self, source: int) -> tuple[int, ...]:
        """Return the rows and columns that a layer writes before its fused pool."""
        if source < 0 or self.network.layers[source].fused_pool is None:
            return ()
        written = self.layer_maps[source].output
        assert isinstance(written, FeatureMap)
        return (written.height, written.width)

    def read_from(self, position: int, source: int) -> int:
        """Return the node whose tensor a layer reads: a layer, or a shared tensor."""
        workload, number = self.program.workload, self.network.sources[position].index(source)
        boundary = workload.boundary_of_input[position + self.shared, number]
        return workload.boundaries[boundary].source

    def owner(self, position: int) -> int:
        """Return the layer that a layer's weights are named after."""
        layer = self.network.layers[position]
        name = layer.shares_weights_with or layer.name
        return next(n for n, one in enumerate(self.network.layers) if one.name == name)

    def transposes(self, position: int) -> bool:
        """Whether a layer uses an embedding's weights transposed."""
        layer = self.network.layers[position]
        owner = self.network.layers[self.owner(position)]
        return owner.reads_ids and not layer.reads_ids
