"""A recorded step: the tasks of every accelerator and every link over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypar_opt.errors import HyparError
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.simulator.flows import Segment
from hypar_opt.simulator.machine import TaskSpan
from hypar_opt.simulator.run import Measurements
from hypar_opt.simulator.tasks import (
    FIRST_BRANCH,
    FOREGROUND,
    GRADIENT_STREAM,
    ExchangeTask,
    Task,
)


@dataclass(frozen=True)
class Span:
    """An interval of time with the same tasks.

    Parameters
    ----------
    start_us, duration_us
        Microseconds from the step's start, both ends rounded to nanoseconds: adjacent spans
        still do not overlap, and spans of accelerators in lockstep compare equal.
    tasks
        On an accelerator a single task, waiting included; on a link all exchanges whose bytes
        cross it.
    """

    start_us: float
    duration_us: float
    tasks: tuple[Task, ...]

    @classmethod
    def between(cls, start: float, end: float, tasks: tuple[Task, ...]) -> Span:
        """Return the span of tasks between two times, in seconds."""
        # Both ends, not the duration: a rounded duration could make adjacent spans overlap.
        first, last = round(start * 1e9), round(end * 1e9)
        return cls(first / 1000, (last - first) / 1000, tasks)

    @property
    def name(self) -> str:
        return " + ".join(task.name for task in self.tasks)

    @property
    def phases(self) -> tuple[str, ...]:
        """The tasks' passes, without repetition."""
        return tuple(dict.fromkeys(str(task.phase) for task in self.tasks))

    @property
    def exchanges(self) -> tuple[ExchangeTask, ...]:
        """The tasks that communicate: all of a link's; an accelerator's only task, if it does."""
        return tuple(task for task in self.tasks if isinstance(task, ExchangeTask))

    @property
    def levels(self) -> str:
        """The levels that the exchanges cross, without repetition, as ``"H1 + H2 H3"``."""
        return " + ".join(dict.fromkeys(task.level_names for task in self.exchanges))

    @property
    def steps(self) -> str:
        """What the exchanges do, without repetition, as ``"all-gather + all-reduce"``."""
        return " + ".join(dict.fromkeys(task.step for task in self.exchanges if task.step))

    @property
    def stream(self) -> int:
        """On an accelerator, the stream of its task; on a link the largest."""
        return max(task.stream for task in self.tasks)


@dataclass(frozen=True)
class Track:
    """The spans of one accelerator, in the order of its tasks, or of one link."""

    name: str
    spans: tuple[Span, ...]

    def __repr__(self) -> str:
        return f"<Track {self.name}: {len(self.spans):,} spans>"

    def streams(self) -> tuple[Track, ...]:
        """Return an accelerator's spans by stream: its foreground, and others if it has any."""
        spans: dict[int, list[Span]] = {FOREGROUND: []}
        for span in self.spans:
            spans.setdefault(span.stream, []).append(span)
        return tuple(
            Track(_name_of(self.name, stream), tuple(in_stream))
            for stream, in_stream in sorted(spans.items())
        )


@dataclass(frozen=True)
class StepTrace:
    """A recorded step.

    Parameters
    ----------
    accelerators
        Ordered by number.
    links
        In the topology's order. Exchanges of all streams share a link, so that `Track.streams`
        applies to accelerators only.
    """

    accelerators: tuple[Track, ...]
    links: tuple[Track, ...]

    def __repr__(self) -> str:
        return f"<StepTrace of {len(self.accelerators):,} accelerators, {len(self.links):,} links>"


def _name_of(accelerator: str, stream: int) -> str:
    """Return the name of an accelerator's stream."""
    if stream in (FOREGROUND, GRADIENT_STREAM):
        return f"{accelerator} gradients" if stream else accelerator
    number = stream - FIRST_BRANCH + 1
    return f"{accelerator} exchanges {number}" if number > 1 else f"{accelerator} exchanges"


def _labelled(interval: TaskSpan | Segment) -> tuple[float, float, tuple[int, ...]]:
    """Return the start, end and tasks of an interval."""
    tasks = (interval.task,) if isinstance(interval, TaskSpan) else interval.labels
    return interval.start, interval.end, tasks


def trace_of(run: Measurements, tasks: Sequence[Task], interconnect: Interconnect) -> StepTrace:
    """Return the trace of a run of the tasks.

    Raises
    ------
    HyparError
        If the run was not recorded.
    """
    if len(run.spans) != interconnect.accelerators:
        raise HyparError("only a recorded run has a trace: run(..., record=True)")
    # Accelerators in lockstep share one tuple, and so do their links: it is converted once.
    converted: dict[int, tuple[Span, ...]] = {}

    def spans_of(intervals: Sequence[TaskSpan] | Sequence[Segment]) -> tuple[Span, ...]:
        if id(intervals) not in converted:
            converted[id(intervals)] = tuple(
                Span.between(start, end, tuple(tasks[task] for task in labels))
                for start, end, labels in map(_labelled, intervals)
            )
        return converted[id(intervals)]

    accelerators = [
        Track(f"accelerator {number}", spans_of(spans)) for number, spans in enumerate(run.spans)
    ]
    links = [
        Track(link.name, spans_of(segments))
        for link, segments in zip(interconnect.links, run.segments, strict=True)
    ]
    return StepTrace(tuple(accelerators), tuple(links))
