"""A training step on an array: who waits for whom, and for how long."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.machine import TaskSpan
from hypar_opt.simulator.run import run
from hypar_opt.simulator.tasks import FOREGROUND, ComputeTask, ExchangeTask, Task
from tests.simulator import (
    all_reduce,
    exchange,
    fat_tree,
    programs,
    random_interconnects,
    ring,
    torus,
    wired,
)
from tests.slow import examples

ARRAYS = {
    "tree": fat_tree(3),
    "tree with latency": fat_tree(3, latency=0.125),
    "torus": torus(4, 4),
    "torus with latency": torus(2, 4, latency=0.25, full_duplex=True),
}

arrays = pytest.mark.parametrize("interconnect", ARRAYS.values(), ids=ARRAYS)


def compute(seconds: float) -> ComputeTask:
    return ComputeTask("conv1", Phase.FORWARD, seconds)


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[Task], Interconnect]:
    interconnect = draw(random_interconnects(latencies=(0, 0.125)))
    return draw(programs(interconnect)), interconnect


def test_one_accelerator_computes() -> None:
    done = run([compute(1.5), compute(2)], single())
    assert (done.seconds, done.task_seconds, done.events) == (3.5, (1.5, 2), 2)
    assert not any((done.level_bytes, done.link_bytes, done.link_busy))


def single() -> Interconnect:
    graph: nx.Graph[int] = nx.Graph()
    graph.add_node(0)
    return Interconnect(graph)


def test_no_tasks_take_no_time() -> None:
    done = run([], fat_tree(1), record=True)
    assert (done.seconds, done.task_seconds, done.events) == (0, (), 0)


def between_two_parts(interconnect: Interconnect) -> st.SearchStrategy[int]:
    """Draw a level whose exchange is one round: others' accelerators may be in different ones."""
    levels = [level for level, size in enumerate(interconnect.hierarchy.sizes) if size == 2]
    return st.sampled_from(levels) if levels else st.nothing().map(int)


@given(random_interconnects(), st.data())
def test_an_exchange_takes_what_the_most_loaded_channel_takes(
    interconnect: Interconnect, data: st.DataObject
) -> None:
    level = data.draw(between_two_parts(interconnect))
    split = interconnect.bisection(interconnect.levels - 1 - level)
    done = run([exchange(interconnect, level, 1000)], interconnect)
    assert done.seconds == pytest.approx(float(split.seconds_per_byte * 1000), rel=1e-12)


@given(random_interconnects(latencies=[0.5]), st.data())
def test_an_exchange_takes_at_most_its_slowest_latency_more(
    interconnect: Interconnect, data: st.DataObject
) -> None:
    """Less, where the slowest message is not the one with the most hops."""
    level = data.draw(between_two_parts(interconnect))
    split = interconnect.bisection(interconnect.levels - 1 - level)
    transfer = float(split.seconds_per_byte * 1000)
    done = run([exchange(interconnect, level, 1000)], interconnect)
    assert done.seconds <= (transfer + float(split.latency)) * (1 + 1e-12)
    assert done.seconds >= (transfer + 0.5) * (1 - 1e-12)


@pytest.mark.parametrize("accelerators", [2, 4, 8, 16])
def test_a_ring_takes_the_textbooks_time(accelerators: int) -> None:
    """Source: P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms (2009)."""
    weights, bandwidth, latency = 4096, 8, 0.25
    rounds = 2 * (accelerators - 1)
    interconnect = ring(accelerators, latency=latency)
    done = run([all_reduce(interconnect, rounds * weights)], interconnect)
    expected = rounds / accelerators * weights / bandwidth + rounds * latency
    assert done.seconds == pytest.approx(expected, rel=1e-12)
    assert done.events == accelerators * rounds
    assert sum(done.link_bytes) == pytest.approx(rounds * weights)


def test_a_ring_over_one_level_of_two_is_two_rings() -> None:
    # Of eight bytes each sends two, one a round, to the other of its own pair.
    interconnect = fat_tree(2)
    done = run([all_reduce(interconnect, 8, levels=[1])], interconnect)
    assert list(done.level_bytes) == [0, 8]
    assert done.seconds == 2 / 8
    # Around all four, 1 to 2 and 3 to 0 cross the middle: half of the messages.
    assert list(run([all_reduce(interconnect, 24)], interconnect).level_bytes) == [12, 12]


def test_no_accelerator_waits_for_more_than_its_partner() -> None:
    # Pairs 0-1 and 2-3 send 8 bytes a message at 8 and at 2 bytes a second: 1 and 4 seconds.
    # Meanwhile 0 and 1 compute for two seconds, and wait from 3 to 6, when 2 and 3 have done
    # the same. Then pairs 0-2 and 1-3 send at 8 a second, until 7.
    interconnect = wired([(0, 1, 8), (2, 3, 2), (0, 2, 8), (1, 3, 8)])
    tasks: list[Task] = [exchange(interconnect, 1, 32), compute(2), exchange(interconnect, 0, 32)]
    done = run(tasks, interconnect, record=True)
    fast, slow = (
        (TaskSpan(0, 0, 1), TaskSpan(1, 1, 3), TaskSpan(2, 3, 7)),
        (TaskSpan(0, 0, 4), TaskSpan(1, 4, 6), TaskSpan(2, 6, 7)),
    )
    assert done.seconds == 7
    assert list(done.spans) == [fast, fast, slow, slow]
    # All end at 7, and of equals the lowest number counts.
    assert list(done.task_seconds) == [1, 2, 4]
    assert list(done.level_bytes) == [32, 32]
    assert sorted(done.link_busy) == [1, 2, 2, 4]


