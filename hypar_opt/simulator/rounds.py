"""Exchanges as rounds of messages: receiver and route of every message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.simulator.tasks import ComputeTask, ExchangeTask, Task

if TYPE_CHECKING:
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.hardware.patterns import Lane, MessagePattern
    from hypar_opt.simulator.routes import RouteTable


BytesSent = float | list[float]
"""The bytes of a message of every accelerator, or of each one's."""


@dataclass(frozen=True)
class TrafficPattern:
    """The messages of a round, in lists indexed by the sending stream (see `Machine`).

    Parameters
    ----------
    receivers
        The stream that receives the message.
    routes
        The number of its route.
    """

    receivers: list[int]
    routes: list[int]


class RepeatedRound(NamedTuple):
    """Messages sent at once, of some patterns and so many bytes each, and how often in a row.

    Last come the bytes that count as moved: of uneven parts fewer than the longest one's, which all
    send.
    """

    lanes: Sequence[tuple[TrafficPattern, BytesSent, BytesSent]]
    times: int


@dataclass(frozen=True)
class MessageRounds:
    """An exchange as rounds, in each of which every accelerator sends messages.

    Parameters
    ----------
    task
        The exchange's number among the step's tasks.
    rounds
        One after the other.
    together
        Whether no accelerator begins a round before all have ended the last one.
    """

    task: int
    rounds: Sequence[RepeatedRound]
    together: bool


def in_rounds(
    tasks: Sequence[Task], routes: RouteTable, streams: int
) -> list[ComputeTask | MessageRounds]:
    """Return a step's tasks, exchanges as rounds; `streams` are those of each accelerator."""
    # A stream sends to the same stream of another accelerator.
    firsts = range(0, streams * routes.accelerators, routes.accelerators)

    @cache
    def of(pattern: MessagePattern) -> TrafficPattern:
        receivers, of_receivers = routes.pattern(pattern)
        to = [first + receiver for first in firsts for receiver in receivers]
        return TrafficPattern(to, of_receivers * streams)

    steps: list[ComputeTask | MessageRounds] = []
    for number, task in enumerate(tasks):
        if isinstance(task, ComputeTask):
            steps.append(task)
            continue
        rounds = [
            RepeatedRound(
                [
                    (
                        of(lane.pattern),
                        message_bytes(task, lane, routes.interconnect),
                        counted_bytes(task, lane, routes.interconnect),
                    )
                    for lane in lanes
                ],
                times,
            )
            for lanes, times in task.rounds
        ]
        steps.append(MessageRounds(number, rounds, task.is_together))
    return steps


def level_bytes(tasks: Sequence[Task], interconnect: Interconnect) -> list[float]:
    """Return the bytes that a step's messages move across each hierarchy level."""
    moved = (task.bytes if isinstance(task, ExchangeTask) else 0 for task in tasks)
    return by_level(tasks, moved, interconnect)


def by_level(
    tasks: Sequence[Task], amounts: Iterable[float], interconnect: Interconnect
) -> list[float]:
    """Return amounts of exchanges by hierarchy level: each by the bytes that cross the levels."""
    total = [0.0] * interconnect.levels
    crossing = cache(interconnect.crossing)
    for task, amount in zip(tasks, amounts, strict=True):
        if isinstance(task, ExchangeTask):
            parts = crossing(task.rounds, task.digits)
            for level, part in zip(task.levels, parts, strict=True):
                total[level] += amount * float(part)
    return total


def message_bytes(exchange: ExchangeTask, lane: Lane, interconnect: Interconnect) -> BytesSent:
    """Return the bytes of one message; an exchange's are of all accelerators and rounds.

    Those of groups are as each accelerator sends them. Of uneven parts, and between more than two
    parts of H1, all send the longest, for which all wait.
    """
    sent = exchange.sent or (exchange.bytes,)
    if _waits_for_longest(exchange):
        sent = (max(sent),)
    return _by_accelerator(sent, lane, interconnect)


def counted_bytes(exchange: ExchangeTask, lane: Lane, interconnect: Interconnect) -> BytesSent:
    """Return the bytes of one message that count as moved."""
    sent = exchange.sent if len(exchange.sent) > 1 else (exchange.bytes,)
    part = exchange.bytes * len(sent) / sum(sent) if _waits_for_longest(exchange) else 1.0
    return _by_accelerator([part * amount for amount in sent], lane, interconnect)


def _waits_for_longest(exchange: ExchangeTask) -> bool:
    """Return whether messages of a round differ, so that parts may wait for more than they send."""
    return exchange.is_together and len(exchange.sent) > 2


def _by_accelerator(sent: Sequence[float], lane: Lane, interconnect: Interconnect) -> BytesSent:
    """Return the bytes of one message that all send, or of each accelerator's of some parts."""
    amounts = [bytes_moved(amount, lane, interconnect) for amount in sent]
    if len(amounts) == 1:
        return amounts[0]
    return [amount for amount in amounts for _ in range(interconnect.accelerators // len(amounts))]


def bytes_moved(amount: float, lane: Lane, interconnect: Interconnect) -> float:
    """Return the bytes of one message of a lane, of those of an exchange."""
    numerator, denominator = lane.share.as_integer_ratio()
    return amount * numerator / (interconnect.accelerators * denominator)
