"""Links shared by several messages: who gets how much, and who is done when."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from simpy import Environment

from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.simulator.fairness import max_min_rates
from hypar_opt.simulator.flows import FlowNetwork, LinkNetwork, Segment
from hypar_opt.simulator.local_flows import LocalFlows
from hypar_opt.simulator.routes import ClassRoutes
from tests.simulator import random_interconnects, wired

Message = tuple[float, int, int, float]
"""When it starts, from and to which accelerator, and its bytes."""


class Sent(NamedTuple):
    """When each message arrived, and what each link carried: since and until when, too."""

    arrivals: list[float]
    bytes: list[float]
    busy: list[float]
    span: NDArray[np.float64]
    segments: list[tuple[Segment, ...]]


def sent(interconnect: Interconnect, messages: Sequence[Message], *, local: bool = False) -> Sent:
    env = Environment()
    arrivals = [0.0] * len(messages)

    def delivered(those: list[int]) -> None:
        for message in those:
            arrivals[message] = env.now

    routes = ClassRoutes(interconnect)
    network: LinkNetwork = (
        LocalFlows(env, routes, delivered)
        if local
        else FlowNetwork(env, routes, delivered, record=True)
    )

    def send(message: int) -> Any:
        start, source, target, size = messages[message]
        yield env.timeout(start)
        network.send(routes.number(source, target), size, message, message, size)

    for message in range(len(messages)):
        env.process(send(message))
    env.run()
    carried = list(network.link_bytes), list(network.link_busy), np.array(network.link_span)
    return Sent(arrivals, *carried, list(network.segments))


def star(*bandwidths: float, full_duplex: bool = True) -> Interconnect:
    """Accelerators around a switch."""
    return wired(
        [(number, "s", bandwidth) for number, bandwidth in enumerate(bandwidths)],
        full_duplex=full_duplex,
    )


def test_a_message_takes_its_transfer_and_then_the_latency_of_its_links() -> None:
    # 100 bytes at 10 a second, then two links of half a second.
    interconnect = wired([(0, "s", 10), ("s", 1, 20)], latency=0.5)
    done = sent(interconnect, [(0, 0, 1, 100)])
    assert done.arrivals == [11]
    assert done.busy == [10, 10]
    assert done.bytes == [100, 100]


@pytest.mark.parametrize(("full_duplex", "seconds"), [(True, 10), (False, 20)])
def test_opposite_messages_share_a_link_only_if_it_is_half_duplex(
    full_duplex: bool, seconds: float
) -> None:
    interconnect = wired([(0, 1, 10)], full_duplex=full_duplex)
    done = sent(interconnect, [(0, 0, 1, 100), (0, 1, 0, 100)])
    assert done.arrivals == [seconds, seconds]
    assert done.bytes == [200]
    assert done.busy == [seconds]


def test_three_messages_on_a_line() -> None:
    # Links of 12, 6 and 8 bytes a second; A from 0 to 3, B from 0 to 1, C from 1 to 2.
    # A and C get 3 each of the second link; B has the other 9 of the first. At 5, C has ended;
    # A has 15 to go and B 45, with 6 each of the first link. At 7.5 A has ended; B has 30 to go
    # at 12.
    interconnect = wired([(0, 1, 12), (1, 2, 6), (2, 3, 8)])
    done = sent(interconnect, [(0, 0, 3, 30), (0, 0, 1, 90), (0, 1, 2, 15)])
    assert done.arrivals == [7.5, 10, 5]
    assert done.bytes == [120, 45, 30]
    assert done.busy == [10, 7.5, 7.5]


def test_a_later_message_slows_an_earlier_one_down() -> None:
    # At 5 the first has 50 to go; both get 5 a second. At 10 the second has sent its 25, and
    # the first has 25 to go at 10.
    done = sent(wired([(0, 1, 10)]), [(0, 0, 1, 100), (5, 0, 1, 25)])
    assert done.arrivals == [12.5, 10]
    assert done.segments == [(Segment(0, 5, (0,)), Segment(5, 10, (0, 1)), Segment(10, 12.5, (0,)))]


def unequal_mesh() -> Interconnect:
    """Two by two, 0 and 1 above 2 and 3."""
    return wired([(0, 1, 8, 1), (1, 3, 4, 2), (0, 2, 4, 1), (2, 3, 2, 1)])


def test_an_unequal_mesh() -> None:
    # A from 0 to 3, half of it by way of 1, half by way of 2; B from 1 to 3; C from 2 to 3.
    # Link 2-3 gives x to C and x/2 to A's half: x = 4/3, and A goes at x too. Link 1-3 has
    # 4 - 2/3 = 10/3 left for B. At 3, A's 4 bytes have left; C has 4 to go at 2, B 10 at 4:
    # they end at 5 and 5.5. Latencies: A's slower path has 1 + 2, B's link 2, C's 1.
    interconnect = unequal_mesh()
    done = sent(interconnect, [(0, 0, 3, 4), (0, 1, 3, 20), (0, 2, 3, 8)])
    assert done.arrivals == pytest.approx([6, 7.5, 6], rel=1e-12)
    number = {frozenset((link.source, link.target)): n for n, link in enumerate(interconnect.links)}
    links = [number[frozenset(pair)] for pair in ((0, 1), (0, 2), (1, 3), (2, 3))]
    assert [done.busy[link] for link in links] == pytest.approx([3, 3, 5.5, 5], rel=1e-12)
    assert [done.bytes[link] for link in links] == pytest.approx([2, 2, 22, 10], rel=1e-12)
    # C's end changes nothing on link 1-3, so it is one segment from A's end on.
    first, second = done.segments[links[2]]
    assert (first.labels, second.labels) == ((0, 1), (1,))
    assert (second.start, second.end) == pytest.approx((3, 5.5), rel=1e-12)


def test_a_message_that_starts_as_another_ends_has_the_link_to_itself() -> None:
    done = sent(wired([(0, 1, 10)]), [(0, 0, 1, 100), (10, 0, 1, 100)])
    assert done.arrivals == [10, 20]
    assert done.busy == [20]


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Interconnect, list[Message]]:
    interconnect = draw(random_interconnects(latencies=(0, 0.25)))
    numbers = st.integers(0, interconnect.accelerators - 1)
    messages = [
        (draw(st.integers(0, 4)) / 2, source, target, float(draw(st.integers(1, 60))))
        for source, target in draw(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12))
        if source != target
    ]
    return interconnect, messages


@given(crowds())
def test_rates_are_max_min_fair(crowd: tuple[Interconnect, list[Message]]) -> None:
    """Each message crosses a full channel on which none is faster (Bertsekas and Gallager)."""
    interconnect, messages = crowd
    routes = [interconnect.route(source, target) for _, source, target, _ in messages]
    if not routes:
        return
    capacities = np.array([float(capacity) for capacity in interconnect.capacities])
    channels = [np.array(route.channels, np.intp) for route in routes]
    shares = [np.array(route.shares, float) for route in routes]
    lengths = np.array([len(through) for through in channels])
    rates = max_min_rates(capacities, np.concatenate(channels), np.concatenate(shares), lengths)
    load, fastest = np.zeros(len(capacities)), np.zeros(len(capacities))
    for rate, through, share in zip(rates, channels, shares, strict=True):
        load[through] += rate * share
        fastest[through] = np.maximum(fastest[through], rate)
    assert (load <= capacities * (1 + 1e-9)).all()
    for rate, through in zip(rates, channels, strict=True):
        full = load[through] >= capacities[through] * (1 - 1e-9)
        assert (full & (rate >= fastest[through] * (1 - 1e-9))).any()


@given(crowds())
def test_rates_solved_where_they_change_are_those_of_all(
    crowd: tuple[Interconnect, list[Message]],
) -> None:
    found, expected = sent(*crowd, local=True), sent(*crowd)
    for name in ("arrivals", "bytes", "busy"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-11)
    assert found.span == pytest.approx(expected.span, rel=1e-11)


@given(crowds())
def test_every_message_arrives_no_sooner_than_alone(
    crowd: tuple[Interconnect, list[Message]],
) -> None:
    interconnect, messages = crowd
    done = sent(interconnect, messages)
    for (start, source, target, size), arrival in zip(messages, done.arrivals, strict=True):
        alone = sent(interconnect, [(0, source, target, size)]).arrivals[0]
        assert arrival >= (start + alone) * (1 - 1e-9)


@given(crowds())
def test_a_link_carries_no_more_than_its_channels_can_while_it_is_busy(
    crowd: tuple[Interconnect, list[Message]],
) -> None:
    interconnect, messages = crowd
    done = sent(interconnect, messages)
    for link, moved, busy, segments in zip(
        interconnect.links, done.bytes, done.busy, done.segments, strict=True
    ):
        directions = 1 + link.full_duplex
        assert moved <= busy * directions * float(link.bytes_per_second) * (1 + 1e-9)
        assert sum(end - start for start, end, _ in segments) == pytest.approx(busy)
        assert all(a.end <= b.start for a, b in pairwise(segments))
