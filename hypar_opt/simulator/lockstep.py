"""Accelerators in lockstep: one is simulated for all, with a flow for all messages alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.simulator.fairness import RELATIVE_TOLERANCE
from hypar_opt.simulator.routes import FlowRates, RouteTable

if TYPE_CHECKING:
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.hardware.patterns import MessagePattern
    from hypar_opt.hardware.traffic import Block, Indices, Traffic

_MAX_EXACT_BITS = 52
"""Loads of more bits would be rounded in float64."""


class NotInLockstepError(Exception):
    """Messages of a pattern have different latencies or rates, so all have to be simulated."""


@dataclass(frozen=True, eq=False)
class _Pattern:
    """The messages that all accelerators send at once.

    Parameters
    ----------
    loads : (channels,) float64
        Bytes that cross every channel if every accelerator sends one: exact.
    crossed : (channels,) bool
        Whether any bytes cross the channel.
    latency
        Seconds, the same for every message.
    """

    messages: MessagePattern
    loads: NDArray[np.float64]
    crossed: NDArray[np.bool_]
    latency: float


class PatternRoutes(RouteTable):
    """A route for every pattern of messages, as long as its messages are alike.

    They are alike if they have one latency, and whenever rates are solved one rate. All
    accelerators then do the same at the same instants, so that the run of one of them is the run
    of all, to the last bit: no sum that `max_min_rates` makes of alike flows is rounded.

    Raises
    ------
    NotInLockstepError
        Also when rates are solved.
    """

    def __init__(self, interconnect: Interconnect) -> None:
        super().__init__(interconnect, 1)
        self._patterns: list[_Pattern] = []
        self._traffic: dict[tuple[int, Block], Traffic] = {}

    @property
    def class_of(self) -> Indices:
        return np.zeros(self.interconnect.accelerators, np.intp)

    def pattern(self, pattern: MessagePattern) -> tuple[list[int], list[int]]:
        traffic, in_units = self.interconnect.loads(pattern)
        latencies = {traffic.latencies[number] for number in {*traffic.latency.tolist()}}
        if len(latencies) > 1:
            raise NotInLockstepError
        # Loads in halves, quarters and so on, whose sums are exact.
        if traffic.unit & (traffic.unit - 1) or int(in_units.max()) >> _MAX_EXACT_BITS:
            raise NotInLockstepError
        loads = in_units.astype(np.float64) / traffic.unit
        number = len(self._patterns)
        self._traffic[number, self.interconnect.block(pattern.digits)] = traffic
        self._patterns.append(_Pattern(pattern, loads, loads > 0, float(latencies.pop())))
        return [0], [number]

    @cached_property
    def group_of_link(self) -> Indices:
        crossed = np.zeros((len(self._patterns), len(self.interconnect.links)), bool)
        for number, pattern in enumerate(self._patterns):
            crossed[number, self.channel_link[pattern.crossed]] = True
        return np.unique(np.packbits(crossed, axis=0), axis=1, return_inverse=True)[1].reshape(-1)

    def bytes_by_channel(self, sent: Mapping[int, float]) -> NDArray[np.float64]:
        total = np.zeros(len(self.capacities))
        for number, moved in sent.items():
            total += moved * self._patterns[number].loads
        return total

    def _solve(self, flow_routes: bytes) -> FlowRates:
        numbers, route_of, flows = np.unique(
            np.frombuffer(flow_routes, np.intp), return_inverse=True, return_counts=True
        )
        rates = self._pattern_rates(numbers.tolist(), flows)
        latencies = np.array([self._patterns[number].latency for number in numbers])
        return FlowRates(rates[route_of], latencies[route_of], self._links_crossed(flow_routes))

    def _links_crossed(self, flow_routes: bytes) -> NDArray[np.intp]:
        crossed = np.zeros(self.group_of_link.max() + 1, bool)
        for number in set(np.frombuffer(flow_routes, np.intp).tolist()):
            links = self.channel_link[self._patterns[number].crossed]
            crossed[self.group_of_link[links]] = True
        return np.flatnonzero(crossed)

    def _pattern_rates(
        self, numbers: Sequence[int], flows: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """Return the max-min fair rate of each pattern's messages, in bytes per second.

        As `max_min_rates`, but with a pattern's messages as one flow. In every round they
        must share one bottleneck rate, and settle all together or not at all.

        Parameters
        ----------
        flows : (patterns,) integers
            How many messages of the pattern an accelerator sends at once.
        """
        patterns = [self._patterns[number] for number in numbers]
        capacity_left = self.capacities.copy()
        rates = np.zeros(len(patterns))
        rising = set(range(len(patterns)))
        while rising:
            demand = sum(flows[n] * patterns[n].loads for n in rising)
            fair = np.full(len(capacity_left), np.inf)
            np.divide(capacity_left, demand, out=fair, where=demand > 0)
            bottleneck = {n: fair[patterns[n].crossed].min() for n in rising}
            is_saturated = np.ones(len(capacity_left), bool)
            for n, rate in bottleneck.items():
                waits = rate < fair * (1 - RELATIVE_TOLERANCE)
                is_saturated &= ~(patterns[n].crossed & waits)
            settled = [n for n in sorted(rising) if is_saturated[patterns[n].crossed].any()]
            for n, rate in bottleneck.items():
                at_rate = fair == rate
                self._check_bottleneck(n, numbers, at_rate)
                # If these are all saturated, it has been checked already.
                if n in settled and not is_saturated[at_rate].all():
                    self._check_bottleneck(n, numbers, is_saturated)
            rising -= set(settled)
            used = np.zeros(len(capacity_left))
            for rate in sorted({bottleneck[n] for n in settled}):
                equal = [n for n in settled if bottleneck[n] == rate]
                rates[equal] = rate
                used += sum(flows[n] * patterns[n].loads for n in equal) * rate
            capacity_left -= used
        return rates

    def _check_bottleneck(
        self, n: int, numbers: Sequence[int], channels: NDArray[np.bool_]
    ) -> None:
        """Refuse a pattern unless every message of it crosses at least one of some channels.

        Parameters
        ----------
        n
            The pattern's position among ``numbers``, all in flight.

        Raises
        ------
        NotInLockstepError
            If a message crosses none of them.
        """
        pattern = self._patterns[numbers[n]]
        patterns = (self._patterns[number] for number in numbers)
        sharing = [other for other in patterns if (other.crossed & pattern.crossed).any()]
        # Beyond the block of all that it shares channels with, everything is repeated.
        digits = {digit for other in sharing for digit in other.messages.digits}
        key = numbers[n], self.interconnect.block(digits)
        if key not in self._traffic:
            self._traffic[key] = self.interconnect.traffic(pattern.messages, key[1])
        traffic = self._traffic[key]
        crosses = np.zeros(len(traffic.hops), bool)
        crosses[traffic.message[channels[traffic.channel]]] = True
        if not crosses.all():
            raise NotInLockstepError
