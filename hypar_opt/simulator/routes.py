"""The routes of messages as arrays, and the rates of the flows on them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.simulator.classes import Classes, all_differ
from hypar_opt.simulator.fairness import max_min_rates

if TYPE_CHECKING:
    from hypar_opt.hardware.patterns import MessagePattern
    from hypar_opt.hardware.traffic import Indices, Traffic

CACHED_PATTERNS = 512
"""Combinations of routes whose rates are cached; at 1,024 accelerators, about 20 MB."""


@dataclass(frozen=True)
class FlowRates:
    """Flows' rates in bytes a second, their latencies in seconds, and the links they cross.

    Parameters
    ----------
    links
        The numbers of their groups, as in `RouteTable.group_of_link`.
    """

    rates: NDArray[np.float64]
    latencies: NDArray[np.float64]
    links: NDArray[np.intp]


class LoneRoute(NamedTuple):
    """A route, and a flow that has it to itself.

    Parameters
    ----------
    crossed
        Classes of channels, the share of a byte that crosses each, and the bytes a second.
    rate
        In bytes a second.
    latency
        In seconds.
    groups
        As `FlowRates.links`.
    """

    number: int
    crossed: tuple[tuple[int, float, float], ...]
    rate: float
    latency: float
    groups: NDArray[np.intp]


NO_FLOWS = FlowRates(np.empty(0), np.empty(0), np.empty(0, np.intp))


def bytes_by_link(interconnect: Interconnect, moved: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bytes that crossed every link, both directions added, given those by channel."""
    total = np.zeros(len(interconnect.links))
    # Both directions of a link add to one entry; `+=` by index would add one of them only.
    np.add.at(total, np.array(interconnect.channel_link, np.intp), moved)
    return total


