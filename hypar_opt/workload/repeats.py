"""How often a training step repeats the passes of a micro-batch, and what it exchanges for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.parallelism import SHARDED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.workload.shards import Shards


CONVERTED = -1
"""What is run again with a tensor that is converted again by itself: no layer."""


@dataclass(frozen=True)
class Repeats:
    """How often the passes of a workload's tensors run in a step.

    Parameters
    ----------
    micro_batches
        The equal parts of the batch that pass one after the other; the tensors are those of one.
    sharded
        What data parallelism splits of each node's weights between its parts, where that is
        anything: the optimizer's state (ZeRO-1, as many bytes); gradients, too (ZeRO-2:
        reduce-scattered in every micro-batch, and new weights all-gathered); or weights, too
        (ZeRO-3, FSDP: all-gathered before each layer's forward and backward passes). From some
        level down: within a node, say, and whole in each node.
    again
        The nodes whose forward pass the backward pass runs again, each with the first layer of what
        is run again with it, exchanges included; None for a node that computes again by itself;
        `CONVERTED` for a tensor that several layers read, and that is converted again by itself.
    reduced
        The elements that one of a gradient takes where it is reduced: 2 of single precision beside
        weights of half of it.

    Source: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
    Models", SC20; docs/decisions/0029-memory-of-a-device.md.
    """

    micro_batches: int = 1
    sharded: Mapping[int, Shards] = FrozenDict()
    again: Mapping[int, int | None] = FrozenDict()
    reduced: int = 1

    @cached_property
    def converted_again(self) -> frozenset[int]:
        """The tensors that several layers read, and that are converted again by themselves."""
        return frozenset(node for node, first in self.again.items() if first == CONVERTED)

    def most(self, users: Sequence[int]) -> int:
        """Return an upper bound on how often a step repeats anything that it does once."""
        if self == ONCE:
            return 1
        moved = [int(self.moved(users, level).max(initial=0)) for level in self.begins]
        return max(2 * self.micro_batches, *moved)

    @property
    def computes_once(self) -> bool:
        """Whether each pass runs once, whatever is sharded."""
        return self.micro_batches == 1 and not self.again

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

    @cached_property
    def begins(self) -> tuple[int, ...]:
        """The levels, the topmost first, from which on other things are split than above."""
        firsts = {first for own in self._alike for first in own if first is not None}
        return tuple(sorted({0, *firsts}))

    @cached_property
    def _alike(self) -> Mapping[Shards, Sequence[int]]:
        """The nodes of which the same is split."""
        alike: dict[Shards, list[int]] = {}
        for node, own in self.sharded.items():
            alike.setdefault(own, []).append(node)
        return alike

    def shard(self, node: int, level: int) -> str:
        """Return what is split of a node's weights at a level, of `SHARDED`."""
        return self.sharded[node].at(level) if node in self.sharded else SHARDED[0]

    def splits(self, nodes: int, level: int, *words: str) -> NDArray[np.bool_]:
        """Return of which nodes one of some words is split at a level."""
        split = np.zeros(nodes, bool)
        for own, alike in self._alike.items():
            if own.at(level) in words:
                split[alike] = True
        if SHARDED[0] in words:
            split |= ~self.splits(nodes, level, *SHARDED[1:])
        return split

    def first_levels(self, nodes: int, word: str) -> NDArray[np.int64]:
        """Return from which level on each node splits what a word of `SHARDED` names.

        A level below all others where it does at none.
        """
        found = np.full(nodes, np.iinfo(np.int64).max)
        for own, alike in self._alike.items():
            first = own[SHARDED.index(word) - 1]
            if first is not None:
                found[alike] = first
        return found

    def halves(self, users: Sequence[int], level: int) -> NDArray[np.int64]:
        """Return the reduce-scatters and all-gathers of each node's gradients and weights.

        Across a level, of two parts or more between which the node has copies. An all-reduce is one
        of each. Of weights that several layers use each gathers its own.

        Parameters
        ----------
        users
            The layers that use each node's weights.
        """
        halves = np.zeros(len(users), np.int64)
        for words in COLLECTIVES:
            here = self.splits(len(users), level, *words)
            halves[here] = self.halves_where(users, words[0])[here]
        return halves

    def moved(self, users: Sequence[int], level: int) -> NDArray[np.int64]:
        """Return the elements that the halves of each node move across a level for one of weights.

        Of a part; all-gathers move weights, and all else gradients. Parameters as for `halves`.
        """
        moved = self.halves(users, level)
        if self.reduced == 1:
            return moved
        for word, gradients in (("none", 2), ("state", 1), *((own, None) for own in IN_HALVES)):
            here = self.splits(len(users), level, word)
            more = self.micro_batches if gradients is None else gradients
            moved[here] += (self.reduced - 1) * more
        return moved

    def moved_by_level(self, users: Sequence[int], levels: int) -> list[NDArray[np.int64]]:
        """Return what is moved across each level, or one where all move as much."""
        apart = levels if self.begins[-1] else 1
        return [self.moved(users, level) for level in range(max(apart, 1))]

    def moved_of_all_reduce(self, word: str) -> Fraction:
        """Return what a gradient's all-reduce moves where a word is split, as if of weights.

        Of the first half alone where each micro-batch is reduce-scattered.
        """
        return Fraction(1 + self.reduced, 2) if word == "state" else Fraction(self.reduced)

    def halves_where(self, users: Sequence[int], word: str) -> NDArray[np.int64]:
        """Return them at levels at which a word of `SHARDED` is split."""
        own = np.array(users, np.int64)
        if word == "weights":
            return self.micro_batches * (1 + 2 * own)
        return np.full_like(own, 1 + (self.micro_batches if word in IN_HALVES else 1))


IN_HALVES = ("gradients", "weights")
"""What is split where gradients are reduce-scattered in each micro-batch."""

COLLECTIVES = (("weights",), ("gradients",), ("none", "state"))
"""What is split at the levels that one reduction of a gradient joins, in the order of a step: those
of each micro-batch first, then the all-reduce of a step."""

ONCE = Repeats()
