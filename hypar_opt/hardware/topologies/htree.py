"""The paper's topology: a binary tree whose bandwidth grows towards the root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, Strict

from hypar_opt.documents.document import rule
from hypar_opt.hardware.folded import FoldedTree
from hypar_opt.hardware.links import Graph, Link
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

    def graph(self) -> Graph:
        lower_nodes: list[int | str] = list(range(self.accelerators))
        graph = Graph((node, {}) for node in lower_nodes)
        for below, link in self._links():
            switches = [f"switch{2 * below}.{index}" for index in range(len(lower_nodes) // 2)]
            for index, node in enumerate(lower_nodes):
                graph.add_edge(node, switches[index // 2], **link)
            lower_nodes = [*switches]
        return graph

    def folded(self, levels: Sequence[Sequence[int]]) -> FoldedTree | None:
        if type(self) is not HTree:  # it may have another graph
            return None
        branches = [
            (Link(f"switch{below}.0" if below > 1 else 0, f"switch{2 * below}.0", **link), below)
            for below, link in self._links()
        ]
        return FoldedTree(branches, [size for sizes in levels for size in sizes])

    def _links(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the accelerators below a link of each level, from the deepest up, and the link."""
        width = Fraction(1)
        for level in range(self.accelerators.bit_length() - 1):
            yield 2**level, self.link.edge(width)
            # Through text, so that 0.1 in the file is 1/10 and not the nearest double.
            width *= Fraction(str(self.growth))

    def part(self, parts: int) -> Self | None:
        per_part, rest = divmod(self.accelerators, parts)
        if rest or parts & (parts - 1):
            return None
        return self.model_copy(update={"accelerators": per_part})

    def levels(self) -> tuple[tuple[int, ...], ...]:
        return ((2,) * (self.accelerators.bit_length() - 1),)
