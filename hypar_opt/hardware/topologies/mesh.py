"""A mesh: a grid whose ends are not linked."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import networkx as nx

from hypar_opt.hardware.topologies.base import LinkSpec, Topology, bits_of
from hypar_opt.hardware.topologies.grid import Shape, grid


class Mesh(Topology):
    """A mesh of any number of dimensions, its accelerators numbered row by row."""

    summary: ClassVar[str] = "a grid of any number of dimensions, its ends not linked"

    kind: Literal["mesh"]
    shape: Shape
    link: LinkSpec

    def graph(self) -> nx.Graph[Any]:
        return grid(self.shape, self.link, wrapped=False)

    def dimensions(self) -> tuple[tuple[int, ...], ...]:
        return bits_of(*self.shape)
