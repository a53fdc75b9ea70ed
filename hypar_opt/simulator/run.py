"""The simulation of one training step on an array, event by event, and its measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import RefusedError, argument
from hypar_opt.hardware.folded import MAX_LISTED, FoldedInterconnect
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.hardware.patterns import MessageRound, messages_in
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.bounds import lower_bound
from hypar_opt.simulator.classes import equivalence_classes
from hypar_opt.simulator.flows import Segment
from hypar_opt.simulator.lockstep import NotInLockstepError, PatternRoutes
from hypar_opt.simulator.machine import Machine, TaskSpan
from hypar_opt.simulator.phases import StepPhase, in_phases
from hypar_opt.simulator.rounds import level_bytes
from hypar_opt.simulator.routes import (
    ClassRoutes,
    RouteTable,
    bytes_by_link,
    seconds_at_capacity,
)
from hypar_opt.simulator.task_seconds import overlapped, task_seconds
from hypar_opt.simulator.tasks import (
    FOREGROUND,
    ComputeTask,
    ExchangeKind,
    ExchangeTask,
    Task,
    rounds_of,
    stream_count,
)
from hypar_opt.simulator.uncontended import Seconds
from hypar_opt.units import format_si

MAX_WORK = 10**9
"""Upper bound on the work of a step: computations and messages of distinct accelerators, times the
number of these; about a minute. An event may change the rates of all messages in flight."""

_SECONDS_OF_WORK = 3e-8
"""The seconds of a unit of work, to estimate how long a refused step would take."""

MAX_ROUNDS = 2 * 10**6
"""Upper bound on the computations and messages of one accelerator: minutes of simulation."""

MIN_WORK_IN_PHASES = 10**7
"""A step of less work is run as a whole, in seconds at most: phases have an overhead."""

_TIMES_LESS = 4
"""The work of a step over that of its phases, at least: phases that meet on a link are run again,
together, which may take longer than the step at once."""

_TO_REPEAT = 4
"""In lockstep, the consecutive rounds that are run before the others are added."""


@dataclass(frozen=True)
class Measurements:
    """The measurements of one simulated training step.

    Parameters
    ----------
    seconds
        Until the last accelerator has finished.
    task_seconds
        For every task, the time that the last accelerator (the lowest number among equals) spent
        in it, waiting included; of an overlapped exchange, the part that overlaps no computation
        and no exchange that counts before it. They add up to ``seconds``.
    level_bytes
        Delivered across each hierarchy level; a message between neighbours in a ring counts for
        the topmost level that separates them.
    link_bytes, link_busy, link_seconds_at_capacity
        For every link: the bytes sent over it, both directions added; the seconds in which any
        byte crossed it, at an efficiency of overlap of 1; the seconds of its busier direction's
        bytes at the full bandwidth.
    events
        Computations and messages, each of which would be one timeout without a network.
    in_lockstep
        Whether all accelerators did the same at the same instants, and one was simulated.
    spans
        If recorded: for every accelerator, its tasks in order. Those of different streams
        overlap.
    segments
        If recorded: for every link, its intervals with the tasks whose bytes crossed it.
    """

    seconds: float
    task_seconds: tuple[float, ...]
    level_bytes: tuple[float, ...]
    link_bytes: tuple[float, ...]
    link_busy: tuple[float, ...]
    link_seconds_at_capacity: tuple[float, ...]
    events: int
    in_lockstep: bool = field(compare=False)
    spans: tuple[tuple[TaskSpan, ...], ...] = ()
    segments: tuple[tuple[Segment, ...], ...] = ()

    def after(self, other: Measurements, times: int) -> Measurements:
        """Return the measurements after a number of steps of other tasks, without spans."""

        def added(name: str) -> tuple[float, ...]:
            pairs = zip(getattr(self, name), getattr(other, name), strict=True)
            return tuple(first + times * before for first, before in pairs)

        return replace(
            self,
            seconds=self.seconds + times * other.seconds,
            task_seconds=added("task_seconds"),
            level_bytes=added("level_bytes"),
            link_bytes=added("link_bytes"),
            link_busy=added("link_busy"),
            link_seconds_at_capacity=added("link_seconds_at_capacity"),
            events=self.events + times * other.events,
            in_lockstep=self.in_lockstep and other.in_lockstep,
        )


def run(
    tasks: Sequence[Task],
    interconnect: Interconnect,
    *,
    record: bool = False,
    efficiency: float = 1.0,
    deadline: Deadline = NEVER,
) -> Measurements:
    """Simulate the tasks on every accelerator, with messages over the links.

    In lockstep, one accelerator is simulated and represents all; otherwise one of each equivalence
    class, event by event. If that is long, and exchanges neither overlap nor are recorded, they are
    simulated one by one if that saves work.

    Parameters
    ----------
    tasks
        Exchanges have bytes to send and bits below ``interconnect.levels``.
    record
        Whether to keep the spans of every accelerator and the segments of every link.
    efficiency
        The efficiency of overlap: while computations and a queue of exchanges overlap, both run at
        1 / (2 - efficiency) of their rates. Accelerators that are not in lockstep are slowed down
        like the one that ends last.

    Raises
    ------
    RefusedError
        If the step is more work than `MAX_ROUNDS` or, not in lockstep, `MAX_WORK`; or has more
        accelerators than `MAX_LISTED`, and they differ or are to be recorded.
    NoAnswerError
        If the deadline passes.
    """
    if record and isinstance(interconnect, FoldedInterconnect):
        raise RefusedError(
            f"a trace of {interconnect.accelerators:,} accelerators and their links is too"
            f" large to record, at most {MAX_LISTED:,}; use fewer accelerators"
        )
    skip = _skips(tasks, record=record)
    if any(task.of_parts for task in tasks):
        return _by_classes(tasks, ClassRoutes(interconnect), record, efficiency, deadline)
    try:
        routes = PatternRoutes(interconnect)
        return _run(tasks, routes, efficiency, deadline, record=record, skip=skip)
    except NotInLockstepError:
        _check(tasks, sum(map(_rounds, tasks)))
        if isinstance(interconnect, FoldedInterconnect):
            raise RefusedError(
                f"the {interconnect.accelerators:,} accelerators do not do the same at once, and of"
                f" those that differ at most {MAX_LISTED:,} are simulated; use"
                f" {_simulated_instead(tasks, interconnect)}"
            ) from None
        classes = ClassRoutes(interconnect, equivalence_classes(interconnect, rounds_of(tasks)))
        work = event_work(tasks, classes)
        if not record and stream_count(tasks) == 1 and work > MIN_WORK_IN_PHASES:
            try:
                limit = _WorkLimit(work // _TIMES_LESS if work <= MAX_WORK else MAX_WORK)
                phases = in_phases(tasks, interconnect, limit.add, deadline)
                return _join_phases(tasks, phases, interconnect)
            except RefusedError:
                pass  # run at once, or refused as the whole step
        return _by_classes(tasks, classes, record, efficiency, deadline)


def seconds_of(
    tasks: Sequence[Task],
    interconnect: Interconnect,
    *,
    efficiency: float = 1.0,
    deadline: Deadline = NEVER,
) -> float:
    """Return the seconds that `run` measures, and nothing else.

    If one exchange runs at a time, in lockstep, each kind of exchange is run alone, once, and the
    step takes its longest chain of tasks.
    """
    streams = {task.stream for task in tasks if isinstance(task, ExchangeTask)}
    waits = any(task.of_parts or task.after is not None for task in tasks)
    if len(streams) > 1 or waits or (efficiency < 1 and streams != {FOREGROUND}):
        return run(tasks, interconnect, efficiency=efficiency, deadline=deadline).seconds
    # A computation waits for no exchange of another stream, an exchange for all before it.
    computed = overlapped = 0.0
    for task in tasks:
        if isinstance(task, ComputeTask):
            computed += task.seconds
            continue
        seconds = _alone(task.rounds, task.levels, task.digits, task.bytes, task.sent, interconnect)
        if seconds is None:
            return run(tasks, interconnect, deadline=deadline).seconds
        if task.stream == FOREGROUND:
            computed += seconds
        else:
            overlapped = max(computed, overlapped) + seconds
    return max(computed, overlapped)


@lru_cache(maxsize=4096)
def _alone(
    rounds: tuple[MessageRound, ...],
    levels: tuple[int, ...],
    digits: tuple[int, ...],
    moved: float,
    sent: tuple[float, ...],
    interconnect: Interconnect,
) -> float | None:
    """Return the seconds of an exchange alone; None if accelerators are not in lockstep."""
    kind = ExchangeKind.GRADIENTS
    tasks = [ExchangeTask("", Phase.GRADIENT, kind, levels, digits, moved, rounds, sent=sent)]
    try:
        routes, skip = PatternRoutes(interconnect), _skips(tasks)
        return _run(tasks, routes, record=False, skip=skip).seconds
    except NotInLockstepError:
        return None


def _skips(tasks: Sequence[Task], *, record: bool = False) -> bool:
    """Return whether repeated rounds, while nothing else runs, are added instead of run.

    Raises
    ------
    RefusedError
        If more than `MAX_ROUNDS` would be simulated.
    """
    rounds = sum(map(_rounds, tasks))
    skips = rounds > MAX_ROUNDS // 2 and not record and stream_count(tasks) == 1
    _check(tasks, sum(_rounds(task, _TO_REPEAT) for task in tasks) if skips else rounds)
    return skips


def _check(tasks: Sequence[Task], simulated: int) -> None:
    """Refuse a step with too many rounds of an accelerator to simulate.

    Raises
    ------
    RefusedError
        If there are more than `MAX_ROUNDS`.
    """
    if simulated <= MAX_ROUNDS:
        return
    # Between pairs, each level of a ring is crossed there and back.
    rings = [task for task in tasks if isinstance(task, ExchangeTask) and len(task.levels) > 1]
    saved = sum(_rounds(task) - 2 * len(task.levels) for task in rings)
    rounds = sum(map(_rounds, tasks))
    pairwise = argument("collective", "pairwise")
    raise RefusedError(
        f"the step is {rounds:,} computations and messages of every accelerator, and at most"
        f" {MAX_ROUNDS:,} are simulated; use"
        f" {pairwise if rounds - saved <= MAX_ROUNDS else 'fewer layers or accelerators'}"
    )


def run_by_events(
    tasks: Sequence[Task], interconnect: Interconnect, *, record: bool = False
) -> Measurements:
    """Simulate all accelerators and all rounds, each message as an event."""
    return _run(tasks, ClassRoutes(interconnect), record=record)


def _by_classes(
    tasks: Sequence[Task],
    routes: ClassRoutes,
    record: bool,
    efficiency: float,
    deadline: Deadline,
) -> Measurements:
    """Simulate an accelerator of each class, and one of repeated rounds."""
    _check_work(tasks, routes, record=record)
    return _run(tasks, routes, efficiency, deadline, record=record, skip=not record)


def event_work(tasks: Sequence[Task], routes: ClassRoutes, *, record: bool = False) -> int:
    """Return the work of a step: computations and messages times distinct accelerators."""
    differ = routes.accelerators
    # Delays by a slow link travel around all classes once; then rounds are equal.
    max_rounds = None if record else 2 * differ
    return differ**2 * sum(_rounds(task, max_rounds) for task in tasks)


def _check_work(tasks: Sequence[Task], routes: ClassRoutes, *, record: bool) -> None:
    """Refuse a step before it is run event by event.

    Raises
    ------
    RefusedError
        If it is more work than `MAX_WORK`.
    """
    work, differ = event_work(tasks, routes, record=record), routes.accelerators
    if work <= MAX_WORK:
        return
    minutes = round(work * _SECONDS_OF_WORK / 60)
    long = f"{minutes:,} minutes" if minutes > 1 else "a minute"
    shortest = format_si(lower_bound(tasks, routes.interconnect), "s")
    raise RefusedError(
        f"the step is {work // differ:,} computations and messages of {differ:,} accelerators that"
        f" differ, about {long}, and at most {MAX_WORK // differ:,} are simulated; it takes"
        f" {shortest} or more; use {_simulated_instead(tasks, routes.interconnect)}"
    )


class _WorkLimit:
    """A limit on the total work of a step's phases, some of which are run again with others."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def add(self, tasks: Sequence[Task], routes: ClassRoutes) -> None:
        """Count the work of a phase that is to be run event by event; refuse too much work."""
        self._left -= event_work(tasks, routes)
        if self._left < 0:
            raise RefusedError("the step's phases are too much work")


