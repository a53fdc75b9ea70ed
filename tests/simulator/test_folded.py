"""A million accelerators: one link of each kind, against all links of the same array."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any, TypeVar

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.errors import HyparError, RefusedError
from hypar_opt.hardware import arrays
from hypar_opt.hardware.array import COLLECTIVES, Array
from hypar_opt.hardware.folded import FoldedInterconnect
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.hardware.patterns import MessagePattern
from hypar_opt.hardware.topologies.grid import Torus
from hypar_opt.simulator.run import Measurements, run
from tests.simulator.plans import array
from tests.simulator.test_lockstep import steps
from tests.slow import slow_after

Result = TypeVar("Result")

KINDS = ("htree", "nodes", "torus", "mesh")


@st.composite
def topologies(draw: st.DrawFn, accelerators: int = 32) -> dict[str, Any]:
    """Draw a topology whose links are known to be alike."""

    def link() -> dict[str, Any]:
        latency, duplex = draw(st.sampled_from(["0 s", "0.25 s"])), draw(st.booleans())
        return {
            "bandwidth": f"{draw(st.sampled_from([4, 6, 8]))} B/s",
            "latency": latency,
            "duplex": "full" if duplex else "half",
        }

    kind = draw(st.sampled_from(KINDS))
    table: dict[str, Any] = {"kind": kind, "link": link()}
    sizes = st.sampled_from([1, 2, 3, 4, 6, 8])
    if kind == "htree":
        growth = draw(st.sampled_from([1.0, 1.5, 2.0]))
        return table | {"accelerators": 2 ** draw(st.integers(1, 5)), "growth": growth}
    if kind == "nodes":
        shape = [draw(sizes), draw(sizes)]
        table |= {"nodes": shape[0], "per_node": shape[1], "fabric": link()}
    else:
        table["shape"] = shape = draw(st.lists(sizes, min_size=1, max_size=3))
    assume(1 < prod(shape) <= accelerators)
    return table


def both(
    topology: dict[str, Any], *, whole: bool = False
) -> tuple[Interconnect, FoldedInterconnect]:
    """Return the links of an array, listed and folded."""
    own = array(topology)
    own = own.with_whole_levels() if whole else own
    folded = own.topology.folded(own._levels)
    assert folded is not None
    return own.interconnect, folded


def channels(interconnect: Interconnect, pattern: MessagePattern) -> Counter[tuple[Any, ...]]:
    """Return how many channels have each capacity and load."""
    traffic, loads = interconnect.loads(pattern)
    kinds: Counter[tuple[Any, ...]] = Counter()
    for channel, load in enumerate(loads.tolist()):
        link = interconnect.links[interconnect.channel_link[channel]]
        kinds[link.bytes_per_second, link.latency, Fraction(load, traffic.unit)] += link.count
    return kinds


@given(topologies(), st.booleans(), st.data())
def test_loads_and_bandwidths_are_those_of_all_links(
    topology: dict[str, Any], whole: bool, data: st.DataObject
) -> None:
    listed, folded = both(topology, whole=whole)
    assert (folded.accelerators, folded.hierarchy) == (listed.accelerators, listed.hierarchy)
    assert sum(link.count for link in folded.links) == len(listed.links)
    ends = {frozenset((link.source, link.target)) for link in listed.links}
    assert ends >= {frozenset((link.source, link.target)) for link in folded.links}
    for digit in range(listed.levels):
        assert folded.bisection(digit) == listed.bisection(digit)
    digits = tuple(sorted(data.draw(st.sets(st.integers(0, listed.levels - 1), min_size=1))))
    grid = topology["kind"] in ("torus", "mesh")
    along = [size for size in topology["shape"] if size > 1] if grid else []
    stride = [listed.place(digit).stride for digit in digits]
    tops = [prod(along[n + 1 :]) for n in range(len(along))]
    if grid and len({max(top for top in tops if top <= own) for own in stride}) > 1:
        with pytest.raises(RefusedError, match="one ring through several dimensions of"):
            folded.ring(digits)
        return
    group = prod(listed.place(digit).parts for digit in digits)
    pattern = MessagePattern(digits, data.draw(st.integers(1, group - 1)))
    assert channels(folded, pattern) == channels(listed, pattern)
    assert folded.ring(digits) == listed.ring(digits)
    rounds = listed.around([digits])
    levels = tuple(reversed(range(listed.levels)))
    assert folded.crossing(rounds, levels) == listed.crossing(rounds, levels)


def by_link(measured: Measurements, interconnect: Interconnect) -> list[tuple[float, ...]]:
    """Return the traffic of every link, least first, rounded where sums have another order."""
    rows = zip(
        interconnect.links,
        measured.link_bytes,
        measured.link_busy,
        measured.link_seconds_at_capacity,
        strict=True,
    )
    return sorted(
        (round(moved, 6), busy, round(full, 6))
        for link, moved, busy, full in rows
        for _ in range(link.count)
    )


def attempt(call: Callable[..., Result], *values: Any, **named: Any) -> Result | str:
    """Return a call's result, or why it is refused."""
    try:
        return call(*values, **named)
    except RefusedError as error:
        return str(error)


