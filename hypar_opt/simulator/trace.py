"""A recorded step in the Chrome trace event format, which Perfetto opens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypar_opt.errors import RefusedError
from hypar_opt.simulator.spans import Span, StepTrace
from hypar_opt.simulator.tasks import FOREGROUND

ACCELERATORS, LINKS = 1, 2
"""Process numbers of the format; accelerators and links are their threads."""

MAX_EVENTS = 5 * 10**6
"""Events of one file: about 1 GB of JSON."""


def chrome_trace(trace: StepTrace) -> dict[str, Any]:
    """Return a trace as an object to write as JSON.

    Accelerator i has thread 2i, and 2i + 1 for its overlapped all-reduces of gradients; with
    s > 2 streams it has threads s * i to s * i + s - 1. Every link has a thread. Times are in
    microseconds, as the format has them. ``bytes`` are those that an exchange sends from all
    accelerators together; ``exchange`` is the collective, if the reading says which.

    Raises
    ------
    RefusedError
        If it would have more than `MAX_EVENTS`.

    Source: Trace Event Format, Google, 2016: complete events and metadata events.
    """
    events = sum(len(track.spans) for track in (*trace.accelerators, *trace.links))
    if events > MAX_EVENTS:
        raise RefusedError(
            f"a trace of this step has {events:,} events, and at most {MAX_EVENTS:,} are written;"
            f" use an array of fewer than {len(trace.accelerators):,} accelerators"
        )
    return {"traceEvents": list(_events(trace)), "displayTimeUnit": "ms"}


def _events(trace: StepTrace) -> Iterator[dict[str, Any]]:
    yield _name_event("process_name", ACCELERATORS, 0, "accelerators")
    yield _name_event("process_name", LINKS, 0, "links")
    streams = max([2, *(span.stream + 1 for track in trace.accelerators for span in track.spans)])
    for number, track in enumerate(trace.accelerators):
        first = streams * number
        for part in track.streams():
            stream = part.spans[0].stream if part.spans else FOREGROUND
            yield _name_event("thread_name", ACCELERATORS, first + stream, part.name)
        # All streams together, so that events stay in the order of the program.
        for span in track.spans:
            yield _complete_event(span, ACCELERATORS, first + span.stream)
    for number, track in enumerate(trace.links):
        yield _name_event("thread_name", LINKS, number, track.name)
        for span in track.spans:
            yield _complete_event(span, LINKS, number)


def _name_event(event: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": event, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _complete_event(span: Span, process: int, thread: int) -> dict[str, Any]:
    details: dict[str, Any] = {"phase": " + ".join(span.phases)}
    if span.exchanges:
        details |= {"level": span.levels, "bytes": sum(task.bytes for task in span.exchanges)}
        if span.steps:
            details["exchange"] = span.steps
    return {
        "name": span.name,
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": span.start_us,
        "dur": span.duration_us,
        "args": details,
    }