def test_an_exchange_in_the_background_hides_behind_computing() -> None:
    # 16 bytes a message at 8 a second: 2 seconds, of which 1.5 are hidden.
    interconnect = wired([(0, 1, 8)])
    tasks: list[Task] = [compute(1), exchange(interconnect, 0, 32, background=True), compute(1.5)]
    done = run(tasks, interconnect, record=True)
    assert done.seconds == 3
    assert list(done.task_seconds) == [1, 0.5, 1.5]
    assert done.spans[0] == (TaskSpan(0, 0, 1), TaskSpan(1, 1, 3), TaskSpan(2, 1, 2.5))


@given(steps())
def test_all_bytes_arrive_and_cross_the_links_of_their_routes(
    step: tuple[list[Task], Interconnect],
) -> None:
    tasks, interconnect = step
    levels, links, messages = (
        [Fraction()] * interconnect.levels,
        [Fraction()] * len(interconnect.links),
        0,
    )
    for task in tasks:
        if isinstance(task, ComputeTask):
            messages += interconnect.accelerators
            continue
        for (sender, receiver), sizes in messages_of(task, interconnect).items():
            messages += len(sizes)
            size = sum(sizes, Fraction())
            topmost = min(
                level
                for level in range(interconnect.levels)
                if len({interconnect.hierarchy.digit(end, level) for end in (sender, receiver)}) > 1
            )
            levels[topmost] += size
            route = interconnect.route(sender, receiver)
            for channel, share in zip(route.channels, route.shares, strict=True):
                links[interconnect.channel_link[channel]] += size * share
    done = run(tasks, interconnect)
    assert done.events == messages
    assert done.level_bytes == pytest.approx([float(size) for size in levels], rel=1e-12)
    assert done.link_bytes == pytest.approx([float(size) for size in links], rel=1e-12)
    communication_only = sum(task.bytes for task in tasks if isinstance(task, ExchangeTask))
    assert sum(done.level_bytes) == pytest.approx(communication_only, rel=1e-12)


def messages_of(
    task: ExchangeTask, interconnect: Interconnect
) -> dict[tuple[int, int], list[Fraction]]:
    """Return the bytes of the messages from each accelerator to each other."""
    sent: defaultdict[tuple[int, int], list[Fraction]] = defaultdict(list)
    hierarchy, top = interconnect.hierarchy, interconnect.levels - 1
    everyone = range(interconnect.accelerators)
    for lanes, times in task.rounds:
        for (digits, shift), share in lanes:
            groups: defaultdict[int, list[int]] = defaultdict(list)
            for number in everyone:
                within = hierarchy.within(number, [top - digit for digit in digits])
                groups[number - within].append(number)
            for group in groups.values():
                for index, number in enumerate(group):
                    receiver = group[(index + shift) % len(group)]
                    size = Fraction(task.bytes) * share / interconnect.accelerators
                    sent[number, receiver] += [size] * times
    return sent


@given(steps())
def test_no_task_starts_before_its_operands_have_arrived(
    step: tuple[list[Task], Interconnect],
) -> None:
    tasks, interconnect = step
    done = run(tasks, interconnect, record=True)
    for number, spans in enumerate(done.spans):
        assert [span.task for span in spans] == list(range(len(tasks)))
        now = 0.0
        for span in spans:
            task = tasks[span.task]
            behind = task.stream != FOREGROUND
            assert span.start >= now if behind else span.start == now
            now = now if behind else span.end
            if isinstance(task, ComputeTask):
                assert span.end == pytest.approx(span.start + task.seconds)
                continue
            for (sender, receiver), sizes in messages_of(task, interconnect).items():
                if number in (sender, receiver):
                    least = transfer(interconnect, sender, receiver, sum(sizes, Fraction()))
                    sent = done.spans[sender][span.task].start
                    assert span.end >= (sent + least) * (1 - 1e-9)


def transfer(interconnect: Interconnect, sender: int, receiver: int, size: Fraction) -> float:
    """Return the least seconds in which bytes arrive, with all links to themselves."""
    route = interconnect.route(sender, receiver)
    rate = min(
        interconnect.capacities[channel] / share
        for channel, share in zip(route.channels, route.shares, strict=True)
    )
    return float(size / rate + route.latency)


@given(steps())
def test_the_tasks_of_who_ends_last_add_up_to_the_step(
    step: tuple[list[Task], Interconnect],
) -> None:
    done = run(*step)
    assert sum(done.task_seconds) == pytest.approx(done.seconds, rel=1e-12)
    assert all(seconds >= 0 for seconds in done.task_seconds)


@examples(20)
@given(steps())
def test_the_same_step_runs_the_same_again(step: tuple[list[Task], Interconnect]) -> None:
    tasks, interconnect = step
    first = run(tasks, interconnect, record=True)
    assert run(tasks, interconnect, record=True) == first
    # Unrecorded, rounds that repeat are added, not run: the same but for rounding.
    assert run(tasks, interconnect).seconds == pytest.approx(first.seconds, rel=1e-12)
