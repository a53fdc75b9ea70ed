"""An array of accelerators that runs one training step, event by event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from simpy import Environment, Event
from simpy.events import ProcessGenerator

from hypar_opt.errors import RefusedError, argument
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.simulator.network import Network, Segment
from hypar_opt.simulator.tasks import Compute, Exchange, Task

MOST_WORK = 10**9
"""Computations and messages of a step, times accelerators: some minutes' work. An event may
change the pace of all messages that are under way."""


class Span(NamedTuple):
    """When one accelerator did one task, waiting included; seconds from the step's start."""

    task: int
    start: float
    end: float


@dataclass(frozen=True)
class Run:
    """One training step, measured.

    Parameters
    ----------
    seconds
        Until the last accelerator ended.
    task_seconds
        Of each task, how long that accelerator (the lowest number among equals) spent in it,
        waiting included; of one in the background, what of it came after all others. They add
        up to ``seconds``.
    level_bytes
        Of each hierarchy level, what was delivered across it; a message between neighbours in
        a ring is of the topmost level that separates them.
    link_bytes, link_busy, link_full
        Of each link, what was sent over it, both directions added; the seconds in which any
        byte crossed it; and those that its busier direction takes at the full rate.
    events
        Computations and messages: the timeouts that would do without a network.
    spans
        If recorded: of each accelerator, its tasks in order. Those in the background overlap
        the others.
    segments
        If recorded: of each link, the tasks whose bytes crossed it when.
    """

    seconds: float
    task_seconds: tuple[float, ...]
    level_bytes: tuple[float, ...]
    link_bytes: tuple[float, ...]
    link_busy: tuple[float, ...]
    link_seconds_at_capacity: tuple[float, ...]
    events: int
    spans: tuple[tuple[Span, ...], ...] = ()
    segments: tuple[tuple[Segment, ...], ...] = ()


def run(tasks: Sequence[Task], interconnect: Interconnect, *, record: bool = False) -> Run:
    """Let every accelerator run the tasks in order, exchanging messages over the wires.

    Parameters
    ----------
    tasks
        Exchanges have bytes to send and bits below ``interconnect.levels``.
    record
        Whether to keep what each accelerator and each link did when.

    Raises
    ------
    RefusedError
        If the step is more work than `MOST_WORK`.
    """
    everyone = range(interconnect.accelerators)
    events = len(everyone) * sum(map(_rounds, tasks))
    if events * len(everyone) > MOST_WORK:
        raise RefusedError(
            f"the step is {events:,} computations and messages, and at most"
            f" {MOST_WORK // len(everyone):,} of {len(everyone):,} accelerators are simulated;"
            f" take {argument('collective', 'pairwise')}, or fewer accelerators"
        )
    machine = _Machine(tasks, interconnect, record=record)
    machine.run()
    ends = [machine.end(accelerator) for accelerator in everyone]
    seconds = max(ends)
    return Run(
        seconds=seconds,
        task_seconds=_task_seconds(tasks, machine.spans(ends.index(seconds))),
        level_bytes=tuple(machine.level_bytes),
        link_bytes=machine.network.link_bytes,
        link_busy=machine.network.link_busy,
        link_seconds_at_capacity=machine.network.link_seconds_at_capacity,
        events=events,
        spans=tuple(tuple(machine.spans(number)) for number in everyone) if record else (),
        segments=machine.network.segments if record else (),
    )


def _rounds(task: Task) -> int:
    """Return how often everyone computes or sends a message in a task."""
    return task.messages if isinstance(task, Exchange) else 1


def _task_seconds(tasks: Sequence[Task], spans: Sequence[Span]) -> tuple[float, ...]:
    in_front = max((span.end for span in spans if not _overlapped(tasks[span.task])), default=0.0)
    return tuple(
        max(0.0, span.end - max(span.start, in_front))
        if _overlapped(tasks[span.task])
        else span.end - span.start
        for span in spans
    )


def _overlapped(task: Task) -> bool:
    return isinstance(task, Exchange) and task.background


class _Wakeup(Event):
    """What one process waits for while messages are under way; happens again and again.

    The process goes on at once, not by way of the queue: an arrival is an event already.
    """

    _ok = True
    _value = None

    def happen(self) -> None:
        self.callbacks.pop()(self)


@dataclass(frozen=True)
class _Pattern:
    """Whom everyone sends to, over which route, and across which level; of each track."""

    receivers: list[int]
    routes: list[int]
    levels: list[int]


@dataclass(frozen=True)
class _Rounds:
    """An exchange as rounds, in each of which everyone sends a message and gets one."""

    task: int
    rounds: int
    bytes: float
    pattern: _Pattern
    background: bool


