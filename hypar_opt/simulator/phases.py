"""A step in phases: no message of one is in flight on a link that the next one uses.

Rings of VGG-A around 1,024 leaves of an H tree with latencies take a tenth of the time at once, as
most phases are recurrences (`hypar_opt.simulator.uncontended`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.simulator.classes import equivalence_classes
from hypar_opt.simulator.fairness import RELATIVE_TOLERANCE
from hypar_opt.simulator.lockstep import NotInLockstepError, PatternRoutes
from hypar_opt.simulator.machine import Machine
from hypar_opt.simulator.routes import ClassRoutes, RouteTable
from hypar_opt.simulator.tasks import ComputeTask, ExchangeTask, Task, rounds_of
from hypar_opt.simulator.uncontended import LoneMessages, Seconds, run_uncontended

if TYPE_CHECKING:
    from hypar_opt.hardware.interconnect import Interconnect

Check = Callable[[Sequence[Task], ClassRoutes], None]


@dataclass(frozen=True, eq=False)
class StepPhase:
    """Measurements of consecutive tasks.

    Parameters
    ----------
    start : (accelerators,)
        When each accelerator begins the first task, in seconds.
    ends : (tasks, accelerators)
        When it ends each.
    channel_bytes : (channels,)
    busy, since, until : (links,)
        The seconds in which any byte crossed a link, and when the first and the last one did:
        infinity and 0 where none has.
    """

    tasks: Sequence[Task]
    start: Seconds
    ends: Seconds
    channel_bytes: Seconds
    busy: Seconds
    since: Seconds
    until: Seconds


def in_phases(
    tasks: Sequence[Task], interconnect: Interconnect, check: Check, deadline: Deadline = NEVER
) -> list[StepPhase]:
    """Run the tasks of one stream in phases, each with its own classes of accelerators.

    A phase ends with an exchange. If bytes of it may have crossed a link before the last of those
    before it have, it is run together with them.

    Parameters
    ----------
    check
        Refuses steps that are too large to simulate event by event.

    Raises
    ------
    NoAnswerError
        If the deadline passes.
    """
    phases = _Phases(interconnect, check, deadline)
    to_come = deque(_divided(tasks))
    done: list[StepPhase] = []
    until: list[Seconds] = []  # when the last byte of each phase, and of those before, is sent

    def met(since: Seconds) -> int | None:
        """Return the first finished phase in which a link is used until later."""
        soon = since * (1 + RELATIVE_TOLERANCE)
        if not until or not (soon < until[-1]).any():
            return None
        return bisect_left(until, True, key=lambda last: bool((soon < last).any()))

    while to_come:
        deadline.check()
        pending = to_come.popleft()
        start = done[-1].ends[-1] if done else np.zeros(interconnect.accelerators)
        phase = phases.run(pending, start)
        while (first := met(phase.since)) is not None:
            pending = [*(task for other in done[first:] for task in other.tasks), *pending]
            start = done[first].start
            del done[first:], until[first:]
            # Exchanges in a row follow at once: they would be next.
            while to_come and isinstance(to_come[0][0], ExchangeTask):
                pending += to_come.popleft()
            phase = phases.run(pending, start)
        done.append(phase)
        until.append(np.maximum(until[-1], phase.until) if until else phase.until)
    return done


def _divided(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Divide tasks after each exchange."""
    phase: list[Task] = []
    for task in tasks:
        phase.append(task)
        if isinstance(task, ExchangeTask):
            yield phase
            phase = []
    if phase:
        yield phase


class _Phases:
    """Data shared by the phases of a step: messages by pattern, and routes by classes."""

    def __init__(self, interconnect: Interconnect, check: Check, deadline: Deadline) -> None:
        self._interconnect, self._deadline = interconnect, deadline
        self._check = check
        self._alone = cache(lambda pattern: LoneMessages.of(pattern, interconnect))
        self._routes: dict[bytes, ClassRoutes] = {}

    def run(self, tasks: Sequence[Task], start: Seconds) -> StepPhase:
        """Run tasks that each accelerator begins at an instant of its own."""
        if np.ptp(start) <= RELATIVE_TOLERANCE * start.max():
            try:
                return self._by_events(tasks, start, PatternRoutes(self._interconnect))
            except NotInLockstepError:
                pass
        classes = equivalence_classes(self._interconnect, rounds_of(tasks), start)
        key = classes.accelerators.tobytes() + classes.channels.tobytes()
        if key not in self._routes:
            self._routes[key] = ClassRoutes(self._interconnect, classes)
        routes = self._routes[key]
        step = run_uncontended(tasks, routes, start[routes.firsts], self._alone)
        if step is None:
            self._check(tasks, routes)
            return self._by_events(tasks, start, routes)
        moved, ends = routes.bytes_by_channel(step.sent), step.ends[:, routes.class_of]
        return StepPhase(tasks, start, ends, moved, step.busy, step.since, step.until)

    def _by_events(self, tasks: Sequence[Task], start: Seconds, routes: RouteTable) -> StepPhase:
        """Run an accelerator of each class event by event, from the first one's start on."""
        _, firsts = np.unique(routes.class_of, return_index=True)
        first, begin = tasks[0], float(start.min())
        waits = (start[firsts] - begin).tolist()
        delay = ComputeTask(first.layer, first.phase, max(waits), of_parts=tuple(waits))
        # One stream runs its tasks in their order, whatever they wait for.
        in_order = [delay, *(replace(task, after=None) for task in tasks)]
        skip = routes.accelerators > 1
        machine = Machine(in_order, routes, record=False, skip=skip, start=begin)
        machine.run(self._deadline)
        spans = [machine.spans(number)[1:] for number in range(routes.accelerators)]
        ends = np.array([[span.end for span in of_accelerator] for of_accelerator in spans]).T[
            :, routes.class_of
        ]
        network = machine.network
        busy = np.array(network.link_busy)
        return StepPhase(tasks, start, ends, network.channel_bytes, busy, *network.link_span)