def _simulated_instead(tasks: Sequence[Task], interconnect: Interconnect) -> str:
    """Return an alternative to a refused step, with options that it does not have already."""
    options = []
    if stream_count(tasks) > 1:
        options.append((argument("overlap", "none"), _without_overlap))
    if any(len(task.levels) > 1 for task in tasks if isinstance(task, ExchangeTask)):
        options.append((argument("collective", "pairwise"), partial(_pairwise, interconnect)))
    for chosen in (*((option,) for option in options), options):
        changed = tasks
        for _, change in chosen:
            changed = [change(task) for task in changed]
        if chosen and _is_simulated(changed, interconnect):
            return f"{' and '.join(name for name, _ in chosen)}, or fewer accelerators"
    return "fewer accelerators"


def _without_overlap(task: Task) -> Task:
    """Return a task that overlaps with no other."""
    if isinstance(task, ComputeTask):
        return replace(task, after=None)
    return replace(task, after=None, stream=FOREGROUND)


def _pairwise(interconnect: Interconnect, task: Task) -> Task:
    """Return a task whose exchange is between pairs, level by level, there and back."""
    if isinstance(task, ComputeTask):
        return task
    levels = (interconnect.between(digit, 2) for digit in task.digits)
    return replace(task, rounds=tuple(one for rounds in levels for one in rounds))


