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
    shard
        What data parallelism splits between its parts, one of `SHARDED`: the optimizer's ``state``
        (ZeRO-1, as many bytes); ``gradients``, too (ZeRO-2: reduce-scattered in every micro-batch,
        and new weights all-gathered); or ``weights``, too (ZeRO-3, FSDP: all-gathered before each
        layer's forward and backward passes).
    again
        The nodes whose forward pass the backward pass runs again, each with the first layer of what
        is run again with it, exchanges included; None for a node that computes again by itself.

    Source: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
    Models", SC20; docs/decisions/0029-memory-of-a-device.md.
    """

    micro_batches: int = 1
    shard: str = "none"
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

    @property
    def in_halves(self) -> bool:
        """Whether gradients are reduce-scattered, and what was is all-gathered by itself."""
        return self.shard in ("gradients", "weights")

    def halves(self, users: Sequence[int]) -> NDArray[np.int64]:
        """Return the reduce-scatters and all-gathers of each node's gradients and weights.

        An all-reduce is one of each. Of weights that several layers use each gathers its own.

        Parameters
        ----------
        users
            The layers that use each node's weights.
        """
        if self.shard == "weights":
            return self.micro_batches * (1 + 2 * np.array(users, np.int64))
        return np.full(len(users), 1 + (self.micro_batches if self.in_halves else 1), np.int64)


ONCE = Repeats()
