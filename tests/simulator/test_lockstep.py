"""Accelerators that stand for all of a class, against all of them, event by event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.deadline import Deadline
from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.hardware import arrays
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator import run as runs
from hypar_opt.simulator.bounds import lower_bound
from hypar_opt.simulator.classes import equivalence_classes
from hypar_opt.simulator.lockstep import NotInLockstepError, PatternRoutes
from hypar_opt.simulator.machine import Machine
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.phases import in_phases
from hypar_opt.simulator.routes import ClassRoutes
from hypar_opt.simulator.run import Measurements, event_work, run, run_by_events, seconds_of
from hypar_opt.simulator.step import program
from hypar_opt.simulator.streams import OVERLAPS, Streams
from hypar_opt.simulator.tasks import (
    FOREGROUND,
    GRADIENT_STREAM,
    ComputeTask,
    ExchangeTask,
    Task,
    rounds_of,
)
from hypar_opt.simulator.uncontended import LoneMessages, run_uncontended
from hypar_opt.workload.tensors import workload_of
from tests.clocks import tick_when_read
from tests.simulator import (
    all_reduce,
    exchange,
    programs,
    random_interconnects,
    ring,
    torus,
    wired,
)
from tests.simulator.plans import IN_LOCKSTEP, LINK, array
from tests.slow import examples, slow_after
from tests.strategies.arrays import AS_THE_PAPER

TOPOLOGIES = [
    *IN_LOCKSTEP,
    {"kind": "torus", "shape": [4, 4], "link": {**LINK, "duplex": "half", "latency": "0.3 s"}},
    {"kind": "torus", "shape": [2, 2, 4], "link": LINK},
    {"kind": "nodes", "nodes": 4, "per_node": 2, "link": LINK, "fabric": {"bandwidth": "9 B/s"}},
]


@st.composite
def steps(draw: st.DrawFn, interconnect: Interconnect) -> list[Task]:
    """Draw a program of any overlap, whose tasks wait for any of those before them."""
    streams = Streams(draw(st.sampled_from(OVERLAPS)))
    for number, task in enumerate(draw(programs(interconnect))):
        operands = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else ()
        if isinstance(task, ExchangeTask):
            task = replace(task, stream=0)
        streams.add(task, tuple(operands))
    return streams.tasks


def assert_same(found: Measurements, expected: Measurements) -> None:
    """All times are the same: in lockstep to the last bit. Bytes are added in another order."""
    if not found.in_lockstep:
        assert_near(found, expected)
        return
    in_bytes = ("link_bytes", "link_seconds_at_capacity")
    for name in in_bytes:
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-12)
    same = {name: getattr(expected, name) for name in in_bytes}
    assert replace(found, **same) == expected


def assert_near(found: Measurements, expected: Measurements) -> None:
    for name in ("seconds", "task_seconds", "link_bytes", "link_busy"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9, abs=1e-12)
    for spans, others in zip(found.spans, expected.spans, strict=True):
        flat, expected_flat = np.array(spans), np.array(others)
        assert flat == pytest.approx(expected_flat, rel=1e-9)


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda t: f"{t['kind']}-{t.get('shape')}")
@given(data=st.data())
@examples(12)
def test_one_accelerator_runs_as_all_do(topology: dict[str, Any], data: st.DataObject) -> None:
    interconnect = array(topology).interconnect
    tasks = data.draw(steps(interconnect))
    expected = run_by_events(tasks, interconnect, record=True)
    assert_same(run(tasks, interconnect, record=True), expected)


@pytest.mark.parametrize("overlap", ["none", "gradient"])
@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda t: f"{t['kind']}-{t.get('shape')}")
@given(data=st.data())
@examples(8)
def test_the_seconds_of_exchanges_that_never_meet_are_those_of_a_run(
    topology: dict[str, Any], overlap: str, data: st.DataObject
) -> None:
    """Each kind of exchange is run alone, once; of all parts as long as the longest, too."""
    interconnect, streams = array(topology).interconnect, Streams(overlap)
    longer = data.draw(st.booleans())
    for task in data.draw(programs(interconnect)):
        if isinstance(task, ExchangeTask):
            sent = (task.bytes * 1.5,) if longer else ()
            streams.add(replace(task, stream=0, sent=sent), ())
        else:
            streams.add(task, ())
    expected = run(streams.tasks, interconnect).seconds
    assert seconds_of(streams.tasks, interconnect) == pytest.approx(expected, rel=1e-12)


@given(random_interconnects(latencies=(0, 0.125)), st.data())
def test_on_any_graph_too(interconnect: Interconnect, data: st.DataObject) -> None:
    tasks = data.draw(steps(interconnect))
    expected = run_by_events(tasks, interconnect, record=True)
    assert_same(run(tasks, interconnect, record=True), expected)
    assert_near(run(tasks, interconnect), replace(expected, spans=()))
    assert seconds_of(tasks, interconnect) == pytest.approx(expected.seconds, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("latency", ["0 s", "0.25 s"])
@pytest.mark.parametrize(
    "topology",
    [
        {"kind": "htree", "accelerators": 16, "growth": 1.5},
        {"kind": "htree", "accelerators": 8, "growth": 0.75},
        {"kind": "nodes", "nodes": 3, "per_node": 4, "fabric": {**LINK, "latency": "0.75 s"}},
    ],
    ids=lambda topology: topology["kind"],
)
def test_messages_that_share_no_link_follow_a_recurrence(
    topology: dict[str, Any], latency: str
) -> None:
    interconnect = array({**topology, "link": {**LINK, "latency": latency}}).interconnect
    around = all_reduce(interconnect, 960)
    tasks: list[Any] = [around, ComputeTask("fc1", Phase.FORWARD, 3), replace(around, bytes=96)]
    alone = cache(lambda pattern: LoneMessages.of(pattern, interconnect))
    routes, start = ClassRoutes(interconnect), np.zeros(interconnect.accelerators)
    # Pairs exchange over links that the ring takes whole, but once they have left the ring.
    tasks += [
        ComputeTask("fc1", Phase.BACKWARD, 400),
        exchange(interconnect, interconnect.levels - 1, 64),
    ]
    assert run_uncontended([exchange(interconnect, 0, 64)], routes, start, alone) is None
    found = run_uncontended(tasks, routes, start, alone)
    assert found is not None
    expected = run_by_events(tasks, interconnect)
    assert found.ends[-1].max() == pytest.approx(expected.seconds, rel=1e-12)
    assert found.busy == pytest.approx(expected.link_busy, rel=1e-12)
    assert_near(run(tasks, interconnect), expected)


@pytest.mark.parametrize(
    ("topology", "classes"),
    [
        # Around nodes: by the place in a node. Around a tree's leaves: by all but the topmost half.
        ({"kind": "nodes", "nodes": 16, "per_node": 4, "link": LINK, "fabric": LINK}, 4),
        ({"kind": "htree", "accelerators": 16, "link": {**LINK, "latency": "0.25 s"}}, 8),
        ({"kind": "torus", "shape": [8, 8], "link": {**LINK, "latency": "0.25 s"}}, 8),
        ({"kind": "mesh", "shape": [3, 4], "link": LINK}, 12),
    ],
    ids=lambda value: str(value["kind"]) if isinstance(value, dict) else "",
)
def test_one_accelerator_of_a_class_runs_for_it_and_rounds_that_repeat_are_skipped(
    topology: dict[str, Any], classes: int
) -> None:
    interconnect = array(topology).interconnect
    around = all_reduce(interconnect, 960)
    tasks: list[Any] = [ComputeTask("fc1", Phase.FORWARD, 3), around, replace(around, bytes=96)]
    tasks += [exchange(interconnect, 0, 64), ComputeTask("fc1", Phase.BACKWARD, 3)]
    rounds = [*around.rounds, *tasks[3].rounds]
    assert len(equivalence_classes(interconnect, rounds).first) == classes
    assert_near(run(tasks, interconnect), run_by_events(tasks, interconnect))
    # While computations overlap, too.
    tasks[1:3] = [replace(task, stream=GRADIENT_STREAM) for task in tasks[1:3]]
    assert_near(run(tasks, interconnect), run_by_events(tasks, interconnect))


@pytest.mark.parametrize(("shape", "classes"), [([4, 4], 4), ([4, 6], 6), ([8], 4), ([3, 4], 12)])
def test_an_accelerator_of_a_mesh_is_like_its_mirror_images(shape: list[int], classes: int) -> None:
    """Unless some of them are their own images, and so receive half of what others send."""
    link = {**LINK, "latency": "0.25 s"}
    interconnect = array({"kind": "mesh", "shape": shape, "link": link}).interconnect
    digits, lines = iter(range(interconnect.levels)), []
    for size in reversed(shape):
        line = [next(digits)]
        while prod(interconnect.place(digit).parts for digit in line) < size:
            line.append(next(digits))
        lines.append(line)
    rounds = interconnect.around(lines, times=2, at_once=True)
    assert len(equivalence_classes(interconnect, rounds).first) == classes
    around = replace(all_reduce(interconnect, 960), rounds=rounds)
    tasks: list[Any] = [around, replace(around, bytes=96), ComputeTask("fc1", Phase.FORWARD, 3)]
    assert_near(run(tasks, interconnect), run_by_events(tasks, interconnect))
    recorded = run(tasks, interconnect, record=True)
    assert_near(recorded, run_by_events(tasks, interconnect, record=True))


@pytest.mark.parametrize(
    ("topology", "sizes"),
    [
        (
            {"kind": "htree", "accelerators": 8, "link": {**LINK, "latency": "0.25 s"}},
            [1, 2, 1, 2, 2, 1, 1],
        ),
        (
            {"kind": "torus", "shape": [4, 4], "link": {**LINK, "latency": "0.25 s"}},
            [1, 3, 2, 2, 1, 1],
        ),
        ({"kind": "mesh", "shape": [2, 4], "link": LINK}, [1, 2, 1, 2, 2, 1, 1]),
    ],
    ids=lambda value: str(value["kind"]) if isinstance(value, dict) else "",
)
def test_a_step_is_run_in_phases(topology: dict[str, Any], sizes: list[int]) -> None:
    """From where each accelerator ended the one before; together where both are on a link."""
    interconnect = array(topology).interconnect
    pairs, around = exchange(interconnect, 1, 64), all_reduce(interconnect, 960)
    brief, apart = (ComputeTask("fc1", Phase.FORWARD, seconds) for seconds in (0.125, 400))
    others = all_reduce(interconnect, 960, levels=[0, 2])
    tasks: list[Task] = [around, brief, pairs, others, apart, replace(around, bytes=96), apart]
    tasks += [pairs, around, brief]
    expected = run_by_events(tasks, interconnect)
    phases = in_phases(tasks, interconnect, lambda *_: None)
    assert [len(phase.tasks) for phase in phases] == sizes
    assert_near(runs._join_phases(tasks, phases, interconnect), expected)


@given(random_interconnects(latencies=(0, 0.125)), st.data())
def test_phases_on_any_graph_are_the_step_at_once(
    interconnect: Interconnect, data: st.DataObject
) -> None:
    tasks = [
        replace(task, stream=FOREGROUND) if isinstance(task, ExchangeTask) else task
        for task in data.draw(programs(interconnect))
    ]
    phases = in_phases(tasks, interconnect, lambda *_: None)
    found = runs._join_phases(tasks, phases, interconnect)
    assert_near(found, run_by_events(tasks, interconnect))


@pytest.mark.parametrize(
    ("topology", "less"),
    [
        ({"kind": "htree", "accelerators": 8, "link": {**LINK, "latency": "0.25 s"}}, True),
        ({"kind": "mesh", "shape": [4, 4], "link": LINK}, False),
    ],
    ids=["less", "as much"],
)
def test_a_long_step_is_run_in_phases_that_are_less_work(
    topology: dict[str, Any], less: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once if that is short, or if the phases are about as much."""
    interconnect = array(topology).interconnect
    around, apart = all_reduce(interconnect, 960), ComputeTask("fc1", Phase.FORWARD, 400)
    tasks: list[Task] = [around, apart] * 8
    at_once = event_work(
        tasks, ClassRoutes(interconnect, equivalence_classes(interconnect, rounds_of(tasks)))
    )
    counted: list[int] = []
    in_phases(tasks, interconnect, lambda some, routes: counted.append(event_work(some, routes)))
    assert (sum(counted) < at_once / 4) == less
    expected, in_phases_to_the_end = run_by_events(tasks, interconnect), []
    of_phases = runs._join_phases

    def counting(*step: Any) -> Measurements:
        in_phases_to_the_end.append(step)
        return of_phases(*step)

    monkeypatch.setattr(runs, "_join_phases", counting)
    assert_near(run(tasks, interconnect), expected)
    assert not in_phases_to_the_end
    monkeypatch.setattr(runs, "MIN_WORK_IN_PHASES", 0)
    assert_near(run(tasks, interconnect), expected)
    assert bool(in_phases_to_the_end) == less


