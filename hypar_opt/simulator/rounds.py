"""Exchanges as rounds of messages: receiver, route and hierarchy level of every message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.simulator.tasks import Exchange


@dataclass(frozen=True)
class TrafficPattern:
    """The messages of a round, in lists by the stream that sends them (`Machine`).

    Parameters
    ----------
    receivers
        The stream that receives the message.
    routes
        The number of its route.
    levels
        The hierarchy level that it crosses; of several the topmost.
    """

    receivers: list[int]
    routes: list[int]
    levels: list[int]


@dataclass(frozen=True)
class MessageRounds:
    """An exchange as rounds, in each of which every accelerator sends one message.

    Parameters
    ----------
    task
        The exchange's number among the step's tasks.
    rounds
        How many, run one after the other.
    bytes
        Of one message.
    """

    task: int
    rounds: int
    bytes: float
    pattern: TrafficPattern


class Patterns:
    """The traffic patterns of a step's exchanges, each computed once.

    Parameters
    ----------
    route
        Returns the number of the route between two accelerators.
    streams
        Of every accelerator.
    """

    def __init__(
        self, interconnect: Interconnect, route: Callable[[int, int], int], streams: int
    ) -> None:
        self._interconnect = interconnect
        self._route = route
        self._streams = streams
        self._patterns: dict[tuple[bool, tuple[int, ...], tuple[int, ...]], TrafficPattern] = {}

    def rounds(self, number: int, exchange: Exchange) -> MessageRounds:
        """Return an exchange, task ``number`` of the step, as rounds."""
        key = exchange.ring, exchange.levels, exchange.bits
        if key not in self._patterns:
            self._patterns[key] = self._pattern(exchange)
        # `exchange.bytes` are those of all accelerators and rounds.
        message = exchange.bytes / (self._interconnect.accelerators * exchange.messages)
        return MessageRounds(number, exchange.messages, message, self._patterns[key])

    def _pattern(self, exchange: Exchange) -> TrafficPattern:
        """Return who sends to whom in a round of an exchange, over which route and level."""
        receivers = self._interconnect.receivers(exchange.bits, ring=exchange.ring)
        # A ring's neighbours are separated at the topmost level whose bit differs, and an
        # exchange has its topmost level first.
        levels = [
            next(
                level
                for level, bit in zip(exchange.levels, exchange.bits, strict=True)
                if (sender ^ receiver) >> bit & 1
            )
            for sender, receiver in enumerate(receivers)
        ]
        routes = [self._route(sender, receiver) for sender, receiver in enumerate(receivers)]
        # A stream sends to the same stream of another accelerator.
        streams = range(self._streams)
        count = self._interconnect.accelerators
        to = [stream * count + receiver for stream in streams for receiver in receivers]
        return TrafficPattern(to, routes * self._streams, levels * self._streams)
