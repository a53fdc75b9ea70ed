"""Messages that never share a link: each takes its own time, whatever the others do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.simulator.fairness import RELATIVE_TOLERANCE
from hypar_opt.simulator.rounds import bytes_moved, message_bytes
from hypar_opt.simulator.tasks import ComputeTask, Task, rounds_of, stream_count

if TYPE_CHECKING:
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.hardware.patterns import MessagePattern
    from hypar_opt.hardware.traffic import Indices, Traffic
    from hypar_opt.simulator.routes import ClassRoutes

Seconds = NDArray[np.float64]

MAX_STARTS = 2**25
"""Upper bound on the starts of messages that are kept: 256 MiB."""


@dataclass(frozen=True, eq=False)
class LoneMessages:
    """The messages of a pattern by sender, each timed as if it had its route to itself.

    Parameters
    ----------
    share : (entries,)
        What the channel of each entry of the traffic carries of its message.
    sender : (accelerators,)
        The accelerator that sends to each accelerator.
    latency, seconds_per_byte : (accelerators,)
    """

    traffic: Traffic
    share: Seconds
    sender: Indices
    latency: Seconds
    seconds_per_byte: Seconds

    @classmethod
    def of(cls, pattern: MessagePattern, interconnect: Interconnect) -> LoneMessages:
        """Time the messages of a pattern."""
        traffic, receivers = interconnect.traffic(pattern), interconnect.receivers(pattern)
        share = (traffic.weight / traffic.unit).astype(np.float64)
        slowest = np.zeros(len(traffic.hops))
        np.maximum.at(
            slowest, traffic.message, share / interconnect.float_capacities[traffic.channel]
        )
        latencies = np.array([float(latency) for latency in traffic.latencies])
        return cls(traffic, share, np.argsort(receivers), latencies[traffic.latency], slowest)


def passed(now: Seconds, lanes: Sequence[tuple[Seconds, Seconds, Indices]]) -> Seconds:
    """Return when accelerators end a round: its messages are delivered, and those to them.

    Parameters
    ----------
    now : (accelerators,)
        When they begin it.
    lanes
        The seconds of their messages, those of the messages to them, and who sends these.
    """

    def delivered() -> Iterator[Seconds]:
        for seconds, senders, sender in lanes:
            yield now + seconds
            yield now[sender] + senders

    return reduce(np.maximum, delivered())


class UncontendedStep(NamedTuple):
    """A step in which no message waits for another.

    Parameters
    ----------
    ends : (tasks, accelerators)
        In seconds, of the accelerators that are simulated.
    sent
        Bytes by route number.
    busy : (links,)
        Seconds in which any byte crossed a link.
    """

    ends: Seconds
    sent: dict[int, float]
    busy: tuple[float, ...]


class _Lane(NamedTuple):
    """Messages of one pattern and length, in rounds in a row.

    Parameters
    ----------
    seconds : (accelerators,)
        From the first byte to the last.
    starts : (rounds, accelerators that are simulated)
    """

    alone: LoneMessages
    seconds: Seconds
    starts: Seconds


def run_uncontended(
    tasks: Sequence[Task], routes: ClassRoutes, start: Seconds | None = None
) -> UncontendedStep | None:
    """Run a step as a recurrence over its rounds, if no messages can share a link's bandwidth.

    Parameters
    ----------
    start : (accelerators that are simulated,)
        When each begins, in seconds; by default at once.

    Returns
    -------
    UncontendedStep, optional
        None if some may, if exchanges overlap, or if there are more than `MAX_STARTS` messages.
    """
    interconnect, firsts, class_of = routes.interconnect, routes.firsts, routes.class_of
    count = sum(own.times for own in rounds_of(tasks))
    if stream_count(tasks) > 1 or count * len(firsts) > MAX_STARTS:
        return None
    alone = cache(lambda pattern: LoneMessages.of(pattern, interconnect))
    rounds = {own.lanes for own in rounds_of(tasks)}
    patterns = {tuple(lane.pattern for lane in lanes) for lanes in rounds}
    if not _fit([[alone(pattern) for pattern in lanes] for lanes in patterns], interconnect):
        return None
    now, ends = np.zeros(len(firsts)) if start is None else start, []
    in_rounds: list[_Lane] = []
    sent: defaultdict[int, float] = defaultdict(float)
    for task in tasks:
        if isinstance(task, ComputeTask):
            now = now + task.seconds
        else:
            for lanes, times in task.rounds:
                starts = np.empty((times, len(firsts)))
                after = []
                for lane in lanes:
                    its = alone(lane.pattern)
                    seconds = (
                        np.asarray(message_bytes(task, lane, interconnect)) * its.seconds_per_byte
                    )
                    in_rounds.append(_Lane(its, seconds, starts))
                    arrives, sender = seconds + its.latency, its.sender[firsts]
                    after.append((arrives[firsts], arrives[sender], class_of[sender]))
                    moved = times * bytes_moved(task.bytes, lane, interconnect)
                    for route in routes.pattern(lane.pattern)[1]:
                        sent[route] += moved
                for begun in starts:
                    begun[:] = now
                    now = passed(now, after)
        ends.append(now)
    return UncontendedStep(np.array(ends), sent, _busy(in_rounds, routes))


def _fit(rounds: Sequence[Sequence[LoneMessages]], interconnect: Interconnect) -> bool:
    """Return whether links have the bandwidth for messages of any of some rounds at once.

    An accelerator has those of one round in flight, each at most at the rate that it has alone.
    """
    channels = len(interconnect.channel_link)
    most: dict[int, float] = {}
    for lanes in rounds:
        taken: defaultdict[int, float] = defaultdict(float)
        for its in lanes:
            rates = its.share / its.seconds_per_byte[its.traffic.message]
            places = its.traffic.message * channels + its.traffic.channel
            for place, rate in zip(places.tolist(), rates.tolist(), strict=True):
                taken[place] += rate
        most |= {place: max(rate, most.get(place, 0.0)) for place, rate in taken.items()}
    of_channels = np.bincount(
        np.array(list(most), np.intp) % channels, list(most.values()), channels
    )
    return bool((of_channels <= interconnect.float_capacities * (1 + RELATIVE_TOLERANCE)).all())


def _busy(in_rounds: Sequence[_Lane], routes: ClassRoutes) -> tuple[float, ...]:
    """Return the seconds in which any byte crosses each link: of links that are alike, of one."""
    _, shown, group = np.unique(routes.group_of_link, return_index=True, return_inverse=True)
    crossing: dict[int, list[tuple[Seconds, float]]] = {link: [] for link in shown.tolist()}
    for its, seconds, starts in in_rounds:
        link = routes.channel_link[its.traffic.channel]
        entries = np.isin(link, shown)
        messages = set(
            zip(link[entries].tolist(), its.traffic.message[entries].tolist(), strict=True)
        )
        for number, sender in sorted(messages):
            begun = starts[:, routes.class_of[sender]]
            crossing[number].append((begun, float(seconds[sender])))
    covered = np.array([_covered(intervals) for intervals in crossing.values()])
    return tuple(covered[group].tolist())


def _covered(intervals: Sequence[tuple[Seconds, float]]) -> float:
    """Return the seconds that any interval covers, given their starts and lengths."""
    if not intervals:
        return 0.0
    starts = np.concatenate([begun for begun, _ in intervals])
    ends = np.concatenate([begun + seconds for begun, seconds in intervals])
    order = starts.argsort(kind="stable")
    reached = np.maximum.accumulate(ends[order])
    uncovered = np.maximum(starts[order], np.append(0.0, reached[:-1]))
    return float(np.maximum(reached - uncovered, 0.0).sum())
