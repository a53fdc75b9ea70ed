"""The seconds of a step whose parts repeat: a program and a queue beside it, in lockstep.

In lockstep a step is one program, of computations and of exchanges for which something waits, and a
queue of exchanges beside it. A pass over both gives the seconds that `hypar_opt.simulator.run`
measures, without events. If a step repeats a part, as a network its blocks, the remaining
repetitions are added once two consecutive ones begin in equal states.

Source: docs/collectives.md.
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


class RepeatedPart(NamedTuple):
    """Consecutive tasks of a step, by number, and how often they are repeated."""

    first: int
    end: int
    times: int = 1


class _Round(NamedTuple):
    """Messages that an accelerator sends at once, their repetitions, and their seconds alone.

    Parameters
    ----------
    routes, bytes
        Of each message.
    ends
        Whether its exchange ends with it.
    """

    routes: tuple[int, ...]
    bytes: tuple[float, ...]
    times: int
    seconds: float
    ends: bool


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
            *before, last = self._new_rounds(task)
            self._rounds[key] = (*before, last._replace(ends=True))
        return self._rounds[key]

    def _new_rounds(self, task: ExchangeTask) -> Iterator[_Round]:
        for lanes, times in task.rounds:
            routes = tuple(self._route(lane.pattern) for lane in lanes)
            sent = []
            for lane in lanes:
                moved = message_bytes(task, lane, self._routes.interconnect)
                assert isinstance(moved, float), "in lockstep all send as much"
                sent.append(moved)
            once = _Round(routes, tuple(sent), 1, 0.0, ends=False)
            alone = _RunningStep(self)
            alone.exchange(once)
            yield once._replace(times=times, seconds=alone.now)

    def _new_route(self, pattern: MessagePattern) -> int:
        return self._routes.pattern(pattern)[1][0]

    def _rates(self, routes: tuple[int, ...]) -> list[float]:
        """Return the rates of messages in flight, in bytes a second."""
        order = np.argsort(routes, kind="stable")
        rates = np.empty(len(routes))
        rates[order] = self._routes.rates(np.array(routes, np.intp)[order].tobytes()).rates
        result: list[float] = rates.tolist()
        return result

    def _latency(self, route: int) -> float:
        return float(self._routes.rates(np.array([route], np.intp).tobytes()).latencies[0])


def seconds_of_parts(
    tasks: Sequence[Task],
    parts: Sequence[RepeatedPart],
    messages: Messages,
    efficiency: float,
) -> float:
    """Return the seconds of a step, as `hypar_opt.simulator.run.run` measures them.

    Parameters
    ----------
    tasks
        Without repetitions, in the order of the program: in two streams, of which the second takes
        its tasks in this order and the first waits for none behind it.
    parts
        All of the tasks, in their order.
    efficiency
        Of overlap, as `run` takes it.

    Raises
    ------
    NotInLockstepError
        If accelerators would not do the same at the same instants.
    """
    step, waits = _RunningStep(messages), _waits(tasks)
    for first, end, times in parts:
        step.run([*zip(tasks[first:end], waits[first:end], strict=True)], times)
    # Overlapping tasks are slowed down equally.
    return step.end() + (1 - efficiency) * step.overlapped


def _waits(tasks: Sequence[Task]) -> list[int | None]:
    """Return how many of the queue's last tasks each task does not wait for."""
    place: dict[int, int] = {}
    waits: list[int | None] = []
    for number, task in enumerate(tasks):
        places = [place[other] for other in task.after or () if other in place]
        waits.append(len(place) - 1 - max(places) if places else None)
        if task.stream != FOREGROUND:
            place[number] = len(place)
    return waits


class _Flight:
    """The messages of a round under way.

    Attributes
    ----------
    routes, left
        Of those that are being sent, and the bytes that are left of each.
    arrives
        When the last of the others arrives.
    ends
        Whether their exchange ends with them.
    """

    def __init__(self, messages: _Round) -> None:
        self.routes, self.left, self.arrives = [*messages.routes], [*messages.bytes], 0.0
        self.ends = messages.ends and messages.times == 1


class _QueueState(NamedTuple):
    """The state that determines how a step continues: the queue, and its remaining seconds."""

    queue: tuple[object, ...]
    seconds: tuple[float, ...]
    now: float

    def repeats(self, before: _QueueState) -> bool:
        """Return whether all is as before, but for rounding."""
        return self.queue == before.queue and all(
            abs(seconds - other) <= RELATIVE_TOLERANCE * self.now
            for seconds, other in zip(self.seconds, before.seconds, strict=True)
        )


