"""What the layers of a network read and write, as the arrays of a program."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hypar_opt.workload.operators.maps import TokenMap

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.maps import LayerMaps, Map

NETWORK_INPUT = -1
"""The network's input, where positions of layers stand."""


@dataclass(frozen=True, eq=False)
class NetworkMaps:
    """The dimensions of what a network's layers read and write, by their positions."""

    network: Network

    @cached_property
    def layer_maps(self) -> list[LayerMaps]:
        """What each layer reads and writes."""
        return list(self.network.maps())

    @cached_property
    def maps(self) -> tuple[Map, ...]:
        """What each layer hands on."""
        return tuple(maps.pooled for maps in self.layer_maps)

    @cached_property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """The dimensions of each layer's output between batch and channels."""
        found: list[tuple[int, ...]] = []
        for layer, reads, written in zip(
            self.network.layers, self.network.sources, self.maps, strict=True
        ):
            if isinstance(written, TokenMap):
                found.append((written.tokens,))
                continue
            read = (
                self.input_positions if source == NETWORK_INPUT else found[source]
                for source in reads
            )
            image = layer.reads_images or (
                not layer.writes_vectors and any(len(here) == 2 for here in read)
            )
            found.append((written.height, written.width) if image else ())
        return tuple(found)

    @property
    def input_positions(self) -> tuple[int, ...]:
        """The dimensions of the network's input between batch and channels."""
        given = self.network.input.feature_map()
        if isinstance(given, TokenMap):
            return (given.tokens,)
        is_image = "height" in type(self.network.input).model_fields
        return (given.height, given.width) if is_image else ()

    def read_positions(self, source: int) -> tuple[int, ...]:
        """The dimensions between batch and channels of what a layer writes, -1 the input."""
        return self.input_positions if source == NETWORK_INPUT else self.positions[source]

    def read_map(self, source: int) -> Map:
        """Return what a layer writes, or the network's input."""
        return self.network.input.feature_map() if source == NETWORK_INPUT else self.maps[source]

    def owner(self, position: int) -> int:
        """Return the layer that a layer's weights are called after."""
        layer = self.network.layers[position]
        name = layer.shares_weights_with or layer.name
        return next(n for n, one in enumerate(self.network.layers) if one.name == name)

    def transposes(self, position: int) -> bool:
        """Whether a layer uses an embedding's weights, whose outputs are its inputs."""
        layer = self.network.layers[position]
        owner = self.network.layers[self.owner(position)]
        return layer.kind == "fc" and owner.kind == "embedding"
