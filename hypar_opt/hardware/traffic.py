"""The routes of messages that are sent together, as arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import RefusedError, argument

if TYPE_CHECKING:
    from hypar_opt.hardware.links import Link
    from hypar_opt.hardware.patterns import DigitPlace

Indices = NDArray[np.integer[Any]]

Block = tuple[int, ...]
"""The extents of a block along every dimension of a grid, from 0; empty for all accelerators."""

MAX_CROSSED = 2**25
"""Entries of one exchange's traffic, one per message and channel: about 1 GiB of arrays."""


@dataclass(frozen=True)
class Route:
    """All shortest paths from one accelerator to another, over which a message is spread evenly.

    Parameters
    ----------
    channels, shares
        Channels, and the fraction of a byte that crosses each; these add up to ``hops``.
    latency
        Seconds of the slowest path: the sum over its links.
    hops
        The links of each path; all paths are equally long.
    """

    channels: tuple[int, ...]
    shares: tuple[Fraction, ...]
    latency: Fraction
    hops: int


@dataclass(frozen=True, eq=False)
class Traffic:
    """The routes of messages: one entry per message and channel that it crosses.

    Parameters
    ----------
    message, channel : (entries,) integers
    weight : (entries,) int64, or object where that is too small
        The share of the message that crosses the channel, in units of ``1 / unit``.
    hops : (messages,) integers
        Links that a message crosses.
    latency : (messages,) integers
        The index of its latency in ``latencies``, which are in seconds.
    """

    message: Indices
    channel: Indices
    weight: NDArray[Any]
    unit: int
    hops: Indices
    latency: Indices
    latencies: tuple[Fraction, ...]

    @classmethod
    def of_routes(cls, routes: Sequence[Route]) -> Traffic:
        """Return the traffic of one message per route."""
        unit = lcm(*(share.denominator for route in routes for share in route.shares))
        weights = [int(share * unit) for route in routes for share in route.shares]
        latencies = tuple(dict.fromkeys(route.latency for route in routes))
        position = {latency: number for number, latency in enumerate(latencies)}
        hops = np.array([route.hops for route in routes], np.intp)
        lengths = [len(route.channels) for route in routes]
        return cls(
            message=np.repeat(np.arange(len(routes)), lengths),
            channel=np.array([c for route in routes for c in route.channels], np.intp),
            weight=np.array(weights, weight_type(unit, sum(weights))),
            unit=unit,
            hops=hops,
            latency=np.array([position[route.latency] for route in routes], np.intp),
            latencies=latencies,
        )

    def loads(self, channels: int) -> NDArray[Any]:
        """Return the load of every channel in units, ``(channels,)``: exact integers."""
        if self.unit == 1:  # so that every share is 1
            return np.bincount(self.channel, minlength=channels)
        total = np.zeros(channels, self.weight.dtype)
        np.add.at(total, self.channel, self.weight)
        return total

    def route(self, message: int) -> Route:
        """Return the route of one message."""
        entries = self.message == message
        return Route(
            tuple(self.channel[entries].tolist()),
            tuple(Fraction(weight, self.unit) for weight in self.weight[entries].tolist()),
            self.latencies[self.latency[message]],
            int(self.hops[message]),
        )


def directions(links: Sequence[Link]) -> tuple[Indices, Indices]:
    """Return every link's channels from source to target, and back.

    Channels are in the order of their links. A half-duplex link has one, for both directions.
    """
    full_duplex = np.array([link.full_duplex for link in links], np.int32)
    back = np.cumsum(full_duplex + 1, dtype=np.int32) - 1
    return back - full_duplex, back


def weight_type(unit: int, total: int) -> type[Any]:
    """Return the type in which weights of a unit, and sums of them, are exact."""
    return np.int64 if max(unit, total) < 2**62 else object


def check_crossed(entries: int) -> None:
    """Refuse traffic that crosses too many channels to list.

    Raises
    ------
    RefusedError
        If there are more than `MAX_CROSSED`.
    """
    if entries > MAX_CROSSED:
        raise RefusedError(
            f"the messages of one exchange cross {entries:,} links or more, and at most"
            f" {MAX_CROSSED:,} are listed; use {argument('collective', 'pairwise')}, or a topology"
            " whose accelerators are nearer one another"
        )


class Paths(ABC):
    """The routes over an array's links."""

    @abstractmethod
    def traffic(self, senders: Indices, receivers: Indices) -> Traffic:
        """Return the routes of messages from each sender to its receiver, which differ."""

    def block(self, digits: Sequence[DigitPlace]) -> Block:
        """Return accelerators whose messages represent all others' by symmetry.

        The messages of an exchange whose groups differ in these digits, if their senders are inside
        of the block, load their channels as the messages of all others load theirs, and share none
        with them.
        """
        # All accelerators, where no symmetry is known.
        del digits
        return ()

    def inside(self, numbers: Indices, block: Block) -> NDArray[np.bool_]:
        """Return which accelerators are inside of a block."""
        del block
        return np.ones(len(numbers), bool)

    def repeated(self, loads: NDArray[Any], block: Block) -> NDArray[Any]:
        """Return the load of every channel, given that of the block's messages alone."""
        del block
        return loads
