"""The seconds that each task adds to a step, where tasks of an accelerator overlap."""

from __future__ import annotations

from collections.abc import Sequence

from hypar_opt.simulator.machine import TaskSpan
from hypar_opt.simulator.tasks import FOREGROUND, GRADIENT_STREAM, ComputeTask, Task


def task_seconds(tasks: Sequence[Task], spans: Sequence[TaskSpan]) -> tuple[float, ...]:
    """Return the seconds that every task adds to one accelerator's step.

    An instant counts for the foreground's task, else for that of the first stream of a branch,
    and for an all-reduce of gradients only where nothing else runs.
    """
    by_stream: dict[int, list[TaskSpan]] = {}
    for span in spans:
        by_stream.setdefault(tasks[span.task].stream, []).append(span)
    seconds = [0.0] * len(tasks)
    covered: list[tuple[float, float]] = []
    for stream in sorted(by_stream, key=lambda stream: (stream == GRADIENT_STREAM, stream)):
        # An accelerator may compute tasks in another order than the program's.
        in_time = sorted(by_stream[stream], key=lambda span: (span.start, span.end))
        for span, added in zip(in_time, _uncovered(in_time, covered), strict=True):
            seconds[span.task] = added
        covered = _joined(sorted([*covered, *((span.start, span.end) for span in in_time)]))
    return tuple(seconds)


def overlapped(tasks: Sequence[Task], spans: Sequence[TaskSpan]) -> list[tuple[float, float]]:
    """Return the intervals in which an accelerator computes and exchanges in another stream."""
    ordered = sorted((span.start, span.end, span.task) for span in spans)
    computing = _joined(
        [(start, end) for start, end, task in ordered if isinstance(tasks[task], ComputeTask)]
    )
    queued = _joined(
        [(start, end) for start, end, task in ordered if tasks[task].stream != FOREGROUND]
    )
    overlaps = []
    position = 0
    for start, end in queued:
        while position < len(computing) and computing[position][1] <= start:
            position += 1
        number = position
        while number < len(computing) and computing[number][0] < end:
            overlaps.append((max(start, computing[number][0]), min(end, computing[number][1])))
            number += 1
    return overlaps


def _uncovered(spans: Sequence[TaskSpan], covered: Sequence[tuple[float, float]]) -> list[float]:
    """Return the seconds of each span outside of some intervals; both are in order."""
    added = []
    first = 0
    for span in spans:
        seconds, now = 0.0, span.start
        while first < len(covered) and covered[first][1] <= now:
            first += 1
        # An interval may reach into the next span: only those that end before it are passed.
        index = first
        while index < len(covered) and covered[index][0] < span.end:
            seconds += max(0.0, covered[index][0] - now)
            now = max(now, covered[index][1])
            index += 1
        added.append(seconds + max(0.0, span.end - now))
    return added


def _joined(intervals: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Join intervals, in order of their starts, that touch or overlap."""
    joined: list[tuple[float, float]] = []
    for start, end in intervals:
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined
