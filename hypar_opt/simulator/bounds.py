"""Bounds on a step's time without simulating it: in sequence, and from below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.simulator.rounds import message_bytes
from hypar_opt.simulator.tasks import ComputeTask, ExchangeTask, Task, predecessors
from hypar_opt.simulator.uncontended import LoneMessages, Seconds, passed

if TYPE_CHECKING:
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.hardware.patterns import Lane

_ROUNDS = 64
"""The most consecutive rounds that are added one by one."""


def in_sequence(tasks: Sequence[Task], interconnect: Interconnect) -> float:
    """Return a step's seconds in closed form: its tasks in sequence, in lockstep.

    An exchange takes its messages' latencies and its bytes over the bandwidth that the topology
    gives its pattern. In lockstep that is its time, and the sum an upper bound on a step with
    overlap; otherwise it is no bound.
    """
    return _added(_in_lockstep(task, interconnect) for task in tasks)


def critical_path(tasks: Sequence[Task], interconnect: Interconnect) -> float:
    """Return a lower bound, in seconds, on a step that runs in lockstep.

    The critical path is the longest chain of tasks that wait for one another, or the sum of an
    accelerator's computations if that is longer. In lockstep all messages of an exchange have
    one rate, at most that which saturates its bottleneck channel.
    """
    ends: list[float] = []
    for task, before in zip(tasks, predecessors(tasks), strict=True):
        start = max((ends[other] for other in before), default=0.0)
        ends.append(start + _in_lockstep(task, interconnect))
    return max([*ends, _computed(tasks)])


def lower_bound(tasks: Sequence[Task], interconnect: Interconnect) -> float:
    """Return a lower bound, in seconds, on a step whose accelerators may all differ.

    It is the longest of

    - the last accelerator's end, if no two messages shared a link;
    - an accelerator's computations, which run one at a time;
    - for each channel, all bytes that cross it at its bandwidth, between the earliest start of a
      message that crosses it and the least that follows one.
    """
    exchanges = _Exchanges(tasks, interconnect)
    starts, ends = exchanges.forward()
    channels = exchanges.by_channel(starts)
    return float(max(_computed(tasks), *(end.max() for end in ends), channels.max(initial=0.0)))


def _computed(tasks: Sequence[Task]) -> float:
    # An accelerator computes one task at a time, whatever the tasks wait for.
    computed = [task for task in tasks if isinstance(task, ComputeTask)]
    parts = max((len(task.of_parts or ()) for task in computed), default=0)
    return max(
        _added(task.of_parts[part] if task.of_parts else task.seconds for task in computed)
        for part in range(max(parts, 1))
    )


def _added(seconds: Iterable[float]) -> float:
    """Add in order, as along a path: from Python 3.12 on, `sum` rounds differently."""
    return reduce(add, seconds, 0.0)


def _in_lockstep(task: Task, interconnect: Interconnect) -> float:
    """Return a task's seconds with all accelerators in lockstep: latency and bandwidth."""
    if isinstance(task, ComputeTask):
        return task.seconds
    link = interconnect.link(task.rounds)
    sent = task.sent or (task.bytes,)
    if len(sent) == 1:
        return float(link.latency) + sent[0] * float(link.seconds_per_byte)
    # The parts of H1 at once: below it over their own links.
    accelerators = interconnect.accelerators // len(sent)
    links = [
        interconnect.link(
            task.rounds, range(first, first + accelerators) if min(task.levels) else None
        )
        for first in range(0, interconnect.accelerators, accelerators)
    ]
    return max(
        float(link.latency) + moved * float(link.seconds_per_byte)
        for moved, link in zip(sent, links, strict=True)
    )


