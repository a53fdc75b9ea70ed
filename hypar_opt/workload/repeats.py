"""How often a training step repeats the passes of a micro-batch, and what it exchanges for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.frozen import FrozenDict

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Repeats:
    """How often the passes of a workload's tensors run in a step.

    Parameters
    ----------
    micro_batches
        The equal parts of the batch that pass one after the other; the tensors are those of one.
    sharded
        What data parallelism splits of each node's weights between its parts, of `SHARDED`, where
        that is not ``none``: the optimizer's ``state`` (ZeRO-1, as many bytes); ``gradients``, too
        (ZeRO-2: reduce-scattered in every micro-batch, and new weights all-gathered); or
        ``weights``, too (ZeRO-3, FSDP: all-gathered before each layer's forward and backward
        passes).
    again
        The nodes whose forward pass the backward pass runs again, each with the first layer of what
        is run again with it, exchanges included; None for a node that computes again by itself.

    Source: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
    Models", SC20; docs/decisions/0029-memory-of-a-device.md.
    """

    micro_batches: int = 1
    sharded: Mapping[int, str] = FrozenDict()
    again: Mapping[int, int | None] = FrozenDict()

    def most(self, users: Sequence[int]) -> int:
        """Return an upper bound on how often a step repeats anything that it does once."""
        if self == ONCE:
            return 1
        return max(2 * self.micro_batches, int(self.halves(users).max(initial=0)))

    def passes(self, nodes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how often each node's forward and backward passes compute."""
        backward = np.full(nodes, self.micro_batches, np.int64)
        forward = backward.copy()
        forward[[*self.again]] *= 2
        return forward, backward

    def forward_exchanges(self, nodes: int) -> NDArray[np.int64]:
        """Return how often each node's forward exchanges take place."""
        times = np.full(nodes, self.micro_batches, np.int64)
        times[[node for node, first in self.again.items() if first is not None]] *= 2
        return times

    def shard(self, node: int) -> str:
        """Return what is split of a node's weights."""
        return self.sharded.get(node, "none")

    def splits(self, nodes: int, *words: str) -> NDArray[np.bool_]:
        """Return of which nodes one of some words is split."""
        split = np.zeros(nodes, bool)
        split[[node for node, word in self.sharded.items() if word in words]] = True
        return split

    def in_halves(self, nodes: int) -> NDArray[np.bool_]:
        """Return whether gradients are reduce-scattered, and what was is all-gathered by itself."""
        return self.splits(nodes, *IN_HALVES)

    def halves(self, users: Sequence[int]) -> NDArray[np.int64]:
        """Return the reduce-scatters and all-gathers of each node's gradients and weights.

        An all-reduce is one of each. Of weights that several layers use each gathers its own.

        Parameters
        ----------
        users
            The layers that use each node's weights.
        """
        own, nodes = np.array(users, np.int64), len(users)
        once = 1 + np.where(self.in_halves(nodes), self.micro_batches, 1)
        whole = self.splits(nodes, "weights")
        return np.where(whole, self.micro_batches * (1 + 2 * own), once).astype(np.int64)


IN_HALVES = ("gradients", "weights")
"""What is split where gradients are reduce-scattered in each micro-batch."""

ONCE = Repeats()