def test_a_step_that_is_refused_at_once_may_be_run_in_phases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Together they may take as long as a step may, and each of many phases nearly as long."""
    interconnect = array({"kind": "mesh", "shape": [4, 4], "link": LINK}).interconnect
    around, apart = all_reduce(interconnect, 960), ComputeTask("fc1", Phase.FORWARD, 400)
    tasks: list[Task] = [around, apart] * 8
    counted: list[int] = []
    in_phases(tasks, interconnect, lambda some, routes: counted.append(event_work(some, routes)))
    assert len(counted) > 1
    assert max(counted) < sum(counted) / 2
    at_once = event_work(
        tasks, ClassRoutes(interconnect, equivalence_classes(interconnect, rounds_of(tasks)))
    )
    assert sum(counted) < at_once
    monkeypatch.setattr(runs, "MIN_WORK_IN_PHASES", 0)
    monkeypatch.setattr(runs, "MAX_WORK", sum(counted) - 1)
    with pytest.raises(RefusedError):
        run(tasks, interconnect)
    monkeypatch.setattr(runs, "MAX_WORK", sum(counted))
    assert run(tasks, interconnect).seconds > 8 * 400


@pytest.mark.parametrize("stream", [0, GRADIENT_STREAM])
def test_a_step_by_events_ends_with_the_deadline(stream: int) -> None:
    """Phase by phase, and with exchanges that overlap all at once."""
    interconnect = array({"kind": "mesh", "shape": [4, 4], "link": LINK}).interconnect
    around = replace(all_reduce(interconnect, 960), stream=stream)
    tasks: list[Task] = [around, ComputeTask("fc1", Phase.FORWARD, 400)] * 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "MIN_WORK_IN_PHASES", 0)
        whole = run(tasks, interconnect)
        assert not whole.in_lockstep
        tick_when_read(patch)
        until = Deadline.after(10**6)
        assert run(tasks, interconnect, deadline=until) == whole
        looks = round(10**6 - (until.left() or 0))
        assert looks > 4
        with pytest.raises(NoAnswerError, match="time limit"):
            run(tasks, interconnect, deadline=Deadline.after(looks // 2))


def simulated(tasks: Sequence[Task], interconnect: Interconnect) -> int:
    """Return how many accelerators have to be simulated."""
    try:
        Machine(tasks, PatternRoutes(interconnect), record=False).run()
    except NotInLockstepError:
        return interconnect.accelerators
    return 1


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda t: f"{t['kind']}-{t.get('shape')}")
def test_exchanges_between_pairs_are_in_lockstep(topology: dict[str, Any]) -> None:
    found = array(topology)
    plan = ho.solve("lenet-c", array=found, batch=60, cost="bytes")
    workload = workload_of(ho.load("lenet-c"), 60, plan.choices)
    tasks = program(plan, workload, found, RunOptions(), plan.assignments())
    assert simulated(tasks, found.interconnect) == 1


@pytest.mark.parametrize(
    ("interconnect", "why"),
    [
        (wired([(0, 1, 8), (2, 3, 2), (0, 2, 8), (1, 3, 8)]), "one pair's link is slower"),
        (wired([(0, 1, 8, 1), (2, 3, 8, 2), (0, 2, 8, 1), (1, 3, 8, 1)]), "or takes longer"),
    ],
)
def test_links_that_are_not_alike_end_it(interconnect: Interconnect, why: str) -> None:
    assert simulated([exchange(interconnect, 0, 64)], interconnect) == 1
    assert simulated([exchange(interconnect, 1, 64)], interconnect) == 4, why


def test_a_ring_that_leaves_a_dimension_of_a_torus_is_not_in_lockstep() -> None:
    # Around all 16, the step from 3 to 4 has two links and the others one.
    flat, latent = torus(4, 4), torus(4, 4, latency=1)
    assert simulated([all_reduce(flat, 960, levels=[2, 3])], flat) == 1
    assert simulated([all_reduce(latent, 960)], latent) == 16


def test_exchanges_that_share_some_of_their_links_are_not_in_lockstep() -> None:
    # Messages from 0 to 4, 1 to 5, 2 to 6 and 3 to 7 load the links 0-1 to 6-7 with 1, 2, 3, 4,
    # 3, 2 and 1 of them. So those from 0 to 1 are faster than those from 2 to 3.
    interconnect = ring(16)
    far, near = exchange(interconnect, 1, 64, background=True), exchange(interconnect, 3, 64)
    assert simulated([near, far, near], interconnect) == 16
    assert simulated([near, far], interconnect) == simulated([near, near], interconnect) == 1


@pytest.mark.parametrize(
    "preset", slow_after(3, ["hmc-htree-64", "hmc-torus-64", "a100-4x8", "h100-8x8"])
)
def test_paper_networks_take_as_long_on_the_presets(preset: str) -> None:
    found = arrays.load(preset)
    plan = ho.solve("sconv", array=found)
    workload = workload_of(ho.load("sconv"), plan.batch, plan.choices)
    tasks = program(plan, workload, found, RunOptions(), plan.assignments())
    expected = run_by_events(tasks, found.interconnect)
    assert_same(run(tasks, found.interconnect), expected)
    assert simulated(tasks, found.interconnect) == 1


def test_a_step_on_thousands_of_accelerators_takes_what_the_closed_form_says() -> None:
    table = arrays.load("hmc-torus-16").description()
    table["topology"]["shape"] = [64, 64]
    asked: Any = {**AS_THE_PAPER, "array": Array.model_validate(table), "batch": 2**16}
    step = ho.simulate(ho.solve("vgg-e", **asked))
    assert step.seconds == pytest.approx(step.closed_form, rel=1e-12)
    assert len(step.links) == 2 * 64 * 64
    assert step.events > 10**6


def test_many_accelerators_that_are_not_in_lockstep_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interconnect = ring(16)
    tasks = [exchange(interconnect, 1, 64, background=True), exchange(interconnect, 3, 64)]
    # By twos, in both exchanges, and from both ends of eight: 0, 1, 6, 7; 2, 3, 4, 5 and so on.
    monkeypatch.setattr(runs, "MAX_WORK", 4 * 8 - 1)
    message = (
        "the step is 8 computations and messages of 4 accelerators that differ, about a minute,"
        f" and at most 7 are simulated; it takes {lower_bound(tasks, interconnect):.4g} s or more;"
        " use overlap='none', or fewer accelerators"
    )
    with pytest.raises(RefusedError, match=message):
        run(tasks, interconnect)
    # Between pairs all would be in lockstep; but where each wire differs, no option helps.
    monkeypatch.setattr(runs, "MAX_WORK", 1)
    latent = torus(4, 4, latency=1)
    with pytest.raises(RefusedError, match=r"use collective='pairwise', or fewer accelerators$"):
        run([all_reduce(latent, 960)], latent)
    uneven = wired([(0, 1, 8), (2, 3, 2), (0, 2, 8), (1, 3, 8)])
    with pytest.raises(RefusedError, match=r"or more; use fewer accelerators$"):
        run([exchange(uneven, 0, 64), exchange(uneven, 1, 64, background=True)], uneven)
    # In lockstep accelerators do not count, but what one of them does.
    assert run(tasks[:1], interconnect).events == 16
    plan = ho.solve("sconv", array="tpu-v2-v3-16")
    with pytest.raises(RefusedError, match="messages of 16 accelerators that differ, about a"):
        ho.simulate(plan)  # as of two groups
    # Rounds in a row are added beyond it, but not while others run, or if all are recorded.
    around = all_reduce(interconnect, 64)
    expected = run([around], interconnect)
    monkeypatch.setattr(runs, "MAX_ROUNDS", 29)
    assert_near(run([around], interconnect), expected)
    message = "30 computations and messages of every accelerator.*use collective='pairwise'"
    with pytest.raises(RefusedError, match=message):
        run([around], interconnect, record=True)
    with pytest.raises(RefusedError, match=message):
        run([replace(around, stream=GRADIENT_STREAM)], interconnect)
    # Between pairs already, or where these are too many, too.
    with pytest.raises(RefusedError, match="use fewer layers or accelerators"):
        run([exchange(interconnect, 0, 64)] * 30, interconnect)
    with pytest.raises(RefusedError, match="use fewer layers or accelerators"):
        run([around] * 4, interconnect, record=True)
