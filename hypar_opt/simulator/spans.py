"""A recorded step: which tasks every accelerator and every link had at which time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypar_opt.errors import HyparError
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.simulator.run import Run
from hypar_opt.simulator.tasks import Exchange, Task, is_overlapped


@dataclass(frozen=True)
class Span:
    """An interval of time with the same tasks.

    Parameters
    ----------
    start_us, duration_us
        Microseconds from the step's start, both ends rounded to whole nanoseconds: spans that
        follow one another still do not overlap, and alike accelerators compare equal.
    tasks
        On an accelerator the one task, waiting included; on a link all exchanges whose bytes
        cross it.
    """

    start_us: float
    duration_us: float
    tasks: tuple[Task, ...]

    @classmethod
    def between(cls, start: float, end: float, tasks: tuple[Task, ...]) -> Span:
        """Return the span from one second to another."""
        # Both ends, not the duration, or rounding could let neighbours overlap.
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
    def exchanges(self) -> tuple[Exchange, ...]:
        """The tasks that communicate: all of a link's, and of an accelerator's all or none."""
        return tuple(task for task in self.tasks if isinstance(task, Exchange))

    @property
    def levels(self) -> str:
        """The levels that the exchanges cross, without repetition, as ``"H1 + H2 H3"``."""
        return " + ".join(dict.fromkeys(task.level_names for task in self.exchanges))

    @property
    def is_overlapped(self) -> bool:
        """Whether an accelerator had it in the background, overlapped with other tasks."""
        return any(map(is_overlapped, self.tasks))


@dataclass(frozen=True)
class Track:
    """The spans of one accelerator, in the order of its tasks, or of one link."""

    name: str
    spans: tuple[Span, ...]

    def streams(self) -> tuple[Track, ...]:
        """Return an accelerator's spans by stream: its own tasks, and any in the background."""
        foreground = tuple(span for span in self.spans if not span.is_overlapped)
        background = tuple(span for span in self.spans if span.is_overlapped)
        own = Track(self.name, foreground)
        return (own, Track(f"{self.name} gradients", background)) if background else (own,)


@dataclass(frozen=True)
class Trace:
    """A recorded step.

    Parameters
    ----------
    accelerators
        By number.
    links
        As the topology has them. Their exchanges may be in the background too, but share the
        link with the others: `Track.streams` is for accelerators.
    """

    accelerators: tuple[Track, ...]
    links: tuple[Track, ...]


def trace_of(run: Run, tasks: Sequence[Task], interconnect: Interconnect) -> Trace:
    """Return the trace of a run of the tasks.

    Raises
    ------
    HyparError
        If the run was not recorded.
    """
    if len(run.spans) != interconnect.accelerators:
        raise HyparError("a trace is of a recorded run: run(..., record=True)")
    accelerators = [
        Track(
            f"accelerator {number}",
            tuple(Span.between(span.start, span.end, (tasks[span.task],)) for span in spans),
        )
        for number, spans in enumerate(run.spans)
    ]
    links = [
        Track(
            link.name,
            tuple(
                Span.between(
                    segment.start, segment.end, tuple(tasks[task] for task in segment.labels)
                )
                for segment in segments
            ),
        )
        for link, segments in zip(interconnect.links, run.segments, strict=True)
    ]
    return Trace(tuple(accelerators), tuple(links))
