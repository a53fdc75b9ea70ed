"""Messages that never share a link: each takes its own time, whatever the others do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.simulator.fairness import RELATIVE_TOLERANCE
from hypar_opt.simulator.rounds import bytes_moved, message_bytes
from hypar_opt.simulator.tasks import ComputeTask, Task, rounds_of

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
    busy, since, until : (links,)
        The seconds in which any byte crossed a link, and when the first and the last one did:
        infinity and 0 where none has.
    """

    ends: Seconds
    sent: dict[int, float]
    busy: Seconds
    since: Seconds
    until: Seconds


class _Lane(NamedTuple):
    """Messages of one pattern and length, in rounds in a row.

    Parameters
    ----------
    seconds : (accelerators,)
        From the first byte to the last.
    starts : (accelerators that are simulated, rounds)
    """

    alone: LoneMessages
    seconds: Seconds
    starts: Seconds


def run_uncontended(
    tasks: Sequence[Task],
    routes: ClassRoutes,
    start: Seconds,
    alone: Callable[[MessagePattern], LoneMessages],
) -> UncontendedStep | None:
    """Run a step as a recurrence over its rounds, if no messages compete for bandwidth.

    As long as each goes at the rate that it has alone, and channels have the bandwidth for all
    that cross them at an instant, these are their fair rates. So it is run, and then checked.

    Parameters
    ----------
    start : (accelerators that are simulated,)
        When each begins, in seconds.
    alone
        Times the messages of a pattern.

    Returns
    -------
    UncontendedStep, optional
        None if some compete, or if there are more than `MAX_STARTS` messages.
    """
    interconnect, firsts, class_of = routes.interconnect, routes.firsts, routes.class_of
    count = sum(one.times for one in rounds_of(tasks))
    if count * len(firsts) > MAX_STARTS:
        return None
    rounds = {one.lanes for one in rounds_of(tasks)}
    patterns = {tuple(lane.pattern for lane in lanes) for lanes in rounds}
    crowded = _crowded([[alone(pattern) for pattern in lanes] for lanes in patterns], interconnect)
    now, ends = start, []
    in_rounds: list[_Lane] = []
    sent: defaultdict[int, float] = defaultdict(float)
    for task in tasks:
        if isinstance(task, ComputeTask):
            now = now + task.seconds
        else:
            for lanes, times in task.rounds:
                starts = np.empty((times, len(firsts)))
                after, sending = [], []
                for lane in lanes:
                    its = alone(lane.pattern)
                    seconds = (
                        np.asarray(message_bytes(task, lane, interconnect)) * its.seconds_per_byte
                    )
                    sending.append((its, seconds))
                    arrives, sender = seconds + its.latency, its.sender[firsts]
                    after.append((arrives[firsts], arrives[sender], class_of[sender]))
                    moved = times * bytes_moved(task.bytes, lane, interconnect)
                    for route in routes.pattern(lane.pattern)[1]:
                        sent[route] += moved
                now = _run_rounds(now, after, starts)
                by_sender = np.ascontiguousarray(starts.T)
                in_rounds += [_Lane(its, seconds, by_sender) for its, seconds in sending]
        ends.append(now)
    if not all(
        _fits(channel, in_rounds, routes) for channel in routes.class_representatives(crowded)
    ):
        return None
    return UncontendedStep(np.array(ends), sent, *_on_links(in_rounds, routes))


def _run_rounds(
    now: Seconds, after: Sequence[tuple[Seconds, Seconds, Indices]], starts: Seconds
) -> Seconds:
    """Run rounds in a row, and fill in when each begins; return when the last one ends.

    No round takes less than its slowest message. Once all take no more, so do those to come.
    """
    slowest = max(float(seconds.max()) for seconds, _, _ in after)
    for number, begun in enumerate(starts):
        begun[:] = now
        now = passed(now, after)
        if abs(now - begun - slowest).max() <= 4 * np.spacing(now.max()):
            to_come = len(starts) - number
            starts[number:] = begun + slowest * np.arange(to_come)[:, None]
            now = begun + slowest * to_come
            break
    return now


