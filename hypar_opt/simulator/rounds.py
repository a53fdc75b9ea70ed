"""Exchanges as rounds of messages: receiver and route of every message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.simulator.tasks import ComputeTask, ExchangeTask, Task

if TYPE_CHECKING:
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.hardware.patterns import MessagePattern
    from hypar_opt.simulator.routes import RouteTable


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


@dataclass(frozen=True)
class MessageRounds:
    """An exchange as rounds, in each of which every accelerator sends one message.

    Parameters
    ----------
    task
        The exchange's number among the step's tasks.
    rounds
        The number of rounds, run one after the other.
    bytes
        The size of one message.
    patterns
        Those of the first rounds; they repeat.
    """

    task: int
    rounds: int
    bytes: float
    patterns: tuple[TrafficPattern, ...]


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
        patterns = routes.interconnect.patterns(task.digits, ring=task.ring)
        moved = message_bytes(task, routes.interconnect)
        steps.append(MessageRounds(number, task.messages, moved, tuple(map(of, patterns))))
    return steps


def level_bytes(tasks: Sequence[Task], interconnect: Interconnect) -> list[float]:
    """Return the bytes that a step's messages move across each hierarchy level."""
    total = [0.0] * interconnect.levels
    messages: dict[tuple[tuple[int, ...], tuple[int, ...], bool], dict[int, int]] = {}
    for task in tasks:
        if isinstance(task, ExchangeTask):
            key = task.levels, task.digits, task.ring
            if key not in messages:
                messages[key] = _messages_by_level(task, interconnect)
            patterns = len(interconnect.patterns(task.digits, ring=task.ring))
            moved = task.messages // patterns * message_bytes(task, interconnect)
            for level, count in messages[key].items():
                total[level] += count * moved
    return total


def _messages_by_level(exchange: ExchangeTask, interconnect: Interconnect) -> dict[int, int]:
    """Return how many messages of all patterns cross each level; only the topmost one counts."""
    counts = dict.fromkeys(exchange.levels, 0)
    numbers = np.arange(interconnect.accelerators)
    for pattern in interconnect.patterns(exchange.digits, ring=exchange.ring):
        senders, receivers = numbers, interconnect.receivers(pattern)
        # An exchange has its topmost level first.
        for level, number in zip(exchange.levels, exchange.digits, strict=True):
            stride, parts = interconnect.place(number)
            crosses = senders // stride % parts != receivers // stride % parts
            counts[level] += int(crosses.sum())
            senders, receivers = senders[~crosses], receivers[~crosses]
    return counts


def message_bytes(exchange: ExchangeTask, interconnect: Interconnect) -> float:
    """Return the bytes of one message; an exchange's cover all accelerators and rounds."""
    return exchange.bytes / (interconnect.accelerators * exchange.messages)
