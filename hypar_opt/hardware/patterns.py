"""Patterns of messages: which accelerator each accelerator sends to, and in which rounds."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import NamedTuple


class DigitPlace(NamedTuple):
    """The place of a digit in accelerators' numbers: it is ``number // stride % parts``."""

    stride: int
    parts: int


class MessagePattern(NamedTuple):
    """A message of every accelerator to another of its group.

    Parameters
    ----------
    digits
        The digits in which the numbers of a group's accelerators differ, in ascending order; from
        0, the least significant. Where levels are halves, these are bits.
    shift
        The distance, by number in the group, of the receiver; the first follows the last.
    """

    digits: tuple[int, ...]
    shift: int = 1


class Lane(NamedTuple):
    """The messages of a round that are of one pattern.

    Parameters
    ----------
    share
        The fraction of all bytes that an accelerator sends in the exchange.
    """

    pattern: MessagePattern
    share: Fraction


class MessageRound(NamedTuple):
    """Messages that every accelerator sends at once; it goes on when all have arrived.

    Parameters
    ----------
    times
        How often, in a row.
    """

    lanes: tuple[Lane, ...]
    times: int = 1


class Group(NamedTuple):
    """The digits of a ring, and its accelerators."""

    digits: tuple[int, ...]
    accelerators: int


@lru_cache(maxsize=4096)
def between_parts(digit: int, parts: int, times: int) -> tuple[MessageRound, ...]:
    """Return the rounds in which every accelerator sends to each other part of a level in turn."""
    share = Fraction(1, times * (parts - 1))
    once = [
        MessageRound((Lane(MessagePattern((digit,), shift), share),)) for shift in range(1, parts)
    ]
    return tuple(once) * times


@lru_cache(maxsize=4096)
def around_rings(rings: tuple[Group, ...], times: int, at_once: bool) -> tuple[MessageRound, ...]:
    """Return the rounds of a reduce-scatter or an all-gather, or of both, around rings.

    Around one ring every accelerator sends to the next, as often as there are others. At once all
    rings, one for each dimension of a torus, are used in both directions: each lane has a part of
    the tensor, and takes the dimensions in an order of its own.

    Parameters
    ----------
    times
        2 to reduce-scatter and then gather the same way back, else 1.
    at_once
        If not, there is one ring.

    Source: P. Sack and W. Gropp, "Collective algorithms for multiported torus networks", ACM TOPC
    1(2), 2015.
    """
    count = len(rings)
    if not at_once:
        (ring,) = rings
        messages = times * (ring.accelerators - 1)
        return (
            MessageRound((Lane(MessagePattern(ring.digits), Fraction(1, messages)),), messages),
        )
    everyone = prod(ring.accelerators for ring in rings)
    # A message's part of the tensor, relative to what an accelerator sends in all rounds.
    share = Fraction(everyone, times * (everyone - 1))
    parts = [Fraction(1, 2 * count)] * count
    rounds: list[MessageRound] = []
    for phase in range(count):
        orders = [rings[(first + phase) % count] for first in range(count)]
        parts = [part / order.accelerators for part, order in zip(parts, orders, strict=True)]
        # Smaller rings are done first.
        done = 0
        for size in sorted({order.accelerators for order in orders}):
            lanes = tuple(
                Lane(MessagePattern(order.digits, shift), part * share)
                for part, order in zip(parts, orders, strict=True)
                if order.accelerators >= size
                for shift in (1, order.accelerators - 1)
            )
            rounds.append(MessageRound(lanes, size - 1 - done))
            done = size - 1
    return tuple(rounds + rounds[::-1] * (times - 1))


def messages_in(rounds: Sequence[MessageRound]) -> int:
    """Return the messages that an accelerator sends."""
    return sum(round_.times * len(round_.lanes) for round_ in rounds)