class _Exchanges:
    """A step's tasks, and its exchanges' messages, each timed without contention."""

    def __init__(self, tasks: Sequence[Task], interconnect: Interconnect) -> None:
        self._tasks, self._interconnect = tasks, interconnect
        self._before = predecessors(tasks)
        self._alone = cache(lambda pattern: LoneMessages.of(pattern, interconnect))

    def forward(self) -> tuple[list[Seconds], list[Seconds]]:
        """Return the earliest start and end of every task, by accelerator."""
        starts: list[Seconds] = []
        ends: list[Seconds] = []
        for task, before in zip(self._tasks, self._before, strict=True):
            now = np.zeros(self._interconnect.accelerators)
            for other in before:
                now = np.maximum(now, ends[other])
            starts.append(now)
            if isinstance(task, ComputeTask):
                ends.append(now + self._computing(task))
                continue
            sending = self._sending(task)
            for lanes, times in task.rounds:
                senders = {lane: self._alone(lane.pattern).sender for lane in lanes}
                after = [
                    (sending[lane], sending[lane][sender], sender)
                    for lane, sender in senders.items()
                ]
                for remaining in reversed(range(times)):
                    last, now = now, passed(now, after)
                    added = now - last
                    # No later round adds less than the minimum of these, and soon all add equally
                    # much.
                    if remaining > _ROUNDS and np.ptp(added) <= 4 * np.spacing(now.max()):
                        now += remaining * added.min()
                        break
            ends.append(now)
        return starts, ends

    def by_channel(self, starts: Sequence[Seconds]) -> Seconds:
        """Return a lower bound on a step's seconds by each channel's bytes."""
        capacities = self._interconnect.float_capacities
        first, last = np.full((2, len(capacities)), np.inf)
        crossing = np.zeros(len(capacities))
        follows = self._follows()
        for number, task in enumerate(self._tasks):
            if isinstance(task, ComputeTask):
                continue
            for lane, times in _lanes(task):
                alone = self._alone(lane.pattern)
                traffic = alone.traffic
                moved = np.asarray(message_bytes(task, lane, self._interconnect)) * times
                moved = moved if moved.ndim == 0 else moved[traffic.message]
                crossing += np.bincount(traffic.channel, moved * alone.share, len(capacities))
                np.minimum.at(first, traffic.channel, starts[number][traffic.message])
                after = alone.latency + follows[number]
                np.minimum.at(last, traffic.channel, after[traffic.message])
        used = crossing > 0
        seconds: Seconds = first[used] + (crossing / capacities)[used] + last[used]
        return seconds

    def _follows(self) -> list[Seconds]:
        """Return the least seconds of an accelerator's tasks after the end of each task."""
        follows = [np.zeros(self._interconnect.accelerators) for _ in self._tasks]
        for number in range(len(self._tasks) - 1, -1, -1):
            task = self._tasks[number]
            seconds: Seconds | float
            if isinstance(task, ComputeTask):
                seconds = self._computing(task)
            else:
                sending = self._sending(task)
                longest = (
                    times * reduce(np.maximum, map(sending.__getitem__, lanes))
                    for lanes, times in task.rounds
                )
                seconds = reduce(add, longest)
            for other in self._before[number]:
                follows[other] = np.maximum(follows[other], follows[number] + seconds)
        return follows

    def _computing(self, task: ComputeTask) -> Seconds | float:
        """Return the seconds of each accelerator's computation, or of all."""
        if task.of_parts is None:
            return task.seconds
        return np.repeat(task.of_parts, self._interconnect.accelerators // len(task.of_parts))

    def _sending(self, task: ExchangeTask) -> dict[Lane, Seconds]:
        """Return the seconds of each accelerator's messages, without contention."""
        seconds = {}
        for lane in {lane for lane, _ in _lanes(task)}:
            alone = self._alone(lane.pattern)
            moved = np.asarray(message_bytes(task, lane, self._interconnect))
            seconds[lane] = alone.latency + moved * alone.seconds_per_byte
        return seconds


def _lanes(task: ExchangeTask) -> Iterator[tuple[Lane, int]]:
    """Yield the lanes of a task's rounds, and how often in a row."""
    for lanes, times in task.rounds:
        for lane in lanes:
            yield lane, times