def _is_simulated(tasks: Sequence[Task], interconnect: Interconnect) -> bool:
    """Return whether a step's work is within the limits."""
    if sum(map(_rounds, tasks)) > MAX_ROUNDS:
        return False
    if not any(task.of_parts for task in tasks):
        try:
            _run(tasks, PatternRoutes(interconnect), record=False, skip=stream_count(tasks) == 1)
        except NotInLockstepError:
            pass
        else:
            return True
    if isinstance(interconnect, FoldedInterconnect):
        return False
    routes = ClassRoutes(interconnect, equivalence_classes(interconnect, rounds_of(tasks)))
    return event_work(tasks, routes) <= MAX_WORK


def _join_phases(
    tasks: Sequence[Task], phases: Sequence[StepPhase], interconnect: Interconnect
) -> Measurements:
    """Return the measurements of a step in phases, one after the other on each link."""
    ends = np.concatenate([phase.ends for phase in phases])
    moved = np.sum([phase.channel_bytes for phase in phases], axis=0)
    busy = np.sum([phase.busy for phase in phases], axis=0)
    return _measured_one_by_one(tasks, interconnect, ends, moved, busy)


def _measured_one_by_one(
    tasks: Sequence[Task],
    interconnect: Interconnect,
    ends: Seconds,
    moved: NDArray[np.float64],
    busy: Seconds,
) -> Measurements:
    """Return the measurements of tasks that run one by one.

    Parameters
    ----------
    ends : (tasks, accelerators)
        Of each accelerator, or of one of each class.
    moved : (channels,)
        Bytes.
    busy : (links,)
        Seconds in which any byte crossed a link.
    """
    last = ends[:, ends[-1].argmax()]
    return Measurements(
        seconds=float(last[-1]),
        task_seconds=tuple(np.diff(last, prepend=0.0).tolist()),
        level_bytes=tuple(level_bytes(tasks, interconnect)),
        link_bytes=tuple(bytes_by_link(interconnect, moved).tolist()),
        link_busy=tuple(busy.tolist()),
        link_seconds_at_capacity=tuple(seconds_at_capacity(interconnect, moved).tolist()),
        events=interconnect.accelerators * sum(map(_rounds, tasks)),
        in_lockstep=False,
    )


