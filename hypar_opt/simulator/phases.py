"""A step in phases, where no message of one is in flight on a link that the next one uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.simulator.classes import alike
from hypar_opt.simulator.fairness import RELATIVE_TOLERANCE
from hypar_opt.simulator.lockstep import NotInLockstepError, PatternRoutes
from hypar_opt.simulator.machine import Machine
from hypar_opt.simulator.routes import ClassRoutes, RouteTable
from hypar_opt.simulator.tasks import ComputeTask, ExchangeTask, Task, rounds_of
from hypar_opt.simulator.uncontended import Seconds, run_uncontended

if TYPE_CHECKING:
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.hardware.traffic import Indices

Check = Callable[[Sequence[Task], ClassRoutes], None]


@dataclass(frozen=True, eq=False)
class StepPhase:
    """What was measured of some tasks that follow one another.

    Parameters
    ----------
    start : (accelerators,)
        When each accelerator begins the first task, in seconds.
    ends : (tasks, accelerators)
        When it ends each.
    channel_bytes : (channels,)
    busy : (links,)
        Seconds in which any byte crossed a link.
    """

    tasks: Sequence[Task]
    start: Seconds
    ends: Seconds
    channel_bytes: Seconds
    busy: Seconds


def in_phases(tasks: Sequence[Task], interconnect: Interconnect, check: Check) -> list[StepPhase]:
    """Run the tasks of one stream in phases, each as its own accelerators and messages need it.

    A phase begins with a computation. If it may use a link on which messages of those before are
    in flight, it is run together with them.

    Parameters
    ----------
    check
        Refuses what is too much to simulate event by event.
    """
    done: list[StepPhase] = []
    for own in _divided(tasks):
        start = done[-1].ends[-1] if done else np.zeros(interconnect.accelerators)
        phase = _phase(own, start, interconnect, check)
        while done and _overlap(done, phase, interconnect):
            before = done.pop()
            phase = _phase([*before.tasks, *phase.tasks], before.start, interconnect, check)
        done.append(phase)
    return done


def _divided(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Divide tasks where a computation follows an exchange."""
    own: list[Task] = []
    for task in tasks:
        if isinstance(task, ComputeTask) and own and isinstance(own[-1], ExchangeTask):
            yield own
            own = []
        own.append(task)
    yield own


def _overlap(done: Sequence[StepPhase], phase: StepPhase, interconnect: Interconnect) -> bool:
    """Return whether a link may be used by a phase before it is free of those before."""
    until = np.zeros(len(interconnect.links))
    for before in done:
        for task, ends in zip(before.tasks, before.ends, strict=True):
            for link, message in _crossed(task, interconnect):
                np.maximum.at(until, link, ends[message])
    since = np.full(len(until), np.inf)
    starts = [phase.start, *phase.ends[:-1]]
    for task, begins in zip(phase.tasks, starts, strict=True):
        for link, message in _crossed(task, interconnect):
            np.minimum.at(since, link, begins[message])
    return bool((since * (1 + RELATIVE_TOLERANCE) < until).any())


def _crossed(task: Task, interconnect: Interconnect) -> Iterator[tuple[Indices, Indices]]:
    """Yield the links that a task's messages cross, and the accelerators that send these."""
    if isinstance(task, ExchangeTask):
        links = np.array(interconnect.channel_link)
        for pattern in {lane.pattern for lanes, _ in task.rounds for lane in lanes}:
            traffic = interconnect.traffic(pattern)
            yield links[traffic.channel], traffic.message


def _phase(
    tasks: Sequence[Task], start: Seconds, interconnect: Interconnect, check: Check
) -> StepPhase:
    """Run tasks that each accelerator begins at an instant of its own."""
    if np.ptp(start) <= RELATIVE_TOLERANCE * start.max():
        try:
            return _by_events(tasks, start, PatternRoutes(interconnect))
        except NotInLockstepError:
            pass
    routes = ClassRoutes(interconnect, alike(interconnect, rounds_of(tasks), start))
    step = run_uncontended(tasks, routes, start[routes.firsts])
    if step is None:
        check(tasks, routes)
        return _by_events(tasks, start, routes)
    moved = routes.bytes_by_channel(step.sent)
    return StepPhase(tasks, start, step.ends[:, routes.class_of], moved, np.array(step.busy))


def _by_events(tasks: Sequence[Task], start: Seconds, routes: RouteTable) -> StepPhase:
    """Run an accelerator of each class event by event, from the first one's start on."""
    _, firsts = np.unique(routes.class_of, return_index=True)
    first = tasks[0]
    waits = (start[firsts] - start.min()).tolist()
    delay = ComputeTask(first.layer, first.phase, max(waits), of_parts=tuple(waits))
    # One stream runs its tasks in their order, whatever they wait for.
    in_order = [delay, *(replace(task, after=None) for task in tasks)]
    machine = Machine(in_order, routes, record=False, skip=routes.accelerators > 1)
    machine.run()
    spans = [machine.spans(number)[1:] for number in range(routes.accelerators)]
    ends = np.array([[span.end for span in own] for own in spans]).T + start.min()
    network = machine.network
    busy = np.array(network.link_busy)
    return StepPhase(tasks, start, ends[:, routes.class_of], network.channel_bytes, busy)
