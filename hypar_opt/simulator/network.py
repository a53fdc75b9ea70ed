"""Messages that share an array's links max-min fairly, as SimPy events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from simpy import Environment, Event
from simpy.events import EventPriority

from hypar_opt.hardware.interconnect import Interconnect

AFTER_THE_REST = EventPriority(2)
"""Later than everything else of the same instant: SimPy's NORMAL is 1."""

SAME = 1e-12
"""What differs by less, relatively, is equal: two instants, or two channels' fair rates."""

SOLUTIONS = 512
"""How many patterns of traffic keep their rates; at 1,024 accelerators, some 20 MB."""

FLOW = np.dtype(
    [("route", np.intp), ("left", np.float64), ("message", np.intp), ("label", np.intp)]
)


class Segment(NamedTuple):
    """A time, in seconds, in which the bytes of the same labels crossed a link."""

    start: float
    end: float
    labels: tuple[int, ...]


@dataclass(frozen=True)
class Wire:
    """A route as arrays: its channels with their shares, its links, its latency in seconds."""

    channels: NDArray[np.intp]
    shares: NDArray[np.float64]
    links: NDArray[np.intp]
    latency: float


@dataclass(frozen=True)
class Pace:
    """Flows' rates in bytes a second, their latencies in seconds, and the links they cross."""

    rates: NDArray[np.float64]
    latencies: NDArray[np.float64]
    links: NDArray[np.intp]


class Network:
    """The links of an array, and the messages that cross them at this moment.

    A message from one accelerator to another is a flow: at a rate of r bytes a second it takes
    ``r * share`` of every channel of its route. Rates are max-min fair: they rise together
    until a channel is full, whose flows stop there, and the others rise on (progressive
    filling). They are set anew whenever flows start or end, once an instant. A message is
    delivered the route's latency after its last byte has left.

    Source: D. Bertsekas and R. Gallager, Data Networks, 2nd edition (1992), section 6.5.2.

    Parameters
    ----------
    delivered
        Is told the messages that arrive together, in the order of their routes' numbers.
    record
        Whether to keep ``segments``.
    """

    def __init__(
        self,
        env: Environment,
        interconnect: Interconnect,
        delivered: Callable[[list[int]], None],
        *,
        record: bool = False,
    ) -> None:
        self._env = env
        self._wires = interconnect
        self._delivered = delivered
        self._record = record
        self._capacities = np.array([float(capacity) for capacity in interconnect.capacities])
        self._channel_link = np.array(interconnect.channel_link, np.intp)
        self._routes: list[Wire] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._sent: list[float] = []
        self._busy = np.zeros(len(interconnect.links))
        self._segments: list[list[Segment]] = [[] for _ in interconnect.links]
        self._starting: list[tuple[int, float, int, int]] = []
        self._flows = np.empty(0, FLOW)
        self._pace = Pace(np.empty(0), np.empty(0), np.empty(0, np.intp))
        self._ending = np.empty(0, bool)
        self._since = 0.0
        self._change_due = False
        self._next_end: Event | None = None
        # Keyed by the routes in use, in order: a step exchanges in the same few patterns.
        self._pace_of = lru_cache(SOLUTIONS)(self._solve)
        self._links_of = lru_cache(SOLUTIONS)(self._links_crossed)

    def route(self, source: int, target: int) -> int:
        """Return the number by which `send` knows the route between two accelerators."""
        pair = source, target
        if pair not in self._numbers:
            route = self._wires.route(source, target)
            channels = np.array(route.channels, np.intp)
            one_path = len(channels) == route.hops
            shares = np.ones(route.hops) if one_path else np.array(route.shares, np.float64)
            links = self._channel_link[channels]
            self._numbers[pair] = len(self._routes)
            self._routes.append(Wire(channels, shares, links, float(route.latency)))
            self._sent.append(0.0)
        return self._numbers[pair]

    def send(self, route: int, bytes: float, message: int, label: int) -> None:  # noqa: A002
        """Start a message at this instant.

        Parameters
        ----------
        message
            What ``delivered`` will be told.
        label
            What ``segments`` call it.
        """
        self._starting.append((route, bytes, message, label))
        self._sent[route] += bytes
        if not self._change_due:
            self._schedule_change()

    @property
    def link_bytes(self) -> tuple[float, ...]:
        """Bytes that were sent over each link, both directions added."""
        total = np.zeros(len(self._wires.links))
        np.add.at(total, self._channel_link, self._channel_bytes())
        return tuple(total.tolist())

    @property
    def link_seconds_at_capacity(self) -> tuple[float, ...]:
        """Seconds that each link's bytes take at its full rate, in its busier direction."""
        longest = np.zeros(len(self._wires.links))
        np.maximum.at(longest, self._channel_link, self._channel_bytes() / self._capacities)
        return tuple(longest.tolist())

    @property
    def link_busy(self) -> tuple[float, ...]:
        """Seconds in which any byte crossed each link."""
        return tuple(self._busy.tolist())

    @property
    def segments(self) -> tuple[tuple[Segment, ...], ...]:
        """Of each link, what crossed it when; neighbours differ in their labels."""
        return tuple(tuple(segments) for segments in self._segments)

    def _channel_bytes(self) -> NDArray[np.float64]:
        total = np.zeros(len(self._channel_link))
        for route, sent in zip(self._routes, self._sent, strict=True):
            total[route.channels] += sent * route.shares
        return total

    def _schedule_change(self) -> None:
        self._change_due = True
        change = Event(self._env)
        change._ok, change._value = True, None
        change.callbacks.append(self._change)
        self._env.schedule(change, AFTER_THE_REST)

    def _change(self, _: Event) -> None:
        """Let what starts now join, and set all rates."""
        self._change_due = False
        now = self._env.now
        if len(self._flows) and now > self._since:
            self._pass(now - self._since)
        self._since = now
        if self._starting:
            flows = np.array(self._starting, FLOW)
            if len(self._flows):
                flows = np.concatenate([self._flows, flows])
            self._flows = flows[flows["route"].argsort(kind="stable")]
            self._starting = []
        if not len(self._flows):
            return
        self._pace = self._pace_of(self._flows["route"].tobytes())
        ends = self._flows["left"] / self._pace.rates
        seconds = float(ends.min())
        # Rounding is of the size of the clock's, not of the wait's.
        self._ending = ends <= seconds + SAME * (now + seconds)
        self._next_end = self._env.timeout(seconds, seconds)
        self._next_end.callbacks.append(self._end)

    def _end(self, timer: Event) -> None:
        """Take out the flows whose last byte has left, unless starts have changed the rates."""
        if timer is not self._next_end:
            return
        wait: Any = timer.value
        self._pass(wait)
        self._since = self._env.now
        ended = self._flows[self._ending]
        self._flows = self._flows[~self._ending]
        self._next_end = None
        if len(self._flows) and not self._change_due:
            self._schedule_change()
        latencies = self._pace.latencies[self._ending]
        for latency in np.unique(latencies).tolist():
            messages: list[int] = ended["message"][latencies == latency].tolist()
            if latency:
                self._env.timeout(latency, messages).callbacks.append(self._arrive)
            else:
                self._delivered(messages)

    def _arrive(self, timer: Event) -> None:
        arrived: Any = timer.value
        self._delivered(arrived)

    def _pass(self, seconds: float) -> None:
        """Move bytes for a time in which the rates have not changed."""
        self._busy[self._pace.links] += seconds
        if self._record:
            self._note(self._since, self._env.now)
        left = self._flows["left"]
        np.maximum(left - self._pace.rates * seconds, 0.0, out=left)

    def _note(self, start: float, end: float) -> None:
        crossing: dict[int, tuple[int, ...]] = {}
        for label in np.unique(self._flows["label"]).tolist():
            routes = self._flows["route"][self._flows["label"] == label]
            for link in self._links_of(routes.tobytes()).tolist():
                crossing[link] = (*crossing.get(link, ()), label)
        for link, labels in crossing.items():
            segments = self._segments[link]
            if segments and segments[-1].end == start and segments[-1].labels == labels:
                start_of_all = segments.pop().start
                segments.append(Segment(start_of_all, end, labels))
            elif end > start:
                segments.append(Segment(start, end, labels))

    def _links_crossed(self, key: bytes) -> NDArray[np.intp]:
        routes = dict.fromkeys(np.frombuffer(key, np.intp).tolist())
        crossed = np.zeros(len(self._busy), bool)
        crossed[np.concatenate([self._routes[route].links for route in routes])] = True
        return np.flatnonzero(crossed)

    def _solve(self, key: bytes) -> Pace:
        numbers, place, flows = np.unique(
            np.frombuffer(key, np.intp), return_inverse=True, return_counts=True
        )
        routes = [self._routes[number] for number in numbers.tolist()]
        rates = max_min_rates(
            self._capacities,
            [route.channels for route in routes],
            [route.shares for route in routes],
            flows,
        )
        latencies = np.array([route.latency for route in routes])
        return Pace(rates[place], latencies[place], self._links_crossed(key))


