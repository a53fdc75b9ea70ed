"""Messages as flows that share an array's links max-min fairly, as SimPy events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from simpy import Environment, Event
from simpy.events import EventPriority

from hypar_opt.simulator.fairness import RELATIVE_TOLERANCE
from hypar_opt.simulator.routes import (
    NO_FLOWS,
    RouteTable,
    bytes_by_link,
    seconds_at_capacity,
)

AFTER_OTHER_EVENTS = EventPriority(2)
"""After all other events of the same instant: SimPy's NORMAL is 1."""


class Segment(NamedTuple):
    """An interval, in seconds, in which bytes of the same labels crossed a link."""

    start: float
    end: float
    labels: tuple[int, ...]


class NetworkState(NamedTuple):
    """A network at an instant.

    Parameters
    ----------
    messages
        Those in flight, sent or to be delivered, and the routes of the former.
    seconds
        Until each of them is sent, at the present rates, or delivered.
    busy, sent
        The totals so far: seconds by group of links, and bytes by route.
    """

    messages: tuple[object, ...]
    seconds: NDArray[np.float64]
    busy: NDArray[np.float64]
    sent: dict[int, float]


@dataclass(eq=False)
class LinkNetwork(ABC):
    """The links of an array, and the messages in flight on them.

    A message from one accelerator to another is a flow: at a rate of r bytes a second it uses
    ``r * share`` of every channel of its route. Rates are max-min fair, and solved again
    whenever flows start or end, once per instant. A message is delivered the route's latency
    after its last byte has been sent.

    Source: D. Bertsekas and R. Gallager, Data Networks, 2nd edition (1992), section 6.5.2.

    Parameters
    ----------
    delivered
        Called with the messages that arrive together, in the order of their routes' numbers.
    settled
        Called when all messages of an instant have started, if some are in flight.
    """

    env: Environment
    routes: RouteTable
    delivered: Callable[[list[int]], None]
    settled: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        self._sent: defaultdict[int, float] = defaultdict(float)
        # Links that the same routes cross are busy together: one entry stands for a group.
        groups = int(self.routes.group_of_link.max(initial=-1)) + 1
        self._busy, self._last = np.zeros((2, groups))
        self._first = np.full(groups, np.inf)
        self._starting: list[tuple[int, float, int, int]] = []
        # Messages that were sent and have not arrived, by the event of their arrival.
        self._arriving: dict[Event, float] = {}
        self._change_due = False

    def send(self, route: int, sent: float, message: int, label: int, moved: float) -> None:
        """Start a message at this instant.

        Parameters
        ----------
        message
            Passed to ``delivered`` when it arrives.
        label
            Its name in ``segments``.
        sent, moved
            The bytes that take their time, and those that count as moved.
        """
        self._starting.append((route, sent, message, label))
        self._sent[route] += moved
        if not self._change_due:
            self._schedule_change()

    @property
    def channel_bytes(self) -> NDArray[np.float64]:
        """Bytes sent over every channel."""
        return self.routes.bytes_by_channel(self._sent)

    @property
    def link_bytes(self) -> tuple[float, ...]:
        """Bytes sent over every link, both directions added."""
        return tuple(bytes_by_link(self.routes.interconnect, self.channel_bytes).tolist())

    @property
    def link_seconds_at_capacity(self) -> tuple[float, ...]:
        """Seconds that every link's busier direction would take at full bandwidth."""
        seconds = seconds_at_capacity(self.routes.interconnect, self.channel_bytes)
        return tuple(seconds.tolist())

    @property
    def link_busy(self) -> tuple[float, ...]:
        """Seconds in which any byte crossed a link, for every link."""
        self._add_up()
        return tuple(self._busy[self.routes.group_of_link].tolist())

    @property
    def link_span(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """When the first and the last byte crossed each link: infinity and 0 if none did."""
        self._add_up()
        group = self.routes.group_of_link
        return self._first[group], self._last[group]

    @property
    def segments(self) -> tuple[tuple[Segment, ...], ...]:
        """For every link, its segments in order, if they are kept; adjacent ones differ."""
        return ()

    def _schedule_change(self) -> None:
        """Solve the rates once, after all messages of this instant have started or ended."""
        self._change_due = True
        # Event.succeed() accepts no priority, so the event is scheduled as SimPy does it.
        change = Event(self.env)
        change._ok, change._value = True, None
        change.callbacks.append(self._change)
        self.env.schedule(change, AFTER_OTHER_EVENTS)

    @abstractmethod
    def _change(self, change: Event) -> None:
        """Add the messages that start now, solve the rates, and wait for the next end."""

    def _sent_all(self, ended: Iterable[tuple[int, float]]) -> None:
        """Deliver messages whose last byte was sent, each after its latency."""
        arriving: dict[float, list[int]] = {}
        for message, latency in ended:
            arriving.setdefault(latency, []).append(message)
        # Messages of equal latency arrive together, in one event.
        for latency, messages in sorted(arriving.items()):
            if latency:
                arrival = self.env.timeout(latency, messages)
                arrival.callbacks.append(self._arrive)
                self._arriving[arrival] = self.env.now + latency
            else:
                self.delivered(messages)

    def _arrive(self, timer: Event) -> None:
        arrived: Any = timer.value
        del self._arriving[timer]
        self.delivered(arrived)

    def state(self) -> NetworkState:
        """Return the state of the network, once an instant's messages have started."""
        # In the order of messages: that of arrivals that meet may differ by rounding.
        pending: list[tuple[Any, float]] = [
            (event.value, at) for event, at in self._arriving.items()
        ]
        arriving = sorted(pending)
        flows, seconds = self._in_flight()
        self._add_up()
        return NetworkState(
            (*flows, *(tuple(messages) for messages, _ in arriving)),
            np.append(seconds, [at - self.env.now for _, at in arriving]),
            self._busy.copy(),
            dict(self._sent),
        )

    @abstractmethod
    def _in_flight(self) -> tuple[tuple[object, ...], NDArray[np.float64]]:
        """Return the flows in some order, and the seconds until each ends at the present rates."""

    @abstractmethod
    def _add_up(self) -> None:
        """Count links as busy until now."""

    @abstractmethod
    def restart(self) -> None:
        """Follow a clock that was set to zero while no message is in flight."""

    def repeat(self, before: NetworkState, times: int, seconds: float) -> None:
        """Do again, so many times, what was done since the state before; it took so long in all."""
        self._arriving = {event: at + seconds for event, at in self._arriving.items()}
        self._busy += times * (self._busy - before.busy)
        for route, moved in self._sent.items():
            self._sent[route] = moved + times * (moved - before.sent.get(route, 0.0))


@dataclass(eq=False)
class FlowNetwork(LinkNetwork):
    """A network whose rates are all solved again at each change, and which may be recorded.

    Parameters
    ----------
    record
        Whether to keep ``segments``.
    """

    record: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._segments: list[list[Segment]] = [[] for _ in self._busy]
        # The flows in flight, ordered by route: route, message and label by number, and the
        # bytes left to send.
        self._flow_routes, self._messages, self._labels = np.empty((3, 0), np.intp)
        self._left = np.empty(0)
        self._rates = NO_FLOWS
        self._ends = np.empty(0)
        self._ending = np.empty(0, bool)
        self._since = 0.0
        self._next_end: Event | None = None

    @property
    def segments(self) -> tuple[tuple[Segment, ...], ...]:
        by_group = [tuple(segments) for segments in self._segments]
        return tuple(by_group[group] for group in self.routes.group_of_link.tolist())

    def _change(self, change: Event) -> None:
        del change
        self._change_due = False
        now = self.env.now
        if len(self._left) and now > self._since:
            # Until now the flows went at the rates of the last change.
            self._advance(now - self._since)
        self._since = now
        if self._starting:
            self._start()
        if not len(self._left):
            return
        self._rates = self.routes.rates(self._flow_routes.tobytes())
        self._ends = ends = self._left / self._rates.rates
        if self.settled is not None:
            self.settled()
            now = self.env.now
        seconds = float(ends.min())
        # Relative to the clock, not to the wait: rounding errors are of the clock's magnitude.
        # Decided here, since rounding could leave a flow some bytes when its time has come.
        self._ending = ends <= seconds + RELATIVE_TOLERANCE * (now + seconds)
        # The wait is the event's value, since a difference of clock times would be rounded.
        self._next_end = self.env.timeout(seconds, seconds)
        self._next_end.callbacks.append(self._end)

    def _start(self) -> None:
        """Add the messages that start at this instant to those in flight."""
        routes, amounts, messages, labels = zip(*self._starting, strict=True)
        flow_routes = np.concatenate([self._flow_routes, routes])
        # In the order of routes, so that the same routes give the same key of the cache.
        order = flow_routes.argsort(kind="stable")
        self._flow_routes = flow_routes[order]
        self._left = np.concatenate([self._left, amounts])[order]
        self._messages = np.concatenate([self._messages, messages])[order]
        self._labels = np.concatenate([self._labels, labels])[order]
        self._starting = []

    def _end(self, timer: Event) -> None:
        """Remove the flows whose last byte was sent, unless starts have changed the rates."""
        if timer is not self._next_end:
            return  # SimPy cannot cancel a timeout, so those that are outdated are ignored
        wait: Any = timer.value
        self._advance(wait)
        self._since = self.env.now
        self._next_end = None
        ending = self._ending
        ended = self._messages[ending].tolist()
        latencies = self._rates.latencies[ending].tolist()
        if len(ended) == len(ending):
            self._flow_routes, self._messages, self._labels = np.empty((3, 0), np.intp)
            self._left = np.empty(0)
        else:
            self._flow_routes, self._left = self._flow_routes[~ending], self._left[~ending]
            self._messages, self._labels = self._messages[~ending], self._labels[~ending]
            if not self._change_due:
                self._schedule_change()
        self._sent_all(zip(ended, latencies, strict=True))

    def _in_flight(self) -> tuple[tuple[object, ...], NDArray[np.float64]]:
        return (self._flow_routes.tobytes(), self._messages.tobytes()), self._ends

    def _add_up(self) -> None:
        """All is counted when rates change, as messages start and end."""

    def restart(self) -> None:
        self._since = 0.0

    def repeat(self, before: NetworkState, times: int, seconds: float) -> None:
        super().repeat(before, times, seconds)
        self._since += seconds

    def _advance(self, seconds: float) -> None:
        """Send bytes for an interval in which the rates have not changed."""
        links = self._rates.links
        self._busy[links] += seconds
        self._first[links] = np.minimum(self._first[links], self._since)
        self._last[links] = self.env.now
        if self.record:
            self._record_segments(self._since, self.env.now)
        # Rounding must not leave a flow a negative number of bytes.
        self._left = np.maximum(self._left - self._rates.rates * seconds, 0.0)

    def _record_segments(self, start: float, end: float) -> None:
        """Add an interval of constant rates, in seconds, to the segments of the links in use."""
        # Labels in ascending order, so that the same exchanges make the same segment.
        crossing: dict[int, tuple[int, ...]] = {}
        for label in np.unique(self._labels).tolist():
            routes = self._flow_routes[self._labels == label]
            for link in self.routes.links_crossed(routes.tobytes()).tolist():
                crossing[link] = (*crossing.get(link, ()), label)
        for link, labels in crossing.items():
            segments = self._segments[link]
            # A change of rates elsewhere does not split a link's segment.
            if segments and segments[-1].end == start and segments[-1].labels == labels:
                segments.append(segments.pop()._replace(end=end))
            elif end > start:
                segments.append(Segment(start, end, labels))
