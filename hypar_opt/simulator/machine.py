"""The accelerators of an array as SimPy processes that compute and exchange messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simpy import Environment, Event
from simpy.events import ProcessGenerator

from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.simulator.flows import FlowNetwork
from hypar_opt.simulator.rounds import MessageRounds, Patterns
from hypar_opt.simulator.tasks import Compute, Task


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

    # What a process reads of an event when it resumes.
    _ok = True
    _value = None

    def trigger_now(self) -> None:
        """Resume the process that awaits it."""
        self.callbacks.pop()(self)


class Machine:
    """The accelerators of an array, running a step.

    Accelerator i of N has two streams: i runs its tasks in order, N + i those in the
    background. A stream has at most one message in flight, so a stream's number identifies its
    message. The same streams of all accelerators run through the same rounds, and count them.

    Parameters
    ----------
    tasks
        Of every accelerator, in order.
    record
        Whether the network keeps its segments.
    """

    def __init__(self, tasks: Sequence[Task], interconnect: Interconnect, *, record: bool) -> None:
        self.accelerators = interconnect.accelerators
        self.env = Environment()
        self.network = FlowNetwork(self.env, interconnect, self._deliver, record=record)
        self.level_bytes = [0.0] * interconnect.levels
        patterns = Patterns(interconnect, self.network.route)
        self._steps: list[Compute | MessageRounds] = [
            task if isinstance(task, Compute) else patterns.rounds(number, task)
            for number, task in enumerate(tasks)
        ]
        self._overlapped = [
            step for step in self._steps if isinstance(step, MessageRounds) and step.background
        ]
        streams = range(2 * self.accelerators)
        self._wakeups = [RepeatableEvent(self.env) for _ in streams]
        self._sending: dict[int, MessageRounds] = {}
        # Partners need not be in the same round, and a stream waits for its own round's message.
        self._round = [0 for _ in streams]
        # Deliveries that a stream still awaits in its round: of its message, and of one to it.
        self._awaited = [0 for _ in streams]
        # Rounds and receiving streams of messages that arrived before that round had begun.
        self._early: set[tuple[int, int]] = set()
        self._ends: list[list[float]] = [[] for _ in streams]
        self._handed_over = [0] * self.accelerators
        self._idle: list[Event | None] = [None] * self.accelerators

    def run(self) -> None:
        """Run all tasks of all accelerators."""
        for accelerator in range(self.accelerators):
            self.env.process(self._run_in_order(accelerator))
            if self._overlapped:
                self.env.process(self._run_background(accelerator))
        self.env.run()
        for accelerator in range(self.accelerators):
            counts = [len(ends) for ends in self._ends_of(accelerator)]
            # A stream that waits for a message nobody sends never ends.
            assert counts == [len(self._steps), len(self._overlapped)], "deadlock"

    def end(self, accelerator: int) -> float:
        """Return when an accelerator has finished both its streams, in seconds."""
        return max((ends[-1] for ends in self._ends_of(accelerator) if ends), default=0.0)

    def spans(self, accelerator: int) -> list[TaskSpan]:
        """Return when an accelerator ran its tasks, in their order.

        Handing an exchange over to the background takes no time; in the background it starts
        when the exchange before it has ended.
        """
        in_order, background = self._ends_of(accelerator)
        background_ends = iter(background)
        now = background_free = 0.0
        spans = []
        for task, (step, end) in enumerate(zip(self._steps, in_order, strict=True)):
            if isinstance(step, MessageRounds) and step.background:
                start, background_free = max(now, background_free), next(background_ends)
                spans.append(TaskSpan(task, start, background_free))
            else:
                spans.append(TaskSpan(task, now, end))
            now = end
        return spans

    def _ends_of(self, accelerator: int) -> tuple[list[float], list[float]]:
        return self._ends[accelerator], self._ends[self.accelerators + accelerator]

    def _run_in_order(self, accelerator: int) -> ProcessGenerator:
        """Run an accelerator's tasks, as a SimPy process."""
        # Bound once: the loop runs for every message of the step.
        env, timeout, note_end = self.env, self.env.timeout, self._ends[accelerator].append
        for step in self._steps:
            if isinstance(step, Compute):
                yield timeout(step.seconds)
            elif step.background:
                self._hand_over(accelerator)
            else:
                for _ in range(step.rounds):
                    yield self._send(accelerator, step)
            note_end(env.now)

    def _hand_over(self, accelerator: int) -> None:
        """Let the background stream start its next exchange, and wake it if it is idle."""
        self._handed_over[accelerator] += 1
        idle = self._idle[accelerator]
        # It is idle only if it has finished all exchanges handed over before.
        if idle is not None:
            self._idle[accelerator] = None
            idle.succeed()

    def _run_background(self, accelerator: int) -> ProcessGenerator:
        """Run an accelerator's exchanges in the background, as a SimPy process."""
        stream = self.accelerators + accelerator
        for finished, step in enumerate(self._overlapped):
            if self._handed_over[accelerator] == finished:
                idle = self._idle[accelerator] = Event(self.env)
                yield idle
            for _ in range(step.rounds):
                yield self._send(stream, step)
            self._ends[stream].append(self.env.now)

    def _send(self, stream: int, step: MessageRounds) -> Event:
        """Send a round's message; return the event of its delivery and of the one expected."""
        self._sending[stream] = step
        self._round[stream] = now = self._round[stream] + 1
        self._awaited[stream] = 2
        # Tested first for emptiness: in lockstep no message is early, and this runs per message.
        if self._early and (now, stream) in self._early:
            self._early.remove((now, stream))
            self._awaited[stream] = 1
        self.network.send(step.pattern.routes[stream], step.bytes, stream, step.task)
        return self._wakeups[stream]

    def _deliver(self, senders: list[int]) -> None:
        """Count delivered messages, by their senders, and resume the streams that await no more."""
        rounds, awaited, wakeups = self._round, self._awaited, self._wakeups
        for sender in senders:
            step, now = self._sending[sender], rounds[sender]
            receiver = step.pattern.receivers[sender]
            self.level_bytes[step.pattern.levels[sender]] += step.bytes
            # The sender goes on once its message is delivered and it has received one.
            awaited[sender] -= 1
            if not awaited[sender]:
                wakeups[sender].trigger_now()
            # The receiver is still in an earlier round, and will not wait for this message.
            if rounds[receiver] != now:
                self._early.add((now, receiver))
                continue
            awaited[receiver] -= 1
            if not awaited[receiver]:
                wakeups[receiver].trigger_now()