@given(topologies(), st.data())
def test_a_step_takes_as_long_to_the_last_bit(
    topology: dict[str, Any], data: st.DataObject
) -> None:
    """As one accelerator of the listed array, and so as all of them by `test_lockstep`."""
    listed, folded = both(topology)
    tasks = data.draw(steps(listed))
    expected = run(tasks, listed)
    found = attempt(run, tasks, folded)
    if isinstance(found, str):
        assert not expected.in_lockstep or "several dimensions" in found
        return
    assert expected.in_lockstep
    assert by_link(found, folded) == by_link(expected, listed)
    in_links: Any = dict.fromkeys(("link_bytes", "link_busy", "link_seconds_at_capacity"), ())
    assert replace(found, **in_links) == replace(expected, **in_links)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(
    "preset",
    slow_after(
        3,
        ["hmc-htree-2", "hmc-torus-32", "h100-8x8", "tpu-v4-4x4x4", "hmc-htree-64", "hmc-torus-64"],
    ),
)
def test_a_simulation_of_an_array_reports_the_same(
    preset: str, collective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for solver, overlap in (("data", "none"), ("dp", "gradient")):
        fewest: Any = {"solver": solver, "cost": "bytes"}
        plan = ho.solve("lenet-c", array=arrays.load(preset), **fewest)
        asked: Any = {"collective": collective, "overlap": overlap}
        expected = ho.simulate(plan, **asked)
        with monkeypatch.context() as patched:
            patched.setattr("hypar_opt.hardware.array.MAX_LISTED", 1)
            own = Array.model_validate(arrays.load(preset).description())
            assert isinstance(own.interconnect, FoldedInterconnect)
            priced = ho.solve("lenet-c", array=own, **fewest)
            assert priced.assignments() == plan.assignments()
            assert priced.cost == plan.cost
            found = attempt(ho.simulate, plan, own, **asked)
        if isinstance(found, str):
            assert not expected.in_lockstep or "several dimensions" in found
            continue
        assert expected.in_lockstep
        assert found.bottleneck is not None
        assert expected.bottleneck is not None
        assert found.bottleneck[1] == expected.bottleneck[1]
        assert (found.joules or 0) == pytest.approx(expected.joules or 0, rel=1e-12)
        same = {n: getattr(expected, n) for n in ("links", "bottleneck", "known_energy")}
        assert replace(found, **same) == expected


def of_size(preset: str, **topology: Any) -> Array:
    table = arrays.load(preset).description()
    table["topology"] |= topology
    return Array.model_validate(table)


TREE = of_size("hmc-htree-16", accelerators=2**20)


@pytest.mark.parametrize(
    ("found", "links"),
    [
        (TREE, 2**21 - 2),
        (of_size("hmc-torus-16", shape=[1024, 1024]), 2**21),
        (of_size("h100-8x8", nodes=2**17), 2**20 + 2**17),
    ],
    ids=lambda value: value.topology.kind if isinstance(value, Array) else "",
)
def test_a_step_on_a_million_accelerators(found: Array, links: int) -> None:
    plan = ho.solve("alexnet", array=found, batch=2**20, solver="data")
    step = ho.simulate(plan, overlap="none")
    assert step.in_lockstep
    assert step.seconds == pytest.approx(step.closed_form, rel=1e-12)
    assert sum(link.count for link in step.links) == links
    for rows in (step.document()["links"], found.document()["links"]):
        assert sum(row["count"] for row in rows) == links
    hops = sum(
        level.bytes * float(found.interconnect.bisection(digit).hops)
        for level, digit in zip(step.levels, found.placement, strict=True)
    )
    assert sum(link.bytes * link.count for link in step.links) == pytest.approx(hops)


def test_a_ring_of_more_than_a_hundred_thousand() -> None:
    tree = of_size("hmc-htree-16", accelerators=2**18)
    plan = ho.solve("sconv", array=tree, batch=2**20, solver="data")
    around = ho.simulate(plan, collective="one-ring")
    assert around.events > 2 * 10**6 * 2**18
    assert around.seconds == pytest.approx(around.closed_form, rel=1e-14)
    with pytest.raises(RefusedError, match="at most 2,000,000 are simulated; use collective="):
        ho.simulate(plan, collective="one-ring", overlap="gradient")


def test_what_needs_each_accelerator_is_refused() -> None:
    plan = ho.solve("sconv", array=TREE, batch=2**20, solver="data")
    with pytest.raises(RefusedError, match="a trace of 1,048,576 accelerators and their links is"):
        ho.simulate(plan, trace=True)
    with pytest.raises(RefusedError, match="links of 1,048,576 accelerators are not listed one by"):
        TREE.interconnect.route(0, 1)
    torus = of_size("hmc-torus-16", shape=[1024, 1024])
    plan = ho.solve("sconv", array=torus, batch=2**20, cost="bytes")
    with pytest.raises(RefusedError, match="1,048,576 accelerators do not do the same at once"):
        ho.simulate(plan, overlap="branches")


class LargeTorus(Torus):
    """A torus whose author may have changed its graph."""


def test_a_large_array_of_links_that_may_differ_is_refused() -> None:
    link = {"bandwidth": "1 GB/s"}
    topology = LargeTorus.model_validate({"kind": "torus", "shape": [512, 256], "link": link})
    table = arrays.load("hmc-torus-16").model_copy(update={"topology": topology})
    message = "at most 65,536 accelerators unless all are on links that are alike, got 131,072"
    with pytest.raises(HyparError, match=message):
        table.interconnect  # noqa: B018
    v2, v3 = arrays.load("tpu-v2-v3-16").groups
    groups = [own.model_copy(update={"count": 2**19}) for own in (v2, v3)]
    large = TREE.description() | {"accelerator": [own.model_dump(mode="json") for own in groups]}
    with pytest.raises(
        ValueError, match="65,536 accelerators unless all are identical, got 1,048,"
    ):
        Array.model_validate({key: large[key] for key in large if key != "energy"})
