"""Nodes of accelerators around a switch, joined by a fabric."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import model_validator

from hypar_opt.documents.document import Size
from hypar_opt.hardware.folded import FoldedTree
from hypar_opt.hardware.links import Graph, Link
from hypar_opt.hardware.rail_paths import RailPaths, rail
from hypar_opt.hardware.topologies.base import LinkSpec, Topology, as_dimensions, check_size

if TYPE_CHECKING:
    from hypar_opt.hardware.traffic import Paths


class NodesTopology(Topology):
    """The accelerators of a node linked to its switch, and these switches to the fabric's.

    Accelerator ``i`` of node ``n`` is number ``n * per_node + i``.
    """

    summary: ClassVar[str] = "nodes of accelerators on a switch each, joined by a fabric"

    places: ClassVar[tuple[str, str] | None] = ("between the nodes", "inside the nodes")

    kind: Literal["nodes"]
    nodes: Size
    per_node: Size
    link: LinkSpec
    """Between an accelerator and its node's switch."""
    fabric: LinkSpec
    """Between a node's switch and the fabric's: all traffic that leaves the node crosses it."""
    adapters: Size | None = None
    """The network adapters of a node, each with an equal part of the fabric's bandwidth, which its
    accelerators share in the order of their numbers; None: any can use all of it."""

    @model_validator(mode="after")
    def _has_a_valid_size(self) -> Self:
        check_size(self.nodes * self.per_node)
        return self

    def graph(self) -> Graph:
        graph = Graph()
        link = self.link.edge()
        for node in range(self.nodes):
            for number in range(node * self.per_node, (node + 1) * self.per_node):
                graph.add_edge(number, f"node{node}", **link)
            if self.nodes > 1:  # one node needs no fabric
                for switch, width in self._switches:
                    graph.add_edge(f"node{node}", switch, **self.fabric.edge(width))
        return graph

    @property
    def _switches(self) -> list[tuple[str, Fraction]]:
        """The switches that join the nodes, and the part of the bandwidth to each."""
        if not self.adapters:
            return [("fabric", Fraction(1))]
        return [(rail(n), Fraction(1, self.adapters)) for n in range(self.adapters)]

    def paths(self, links: Sequence[Link]) -> Paths | None:
        if not self.adapters or self.nodes == 1:
            return None
        return RailPaths.of(links, self.nodes, self.per_node, self.adapters)

    def folded(self, levels: Sequence[Sequence[int]]) -> FoldedTree | None:
        if type(self) is not NodesTopology or self.adapters:  # it may have another graph
            return None
        branches = [(Link(0, "node0", **self.link.edge()), 1)]
        if self.nodes > 1:
            branches.append((Link("node0", "fabric", **self.fabric.edge()), self.per_node))
        return FoldedTree(branches, [size for sizes in levels for size in sizes])

    def part(self, parts: int) -> Self | None:
        per_part, rest = divmod(self.nodes * self.per_node, parts)
        of_a_node = per_part < self.per_node
        if rest or (self.per_node % per_part if of_a_node else per_part % self.per_node):
            return None
        size = {"nodes": 1, "per_node": per_part} if of_a_node else {"nodes": self.nodes // parts}
        return self.model_copy(update=size)

    def levels(self) -> tuple[tuple[int, ...], ...]:
        return as_dimensions(self.nodes, self.per_node)
