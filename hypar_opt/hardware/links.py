"""The links of an array, and the one link to which an exchange reduces them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from hypar_opt.results import Column, Columns
from hypar_opt.units import SECONDS, format_rate


class Graph(dict[Hashable, dict[Hashable, dict[str, Any]]]):
    """The neighbours of every node, with the attributes of the link to each.

    It is read as a graph of networkx may be, whose import takes longer than most commands, and
    ``networkx.Graph`` takes it.
    """

    def add_edge(self, source: Hashable, target: Hashable, **attributes: Any) -> None:
        """Join two nodes by a link."""
        self.setdefault(source, {})[target] = attributes
        self.setdefault(target, {})[source] = attributes


@dataclass(frozen=True)
class Link:
    """One link between two nodes, each an accelerator or a switch.

    Parameters
    ----------
    bytes_per_second
        Per direction if ``full_duplex``, else of both directions together.
    latency
        Seconds for a message to cross it.
    """

    source: Hashable
    target: Hashable
    bytes_per_second: Fraction
    latency: Fraction
    full_duplex: bool
    count: int = 1
    """How many links it stands for, all loaded alike, in an array whose links are not listed."""

    @property
    def name(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def between(self) -> str:
        """What it joins: ``accelerators``, ``switches`` or ``accelerator and switch``."""
        # Accelerators are the nodes with numbers as names.
        ends = (isinstance(self.source, int), isinstance(self.target, int))
        if all(ends):
            return "accelerators"
        return "accelerator and switch" if any(ends) else "switches"


class LinkKind(NamedTuple):
    """Links of an array that are equal, and between nodes of the same kinds."""

    number: int
    between: str
    bytes_per_second: float
    latency: float
    duplex: str


LINK_KINDS = Columns(
    Column("count", of="number"),
    Column("between", "between"),
    Column("bytes_per_second", "bandwidth", format_rate),
    Column("latency", "latency", SECONDS),
    Column("duplex", "duplex"),
    entry=LinkKind,
)
"""Of a `LinkKind`."""


@dataclass(frozen=True)
class BisectionLink:
    """A single link equivalent to the array, for an exchange of equal bytes per accelerator.

    Parameters
    ----------
    seconds_per_byte
        Per byte of the exchange, counting the bytes of all accelerators together.
    latency
        Seconds of the slowest message.
    hops
        Links that a byte crosses, on average.
    """

    seconds_per_byte: Fraction
    latency: Fraction
    hops: Fraction