def _crowded(rounds: Sequence[Sequence[LoneMessages]], interconnect: Interconnect) -> Indices:
    """Return the channels that lack the bandwidth for messages of any of some rounds at once.

    An accelerator has those of one round in flight, each at most at the rate that it has alone.
    """
    channels = len(interconnect.channel_link)
    messages = [its for lanes in rounds for its in lanes]
    if not messages:
        return np.empty(0, np.intp)
    # By sender and channel: of the lanes of a round the sum, of all rounds the most.
    crossed, place = np.unique(
        np.concatenate([its.traffic.message * channels + its.traffic.channel for its in messages]),
        return_inverse=True,
    )
    places = iter(np.split(place, np.cumsum([len(its.share) for its in messages])))
    largest = np.zeros(len(crossed))
    for lanes in rounds:
        used = np.zeros(len(crossed))
        for its in lanes:
            rates = its.share / its.seconds_per_byte[its.traffic.message]
            np.add.at(used, next(places), rates)
        np.maximum(largest, used, out=largest)
    of_channels = np.bincount(crossed % channels, largest, channels)
    return np.flatnonzero(of_channels > interconnect.float_capacities * (1 + RELATIVE_TOLERANCE))


def _fits(channel: int, in_rounds: Sequence[_Lane], routes: ClassRoutes) -> bool:
    """Return whether a channel has the bandwidth for all messages whenever they cross it."""
    begun, ended, taken = [], [], []
    for its, seconds, starts in in_rounds:
        for entry in np.flatnonzero(its.traffic.channel == channel):
            sender = its.traffic.message[entry]
            begin = starts[routes.class_of[sender]]
            begun.append(begin)
            ended.append(begin + seconds[sender])
            rate = its.share[entry] / its.seconds_per_byte[sender]
            taken.append(np.full(len(begin), rate))
    units = _units(np.concatenate(taken) / routes.interconnect.float_capacities[channel])
    # Instants that differ by rounding are one, and what ends then has ended.
    instants = np.concatenate([*ended, *begun]) * np.repeat([1 - RELATIVE_TOLERANCE, 1], len(units))
    order = instants.argsort(kind="stable")
    used = np.append(-units, units)[order].cumsum()
    return bool(used.max() <= _units(1.0) + len(begun))


def _units(parts: Any) -> NDArray[np.int64]:
    """Return parts of a channel in units whose sums are exact."""
    return np.rint(np.asarray(parts) * 2.0**40).astype(np.int64)


def _on_links(in_rounds: Sequence[_Lane], routes: ClassRoutes) -> tuple[Seconds, Seconds, Seconds]:
    """Return `UncontendedStep.busy`, ``since`` and ``until``: of links that are alike, of one."""
    _, shown, group = np.unique(routes.group_of_link, return_index=True, return_inverse=True)
    crossing: dict[int, list[tuple[Seconds, float]]] = {link: [] for link in shown.tolist()}
    for its, seconds, starts in in_rounds:
        link = routes.channel_link[its.traffic.channel]
        entries = np.isin(link, shown)
        messages = set(
            zip(link[entries].tolist(), its.traffic.message[entries].tolist(), strict=True)
        )
        for number, sender in sorted(messages):
            crossing[number].append((starts[routes.class_of[sender]], float(seconds[sender])))
    busy = np.array([_covered(intervals) for intervals in crossing.values()])
    since, until = (
        np.array([edge(intervals) for intervals in crossing.values()]) for edge in (_first, _last)
    )
    return busy[group], since[group], until[group]


def _first(intervals: Sequence[tuple[Seconds, float]]) -> float:
    return min((float(starts[0]) for starts, _ in intervals), default=np.inf)


def _last(intervals: Sequence[tuple[Seconds, float]]) -> float:
    return max((float(starts[-1]) + seconds for starts, seconds in intervals), default=0.0)


def _covered(intervals: Sequence[tuple[Seconds, float]]) -> float:
    """Return the seconds that any interval covers, given their starts and lengths."""
    total = sum(len(starts) * seconds for starts, seconds in intervals)
    if len(intervals) < 2:
        return total
    # As many have begun and not ended, in whatever order they end.
    starts = np.sort(np.concatenate([begun for begun, _ in intervals]))
    ends = np.sort(np.concatenate([begun + seconds for begun, seconds in intervals]))
    return total - float(np.maximum(ends[:-1] - starts[1:], 0.0).sum())
