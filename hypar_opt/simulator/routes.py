"""The routes of messages as arrays, and the rates of the flows on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.simulator.fairness import max_min_rates

CACHED_PATTERNS = 512
"""Combinations of routes whose rates are cached; at 1,024 accelerators, about 20 MB."""


@dataclass(frozen=True)
class FlowRoute:
    """A route as arrays: its channels with their shares, its links, its latency in seconds."""

    channels: NDArray[np.intp]
    shares: NDArray[np.float64]
    links: NDArray[np.intp]
    latency: float


@dataclass(frozen=True)
class FlowRates:
    """Flows' rates in bytes a second, their latencies in seconds, and the links they cross."""

    rates: NDArray[np.float64]
    latencies: NDArray[np.float64]
    links: NDArray[np.intp]


NO_FLOWS = FlowRates(np.empty(0), np.empty(0), np.empty(0, np.intp))


class RouteTable:
    """The routes in use, numbered, and the rates of flows on any of them at once.

    Rates and links are cached by the flows' routes, the bytes of the array of their numbers: a
    step repeats a few patterns of traffic.
    """

    def __init__(self, interconnect: Interconnect) -> None:
        self._interconnect = interconnect
        self._capacities = np.array([float(capacity) for capacity in interconnect.capacities])
        self._channel_link = np.array(interconnect.channel_link, np.intp)
        self._routes: list[FlowRoute] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self.rates = lru_cache(CACHED_PATTERNS)(self._solve)
        self.links_crossed = lru_cache(CACHED_PATTERNS)(self._links_crossed)

    def number(self, source: int, target: int) -> int:
        """Return the number of the route between two accelerators."""
        pair = source, target
        if pair not in self._numbers:
            route = self._interconnect.route(source, target)
            channels = np.array(route.channels, np.intp)
            # On a single path, as in a tree, all shares are 1: converting fractions is slow.
            one_path = len(channels) == route.hops
            shares = np.ones(route.hops) if one_path else np.array(route.shares, np.float64)
            links = self._channel_link[channels]
            self._numbers[pair] = len(self._routes)
            self._routes.append(FlowRoute(channels, shares, links, float(route.latency)))
        return self._numbers[pair]

    def bytes_by_link(self, sent: dict[int, float]) -> NDArray[np.float64]:
        """Return the bytes that crossed every link, both directions added.

        Parameters
        ----------
        sent
            Bytes by the route's number.
        """
        total = np.zeros(len(self._interconnect.links))
        # Both directions of a link add to one entry; `+=` by index would add one of them only.
        np.add.at(total, self._channel_link, self._bytes_by_channel(sent))
        return total

    def seconds_at_capacity(self, sent: dict[int, float]) -> NDArray[np.float64]:
        """Return the seconds of every link's bytes at its full bandwidth, in its busier direction.

        Parameters
        ----------
        sent
            Bytes by the route's number.
        """
        longest = np.zeros(len(self._interconnect.links))
        seconds = self._bytes_by_channel(sent) / self._capacities
        np.maximum.at(longest, self._channel_link, seconds)
        return longest

    def _bytes_by_channel(self, sent: dict[int, float]) -> NDArray[np.float64]:
        """Return the bytes that crossed every channel, of bytes by the route's number."""
        total = np.zeros(len(self._channel_link))
        for number, route in enumerate(self._routes):
            total[route.channels] += sent.get(number, 0.0) * route.shares
        return total

    def _solve(self, flow_routes: bytes) -> FlowRates:
        """Return the max-min fair rates of flows, in the order of their routes in the key."""
        # Flows of one route have one rate: the rates are solved by route, not by flow.
        numbers, route_of, flows = np.unique(
            np.frombuffer(flow_routes, np.intp), return_inverse=True, return_counts=True
        )
        routes = [self._routes[number] for number in numbers.tolist()]
        rates = max_min_rates(
            self._capacities,
            [route.channels for route in routes],
            [route.shares for route in routes],
            flows,
        )
        latencies = np.array([route.latency for route in routes])
        return FlowRates(rates[route_of], latencies[route_of], self._links_crossed(flow_routes))

    def _links_crossed(self, flow_routes: bytes) -> NDArray[np.intp]:
        """Return the numbers of the links that any of the flows crosses."""
        routes = dict.fromkeys(np.frombuffer(flow_routes, np.intp).tolist())
        crossed = np.zeros(len(self._interconnect.links), bool)
        crossed[np.concatenate([self._routes[route].links for route in routes])] = True
        return np.flatnonzero(crossed)