def seconds_at_capacity(
    interconnect: Interconnect, moved: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the seconds that every link's busier direction would take at full bandwidth.

    Parameters
    ----------
    moved : (channels,)
        Bytes.
    """
    longest = np.zeros(len(interconnect.links))
    np.maximum.at(
        longest, np.array(interconnect.channel_link, np.intp), moved / interconnect.float_capacities
    )
    return longest


class RouteTable(ABC):
    """The routes in use, numbered, and the rates of flows on any of them at once.

    Rates and links are cached by the flows' routes, the bytes of the array of their numbers: a
    step repeats a few patterns of traffic.

    Parameters
    ----------
    accelerators
        The number whose messages are simulated: one of each class of the array's.
    """

    def __init__(self, interconnect: Interconnect, accelerators: int) -> None:
        self.interconnect = interconnect
        self.accelerators = accelerators
        self.capacities = interconnect.float_capacities
        self.channel_link = np.array(interconnect.channel_link, np.intp)
        self.rates = lru_cache(CACHED_PATTERNS)(self._solve)
        self.links_crossed = lru_cache(CACHED_PATTERNS)(self._links_crossed)

    @property
    @abstractmethod
    def class_of(self) -> Indices:
        """The number of the simulated accelerator that stands for each of the array's."""

    @abstractmethod
    def pattern(self, pattern: MessagePattern) -> tuple[list[int], list[int]]:
        """Return every accelerator's receiver, and the number of the route to it."""

    @property
    @abstractmethod
    def group_of_link(self) -> Indices:
        """The number of every link's group: links that the same routes cross."""

    @abstractmethod
    def bytes_by_channel(self, sent: Mapping[int, float]) -> NDArray[np.float64]:
        """Return the bytes that crossed every channel, given the bytes sent over each route."""

    @abstractmethod
    def _solve(self, flow_routes: bytes) -> FlowRates:
        """Return the max-min fair rates of flows, in the order of their routes in the key."""

    @abstractmethod
    def _links_crossed(self, flow_routes: bytes) -> NDArray[np.intp]:
        """Return the groups of links that any of the flows crosses."""


class ClassRoutes(RouteTable):
    """One route per class of accelerators and receiver, over classes of channels.

    Parameters
    ----------
    classes
        Which accelerators are alike, in a step of the patterns that are sent; by default none.
    """

    def __init__(self, interconnect: Interconnect, classes: Classes | None = None) -> None:
        self._classes = classes = classes or all_differ(interconnect)
        self.firsts = classes.first
        """The accelerator that is simulated for each class."""
        super().__init__(interconnect, len(self.firsts))
        self._members = np.bincount(classes.accelerators)
        self._channels = np.bincount(classes.channels)
        self.capacities = self.capacities[np.unique(classes.channels, return_index=True)[1]]
        self._numbers: dict[tuple[int, int], int] = {}
        # The routes' channels, concatenated; and where each route's begin, and how many it has.
        self._channel = np.empty(0, np.intp)
        self._share = np.empty(0)
        self._first = np.empty(0, np.intp)
        self._lengths = np.empty(0, np.intp)
        self._latency = np.empty(0)
        self.lone = cache(self._lone)
        self._components = cache(self._connected)
        self._alone = lru_cache(4 * CACHED_PATTERNS)(self._rates_alone)
        # The first and the last channel of each link, and of each group of links.
        ends = np.empty((2, len(interconnect.links)), np.intp)
        for last, order in enumerate((slice(None, None, -1), slice(None))):
            ends[last, self.channel_link[order]] = classes.channels[order]
        self._of_group, group = np.unique(np.sort(ends, axis=0), axis=1, return_inverse=True)
        self._group_of_link = group.reshape(-1)

    @property
    def class_of(self) -> Indices:
        return self._classes.accelerators

    @property
    def group_of_link(self) -> Indices:
        return self._group_of_link

    def _lone(self, number: int) -> LoneRoute:
        entries = slice(self._first[number], self._first[number] + self._lengths[number])
        channel = self._channel[entries]
        crossed, entry = np.unique(channel, return_inverse=True)
        share = np.bincount(entry, self._share[entries])
        rate = float((self.capacities[crossed] / share).min())
        taken = (rate * share).tolist()
        return LoneRoute(
            number,
            tuple(zip(crossed.tolist(), share.tolist(), taken, strict=True)),
            rate,
            float(self._latency[number]),
            self._crossed(channel),
        )

    def pattern(self, pattern: MessagePattern) -> tuple[list[int], list[int]]:
        receivers = self.interconnect.receivers(pattern)[self.firsts]
        pairs = list(zip(self.firsts.tolist(), receivers.tolist(), strict=True))
        return self.class_of[receivers].tolist(), self.numbers(pairs)

    def class_representatives(self, channels: Indices) -> list[int]:
        """Return one channel of each class that some channels are of."""
        first = np.unique(self._classes.channels[channels], return_index=True)[1]
        one: list[int] = channels[first].tolist()
        return one

    def number(self, source: int, target: int) -> int:
        """Return the number of the route between two accelerators."""
        return self.numbers([(source, target)])[0]

    def numbers(self, pairs: list[tuple[int, int]]) -> list[int]:
        """Return the numbers of the routes between pairs of accelerators."""
        added = list(dict.fromkeys(pair for pair in pairs if pair not in self._numbers))
        if added:
            senders, receivers = np.array(added).T
            self._add(senders, self.interconnect.paths.traffic(senders, receivers))
            self._numbers |= zip(added, range(len(self._numbers), len(self._first)), strict=True)
        return [self._numbers[pair] for pair in pairs]

    def _add(self, senders: Indices, traffic: Traffic) -> None:
        """Add routes: what each channel of a class carries of the messages of a class."""
        order = np.argsort(traffic.message, kind="stable")
        message, channel = traffic.message[order], self._classes.channels[traffic.channel[order]]
        lengths = np.bincount(message, minlength=len(traffic.hops))
        latencies = np.array([float(latency) for latency in traffic.latencies])
        sent = traffic.weight[order] * self._members[self.class_of[senders]][message]
        over = self._channels[channel].astype(sent.dtype) * traffic.unit
        # Rounded once, as if they were fractions.
        share = (sent / over).astype(np.float64)
        first = len(self._channel) + np.cumsum(lengths) - lengths
        self._components = cache(self._connected)
        self._channel = np.concatenate([self._channel, channel])
        self._share = np.concatenate([self._share, share])
        self._first = np.concatenate([self._first, first])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._latency = np.concatenate([self._latency, latencies[traffic.latency]])

    def bytes_by_channel(self, sent: Mapping[int, float]) -> NDArray[np.float64]:
        by_route = np.array([sent.get(route, 0.0) for route in range(len(self._latency))])
        sent_by_entry = np.repeat(by_route, self._lengths)
        moved = sent_by_entry * self._share
        by_class = np.bincount(self._channel, moved, len(self._channels)).astype(np.float64)
        by_channel: NDArray[np.float64] = by_class[self._classes.channels]
        return by_channel

    def _solve(self, flow_routes: bytes) -> FlowRates:
        routes = np.frombuffer(flow_routes, np.intp)
        component = self._components()[routes]
        order = component.argsort(kind="stable")
        ends = [*(np.flatnonzero(np.diff(component[order])) + 1).tolist(), len(order)]
        key, size = routes[order].tobytes(), routes.itemsize
        alone = [
            self._alone(key[first * size : last * size]) for first, last in pairwise([0, *ends])
        ]
        rates = np.empty(len(routes))
        rates[order] = np.concatenate([rate for rate, _ in alone])
        links = np.concatenate([crossed for _, crossed in alone])
        return FlowRates(rates, self._latency[routes], links)

    def _rates_alone(self, flow_routes: bytes) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Return the rates of flows that meet no others, and the groups of links they cross."""
        entries, lengths = self._entries(np.frombuffer(flow_routes, np.intp))
        channel = self._channel[entries]
        rates = max_min_rates(self.capacities, channel, self._share[entries], lengths)
        return rates, self._crossed(channel)

    def _connected(self) -> Indices:
        """Return the number of each route's component: those of others share no channel with it."""
        component = np.arange(len(self._channels))
        while True:
            of_route = np.minimum.reduceat(component[self._channel], self._first)
            joined = component.copy()
            np.minimum.at(joined, self._channel, np.repeat(of_route, self._lengths))
            joined = joined[joined]
            if np.array_equal(joined, component):
                return of_route
            component = joined

    def _entries(self, routes: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the positions of some routes' channels, and how many each route has."""
        first, lengths = self._first[routes], self._lengths[routes]
        before = np.cumsum(lengths) - lengths
        return np.repeat(first - before, lengths) + np.arange(lengths.sum()), lengths

    def _links_crossed(self, flow_routes: bytes) -> NDArray[np.intp]:
        entries, _ = self._entries(np.frombuffer(flow_routes, np.intp))
        return self._crossed(self._channel[entries])

    def _crossed(self, channel: NDArray[Any]) -> NDArray[np.intp]:
        crossed = np.zeros(len(self._channels), bool)
        crossed[channel] = True
        return np.flatnonzero(crossed[self._of_group].any(axis=0))
