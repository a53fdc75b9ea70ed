"""The base of topologies: the table of an array file that describes a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator

from hypar_opt.documents.document import Document, Size, rule
from hypar_opt.hardware.quantities import Bandwidth, Time

if TYPE_CHECKING:
    import networkx as nx

    from hypar_opt.hardware.folded import FoldedInterconnect
    from hypar_opt.hardware.links import Graph, Link
    from hypar_opt.hardware.traffic import Paths

MAX_ACCELERATORS = 2**20
"""Twenty levels. Of more than `hypar_opt.hardware.folded.MAX_LISTED` no graph is made."""

MAX_LENGTH = 4096
"""Accelerators along a dimension: routes are as long, and listed link by link."""


class LinkSpec(Document):
    """A link as a file describes it."""

    bandwidth: Bandwidth
    """Per direction of a full-duplex link; both directions together if half-duplex."""
    latency: Time = Fraction()
    duplex: Literal["full", "half"] = "full"

    def edge(self, width: Fraction = Fraction(1)) -> dict[str, Any]:
        """Return the attributes that `Interconnect` reads, with ``width`` times the bandwidth."""
        return {
            "bytes_per_second": self.bandwidth * width,
            "latency": self.latency,
            "full_duplex": self.duplex == "full",
        }


class Topology(Document, ABC):
    """Accelerators, switches and the links between them."""

    kind: str
    """Its name in `TOPOLOGIES`."""

    summary: ClassVar[str]
    """One line, for the list of topologies."""

    @classmethod
    def located(cls, table: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Return a table read in ``folder`` with the contents of the files that it names inlined.

        Raises
        ------
        InputError
            If such a file cannot be read.
        """
        del folder
        return table

    places: ClassVar[tuple[str, str] | None] = None
    """Where a level of its first dimension is, and one of its second, in words; None for none."""

    @abstractmethod
    def graph(self) -> Graph | nx.Graph[Any]:
        """Return the graph that `hypar_opt.hardware.interconnect.Interconnect` takes."""

    def grid(self) -> tuple[int, ...] | None:
        """Return the shape of a torus or mesh numbered row by row; None for any other graph.

        Its routes follow from coordinates, as fast for many accelerators as for few. A graph that
        turns out not to be a grid of this shape is searched instead.
        """
        return None

    def paths(self, links: Sequence[Link]) -> Paths | None:
        """Return the routes over the graph's links; None where they are all shortest paths."""
        del links
        return None

    def folded(self, levels: Sequence[Sequence[int]]) -> FoldedInterconnect | None:
        """Return the links, one for all that are loaded alike; None if that is not known.

        Parameters
        ----------
        levels
            As of `levels`, or their factors.
        """
        del levels
        return None

    def part(self, parts: int) -> Self | None:
        """Return the topology of each of so many equal parts, topmost levels first.

        None if it has no such parts that are alike.
        """
        del parts
        return None

    @abstractmethod
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Return the parts of the hardware's levels, by dimension, topmost first.

        Accelerators are numbered level by level: the first level's part is the most significant
        digit of a number. So a dimension of six accelerators is ``(6,)``, and a tree of halves
        ``(2, 2, 2)``. A hierarchy may split the dimensions in any order, also interleaved, but the
        levels of a dimension in order. The default is one dimension after the other.
        """


def check_size(accelerators: int) -> int:
    """Return the number of accelerators, or refuse one that is too large."""
    if accelerators > MAX_ACCELERATORS:
        raise rule(f"should have at most {MAX_ACCELERATORS:,} accelerators, got {accelerators:,}")
    return accelerators


def check_length(accelerators: int) -> int:
    """Return the number of accelerators along a dimension, or refuse one that is too large."""
    if accelerators > MAX_LENGTH:
        raise rule(
            f"should have at most {MAX_LENGTH:,} accelerators along a dimension, got"
            f" {accelerators:,}"
        )
    return accelerators


Accelerators = Annotated[Size, AfterValidator(check_size)]
"""A number of accelerators."""

Length = Annotated[Size, AfterValidator(check_length)]
"""A number of accelerators along a dimension."""


def as_dimensions(*sizes: int) -> tuple[tuple[int, ...], ...]:
    """Return dimensions of one level each; one of a single accelerator has nothing to split."""
    return tuple((size,) for size in sizes if size > 1)
