"""An array's graph, its routes, and the bisection bandwidth and latency of an exchange."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import lcm, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.errors import HyparError
from hypar_opt.frozen import derived, frozen
from hypar_opt.hardware.grid_paths import GridPaths
from hypar_opt.hardware.links import BisectionLink, Graph, Link
from hypar_opt.hardware.patterns import (
    DigitPlace,
    Group,
    Lane,
    MessagePattern,
    MessageRound,
    around_rings,
    between_parts,
)
from hypar_opt.hardware.routing import ShortestPaths
from hypar_opt.hardware.traffic import weight_type
from hypar_opt.hardware.tree_paths import TreePaths
from hypar_opt.hierarchy import Hierarchy

if TYPE_CHECKING:
    import networkx as nx
    from numpy.typing import NDArray

    from hypar_opt.hardware.traffic import Block, Indices, Paths, Route, Traffic


@dataclass(frozen=True)
class _Load:
    """The load of a pattern's messages, with one byte from every accelerator."""

    unit: int
    """The units of a channel's load in a byte."""
    of_channels: NDArray[Any]
    hops: Fraction
    """The mean of all messages."""
    latency: Fraction
    """The longest of all messages."""


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
    sizes
        The parts of every digit of accelerators' numbers, the most significant first; None for
        the prime factors of the dimensions, or of the accelerators' count.
    routes
        Returns the routes over the links; by default, and where it returns None, they are all
        shortest paths.

    Raises
    ------
    HyparError
        If the accelerators are not numbered from 0, not as many as the digits count, or not all
        connected.
    """

    def __init__(
        self,
        graph: Graph | nx.Graph[Any],
        shape: Sequence[int] | None = None,
        sizes: Sequence[int] | None = None,
        routes: Callable[[Sequence[Link]], Paths | None] | None = None,
    ) -> None:
        self._routes = routes
        self.graph = frozen(graph) if isinstance(graph, Graph) else graph
        self._shape = shape
        self.accelerators = _count_accelerators(graph)
        whole = Hierarchy(tuple(shape or (self.accelerators,)))
        hierarchy = whole.in_primes if sizes is None else Hierarchy(tuple(sizes))
        if hierarchy.accelerators != self.accelerators:
            raise HyparError(
                f"levels of {', '.join(map(str, hierarchy.sizes))} parts should have"
                f" {hierarchy.accelerators} accelerators, got {self.accelerators}"
            )
        self._join(hierarchy, _links(graph))

    def _join(self, hierarchy: Hierarchy, links: Iterable[Link]) -> None:
        """Join accelerators by links."""
        self.hierarchy = hierarchy
        """The digits of accelerators' numbers: the last is digit 0."""
        self.links = tuple(links)
        self.channel_link: tuple[int, ...] = tuple(
            number for number, link in enumerate(self.links) for _ in range(1 + link.full_duplex)
        )
        """The number of every channel's link."""
        # Kept, since all levels and placements share the few patterns.
        self._loads: dict[tuple[MessagePattern, range | None], _Load] = {}
        self._links: dict[tuple[tuple[Lane, ...], range | None], BisectionLink] = {}
        self._of_rounds: dict[tuple[tuple[MessageRound, ...], range | None], BisectionLink] = {}
        self._crossed: dict[
            tuple[tuple[MessageRound, ...], tuple[int, ...]], tuple[Fraction, ...]
        ] = {}

    @property
    def levels(self) -> int:
        """The hierarchy levels: divisions of the array down to one accelerator."""
        return self.hierarchy.levels

    def place(self, number: int) -> DigitPlace:
        """Return the place of a digit in accelerators' numbers; 0 is the least significant."""
        level = self.levels - 1 - number
        return DigitPlace(self.hierarchy.stride(level), self.hierarchy.sizes[level])

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
        if self._routes is not None and (paths := self._routes(self.links)) is not None:
            return paths
        # First: a mesh of one dimension is a tree as well, and a grid's blocks repeat.
        grid = GridPaths.of(self._shape, self.links) if self._shape else None
        return grid or TreePaths.of(self.graph, self.links) or ShortestPaths(self.graph, self.links)

    def route(self, source: int, target: int) -> Route:
        """Return the route between two accelerators."""
        return self.paths.traffic(np.array([source]), np.array([target])).route(0)

    def traffic(self, pattern: MessagePattern, block: Block = ()) -> Traffic:
        """Return the routes of a pattern's messages.

        Parameters
        ----------
        block
            As `hypar_opt.hardware.traffic.Paths.block` returns it: accelerators outside of it do
            not send.
        """
        numbers = np.arange(self.accelerators)
        senders = numbers[self.paths.inside(numbers, block)]
        return self.paths.traffic(senders, self.receivers(pattern)[senders])

    def loads(self, pattern: MessagePattern) -> tuple[Traffic, NDArray[Any]]:
        """Return routes that represent a pattern's, and every channel's load in their units.

        The load is of one byte from every accelerator: ``(channels,)`` integers.
        """
        block = self.block(pattern.digits)
        traffic = self.traffic(pattern, block)
        return traffic, self.paths.repeated(traffic.loads(len(self.channel_link)), block)

    def block(self, digits: Iterable[int]) -> Block:
        """Return the accelerators whose messages represent all others', as of `Paths.block`."""
        return self.paths.block([self.place(number) for number in digits])

    def between(self, digit: int, times: int = 1) -> tuple[MessageRound, ...]:
        """Return the rounds of an exchange between the parts that one digit distinguishes.

        Parameters
        ----------
        times
            How often every accelerator sends to each other one of its group.
        """
        return between_parts(digit, self.place(digit).parts, times)

    def around(
        self, rings: Iterable[Iterable[int]], times: int = 1, *, at_once: bool = False
    ) -> tuple[MessageRound, ...]:
        """Return the rounds of a reduction around rings, each of some digits.

        A ring is in the order of the accelerators' numbers, whatever the order of its levels.

        Parameters
        ----------
        times, at_once
            As for `hypar_opt.hardware.patterns.around_rings`.
        """
        ordered = [tuple(sorted(digits)) for digits in rings]
        counts = [prod(self.place(number).parts for number in digits) for digits in ordered]
        return around_rings(tuple(map(Group, ordered, counts)), times, at_once)

    def bisection(self, digit: int, among: range | None = None) -> BisectionLink:
        """Return the link of an exchange between the parts that one digit distinguishes.

        Of n parts it has the mean latency of the n - 1 rounds in which every accelerator sends to
        each other one whose number differs in that digit alone.

        Parameters
        ----------
        among
            As for `link`.
        """
        rounds = self.between(digit)
        link = self.link(rounds, among)
        return replace(link, latency=link.latency / len(rounds))

    def ring(self, digits: Iterable[int]) -> BisectionLink:
        """Return the link of a round around rings of accelerators that differ in some digits alone.

        All rings run at once; every accelerator sends to the next in its ring.
        """
        (many,) = self.around([digits])
        return self.link([MessageRound(many.lanes)])

    def link(self, rounds: Sequence[MessageRound], among: range | None = None) -> BisectionLink:
        """Return the link of an exchange, whose latency is that of all rounds together.

        Parameters
        ----------
        among
            The numbers of the participating accelerators; None for all. Seconds are always those of
            equally many bytes from every accelerator of the array.
        """
        key = tuple(rounds), among
        if key not in self._of_rounds:
            links = [(self._at_once(lanes, among), times) for lanes, times in rounds]
            sent = sum(times * lane.share for lanes, times in rounds for lane in lanes)
            self._of_rounds[key] = BisectionLink(
                sum((times * link.seconds_per_byte for link, times in links), Fraction()) / sent,
                sum((times * link.latency for link, times in links), Fraction()),
                sum((times * link.hops for link, times in links), Fraction()) / sent,
            )
        return self._of_rounds[key]

    def crossing(
        self, rounds: Sequence[MessageRound], digits: Sequence[int]
    ) -> tuple[Fraction, ...]:
        """Return the part of an exchange's bytes that crosses each digit.

        Those of a message cross the first of the digits in which its two ends differ.

        Parameters
        ----------
        digits
            All in which any differ, that of the topmost level first.
        """
        key = tuple(rounds), tuple(digits)
        if key not in self._crossed:
            parts = [Fraction()] * len(digits)
            for lanes, times in rounds:
                for pattern, share in lanes:
                    for number, messages in enumerate(self._crossing(pattern, digits)):
                        parts[number] += times * share * Fraction(messages, self.accelerators)
            self._crossed[key] = tuple(parts)
        return self._crossed[key]

    def _crossing(self, pattern: MessagePattern, digits: Sequence[int]) -> Iterator[int]:
        """Yield how many messages of a pattern cross each digit."""
        senders = self.group(pattern.digits)
        receivers = self.receivers(pattern, senders)
        groups = self.accelerators // len(senders)
        for stride, parts in map(self.place, digits):
            crosses = senders // stride % parts != receivers // stride % parts
            yield int(crosses.sum()) * groups
            senders, receivers = senders[~crosses], receivers[~crosses]

    def group(self, digits: Iterable[int]) -> Indices:
        """Return the accelerators that differ from accelerator 0 in some digits alone."""
        members = np.zeros(1, np.intp)
        for stride, parts in map(self.place, digits):
            members = (members + stride * np.arange(parts)[:, None]).reshape(-1)
        return members

    def receivers(self, pattern: MessagePattern, senders: Indices | None = None) -> Indices:
        """Return the accelerator that every accelerator, or some, send to in a pattern."""
        number = np.arange(self.accelerators) if senders is None else senders
        moved, carried = number.copy(), np.full_like(number, pattern.shift)
        # Overflow of a digit is carried to the next; that of the last is dropped.
        for stride, parts in map(self.place, pattern.digits):
            digit = number // stride % parts
            carried, added = np.divmod(digit + carried, parts)
            moved += (added - digit) * stride
        return moved

    def _at_once(self, lanes: tuple[Lane, ...], among: range | None) -> BisectionLink:
        """Return the link of messages sent at once, by the seconds of a byte of the exchange.

        The bottleneck channel decides: under max-min fairness its flows share it equally until
        all are done, and every other flow is at least as fast.
        """
        if (lanes, among) not in self._links:
            sent = [(self._load(pattern, among), share) for pattern, share in lanes]
            # Fractions: ties between levels and between plans have to be exact.
            unit = lcm(*((share / load.unit).denominator for load, share in sent))
            weights = [int(share / load.unit * unit) for load, share in sent]
            loads = [load.of_channels for load, _ in sent]
            bound = sum(w * int(x.max()) for w, x in zip(weights, loads, strict=True))
            dtype = weight_type(unit, bound)
            total = np.sum([w * x.astype(dtype) for w, x in zip(weights, loads, strict=True)], 0)
            self._links[lanes, among] = BisectionLink(
                # The bottleneck's time of one byte from every accelerator at once.
                seconds_per_byte=self._longest(total) / unit / self.accelerators,
                latency=max(load.latency for load, _ in sent),
                hops=sum((share * load.hops for load, share in sent), Fraction()),
            )
        return self._links[lanes, among]

    def _load(self, pattern: MessagePattern, among: range | None) -> _Load:
        """Return the load of a pattern's messages; exchanges may send several patterns at once."""
        if (pattern, among) not in self._loads:
            if among is None:
                traffic, loads = self.loads(pattern)
            else:
                senders = np.arange(among.start, among.stop)
                traffic = self.paths.traffic(senders, self.receivers(pattern)[senders])
                loads = traffic.loads(len(self.channel_link))
            hops = Fraction(int(traffic.hops.sum()), len(traffic.hops))
            self._loads[pattern, among] = _Load(traffic.unit, loads, hops, max(traffic.latencies))
        return self._loads[pattern, among]

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


def _links(graph: Graph | nx.Graph[Any]) -> Iterator[Link]:
    """Yield the links of a graph, each once, from the end that comes first."""
    before = set[Hashable]()
    for source in graph:
        for target, data in graph[source].items():
            if target not in before:
                attributes = (data["bytes_per_second"], data["latency"], data["full_duplex"])
                yield Link(source, target, *attributes)
        before.add(source)


def _count_accelerators(graph: Graph | nx.Graph[Any]) -> int:
    """Return the number of accelerators of a graph, after checking it.

    Raises
    ------
    HyparError
        If there are none, they are not numbered from 0, or not all connected.
    """
    count = sum(isinstance(node, int) for node in graph)
    if not count:
        raise HyparError("there should be an accelerator, got none")
    if not all(number in graph for number in range(count)):
        raise HyparError("accelerators should be numbered 0, 1, 2, ...")
    connected: set[Hashable] = set()
    reached: set[Hashable] = {0}
    while reached:
        connected |= reached
        reached = {other for node in reached for other in graph[node]} - connected
    unreachable = next((number for number in range(count) if number not in connected), None)
    if unreachable is not None:
        raise HyparError(f"accelerators should all be connected; no path from 0 to {unreachable}")
    return count
