"""The seconds of a step whose parts repeat: a program and a queue beside it, in lockstep.

As long as all accelerators do the same at the same instants, a step is one program, of computations
and of exchanges that something waits for, and a queue of exchanges beside it. A pass over both
gives the seconds that `hypar_opt.simulator.run` measures, without events. Of a part that a step
repeats, as a network its blocks, the rest is added once two repetitions in a row begin alike.

Source: docs/simulator.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from math import inf
from operator import truediv
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.simulator.fairness import RELATIVE_TOLERANCE
from hypar_opt.simulator.lockstep import PatternRoutes
from hypar_opt.simulator.rounds import message_bytes
from hypar_opt.simulator.tasks import FOREGROUND, ComputeTask, ExchangeTask, Task

if TYPE_CHECKING:
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.hardware.patterns import MessagePattern


class Part(NamedTuple):
    """Tasks of a step in their order, and how often they follow one another."""

    tasks: Sequence[Task]
    times: int = 1


class _Round(NamedTuple):
    """Messages that an accelerator sends at once, how often in a row, and how long it takes alone.

    Parameters
    ----------
    routes, bytes
        Of each message.
    """

    routes: tuple[int, ...]
    bytes: tuple[float, ...]
    times: int
    seconds: float


class Messages:
    """The messages of exchanges on an array, and the rates of those that share its links."""

    def __init__(self, interconnect: Interconnect) -> None:
        self._routes = PatternRoutes(interconnect)
        self._rounds: dict[tuple[int, float, tuple[float, ...]], tuple[_Round, ...]] = {}
        self._kept: list[object] = []
        self.rates, self.latency = cache(self._rates), cache(self._latency)
        self._route = cache(self._new_route)

    def rounds(self, task: ExchangeTask) -> tuple[_Round, ...]:
        """Return the rounds of an exchange."""
        key = id(task.rounds), task.bytes, task.sent
        if key not in self._rounds:
            self._kept.append(task.rounds)  # so that no others have its number
            self._rounds[key] = tuple(self._new_rounds(task))
        return self._rounds[key]

    def _new_rounds(self, task: ExchangeTask) -> Iterator[_Round]:
        for lanes, times in task.rounds:
            routes = tuple(self._route(lane.pattern) for lane in lanes)
            sent = [message_bytes(task, lane, self._routes.interconnect) for lane in lanes]
            once = _Round(routes, tuple(map(float, sent)), 1, 0.0)
            alone = _Pass(self)
            alone.exchange(once)
            yield once._replace(times=times, seconds=alone.now)

    def _new_route(self, pattern: MessagePattern) -> int:
        return self._routes.pattern(pattern)[1][0]

    def _rates(self, routes: tuple[int, ...]) -> list[float]:
        """Return the rates of messages in flight, in bytes a second."""
        order = np.argsort(routes, kind="stable")
        rates = np.empty(len(routes))
        rates[order] = self._routes.rates(np.array(routes, np.intp)[order].tobytes()).rates
        found: list[float] = rates.tolist()
        return found

    def _latency(self, route: int) -> float:
        return float(self._routes.rates(np.array([route], np.intp).tobytes()).latencies[0])


def seconds_of_parts(parts: Sequence[Part], messages: Messages) -> float:
    """Return the seconds of a step's parts, as `hypar_opt.simulator.run.run` measures them.

    Raises
    ------
    NotInLockstepError
        If accelerators would not do the same at the same instants.
    """
    step = _Pass(messages)
    for part in parts:
        step.run(part)
    return step.end()


class _Flight:
    """The messages of a round under way.

    Parameters
    ----------
    routes, left
        Of those that are being sent, and the bytes that are left of each.
    arrives
        When the last of the others arrives.
    """

    def __init__(self, own: _Round) -> None:
        self.routes, self.left, self.arrives = [*own.routes], [*own.bytes], 0.0


class _State(NamedTuple):
    """What decides how a step goes on: the queue, and the seconds that it still takes."""

    queue: tuple[object, ...]
    seconds: tuple[float, ...]
    now: float

    def repeats(self, before: _State) -> bool:
        """Return whether all is as before, but for rounding."""
        return self.queue == before.queue and all(
            abs(own - other) <= RELATIVE_TOLERANCE * self.now
            for own, other in zip(self.seconds, before.seconds, strict=True)
        )


class _Pass:
    """A step under way: the program's clock, and the queue.

    Attributes
    ----------
    now
        Seconds from the step's start.
    """

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self.now = 0.0
        self._queue: deque[_Round] = deque()
        self._sent: _Flight | None = None  # the queue's

    def run(self, part: Part) -> None:
        """Run a part, so many times."""
        steps = [
            (task, self._messages.rounds(task) if isinstance(task, ExchangeTask) else ())
            for task in part.tasks
        ]
        before = self._state()
        for done in range(1, part.times + 1):
            for task, rounds in steps:
                if isinstance(task, ComputeTask):
                    self._until(self.now + task.seconds)
                elif task.stream != FOREGROUND:
                    self._queue.extend(rounds)
                    if self._sent is None:
                        self._begin()
                else:
                    for own in rounds:
                        self.exchange(own)
            after = self._state()
            if after.repeats(before):
                self._skip((part.times - done) * (after.now - before.now))
                return
            before = after

    def end(self) -> float:
        """Return the seconds in which the program has ended, and the queue."""
        while self._sent is not None:
            self._advance(inf)
        return self.now

    def exchange(self, own: _Round) -> None:
        """Send a round's messages, so many times in a row, and await them."""
        for done in range(own.times):
            if self._sent is None and own.seconds:
                self.now += (own.times - done) * own.seconds
                return
            flight = _Flight(own)
            while flight.routes:
                self._advance(inf, flight)
            self._until(flight.arrives)

    def _begin(self) -> None:
        """Begin the queue's next round, if there is one."""
        self._sent = None
        if self._queue:
            own = self._queue.popleft()
            if own.times > 1:
                self._queue.appendleft(own._replace(times=own.times - 1))
            self._sent = _Flight(own)

    def _until(self, end: float) -> None:
        """Let the queue go on alone until a moment."""
        while self._sent is not None and self.now < end:
            self._advance(end)
        self.now = max(self.now, end)

    def _advance(self, end: float, own: _Flight | None = None) -> None:
        """Go on until some messages have been sent or arrive, but not beyond a moment.

        Parameters
        ----------
        own
            Those of the program that are being sent beside the queue's.
        """
        queued, now = self._sent, self.now
        if queued is not None and not queued.routes:
            end = min(end, queued.arrives)
        sending = [flight for flight in (own, queued) if flight is not None and flight.routes]
        if sending:
            routes = [route for flight in sending for route in flight.routes]
            rates = self._messages.rates(tuple(routes))
            ends = [*map(truediv, [left for flight in sending for left in flight.left], rates)]
            first = min(ends)
            until = min(end, now + first)
            # As the clock rounds.
            ended = first + RELATIVE_TOLERANCE * until if now + first <= end else 0.0
            number = 0
            for flight in sending:
                kept = []
                for route, left in zip(flight.routes, flight.left, strict=True):
                    if ends[number] <= ended:
                        arrives = until + self._messages.latency(route)
                        flight.arrives = max(flight.arrives, arrives)
                    else:
                        kept.append((route, left - rates[number] * (until - now)))
                    number += 1
                flight.routes, flight.left = [r for r, _ in kept], [b for _, b in kept]
            end = until
        self.now = end
        if queued is not None and not queued.routes and queued.arrives <= end:
            self._begin()

    def _state(self) -> _State:
        """Return what decides how the step goes on."""
        if self._sent is None:
            return _State((), (), self.now)
        routes = self._sent.routes
        alone = (self._messages.rates((route,))[0] for route in routes)
        seconds = (*map(truediv, self._sent.left, alone), max(self._sent.arrives - self.now, 0.0))
        return _State((*routes, *self._queue), seconds, self.now)

    def _skip(self, seconds: float) -> None:
        """Set the clock ahead, with all as it is."""
        self.now += seconds
        if self._sent is not None:
            self._sent.arrives += seconds
