"""A torus: a grid with links around its ends."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import networkx as nx

from hypar_opt.hardware.topologies.base import LinkSpec, Topology, bits_of
from hypar_opt.hardware.topologies.grid import Shape, grid


class Torus(Topology):
    """A torus of any number of dimensions, its accelerators numbered row by row."""

    summary: ClassVar[str] = "a grid of any number of dimensions, linked around its ends"

    kind: Literal["torus"]
    shape: Shape
    link: LinkSpec

    def graph(self) -> nx.Graph[Any]:
        return grid(self.shape, self.link, wrapped=True)

    def dimensions(self) -> tuple[tuple[int, ...], ...]:
        return bits_of(*self.shape)