class _Machine:
    """The state of the accelerators.

    Accelerator i of N has two tracks: i is what it does in order, N + i what it does beside
    that. A track has one message under way at most, so the track's number is the message's
    name. On each kind of track all go through the same rounds, and count them.
    """

    def __init__(self, tasks: Sequence[Task], interconnect: Interconnect, *, record: bool) -> None:
        self.accelerators = interconnect.accelerators
        self._wires = interconnect
        self.env = Environment()
        self.network = Network(self.env, interconnect, self._deliver, record=record)
        self.level_bytes = [0.0] * interconnect.levels
        self._patterns: dict[Any, _Pattern] = {}
        self.steps: list[Compute | _Rounds] = [
            task if isinstance(task, Compute) else self._as_rounds(place, task)
            for place, task in enumerate(tasks)
        ]
        self._overlapped = [
            step for step in self.steps if isinstance(step, _Rounds) and step.background
        ]
        tracks = range(2 * self.accelerators)
        self._wakeups = [_Wakeup(self.env) for _ in tracks]
        self._doing: dict[int, _Rounds] = {}
        self._round = [0 for _ in tracks]
        self._awaited = [0 for _ in tracks]
        self._early: set[tuple[int, int]] = set()
        self._ends: list[list[float]] = [[] for _ in tracks]
        self._handed = [0] * self.accelerators
        self._idle: list[Event | None] = [None] * self.accelerators

    def run(self) -> None:
        """Run all programs to their ends."""
        for accelerator in range(self.accelerators):
            self.env.process(self._run_in_order(accelerator))
            if self._overlapped:
                self.env.process(self._run_beside(accelerator))
        self.env.run()
        for accelerator in range(self.accelerators):
            ends, beside = self._ends[accelerator], self._ends[self.accelerators + accelerator]
            assert (len(ends), len(beside)) == (len(self.steps), len(self._overlapped)), "deadlock"

    def end(self, accelerator: int) -> float:
        """Return when one accelerator has done all, seconds."""
        both = self._ends[accelerator], self._ends[self.accelerators + accelerator]
        return max((ends[-1] for ends in both if ends), default=0.0)

    def spans(self, accelerator: int) -> list[Span]:
        """Return when one accelerator did each task.

        It hands an exchange to the background in no time, and there it starts when the one
        before has ended.
        """
        beside = iter(self._ends[self.accelerators + accelerator])
        now = free = 0.0
        spans = []
        for place, (step, end) in enumerate(zip(self.steps, self._ends[accelerator], strict=True)):
            if isinstance(step, _Rounds) and step.background:
                start, free = max(now, free), next(beside)
                spans.append(Span(place, start, free))
            else:
                spans.append(Span(place, now, end))
            now = end
        return spans

    def _as_rounds(self, place: int, task: Exchange) -> _Rounds:
        kind = task.ring, task.levels, task.bits
        if kind not in self._patterns:
            self._patterns[kind] = self._pattern(task)
        message = task.bytes / (self.accelerators * task.messages)
        return _Rounds(place, task.messages, message, self._patterns[kind], task.background)

    def _pattern(self, task: Exchange) -> _Pattern:
        receivers = self._wires.receivers(task.bits, ring=task.ring)
        levels = [
            next(
                level
                for level, bit in zip(task.levels, task.bits, strict=True)
                if (number ^ receiver) >> bit & 1
            )
            for number, receiver in enumerate(receivers)
        ]
        routes = [self.network.route(number, receiver) for number, receiver in enumerate(receivers)]
        beside = [self.accelerators + receiver for receiver in receivers]
        return _Pattern(receivers + beside, routes * 2, levels * 2)

    def _run_in_order(self, accelerator: int) -> ProcessGenerator:
        env, timeout, note_end = self.env, self.env.timeout, self._ends[accelerator].append
        for step in self.steps:
            if isinstance(step, Compute):
                yield timeout(step.seconds)
            elif step.background:
                self._hand_over(accelerator)
            else:
                for _ in range(step.rounds):
                    yield self._send(accelerator, step)
            note_end(env.now)

    def _hand_over(self, accelerator: int) -> None:
        self._handed[accelerator] += 1
        idle = self._idle[accelerator]
        if idle is not None:
            self._idle[accelerator] = None
            idle.succeed()

    def _run_beside(self, accelerator: int) -> ProcessGenerator:
        track = self.accelerators + accelerator
        for place, step in enumerate(self._overlapped):
            if self._handed[accelerator] == place:
                idle = self._idle[accelerator] = Event(self.env)
                yield idle
            for _ in range(step.rounds):
                yield self._send(track, step)
            self._ends[track].append(self.env.now)

    def _send(self, track: int, step: _Rounds) -> Event:
        """Send a round's message; return what waits until it and the expected one arrive."""
        self._doing[track] = step
        self._round[track] = now = self._round[track] + 1
        self._awaited[track] = 2
        if self._early and (now, track) in self._early:
            self._early.remove((now, track))
            self._awaited[track] = 1
        self.network.send(step.pattern.routes[track], step.bytes, track, step.task)
        return self._wakeups[track]

    def _deliver(self, senders: list[int]) -> None:
        rounds, awaited, wakeups = self._round, self._awaited, self._wakeups
        for sender in senders:
            step, now = self._doing[sender], rounds[sender]
            receiver = step.pattern.receivers[sender]
            self.level_bytes[step.pattern.levels[sender]] += step.bytes
            awaited[sender] -= 1
            if not awaited[sender]:
                wakeups[sender].happen()
            if rounds[receiver] != now:
                self._early.add((now, receiver))
                continue
            awaited[receiver] -= 1
            if not awaited[receiver]:
                wakeups[receiver].happen()
