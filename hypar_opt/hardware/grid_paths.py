"""The routes of a grid, by coordinates: equal displacements have equal routes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import factorial, lcm, prod
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hypar_opt.frozen import Frozen
from hypar_opt.hardware.traffic import (
    Block,
    Indices,
    Paths,
    Traffic,
    check_crossed,
    directions,
    weight_type,
)

if TYPE_CHECKING:
    from hypar_opt.hardware.links import Link
    from hypar_opt.hardware.patterns import DigitPlace

FORWARD, BACKWARD = 0, 1
"""Directions along a dimension: to the neighbour of the next higher coordinate, or lower."""


class _Crossed(NamedTuple):
    """Channels that a message crosses, relative to its sender.

    Parameters
    ----------
    offsets : (channels, dimensions)
        From the sender to where the channel begins.
    ways : (channels,)
        The channel's dimension and direction, as one number.
    shares
        The fraction of a byte that crosses each.
    """

    offsets: NDArray[np.int32]
    ways: NDArray[np.int32]
    shares: list[Fraction]


@dataclass(frozen=True, eq=False)
class GridPaths(Frozen, Paths):
    """All shortest paths of a torus or a mesh, of any number of dimensions.

    Parameters
    ----------
    shape
        Accelerators along every dimension; their numbers are row-major.
    wrapped
        Whether the ends of the dimensions are linked.
    channels : (accelerators, 2 * dimensions)
        The channels from an accelerator to its neighbours, forward and backward along every
        dimension; -1 where there is none.
    latency
        Seconds of any link.
    """

    shape: tuple[int, ...]
    wrapped: bool
    channels: NDArray[np.int32]
    latency: Fraction

    @classmethod
    def of(cls, shape: Sequence[int], links: Sequence[Link]) -> Self | None:
        """Return the paths over a grid's links; None if they are unequal, or no grid.

        A topology may inherit a shape but change the graph.
        """
        latencies = {link.latency for link in links}
        ends = [(link.source, link.target) for link in links]
        if len(latencies) != 1 or not all(isinstance(end, int) for pair in ends for end in pair):
            return None
        source, target = np.array(ends, np.int32).T
        sizes = np.array(shape, np.int32)[:, None]
        steps = _coordinates(target, shape) - _coordinates(source, shape)
        lengths = np.abs(steps)
        wrapped = bool((lengths > 1).any())
        neighbours = (lengths == 1) | (lengths == sizes - 1) & (sizes > 1)
        if ((steps != 0).sum(axis=0) != 1).any() or (neighbours != (steps != 0)).any():
            return None
        # All are distinct links of the grid, so it is complete if their number is right.
        count = prod(shape)
        per_line = [size if wrapped and size > 2 else size - 1 for size in shape]
        if len(links) != sum(count // size * n for size, n in zip(shape, per_line, strict=True)):
            return None
        forth, back = directions(links)
        channels = np.full((count, 2 * len(shape)), -1, np.int32)
        dimension, along = steps.T.nonzero()[1], steps.sum(axis=0)
        forward = (along == 1) | (along < -1)
        # In a dimension of two, each accelerator is the other's next in both directions.
        pair = sizes[dimension, 0] == 2
        for way, runs in ((FORWARD, forward | pair), (BACKWARD, ~forward | pair)):
            channels[source[runs], 2 * dimension[runs] + way] = forth[runs]
            channels[target[runs], 2 * dimension[runs] + 1 - way] = back[runs]
        return cls(tuple(shape), wrapped, channels, latencies.pop())

    def traffic(self, senders: Indices, receivers: Indices) -> Traffic:
        """Return the routes of messages; equal displacements have equal routes."""
        start = _coordinates(senders, self.shape)
        moves = self._displacements(_coordinates(receivers, self.shape) - start)
        displacements, of_message = np.unique(moves, axis=1, return_inverse=True)
        routes = [
            self._crossed(tuple(displacement), int(messages))
            for displacement, messages in zip(
                displacements.T.tolist(), np.bincount(of_message), strict=True
            )
        ]
        unit = lcm(*(share.denominator for route in routes for share in route.shares))
        messages, channels, weights = [], [], []
        for number, route in enumerate(routes):
            members = np.flatnonzero(of_message == number).astype(np.int32)
            messages.append(np.repeat(members, len(route.ways)))
            channels.append(self._from(senders[members], start[:, members], route))
            units = [int(share * unit) for share in route.shares]
            weight = np.array(units, weight_type(unit, sum(units) * len(senders)))
            weights.append(np.broadcast_to(weight, (len(members), len(weight))).reshape(-1))
        # All links have one latency, so a message has as many of it as hops.
        counts, latency = np.unique(np.abs(moves).sum(axis=0), return_inverse=True)
        return Traffic(
            np.concatenate(messages),
            np.concatenate(channels),
            np.concatenate(weights),
            unit,
            hops=counts[latency],
            latency=latency,
            latencies=tuple(hops * self.latency for hops in counts.tolist()),
        )

    def block(self, digits: Sequence[DigitPlace]) -> Block:
        """Return the whole of each dimension that digits are in, up to the highest of these.

        An aligned block of these extents is itself a grid, which the exchange leaves only over
        a whole dimension's wrap-around link.
        """
        extents, below, matched = [], 1, 0
        for size in reversed(self.shape):
            # Of a dimension, or of whole blocks of its neighbours.
            tops = [
                digit.stride * digit.parts // below
                for digit in digits
                if digit.stride % below == 0 and below * size % (digit.stride * digit.parts) == 0
            ]
            matched += len(tops)
            extents.append(max(tops, default=1))
            below *= size
        # A digit of several dimensions: no symmetry is known.
        return tuple(reversed(extents)) if matched == len(digits) else ()

    def inside(self, numbers: Indices, block: Block) -> NDArray[np.bool_]:
        if not block:
            return super().inside(numbers, block)
        extents = np.array(block, np.int32)[:, None]
        inside: NDArray[np.bool_] = np.all(_coordinates(numbers, self.shape) < extents, axis=0)
        return inside

    def repeated(self, loads: NDArray[Any], block: Block) -> NDArray[Any]:
        """Return the load of every channel: that of the same channel of the block."""
        # The last entry stands for the channel -1, which carries nothing.
        with_none = np.append(loads, 0)
        everywhere = np.zeros_like(with_none)
        position = _coordinates(np.arange(len(self.channels)), self.shape)
        extents = np.array(block or self.shape, np.int32)[:, None]
        representative = np.ravel_multi_index(tuple(position % extents), self.shape)
        everywhere[self.channels] = with_none[self.channels[representative]]
        return everywhere[:-1]

    def _displacements(self, steps: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the shortest displacements; of two opposite ones, the positive one."""
        if not self.wrapped:
            return steps
        sizes = np.array(self.shape, np.int32)[:, None]
        below_half = (sizes - 1) // 2
        return (steps + below_half) % sizes - below_half

    def _crossed(self, displacement: tuple[int, ...], messages: int) -> _Crossed:
        """Return the channels of a displacement's shortest paths."""
        lengths = [abs(step) for step in displacement]
        directions = [
            # Half of a ring is as far in either direction.
            (1, -1) if self.wrapped and size == 2 * length > 2 else (1 if step > 0 else -1,)
            for step, length, size in zip(displacement, lengths, self.shape, strict=True)
        ]
        boxes = prod(map(len, directions))
        corners = prod(length + 1 for length in lengths)
        check_crossed(sum(corners * n // (n + 1) for n in lengths) * boxes * messages)
        shares: dict[tuple[tuple[int, ...], int], Fraction] = defaultdict(Fraction)
        for signs in product(*directions):
            for position, dimension, share in _box(lengths):
                offset = tuple(
                    sign * along % size
                    for sign, along, size in zip(signs, position, self.shape, strict=True)
                )
                direction = 2 * dimension + (FORWARD if signs[dimension] > 0 else BACKWARD)
                # Paths that turn at different corners share what they cross before.
                shares[offset, direction] += share / boxes
        return _Crossed(
            np.array([offset for offset, _ in shares], np.int32),
            np.array([direction for _, direction in shares], np.int32),
            list(shares.values()),
        )

    def _from(self, senders: Indices, start: NDArray[np.int32], route: _Crossed) -> Indices:
        """Return the channels of messages of one displacement, message by message."""
        node = np.repeat(senders.astype(np.int32)[:, None], len(route.ways), axis=1)
        stride = 1
        for dimension in reversed(range(len(self.shape))):
            size, offsets = self.shape[dimension], route.offsets[:, dimension]
            if offsets.any():
                coordinate = start[dimension][:, None]
                node += ((coordinate + offsets) % size - coordinate) * np.int32(stride)
            stride *= size
        return self.channels[node, route.ways].reshape(-1)


def _coordinates(numbers: Indices, shape: Sequence[int]) -> NDArray[np.int32]:
    """Return accelerators' coordinates, ``(dimensions, accelerators)``."""
    return np.array(np.unravel_index(numbers, shape), np.int32)


def _box(lengths: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int, Fraction]]:
    """Yield the steps of all monotone paths through a box: position, dimension and share."""
    total = _orders(lengths)
    for position in product(*(range(length + 1) for length in lengths)):
        before = _orders(position)
        for dimension, length in enumerate(lengths):
            if position[dimension] < length:
                remaining = [n - at for n, at in zip(lengths, position, strict=True)]
                remaining[dimension] -= 1
                yield position, dimension, Fraction(before * _orders(remaining), total)


def _orders(steps: Sequence[int]) -> int:
    """Return the number of orders in which steps along dimensions can be taken."""
    return factorial(sum(steps)) // prod(map(factorial, steps))
