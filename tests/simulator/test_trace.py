"""Recorded runs in the Chrome trace event format."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypar_opt.errors import HyparError
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.run import run
from hypar_opt.simulator.spans import trace_of
from hypar_opt.simulator.tasks import ComputeTask, Task
from hypar_opt.simulator.trace import chrome_trace
from tests.simulator import exchange, programs, random_interconnects, wired


def traced(tasks: list[Task], interconnect: Interconnect) -> list[dict[str, Any]]:
    trace = chrome_trace(trace_of(run(tasks, interconnect, record=True), tasks, interconnect))
    # As a reader sees it; NaN and the infinities are no JSON.
    events: list[dict[str, Any]] = json.loads(json.dumps(trace, allow_nan=False))["traceEvents"]
    return events


def tracks(events: list[dict[str, Any]]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] == "X":
            found.setdefault((event["pid"], event["tid"]), []).append(event)
    return found


def test_a_step_with_gradients_in_the_background() -> None:
    # Messages of 16 and 8 bytes at 8 bytes a second: the gradients go from 1 s on, alone for
    # half a second, then with the partial sums, which end at 3.5; 4 bytes are left.
    interconnect = wired([(0, 1, 8)])
    tasks: list[Task] = [
        ComputeTask("conv1", Phase.GRADIENT, 1),
        exchange(interconnect, 0, 32, background=True),
        ComputeTask("conv1", Phase.FORWARD, 0.5),
        exchange(interconnect, 0, 16),
    ]
    events = traced(tasks, interconnect)
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    assert names == {
        (1, 0): "accelerator 0",
        (1, 1): "accelerator 0 gradients",
        (1, 2): "accelerator 1",
        (1, 3): "accelerator 1 gradients",
        (2, 0): "0-1",
    }
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == [
        "accelerators",
        "links",
    ]
    seen = {
        names[track]: [(event["name"], event["ts"], event["dur"]) for event in spans]
        for track, spans in tracks(events).items()
    }
    assert seen["accelerator 0"] == [
        ("conv1 gradient", 0, 1e6),
        ("conv1 forward", 1e6, 0.5e6),
        ("fc1 partial sums H1", 1.5e6, 2e6),
    ]
    assert seen["accelerator 0 gradients"] == [("fc1 gradients H1", 1e6, 3e6)]
    assert seen["0-1"] == [
        ("fc1 gradients H1", 1e6, 0.5e6),
        ("fc1 gradients H1 + fc1 partial sums H1", 1.5e6, 2e6),
        ("fc1 gradients H1", 3.5e6, 0.5e6),
    ]
    (behind,) = tracks(events)[1, 1]
    assert behind["args"] == {"phase": "gradient", "level": "H1", "bytes": 32}
    assert tracks(events)[2, 0][1]["args"] == {
        "phase": "gradient + forward",
        "level": "H1",
        "bytes": 48,
    }


@given(random_interconnects(latencies=(0, 0.1)), st.data())
def test_spans_of_a_track_do_not_overlap(interconnect: Interconnect, data: st.DataObject) -> None:
    tasks = data.draw(programs(interconnect))
    events = traced(tasks, interconnect)
    for spans in tracks(events).values():
        for before, after in pairwise(spans):
            # Whole nanoseconds.
            end = round(before["ts"] * 1000) + round(before["dur"] * 1000)
            assert end <= round(after["ts"] * 1000)
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")
    assert events == traced(tasks, interconnect)


def test_a_run_that_was_not_recorded_has_no_trace() -> None:
    interconnect = wired([(0, 1, 8)])
    with pytest.raises(HyparError, match="recorded"):
        trace_of(run([], interconnect), [], interconnect)
