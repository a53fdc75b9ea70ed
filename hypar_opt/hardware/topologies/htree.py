"""The paper's topology: a binary tree whose bandwidth grows towards the root."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import networkx as nx
from pydantic import AfterValidator, Field, Strict

from hypar_opt.documents.document import rule
from hypar_opt.hardware.topologies.base import Accelerators, LinkSpec, Topology


def _power_of_two(value: int) -> int:
    # Every level of the tree halves the array.
    if value & (value - 1):
        raise rule(f"should be a power of two, got {value}")
    return value


class HTree(Topology):
    """A binary tree: a switch over every two accelerators, then over every two switches.

    Source: the HyPar paper, sections 5 and 6.5.1, whose bandwidths double with every level up.
    """

    summary: ClassVar[str] = "a binary tree of switches, its links wider towards the root"

    kind: Literal["htree"]
    accelerators: Annotated[Accelerators, AfterValidator(_power_of_two)]
    link: LinkSpec
    """Between an accelerator and its switch."""
    growth: Annotated[float, Strict(), Field(ge=1 / 1024, le=1024)] = 2.0
    """Bandwidth of a level's links over that of the level below."""

    def graph(self) -> nx.Graph[Any]:
        graph: nx.Graph[Any] = nx.Graph()
        lower_nodes: list[int | str] = list(range(self.accelerators))
        graph.add_nodes_from(lower_nodes)
        relative_bandwidth = Fraction(1)
        while len(lower_nodes) > 1:
            size = 2 * self.accelerators // len(lower_nodes)
            switches = [f"switch{size}.{index}" for index in range(len(lower_nodes) // 2)]
            link = self.link.edge(relative_bandwidth)
            for index, node in enumerate(lower_nodes):
                graph.add_edge(node, switches[index // 2], **link)
            lower_nodes = [*switches]
            # Through text, so that 0.1 in the file is 1/10 and not the nearest double.
            relative_bandwidth *= Fraction(str(self.growth))
        return graph

    def levels(self) -> tuple[tuple[int, ...], ...]:
        return ((2,) * (self.accelerators.bit_length() - 1),)
