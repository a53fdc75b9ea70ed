"""A recorded run in the Chrome trace event format, which Perfetto opens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypar_opt.errors import HyparError
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.simulator.machine import Run
from hypar_opt.simulator.tasks import Compute, Task

ACCELERATORS, LINKS = 1, 2
"""The two processes' numbers."""


def chrome_trace(run: Run, tasks: Sequence[Task], interconnect: Interconnect) -> dict[str, Any]:
    """Return a run as an object to write as JSON.

    Each accelerator has a track, and a second one for its exchanges in the background; each
    link has a track. Times are whole nanoseconds, in microseconds as the format wants them, so
    that rounding makes no two spans of a track overlap. ``bytes`` are those that the exchange
    sends in all, from all accelerators.

    Source: Trace Event Format, Google, 2016: complete events and metadata events.

    Raises
    ------
    HyparError
        If the run was not recorded.
    """
    if len(run.spans) != interconnect.accelerators:
        raise HyparError("a trace is of a recorded run: run(..., record=True)")
    names = [_name(task) for task in tasks]
    details = [_details(task) for task in tasks]
    aside = [not isinstance(task, Compute) and task.background for task in tasks]
    events = [
        _naming("process_name", ACCELERATORS, 0, "accelerators"),
        _naming("process_name", LINKS, 0, "links"),
    ]
    for number, spans in enumerate(run.spans):
        events.append(_naming("thread_name", ACCELERATORS, 2 * number, f"accelerator {number}"))
        if any(aside[span.task] for span in spans):
            name = f"accelerator {number} gradients"
            events.append(_naming("thread_name", ACCELERATORS, 2 * number + 1, name))
        events.extend(
            _complete(
                names[span.task],
                (ACCELERATORS, 2 * number + aside[span.task]),
                (span.start, span.end),
                details[span.task],
            )
            for span in spans
        )
    for number, (link, segments) in enumerate(zip(interconnect.links, run.segments, strict=True)):
        events.append(_naming("thread_name", LINKS, number, link.name))
        for segment in segments:
            together = [details[label] for label in segment.labels]
            args = {
                "phase": " + ".join(dict.fromkeys(each["phase"] for each in together)),
                "level": " + ".join(dict.fromkeys(each["level"] for each in together)),
                "bytes": sum(each["bytes"] for each in together),
            }
            name = " + ".join(names[label] for label in segment.labels)
            events.append(_complete(name, (LINKS, number), (segment.start, segment.end), args))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _name(task: Task) -> str:
    if isinstance(task, Compute):
        return f"{task.layer} {task.phase}"
    return f"{task.layer} {task.kind} {_levels(task.levels)}"


def _levels(levels: Sequence[int]) -> str:
    return " ".join(f"H{level + 1}" for level in levels)


def _details(task: Task) -> dict[str, Any]:
    if isinstance(task, Compute):
        return {"phase": str(task.phase)}
    return {"phase": str(task.phase), "level": _levels(task.levels), "bytes": task.bytes}


def _naming(what: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": track, "args": {"name": name}}


def _complete(
    name: str, track: tuple[int, int], time: tuple[float, float], args: dict[str, Any]
) -> dict[str, Any]:
    start, end = (round(seconds * 1e9) for seconds in time)
    return {
        "name": name,
        "ph": "X",
        "pid": track[0],
        "tid": track[1],
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": args,
    }
