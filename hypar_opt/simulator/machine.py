"""The accelerators of an array as SimPy processes that compute and exchange messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
from simpy import Environment, Event
from simpy.core import EmptySchedule
from simpy.events import ProcessGenerator

from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.simulator.fairness import RELATIVE_TOLERANCE
from hypar_opt.simulator.flows import FlowNetwork, LinkNetwork, NetworkState
from hypar_opt.simulator.local_flows import LocalFlows
from hypar_opt.simulator.rounds import BytesSent, RepeatedRound, TrafficPattern, in_rounds
from hypar_opt.simulator.routes import ClassRoutes, RouteTable
from hypar_opt.simulator.tasks import (
    ComputeTask,
    Task,
    predecessors,
    rounds_of,
    stream_count,
)

_UNCHECKED = 16
"""The events between checks of a deadline; with many messages in flight each takes long."""


class TaskSpan(NamedTuple):
    """When one accelerator ran one task, waiting included: seconds from the step's start."""

    task: int
    start: float
    end: float


class RepeatableEvent(Event):
    """An event that one process awaits again and again.

    The process resumes at once, not through SimPy's queue: an arrival is a queued event
    already, and a second one would double the simulation's work.
    """

    # The attributes that a process reads when it resumes.
    _ok = True
    _value = None

    def trigger_now(self) -> None:
        """Resume the process that awaits it."""
        self.callbacks.pop()(self)


class _State(NamedTuple):
    """The state that determines how consecutive rounds continue.

    Parameters
    ----------
    discrete
        The differences between accelerators in rounds, and what they await.
    to_come
        The rounds that the first accelerator has yet to begin.
    """

    in_a_row: RepeatedRound
    discrete: tuple[object, ...]
    network: NetworkState
    now: float
    to_come: int

    def repeats(self, before: _State) -> bool:
        """Return whether the state equals a previous one, up to rounding."""
        if self.in_a_row is not before.in_a_row or self.discrete != before.discrete:
            return False
        distance = np.abs(self.network.seconds - before.network.seconds)
        return bool(distance.max(initial=0.0) <= RELATIVE_TOLERANCE * self.now)


class Machine:
    """The accelerators of an array, running a step.

    Stream s of accelerator i of N has the number s * N + i. A stream has the messages of one round
    in flight: that of lane l has the number of the stream, plus l times that of all streams. The
    same streams of all accelerators run through the same rounds, and count them.

    Parameters
    ----------
    tasks
        Every accelerator's tasks, each after those that it waits for.
    routes
        The messages' routes: between all accelerators, or those of one simulated for all and
        sends to itself.
    record
        Whether the network keeps its segments.
    skip
        Whether repeated rounds are added instead of run.
    start
        The clock at the beginning, in seconds.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        routes: RouteTable,
        *,
        record: bool,
        skip: bool = False,
        start: float = 0.0,
    ) -> None:
        self.accelerators = routes.accelerators
        self.env = Environment(start)
        streams = stream_count(tasks)
        self._steps = in_rounds(tasks, routes, streams)
        # After the rounds, whose routes decide which links are alike.
        settled = self._settled if skip else None
        # Messages of several lanes start and end together: many at once are solved at once.
        if (
            skip
            and isinstance(routes, ClassRoutes)
            and all(len(one.lanes) == 1 for one in rounds_of(tasks))
        ):
            self.network: LinkNetwork = LocalFlows(self.env, routes, self._deliver, settled)
        else:
            self.network = FlowNetwork(self.env, routes, self._deliver, settled, record=record)
        # The number of accelerator 0's stream: those of the others follow it.
        self._first_stream = [task.stream * self.accelerators for task in tasks]
        before = predecessors(tasks)
        self._successors: list[list[int]] = [[] for _ in tasks]
        for number, sources in enumerate(before):
            for other in sources:
                self._successors[other].append(number)
        numbers = range(streams * self.accelerators)
        # Tasks that wait only for their stream; the first in program order on top.
        self._ready: list[list[int]] = [[] for _ in numbers]
        self._waits_for = [list(map(len, before)) for _ in range(self.accelerators)]
        self._idle: list[Event | None] = [None for _ in numbers]
        self._spans: list[list[TaskSpan | None]] = [
            [None] * len(tasks) for _ in range(self.accelerators)
        ]
        self._wakeups = [RepeatableEvent(self.env) for _ in numbers]
        self._streams = len(numbers)
        # Where nothing else runs, the clock counts from the last exchange: a short round after a
        # long step would be rounded, and many times as many rounds are added.
        self._restarts = skip and self._streams == 1
        self._until_restart = 0.0
        # Of the messages in flight.
        self._receiver: dict[int, int] = {}
        # Partners need not be in the same round, and a stream waits for its own round's message.
        self._round = [0 for _ in numbers]
        # Deliveries that a stream still awaits in its round: of its own messages, and of others'.
        self._awaited = [0 for _ in numbers]
        # Messages that arrived before their round had begun, by round and receiving stream.
        self._early: Counter[tuple[int, int]] = Counter()
        # Of streams that exchange: their rounds in a row, and how many of these are to come.
        self._in_a_row: dict[int, RepeatedRound] = {}
        self._to_come = [0 for _ in numbers]
        # Accelerators that wait for all others to begin a round, by the first one's stream.
        self._waiting: dict[int, list[Event]] = {}
        self._computing: set[Event] = set()
        # A stream of the first accelerator that has just begun a round, and the state at the last.
        self._begun: int | None = None
        self._before: _State | None = None

    def run(self, deadline: Deadline = NEVER) -> None:
        """Run all tasks of all accelerators.

        Raises
        ------
        NoAnswerError
            If the deadline passes.
        """
        tasks_of = Counter(self._first_stream)
        for accelerator in range(self.accelerators):
            for task, sources in enumerate(self._waits_for[accelerator]):
                if not sources:
                    heappush(self._ready[self._first_stream[task] + accelerator], task)
            for first_stream, tasks in sorted(tasks_of.items()):
                self.env.process(self._run_stream(accelerator, first_stream + accelerator, tasks))
        with suppress(EmptySchedule):
            while True:
                deadline.check()
                for _ in range(_UNCHECKED):
                    self.env.step()
        # A stream that waits for a message that is never sent never ends.
        assert all(None not in spans for spans in self._spans), "deadlock"

    def spans(self, accelerator: int) -> list[TaskSpan]:
        """Return when an accelerator ran its tasks, in the order of the program."""
        return [span for span in self._spans[accelerator] if span is not None]

    def _run_stream(self, accelerator: int, stream: int, tasks: int) -> ProcessGenerator:
        """Run an accelerator's tasks of one stream, as a SimPy process."""
        # Bound once: the loop runs for every message of the step.
        env, timeout, spans = self.env, self.env.timeout, self._spans[accelerator]
        ready, to_come = self._ready[stream], self._to_come
        for _ in range(tasks):
            if not ready:
                idle = self._idle[stream] = Event(env)
                yield idle
            number = heappop(ready)
            step, start = self._steps[number], self._until_restart + env.now
            if isinstance(step, ComputeTask):
                of_parts = step.of_parts
                seconds = step.seconds
                if of_parts is not None:
                    seconds = of_parts[len(of_parts) * accelerator // self.accelerators]
                end = timeout(seconds)
                self._computing.add(end)
                yield end
                self._computing.remove(end)
            else:
                if self._restarts:
                    self._until_restart, env._now = start, 0.0
                    self.network.restart()
                for in_a_row in step.rounds:
                    if step.together:
                        yield self._all_arrived(stream - accelerator)
                    self._in_a_row[stream] = in_a_row
                    to_come[stream] = in_a_row.times
                    while to_come[stream]:
                        to_come[stream] -= 1
                        yield self._send(stream, step.task, in_a_row.lanes)
                del self._in_a_row[stream]
            spans[number] = TaskSpan(number, start, self._until_restart + env.now)
            self._let_start(accelerator, self._successors[number])

    def _all_arrived(self, first_stream: int) -> Event:
        """Return the event that the same stream of all accelerators has come as far."""
        waiting = self._waiting.setdefault(first_stream, [])
        barrier = Event(self.env)
        waiting.append(barrier)
        if len(waiting) == self.accelerators:
            for event in self._waiting.pop(first_stream):
                event.succeed()
        return barrier

    def _let_start(self, accelerator: int, successors: Sequence[int]) -> None:
        """Start tasks whose last dependency has ended, and wake their streams if idle."""
        waits_for = self._waits_for[accelerator]
        for number in successors:
            waits_for[number] -= 1
            if waits_for[number]:
                continue
            stream = self._first_stream[number] + accelerator
            heappush(self._ready[stream], number)
            idle = self._idle[stream]
            if idle is not None:
                self._idle[stream] = None
                idle.succeed()

    def _send(
        self, stream: int, task: int, lanes: Sequence[tuple[TrafficPattern, BytesSent, BytesSent]]
    ) -> Event:
        """Send a round's messages; return the event of their delivery and of those expected."""
        self._round[stream] = now = self._round[stream] + 1
        self._awaited[stream] = 2 * len(lanes)
        # Tested first for emptiness: in lockstep no message is early, and this runs per message.
        if self._early:
            self._awaited[stream] -= self._early.pop((now, stream), 0)
        if not stream % self.accelerators:
            self._begun = stream
        message = stream
        for pattern, bytes_sent, moved in lanes:
            if isinstance(bytes_sent, list):
                bytes_sent = bytes_sent[stream % self.accelerators]
            if isinstance(moved, list):
                moved = moved[stream % self.accelerators]
            self._receiver[message] = pattern.receivers[stream]
            self.network.send(pattern.routes[stream], bytes_sent, message, task, moved)
            message += self._streams
        return self._wakeups[stream]

    def _deliver(self, messages: list[int]) -> None:
        """Count delivered messages, and resume the streams that await nothing else."""
        rounds, awaited, wakeups = self._round, self._awaited, self._wakeups
        for message in messages:
            sender = message % self._streams
            receiver, now = self._receiver[message], rounds[sender]
            # The sender continues once its messages are delivered and it has received as many.
            awaited[sender] -= 1
            if not awaited[sender]:
                wakeups[sender].trigger_now()
            # The receiver is still in an earlier round, and will not wait for this message.
            if rounds[receiver] != now:
                self._early[now, receiver] += 1
                continue
            awaited[receiver] -= 1
            if not awaited[receiver]:
                wakeups[receiver].trigger_now()

    def _settled(self) -> None:
        """Skip rounds that would repeat the last ones.

        If all accelerators are in the same consecutive rounds, and the state is that when the first
        of them began its last round, then it will recur after the next rounds.
        """
        first, self._begun = self._begun, None
        if first is None:
            return
        part = slice(first, first + self.accelerators)
        to_come, in_a_row = self._to_come[part], self._in_a_row[first]
        runs = list(self._in_a_row.values())
        before, self._before = self._before, None
        alone = len(runs) == len(to_come) and all(run is in_a_row for run in runs)
        if not alone or min(to_come) < 2:
            return
        network, now = self.network.state(), self.env.now
        state = _State(
            in_a_row,
            (
                [amount - to_come[0] for amount in to_come],
                self._awaited[part],
                {(at - self._round[first], to): n for (at, to), n in self._early.items()},
                network.messages,
            ),
            network,
            now,
            to_come[0],
        )
        if before is None or not state.repeats(before):
            self._before = state
            return
        period, rounds = now - before.now, before.to_come - state.to_come
        times = (min(to_come) - 1) // rounds
        ends = [at for at, _, _, event in self.env._queue if event in self._computing]
        if ends:
            # Up to the end of a computation, after which other messages may be sent.
            times = min(times, int((min(ends) - now) / period) - 1)
        if times > 0:
            self._skip(
                before, range(len(self._to_come))[part], times * rounds, times, times * period
            )

    def _skip(
        self, before: _State, streams: range, rounds: int, times: int, seconds: float
    ) -> None:
        """Skip rounds of the streams in which a state recurs a number of times."""
        for stream in streams:
            self._to_come[stream] -= rounds
            self._round[stream] += rounds
        early = {(at + rounds, to): number for (at, to), number in self._early.items()}
        self._early = Counter(early)
        self.network.repeat(before.network, times, seconds)
        # Computations end when they would have; everything else is later.
        env = self.env
        env._now += seconds
        env._queue = [
            entry if entry[-1] in self._computing else (entry[0] + seconds, *entry[1:])
            for entry in env._queue
        ]
        heapify(env._queue)