def max_min_rates(
    capacities: NDArray[np.float64],
    channels: list[NDArray[np.intp]],
    shares: list[NDArray[np.float64]],
    flows: NDArray[Any],
) -> NDArray[np.float64]:
    """Return the max-min fair rate of each route's flows, bytes a second.

    Progressive filling, with all channels at once that no other can forestall: those whose
    fair rate is the least on the whole way of each flow that crosses them. A chain of n
    bottlenecks, each waiting for the one before, takes n rounds.

    Parameters
    ----------
    capacities : (channels,) float64, bytes a second
    channels, shares
        Of each route, its channels and what of a byte crosses each.
    flows : (routes,) integers
        How many flows each route has, at least one.
    """
    channel = np.concatenate(channels)
    sizes = np.array([len(route) for route in channels])
    first = np.cumsum(sizes) - sizes
    route = np.repeat(np.arange(len(sizes)), sizes)
    load = np.concatenate(shares) * flows[route]
    free = capacities.copy()
    rates = np.zeros(len(sizes))
    rising = np.ones(len(sizes), bool)
    while rising.any():
        demand = np.bincount(channel, load * rising[route], len(free))
        fair = np.full(len(free), np.inf)
        np.divide(free, demand, out=fair, where=demand > 0)
        least = np.minimum.reduceat(fair[channel], first)
        waits = rising[route] & (least[route] < fair[channel] * (1 - SAME))
        full = np.bincount(channel, waits, len(free)) == 0
        settled = rising & np.logical_or.reduceat(full[channel], first)
        rates[settled] = least[settled]
        free -= np.bincount(channel, load * np.where(settled, least, 0.0)[route], len(free))
        rising &= ~settled
    return rates
