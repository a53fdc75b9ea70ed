"""Equivalence classes of accelerators: those of a class run in lockstep.

A ring through 128 nodes of 8, of 8 classes, takes a ninetieth of the time of all accelerators.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.simulator.fairness import RELATIVE_TOLERANCE

if TYPE_CHECKING:
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.hardware.patterns import MessagePattern, MessageRound
    from hypar_opt.hardware.traffic import Indices

_Colours = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Classes:
    """Equivalence classes of accelerators and of channels.

    Parameters
    ----------
    accelerators : (accelerators,)
        The number of each accelerator's class, in the order of their first members.
    channels : (channels,)
        The number of each channel's class.
    """

    accelerators: Indices
    channels: Indices

    @property
    def first(self) -> Indices:
        """The first accelerator of each class."""
        return np.unique(self.accelerators, return_index=True)[1]


def all_differ(interconnect: Interconnect) -> Classes:
    """Return classes of one accelerator, and of one channel, each."""
    return Classes(np.arange(interconnect.accelerators), np.arange(len(interconnect.channel_link)))


def equivalence_classes(
    interconnect: Interconnect,
    rounds: Iterable[MessageRound],
    start: NDArray[np.float64] | None = None,
) -> Classes:
    """Return the classes of a step that sends the messages of some rounds only.

    Two accelerators are equivalent if, in each pattern, they send to and receive from equivalent
    accelerators, in messages of equal latency over equivalent channels. Two channels are equivalent
    if they have equal capacities, and equally many messages of each kind cross them in equal
    shares. Equivalence at one instant implies it at the next, whatever the order of the patterns:
    the run of one accelerator is that of its class.

    Both directions of a ring are one kind if they take part in the same rounds: on a mesh an
    accelerator is equivalent to its mirror images. But if some are their own mirror images, as in
    the middle of an odd line, the two directions have to be distinguished.

    Parameters
    ----------
    start : (accelerators,)
        When each begins, in seconds: equal within a class. By default all begin at once.
    """
    begin = np.zeros(interconnect.accelerators, np.uint64)
    if start is not None and start.any():
        # As exact as all instants are.
        begin = np.round(start / (RELATIVE_TOLERANCE * start.max())).astype(np.uint64)
    appearances = _appearances(rounds)
    kinds = {key: number for number, key in enumerate(dict.fromkeys(appearances.values()))}
    messages = [
        _Messages.of(interconnect, pattern, kinds[key]) for pattern, key in appearances.items()
    ]
    classes = _refined(interconnect, messages, begin)
    members = np.bincount(classes.accelerators)[classes.accelerators]
    if len(kinds) == len(messages) or all(
        (members[pattern.receivers] == members).all() for pattern in messages
    ):
        return classes
    return _refined(
        interconnect,
        [_Messages.of(interconnect, pattern, n) for n, pattern in enumerate(appearances)],
        begin,
    )


_Appearances = tuple[tuple[int, ...], tuple[tuple[int, Fraction], ...]]
"""The digits of a pattern, and in which rounds it has which shares."""


def _appearances(rounds: Iterable[MessageRound]) -> dict[MessagePattern, _Appearances]:
    """Return where each pattern appears; both directions of a ring count as one."""
    places: dict[MessagePattern, list[tuple[int, Fraction]]] = {}
    for number, lanes in enumerate(dict.fromkeys(one.lanes for one in rounds)):
        for lane in lanes:
            places.setdefault(lane.pattern, []).append((number, lane.share))
    return {pattern: (pattern.digits, tuple(shares)) for pattern, shares in places.items()}


def _refined(
    interconnect: Interconnect, kinds: Sequence[_Messages], accelerators: _Colours
) -> Classes:
    """Refine accelerators' colours until they differ no more: the coarsest equitable partition.

    Source: B. Weisfeiler, A. Leman, "The reduction of a graph to canonical form", 1968.
    """
    channels = _mixed(interconnect.float_capacities.view(np.uint64))
    counts = 0, 0
    while True:
        seen, crossed = np.zeros_like(accelerators), np.zeros_like(channels)
        for kind in kinds:
            sent = _mixed(kind.colours(accelerators, channels))
            seen += sent + _mixed(sent[kind.senders])
            np.add.at(crossed, kind.channel, _mixed(sent[kind.message] + kind.weight))
            # Twice as far each time: around a ring, in few passes.
            kind.onward = kind.onward[kind.onward]
        accelerators = _mixed(_mixed(accelerators) + seen)
        channels = _mixed(_mixed(channels) + crossed)
        before, counts = counts, (len(np.unique(accelerators)), len(np.unique(channels)))
        if counts == before:
            return Classes(_numbered(accelerators), _numbered(channels))


@dataclass(eq=False)
class _Messages:
    """The messages of a pattern, one from each accelerator.

    Parameters
    ----------
    own : (accelerators,)
        The initial colours: the kind, and the latency.
    senders, receivers : (accelerators,)
        Who sends to each accelerator, and receives from it.
    onward : (accelerators,)
        Where each accelerator's message arrives if it is passed on repeatedly.
    message, channel, weight : (entries,)
        One entry per message and channel that it crosses.
    """

    own: _Colours
    senders: Indices
    receivers: Indices
    onward: Indices
    message: Indices
    channel: Indices
    weight: _Colours

    @classmethod
    def of(cls, interconnect: Interconnect, pattern: MessagePattern, number: int) -> _Messages:
        traffic, receivers = interconnect.traffic(pattern), interconnect.receivers(pattern)
        latencies = np.array([float(latency) for latency in traffic.latencies])
        share = (traffic.weight / traffic.unit).astype(np.float64)
        return cls(
            own=_mixed(latencies.view(np.uint64) + np.uint64(number))[traffic.latency],
            senders=np.argsort(receivers),
            receivers=receivers,
            onward=receivers,
            message=traffic.message,
            channel=traffic.channel,
            weight=_mixed(share.view(np.uint64)),
        )

    def colours(self, accelerators: _Colours, channels: _Colours) -> _Colours:
        """Return the messages' colours, given those of accelerators and channels."""
        ends = _mixed(accelerators[self.receivers]) + accelerators[self.onward]
        colours = self.own + accelerators + _mixed(ends)
        np.add.at(colours, self.message, _mixed(channels[self.channel] + self.weight))
        return colours


def _mixed(colours: NDArray[Any]) -> _Colours:
    """Return 64-bit colours, equal where these are, such that sums do not collide.

    Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    mixed: _Colours = colours + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)


def _numbered(colours: _Colours) -> Indices:
    """Return the number of each colour, in the order of first appearance."""
    _, first, number = np.unique(colours, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number]
