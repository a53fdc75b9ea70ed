"""An array's graph, its routes, and the bisection bandwidth and latency of an exchange."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.errors import HyparError
from hypar_opt.frozen import derived
from hypar_opt.hardware.grid_paths import GridPaths
from hypar_opt.hardware.links import BisectionLink, Link
from hypar_opt.hardware.routing import ShortestPaths
from hypar_opt.hardware.tree_paths import TreePaths

if TYPE_CHECKING:
    import networkx as nx
    from numpy.typing import NDArray

    from hypar_opt.hardware.traffic import Indices, Paths, Route, Traffic


class Interconnect:
    """A graph of accelerators, switches and links, with its routes.

    A full-duplex link has a channel in each direction, a half-duplex one a single channel.
    Traffic between two accelerators is spread evenly over all shortest paths, in links.

    Parameters
    ----------
    graph
        Accelerators are the nodes 0 .. N - 1, all other nodes are switches. Edges carry
        ``bytes_per_second``, ``latency`` (Fractions) and ``full_duplex``.
    shape
        The accelerators along every dimension of a torus or mesh: its routes then follow from
        coordinates, without a search.

    Raises
    ------
    HyparError
        If the accelerators are not a power of two, not numbered from 0, or not all connected.
    """

    def __init__(self, graph: nx.Graph[Any], shape: Sequence[int] | None = None) -> None:
        self.graph = graph
        self._shape = shape
        self.accelerators = _count_accelerators(graph)
        self.links = tuple(
            Link(source, target, data["bytes_per_second"], data["latency"], data["full_duplex"])
            for source, target, data in graph.edges(data=True)
        )
        self.channel_link: tuple[int, ...] = tuple(
            number for number, link in enumerate(self.links) for _ in range(1 + link.full_duplex)
        )
        """The number of every channel's link."""
        # Kept, since all levels and placements share the few patterns of bits.
        self._bisections: dict[tuple[tuple[int, ...], bool], BisectionLink] = {}

    @property
    def levels(self) -> int:
        """The hierarchy levels: halvings of the array down to one accelerator."""
        return self.accelerators.bit_length() - 1

    @cached_property
    def capacities(self) -> tuple[Fraction, ...]:
        """The bytes per second of every channel."""
        return tuple(self.links[link].bytes_per_second for link in self.channel_link)

    @derived
    def float_capacities(self) -> NDArray[np.float64]:
        """The capacities, rounded to the nearest float64."""
        rounded = np.empty(len(self.channel_link))
        for capacity, channels in self._by_capacity.items():
            rounded[channels] = float(capacity)
        return rounded

    @property
    def hops_upper_bound(self) -> int:
        """The trivial bound on a shortest path's links: it visits a node at most once."""
        return len(self.graph) - 1

    @cached_property
    def latency_upper_bound(self) -> Fraction:
        """An upper bound on a shortest path's latency, in seconds."""
        # A single accelerator has no link.
        return self.hops_upper_bound * max(
            (link.latency for link in self.links), default=Fraction()
        )

    @cached_property
    def paths(self) -> Paths:
        """The routes, each computed on first use."""
        # First: a mesh of one dimension is a tree as well, and a grid's blocks repeat.
        grid = GridPaths.of(self._shape, self.links) if self._shape else None
        return grid or TreePaths.of(self.graph, self.links) or ShortestPaths(self.graph, self.links)

    def route(self, source: int, target: int) -> Route:
        """Return the route between two accelerators."""
        return self.paths.traffic(np.array([source]), np.array([target])).route(0)

    def traffic(self, bits: Iterable[int], *, ring: bool, block: int = -1) -> Traffic:
        """Return the routes of a pattern in which every accelerator sends to one other.

        Parameters
        ----------
        bits, ring
            As in `receivers`.
        block
            A mask: accelerators whose numbers have other bits set do not send.
        """
        numbers = np.arange(self.accelerators)
        senders = numbers[numbers & ~block == 0]
        return self.paths.traffic(senders, self.receivers(bits, ring=ring)[senders])

    def bisection(self, bit: int) -> BisectionLink:
        """Return the bisection link of an exchange between halves, split by one bit.

        Every accelerator exchanges with the one whose number differs in that bit alone.
        """
        return self._bisection((bit,), ring=False)

    def ring(self, bits: Iterable[int]) -> BisectionLink:
        """Return the link of a round around rings of accelerators that differ in these bits alone.

        All rings run at once; every accelerator sends to the next in its ring.
        """
        # A ring is in the order of the accelerators' numbers, whatever the order of its levels.
        return self._bisection(tuple(sorted(bits)), ring=True)

    def receivers(self, bits: Iterable[int], *, ring: bool) -> Indices:
        """Return the accelerator that every accelerator sends to.

        Parameters
        ----------
        bits
            The bits in which the numbers of a group's accelerators differ.
        ring
            Send to the next accelerator of the group by number, and from the last to the first;
            else send to the one that differs in all these bits.
        """
        mask = sum(1 << bit for bit in bits)
        number = np.arange(self.accelerators)
        # With all other bits set, adding one carries through them to the next bit of the mask.
        return number & ~mask | ((number | ~mask) + 1) & mask if ring else number ^ mask

    def _bisection(self, bits: tuple[int, ...], *, ring: bool) -> BisectionLink:
        """Return the link of a pattern in which every accelerator sends to one other.

        The bottleneck channel decides: under max-min fairness its flows share it equally until
        all are done, and every other flow is at least as fast.
        """
        if (bits, ring) not in self._bisections:
            block = self.paths.block(bits)
            traffic = self.traffic(bits, ring=ring, block=block)
            messages = len(traffic.hops)
            # Fractions: ties between levels and between plans have to be exact.
            slowest = self._longest(traffic.loads(len(self.channel_link))) / traffic.unit
            self._bisections[bits, ring] = BisectionLink(
                # `slowest` is the time of one byte from every accelerator at once.
                seconds_per_byte=slowest / self.accelerators,
                latency=max(traffic.latencies),
                hops=Fraction(int(traffic.hops.sum()), messages),
            )
        return self._bisections[bits, ring]

    def _longest(self, loads: NDArray[Any]) -> Fraction:
        """Return the longest time of any channel, in seconds, given every channel's bytes."""
        # Dividing fractions is slow, and channels have few capacities.
        return max(
            Fraction(int(loads[channels].max())) / capacity
            for capacity, channels in self._by_capacity.items()
        )

    @cached_property
    def _by_capacity(self) -> dict[Fraction, Indices]:
        """The channels, grouped by capacity."""
        channels: dict[Fraction, list[int]] = {}
        for channel, capacity in enumerate(self.capacities):
            channels.setdefault(capacity, []).append(channel)
        return {capacity: np.array(numbers) for capacity, numbers in channels.items()}


def _count_accelerators(graph: nx.Graph[Any]) -> int:
    """Return the number of accelerators of a graph, after checking it.

    Raises
    ------
    HyparError
        If they are not a power of two, not numbered from 0, or not all connected.
    """
    count = sum(isinstance(node, int) for node in graph)
    if count & (count - 1) or not count:
        raise HyparError(f"the number of accelerators should be a power of two, got {count}")
    if not all(number in graph for number in range(count)):
        raise HyparError("accelerators should be numbered 0, 1, 2, ...")
    # Imported late: a solve without an array needs no graph.
    import networkx as nx

    connected = nx.node_connected_component(graph, 0)
    unreachable = next((number for number in range(count) if number not in connected), None)
    if unreachable is not None:
        raise HyparError(f"accelerators should all be connected; no path from 0 to {unreachable}")
    return count
