"""A ring of accelerators: a torus of one dimension."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import networkx as nx

from hypar_opt.hardware.topologies.base import Length, LinkSpec, Topology, bits_of
from hypar_opt.hardware.topologies.grid import grid


class Ring(Topology):
    """A ring of accelerators, numbered around it."""

    summary: ClassVar[str] = "a ring"

    kind: Literal["ring"]
    accelerators: Length
    link: LinkSpec

    def graph(self) -> nx.Graph[Any]:
        return grid(self.grid(), self.link, wrapped=True)

    def grid(self) -> tuple[int, ...]:
        return (self.accelerators,)

    def dimensions(self) -> tuple[tuple[int, ...], ...]:
        return bits_of(self.accelerators)