class _RunningStep:
    """A step under way: the program's clock, and the queue.

    Attributes
    ----------
    now, overlapped
        Seconds from the step's start; and those of them in which both compute and exchange.
    """

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self.now = self.overlapped = 0.0
        self._queue: deque[_Round] = deque()  # behind the round that is under way
        self._sent: _Flight | None = None
        self._unended = 0

    def run(self, tasks: Sequence[tuple[Task, int | None]], times: int) -> None:
        """Run tasks in their order, so many times."""
        steps = [
            (task, wait, self._messages.rounds(task) if isinstance(task, ExchangeTask) else ())
            for task, wait in tasks
        ]
        before, overlapped = self._state(), self.overlapped
        for done in range(1, times + 1):
            for task, wait, rounds in steps:
                if task.stream != FOREGROUND:
                    self._issue(rounds)
                    continue
                if wait is not None:
                    self._wait(wait)
                if isinstance(task, ComputeTask):
                    self._compute(task.seconds)
                for one in rounds:
                    self.exchange(one)
            after = self._state()
            if after.repeats(before):
                remaining = times - done
                self.overlapped += remaining * (self.overlapped - overlapped)
                self._skip(remaining * (after.now - before.now))
                return
            before, overlapped = after, self.overlapped

    def end(self) -> float:
        """Return the seconds in which the program has ended, and the queue."""
        while self._sent is not None:
            self._advance(inf)
        return self.now

    def exchange(self, messages: _Round) -> None:
        """Send a round's messages, so many times in a row, and await them."""
        for done in range(messages.times):
            if self._sent is None and messages.seconds:
                self.now += (messages.times - done) * messages.seconds
                return
            flight = _Flight(messages)
            while flight.routes:
                self._advance(inf, flight)
            self._until(flight.arrives)

    def _compute(self, seconds: float) -> None:
        start, end = self.now, self.now + seconds
        while self._sent is not None and self.now < end:
            self._advance(end)
        self.overlapped += self.now - start
        self.now = end

    def _issue(self, rounds: Sequence[_Round]) -> None:
        """Add an exchange to the queue."""
        self._queue.extend(rounds)
        self._unended += 1
        if self._sent is None:
            self._begin()

    def _wait(self, behind: int) -> None:
        """Wait for the queue's exchanges, except for a number of the last ones."""
        while self._unended > behind:
            self._advance(inf)

    def _begin(self) -> None:
        """Begin the queue's next round, if there is one."""
        self._unended -= self._sent is not None and self._sent.ends
        self._sent = None
        if self._queue:
            next_round = self._queue.popleft()
            if next_round.times > 1:
                self._queue.appendleft(next_round._replace(times=next_round.times - 1))
            self._sent = _Flight(next_round)

    def _until(self, end: float) -> None:
        """Let the queue continue alone until a point of time."""
        while self._sent is not None and self.now < end:
            self._advance(end)
        self.now = max(self.now, end)

    def _advance(self, end: float, foreground: _Flight | None = None) -> None:
        """Continue until some messages have been sent or arrive, but not beyond a point of time.

        Parameters
        ----------
        foreground
            Messages of the program that are sent at the same time as the queue's.
        """
        queued, now = self._sent, self.now
        if queued is not None and not queued.routes:
            end = min(end, queued.arrives)
        sending = [
            flight for flight in (foreground, queued) if flight is not None and flight.routes
        ]
        if sending:
            routes = [route for flight in sending for route in flight.routes]
            rates = self._messages.rates(tuple(routes))
            ends = [*map(truediv, [amount for flight in sending for amount in flight.left], rates)]
            first = min(ends)
            until = min(end, now + first)
            # As the clock rounds.
            ended = first + RELATIVE_TOLERANCE * until if now + first <= end else 0.0
            number = 0
            for flight in sending:
                unfinished = []
                for route, amount in zip(flight.routes, flight.left, strict=True):
                    if ends[number] <= ended:
                        arrives = until + self._messages.latency(route)
                        flight.arrives = max(flight.arrives, arrives)
                    else:
                        unfinished.append((route, amount - rates[number] * (until - now)))
                    number += 1
                flight.routes, flight.left = [r for r, _ in unfinished], [b for _, b in unfinished]
            end = until
        self.now = end
        if queued is not None and not queued.routes and queued.arrives <= end:
            self._begin()

    def _state(self) -> _QueueState:
        """Return the state that determines how the step continues."""
        if self._sent is None:
            return _QueueState((), (), self.now)
        routes = self._sent.routes
        alone = (self._messages.rates((route,))[0] for route in routes)
        seconds = (*map(truediv, self._sent.left, alone), max(self._sent.arrives - self.now, 0.0))
        return _QueueState((tuple(routes), *self._queue), seconds, self.now)

    def _skip(self, seconds: float) -> None:
        """Set the clock ahead, without other changes."""
        self.now += seconds
        if self._sent is not None:
            self._sent.arrives += seconds
