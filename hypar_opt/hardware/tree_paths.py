"""The routes of a tree: one path per pair, through the lowest common ancestor."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from hypar_opt.frozen import Frozen
from hypar_opt.hardware.traffic import (
    Indices,
    Paths,
    Traffic,
    check_crossed,
    directions,
    weight_type,
)

if TYPE_CHECKING:
    from hypar_opt.hardware.links import Link


@dataclass(frozen=True, eq=False)
class TreePaths(Frozen, Paths):
    """The paths of a tree, found by climbing from both ends, without a search.

    Parameters
    ----------
    parent, depth : (nodes,)
        Every node's parent and depth, with accelerator 0 as the root; switches follow the
        accelerators.
    up, down : (nodes,)
        The channels from a node to its parent, and back.
    latency : (channels,) integers
        In units of ``1 / per_second`` seconds.
    """

    parent: NDArray[np.int32]
    depth: NDArray[np.int32]
    up: NDArray[np.int32]
    down: NDArray[np.int32]
    latency: NDArray[Any]
    per_second: int

    @classmethod
    def of(cls, nodes: Iterable[Hashable], links: Sequence[Link]) -> Self | None:
        """Return the paths over a tree's links; None if the links do not form a tree."""
        number: dict[Hashable, int] = {node: node for node in nodes if isinstance(node, int)}
        switches = (node for node in nodes if not isinstance(node, int))
        number |= {switch: n for n, switch in enumerate(switches, len(number))}
        if len(links) != len(number) - 1:
            return None
        source, target = (
            np.array([number[end] for end in ends], np.int32)
            for ends in ([link.source for link in links], [link.target for link in links])
        )
        forth, back = directions(links)
        ends, peers = np.concatenate([source, target]), np.concatenate([target, source])
        away, home = np.concatenate([forth, back]), np.concatenate([back, forth])
        parent, depth, up, down = np.full((4, len(number)), -1, np.int32)
        depth[0] = farthest = 0
        # Accelerator 0 is the root; any other root would give the same paths.
        while (reached := (depth[ends] == farthest) & (depth[peers] < 0)).any():
            farthest += 1
            node = peers[reached]
            parent[node], depth[node] = ends[reached], farthest
            up[node], down[node] = home[reached], away[reached]
        if (depth < 0).any():
            return None
        # Integers in a common unit: adding fractions is slow.
        per_second = lcm(*{link.latency.denominator for link in links})
        units = {latency: int(latency * per_second) for latency in {link.latency for link in links}}
        by_link = [units[link.latency] for link in links]
        latency = np.zeros(2 * len(links), weight_type(per_second, sum(by_link)))
        latency[forth] = latency[back] = by_link
        return cls(parent, depth, up, down, latency, per_second)

    def traffic(self, senders: Indices, receivers: Indices) -> Traffic:
        """Climb from both ends, the deeper one first, to their lowest common ancestors."""
        up, down = senders.astype(np.int32), receivers.astype(np.int32)
        message = np.arange(len(up), dtype=np.int32)
        messages, channels, crossed = [message[:0]], [message[:0]], 0
        while len(message):
            # At equal depth both ends climb: they differ, so neither is the common ancestor.
            deeper = self.depth[up] - self.depth[down]
            climbing = (up, deeper >= 0, self.up), (down, deeper <= 0, self.down)
            for ends, climbs, channel in climbing:
                messages.append(message[climbs])
                channels.append(channel[ends[climbs]])
                ends[climbs] = self.parent[ends[climbs]]
                crossed += len(messages[-1])
            check_crossed(crossed)
            unmet = up != down
            message, up, down = message[unmet], up[unmet], down[unmet]
        message, channel = np.concatenate(messages), np.concatenate(channels)
        seconds = np.zeros(len(senders), self.latency.dtype)
        np.add.at(seconds, message, self.latency[channel])
        latencies, latency = np.unique(seconds, return_inverse=True)
        return Traffic(
            message,
            channel,
            # Every share is 1: one number stands for all.
            weight=np.broadcast_to(np.int64(1), len(message)),
            unit=1,
            hops=np.bincount(message, minlength=len(senders)),
            latency=latency,
            latencies=tuple(Fraction(units, self.per_second) for units in latencies.tolist()),
        )
