"""The routes of a tree: one path a pair, by way of the lowest common ancestor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.hardware.traffic import Indices, Traffic, check_crossed, weight_type

if TYPE_CHECKING:
    import networkx as nx


class TreePaths:
    """The paths of a tree, found by climbing from both ends, without a search.

    Parameters
    ----------
    channels
        The channel from a node to a neighbour.
    latencies
        For every channel, in seconds.
    """

    def __init__(
        self,
        graph: nx.Graph[Any],
        channels: Mapping[tuple[Any, Any], int],
        latencies: Sequence[Fraction],
    ) -> None:
        import networkx as nx

        switches = (node for node in graph if not isinstance(node, int))
        accelerators = len(graph) - sum(not isinstance(node, int) for node in graph)
        number = {node: node for node in range(accelerators)}
        number |= {switch: place for place, switch in enumerate(switches, accelerators)}
        self._parent, self._depth, self._up, self._down = np.zeros((4, len(graph)), np.int32)
        # Accelerator 0 is the root: which node is makes no difference to the paths.
        for above, below in nx.bfs_edges(graph, 0):
            node, parent = number[below], number[above]
            self._parent[node], self._depth[node] = parent, self._depth[parent] + 1
            self._up[node], self._down[node] = channels[below, above], channels[above, below]
        # Integers in a common unit: adding fractions is slow.
        self._unit = lcm(*(latency.denominator for latency in latencies))
        in_units = [int(latency * self._unit) for latency in latencies]
        highest = max(in_units, default=0) * len(graph)
        self._latency = np.array(in_units, weight_type(self._unit, highest))

    def traffic(self, senders: Indices, receivers: Indices) -> Traffic:
        """Climb from both ends, the deeper one first, to their lowest common ancestors."""
        up, down = senders.astype(np.int32), receivers.astype(np.int32)
        message = np.arange(len(up), dtype=np.int32)
        messages, channels, crossed = [message[:0]], [message[:0]], 0
        while len(message):
            # At equal depth both ends climb: they differ, so neither is the common ancestor.
            deeper = self._depth[up] - self._depth[down]
            for ends, climbs, channel in ((up, deeper >= 0, self._up), (down, deeper <= 0, self._down)):
                messages.append(message[climbs])
                channels.append(channel[ends[climbs]])
                ends[climbs] = self._parent[ends[climbs]]
                crossed += len(messages[-1])
            check_crossed(crossed)
            apart = up != down
            message, up, down = message[apart], up[apart], down[apart]
        message, channel = np.concatenate(messages), np.concatenate(channels)
        seconds = np.zeros(len(senders), self._latency.dtype)
        np.add.at(seconds, message, self._latency[channel])
        latencies, latency = np.unique(seconds, return_inverse=True)
        return Traffic(
            message,
            channel,
            # Every share is 1: one number stands for all.
            weight=np.broadcast_to(np.int64(1), len(message)),
            unit=1,
            hops=np.bincount(message, minlength=len(senders)),
            latency=latency,
            latencies=tuple(Fraction(units, self._unit) for units in latencies.tolist()),
        )

    def block(self, bits: Sequence[int]) -> int:
        """Return all bits: no symmetry of a tree is known."""
        del bits
        return -1

    def repeated(self, loads: NDArray[Any], block: int) -> NDArray[Any]:
        """Return the loads, which are those of all messages."""
        del block
        return loads