def _run(
    tasks: Sequence[Task],
    routes: RouteTable,
    efficiency: float = 1.0,
    deadline: Deadline = NEVER,
    *,
    record: bool,
    skip: bool = False,
) -> Measurements:
    """Run the tasks on the table's accelerators, and measure all of the array's."""
    machine = Machine(tasks, routes, record=record, skip=skip)
    machine.run(deadline)
    interconnect, network = routes.interconnect, machine.network
    # The step's time is attributed to tasks on one accelerator, one that ends last: on another,
    # which waits for less or longer, they do not add up to the step.
    spans = [tuple(machine.spans(number)) for number in range(routes.accelerators)]
    ends = [max((span.end for span in track), default=0.0) for track in spans]
    seconds = max(ends)
    last = ends.index(seconds)
    segments = network.segments if record else ()
    if efficiency < 1:
        # Overlapping tasks are slowed down equally: the same step on a slower clock.
        slowed = _slowed(tasks, spans[last], efficiency)
        spans = [
            tuple(span._replace(start=slowed(span.start), end=slowed(span.end)) for span in track)
            for track in spans
        ]
        segments = tuple(
            tuple(
                segment._replace(start=slowed(segment.start), end=slowed(segment.end))
                for segment in of_link
            )
            for of_link in segments
        )
        seconds = slowed(seconds)
    return Measurements(
        seconds=seconds,
        task_seconds=task_seconds(tasks, spans[last]),
        level_bytes=tuple(level_bytes(tasks, interconnect)),
        link_bytes=network.link_bytes,
        link_busy=network.link_busy,
        link_seconds_at_capacity=network.link_seconds_at_capacity,
        events=interconnect.accelerators * sum(map(_rounds, tasks)),
        in_lockstep=isinstance(routes, PatternRoutes),
        spans=tuple(spans[number] for number in routes.class_of.tolist()) if record else (),
        segments=segments,
    )


def _slowed(
    tasks: Sequence[Task], spans: Sequence[TaskSpan], efficiency: float
) -> Callable[[float], float]:
    """Return a function from instants of a run to those at an efficiency of overlap."""
    overlaps = np.array(overlapped(tasks, spans)).reshape(-1, 2)
    extra = (1 - efficiency) * np.diff(overlaps, axis=1).ravel()
    before = np.append(0.0, extra.cumsum())

    def slowed(instant: float) -> float:
        number = int(overlaps[:, 0].searchsorted(instant))  # of those that have begun
        if not number:
            return instant
        start, end = overlaps[number - 1]
        inside = min(instant, end) - start
        return float(instant + before[number - 1] + (1 - efficiency) * inside)

    return slowed


def _rounds(task: Task, max_rounds: int | None = None) -> int:
    """Return the computations or messages of every accelerator in a task.

    Parameters
    ----------
    max_rounds
        The most consecutive rounds that are counted; None for all.
    """
    if isinstance(task, ComputeTask):
        return 1
    rounds = task.rounds
    if max_rounds is not None:
        rounds = tuple(many._replace(times=min(max_rounds, many.times)) for many in rounds)
    return messages_in(rounds)
