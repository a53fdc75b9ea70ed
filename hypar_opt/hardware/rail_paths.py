"""The routes between nodes of several network adapters, each on a rail of its own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Self

import numpy as np

from hypar_opt.frozen import Frozen
from hypar_opt.hardware.traffic import Indices, Paths, Traffic, check_crossed, directions

if TYPE_CHECKING:
    from hypar_opt.hardware.links import Link


def rail(number: int) -> str:
    """Return the switch that joins the adapters of all nodes with a number."""
    return f"rail{number}"


@dataclass(frozen=True, eq=False)
class RailPaths(Frozen, Paths):
    """Paths inside a node over its switch, and between nodes over the rail of the sender's adapter.

    A node's accelerators share its adapters in the order of their numbers, so that a message that
    leaves alone gets the bandwidth of one of them.

    Parameters
    ----------
    up, down : (accelerators,)
        The channels from an accelerator to its node's switch, and back.
    out, into : (nodes, adapters)
        The channels from a node's switch to each rail's, and back.
    latencies
        Of a message inside a node, and of one between two, in seconds.
    """

    up: Indices
    down: Indices
    out: Indices
    into: Indices
    latencies: tuple[Fraction, Fraction]

    @classmethod
    def of(cls, links: Sequence[Link], nodes: int, per_node: int, adapters: int) -> Self:
        """Return the paths over the links of `hypar_opt.hardware.topologies.nodes`."""
        channels: dict[tuple[Hashable, Hashable], int] = {}
        for link, forth, back in zip(links, *(c.tolist() for c in directions(links)), strict=True):
            channels[link.source, link.target] = forth
            channels[link.target, link.source] = back
        switches = [f"node{node}" for node in range(nodes)]
        rails = [rail(adapter) for adapter in range(adapters)]
        inside = [(n, switches[n // per_node]) for n in range(nodes * per_node)]
        up = [channels[number, switch] for number, switch in inside]
        down = [channels[switch, number] for number, switch in inside]
        out = [[channels[switch, end] for end in rails] for switch in switches]
        into = [[channels[end, switch] for end in rails] for switch in switches]
        latency = {ends: link.latency for link in links for ends in (link.source, link.target)}
        near, far = latency[0], latency[rail(0)]
        latencies = 2 * near, 2 * near + 2 * far
        return cls(np.array(up), np.array(down), np.array(out), np.array(into), latencies)

    def traffic(self, senders: Indices, receivers: Indices) -> Traffic:
        nodes, adapters = self.out.shape
        per_node = len(self.up) // nodes
        source, target = senders // per_node, receivers // per_node
        adapter = senders % per_node * adapters // per_node
        all_of = np.arange(len(senders))
        remote = np.flatnonzero(source != target)
        check_crossed(2 * (len(all_of) + len(remote)))
        channels = [
            self.up[senders],
            self.down[receivers],
            self.out[source[remote], adapter[remote]],
            self.into[target[remote], adapter[remote]],
        ]
        crosses = (source != target).astype(np.intp)
        kinds, latency = np.unique(crosses, return_inverse=True)
        return Traffic(
            np.concatenate([all_of, all_of, remote, remote]),
            np.concatenate(channels),
            weight=np.broadcast_to(np.int64(1), sum(map(len, channels))),
            unit=1,
            hops=2 + 2 * crosses,
            latency=latency,
            latencies=tuple(self.latencies[kind] for kind in kinds.tolist()),
        )
