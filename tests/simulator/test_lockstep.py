"""One accelerator that stands for all, against all of them, event by event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.errors import RefusedError
from hypar_opt.hardware import arrays
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.simulator import run as runs
from hypar_opt.simulator.lockstep import NotInLockstepError, PatternRoutes
from hypar_opt.simulator.machine import Machine
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.run import Measurements, run, run_by_events
from hypar_opt.simulator.step import program
from hypar_opt.simulator.streams import OVERLAPS, Streams
from hypar_opt.simulator.tasks import ExchangeTask, Task
from hypar_opt.workload.tensors import workload_of
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
    """All times are the same to the last bit; sums of bytes are made in another order."""
    in_bytes = ("link_bytes", "link_seconds_at_capacity")
    for name in in_bytes:
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-12)
    same = {name: getattr(expected, name) for name in in_bytes}
    assert replace(found, **same) == expected


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda t: f"{t['kind']}-{t.get('shape')}")
@given(data=st.data())
@settings(max_examples=20)
def test_one_accelerator_runs_as_all_do(topology: dict[str, Any], data: st.DataObject) -> None:
    interconnect = array(topology).interconnect
    tasks = data.draw(steps(interconnect))
    expected = run_by_events(tasks, interconnect, record=True)
    assert_same(run(tasks, interconnect, record=True), expected)


@given(random_interconnects(latencies=(0, 0.125)), st.data())
def test_on_any_graph_too(interconnect: Interconnect, data: st.DataObject) -> None:
    tasks = data.draw(steps(interconnect))
    expected = run_by_events(tasks, interconnect, record=True)
    assert_same(run(tasks, interconnect, record=True), expected)


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
    plan = ho.solve("lenet-c", array=found, batch=60)
    tasks = program(plan, workload_of(ho.load("lenet-c"), 60, plan.choices), found, RunOptions())
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


@pytest.mark.parametrize("preset", ["hmc-htree-64", "hmc-torus-64", "a100-4x8", "h100-8x8"])
def test_paper_networks_take_as_long_on_the_presets(preset: str) -> None:
    found = arrays.load(preset)
    plan = ho.solve("sconv", array=found)
    workload = workload_of(ho.load("sconv"), plan.batch, plan.choices)
    tasks = program(plan, workload, found, RunOptions())
    expected = run_by_events(tasks, found.interconnect)
    assert_same(run(tasks, found.interconnect), expected)
    assert simulated(tasks, found.interconnect) == 1


def test_a_step_on_thousands_of_accelerators_takes_what_the_closed_form_says() -> None:
    table = arrays.load("hmc-torus-16").description()
    table["topology"]["shape"] = [64, 64]
    step = ho.simulate(ho.solve("vgg-e", array=Array.model_validate(table), batch=2**16))
    assert step.seconds == pytest.approx(step.closed_form, rel=1e-12)
    assert len(step.links) == 2 * 64 * 64
    assert step.events > 10**6


def test_many_accelerators_that_are_not_in_lockstep_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interconnect = ring(16)
    tasks = [exchange(interconnect, 1, 64, background=True), exchange(interconnect, 3, 64)]
    monkeypatch.setattr(runs, "MAX_WORK", 16 * 32 - 1)
    message = (
        "the step is 32 computations and messages, about 0 minutes, and at most 31 of 16"
        " accelerators are simulated that do not run in lockstep; use collective='pairwise'"
        " and overlap='none', or fewer accelerators"
    )
    with pytest.raises(RefusedError, match=message):
        run(tasks, interconnect)
    # In lockstep accelerators do not count, but what one of them does.
    assert run(tasks[:1], interconnect).events == 16
    monkeypatch.setattr(runs, "MAX_ROUNDS", 29)
    with pytest.raises(RefusedError, match="30 computations and messages of every accelerator"):
        run([all_reduce(interconnect, 64)], interconnect)
