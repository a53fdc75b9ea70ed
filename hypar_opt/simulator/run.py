"""One training step on an array of accelerators, simulated event by event and measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypar_opt.errors import RefusedError, argument
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.simulator.flows import Segment
from hypar_opt.simulator.machine import Machine, TaskSpan
from hypar_opt.simulator.tasks import Exchange, Task, is_overlapped

MAX_WORK = 10**9
"""Computations and messages of a step, times accelerators: some minutes' work. An event may
change the rates of all messages in flight, which are as many as the accelerators."""


@dataclass(frozen=True)
class Run:
    """One training step, measured.

    Parameters
    ----------
    seconds
        Until the last accelerator has finished.
    task_seconds
        Of each task, the time that this last accelerator (the lowest number among equals) spent
        in it, waiting included; of a task in the background, the part after all others. They
        add up to ``seconds``.
    level_bytes
        Delivered across each hierarchy level; a message between neighbours in a ring counts for
        the topmost level that separates them.
    link_bytes, link_busy, link_seconds_at_capacity
        Of each link: the bytes sent over it, both directions added; the seconds in which any
        byte crossed it; the seconds that its busier direction takes at the full bandwidth.
    events
        Computations and messages: the timeouts that would be enough without a network.
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
    spans: tuple[tuple[TaskSpan, ...], ...] = ()
    segments: tuple[tuple[Segment, ...], ...] = ()


def run(tasks: Sequence[Task], interconnect: Interconnect, *, record: bool = False) -> Run:
    """Let every accelerator run the tasks in order, exchanging messages over the links.

    Parameters
    ----------
    tasks
        Exchanges have bytes to send and bits below ``interconnect.levels``.
    record
        Whether to keep what each accelerator and each link did when.

    Raises
    ------
    RefusedError
        If the step is more work than `MAX_WORK`.
    """
    accelerators = range(interconnect.accelerators)
    events = len(accelerators) * sum(map(_rounds, tasks))
    # Refused before any work is done: how much there will be is known from the tasks.
    if events * len(accelerators) > MAX_WORK:
        raise RefusedError(
            f"the step is {events:,} computations and messages, and at most"
            f" {MAX_WORK // len(accelerators):,} of {len(accelerators):,} accelerators are"
            f" simulated; take {argument('collective', 'pairwise')}, or fewer accelerators"
        )
    machine = Machine(tasks, interconnect, record=record)
    machine.run()
    # The step is accounted for on one accelerator that ends it: the tasks of others, who wait
    # less or more, do not add up to the step.
    ends = [machine.end(accelerator) for accelerator in accelerators]
    seconds = max(ends)
    network = machine.network
    return Run(
        seconds=seconds,
        task_seconds=_task_seconds(tasks, machine.spans(ends.index(seconds))),
        level_bytes=tuple(machine.level_bytes),
        link_bytes=network.link_bytes,
        link_busy=network.link_busy,
        link_seconds_at_capacity=network.link_seconds_at_capacity,
        events=events,
        spans=tuple(tuple(machine.spans(number)) for number in accelerators) if record else (),
        segments=network.segments if record else (),
    )


def _rounds(task: Task) -> int:
    """Return how often every accelerator computes or sends a message in a task."""
    return task.messages if isinstance(task, Exchange) else 1


def _task_seconds(tasks: Sequence[Task], spans: Sequence[TaskSpan]) -> tuple[float, ...]:
    foreground_end = max(
        (span.end for span in spans if not is_overlapped(tasks[span.task])), default=0.0
    )
    # What the foreground hides of a task in the background costs the step nothing.
    return tuple(
        max(0.0, span.end - max(span.start, foreground_end))
        if is_overlapped(tasks[span.task])
        else span.end - span.start
        for span in spans
    )
