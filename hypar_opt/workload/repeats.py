"""How often a training step repeats passes and collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.parallelism import SHARDED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.workload.shards import Shards


class GradientCollective(NamedTuple):
    """A collective of a node's gradient, or of its weights, across a level.

    Parameters
    ----------
    kind
        ``all-reduce``, or one of its halves: ``reduce-scatter`` or ``all-gather``.
    weights
        Whether it moves weights; else gradients, in the elements in which they are reduced.
    each_micro_batch
        Whether it takes place in every micro-batch, rather than once a step.
    passes
        The passes in which each layer that uses the weights has a collective of its own; empty if
        all users have one together, after the gradient.
    """

    kind: str
    weights: bool = False
    each_micro_batch: bool = False
    passes: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        """The number of reduce-scatters and all-gathers that it consists of."""
        return 2 if self.kind == "all-reduce" else 1

    def share(self, all_reduce: Any) -> Any:
        """Return the share of an all-reduce's elements that it moves."""
        return all_reduce if self.rounds == 2 else all_reduce // 2


_SCATTERED = GradientCollective("reduce-scatter", each_micro_batch=True)
_UPDATED = GradientCollective("all-gather", weights=True)

ZERO_STAGES: Mapping[str, tuple[GradientCollective, ...]] = FrozenDict(
    {
        "none": (GradientCollective("all-reduce"),),
        "state": (GradientCollective("reduce-scatter"), _UPDATED),
        "gradients": (_SCATTERED, _UPDATED),
        "weights": (
            _SCATTERED,
            GradientCollective(
                "all-gather", weights=True, each_micro_batch=True, passes=("forward", "backward")
            ),
        ),
    }
)
"""The collectives across a level, by what data parallelism shards there (of `SHARDED`).

Source: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC20, section 7."""

SCATTERED_EACH_MICRO_BATCH = tuple(
    word for word, collectives in ZERO_STAGES.items() if collectives[0].each_micro_batch
)
"""The shardings with which every micro-batch reduce-scatters gradients."""

REDUCTION_GROUPS = (
    *((word,) for word in reversed(SCATTERED_EACH_MICRO_BATCH)),
    tuple(word for word in ZERO_STAGES if word not in SCATTERED_EACH_MICRO_BATCH),
)
"""The shardings of levels whose gradient reductions are joined, in the order of a step: those of
each micro-batch first, then the all-reduce once a step."""

CONVERTED = -1
"""Marks a shared tensor that is gathered again by itself: no layer is recomputed with it."""

PASS, EPILOGUE, INPUTS = "pass", "epilogue", "inputs"
"""What is recomputed of a node whose block keeps its products' results: its forward pass; what
follows its products, an activation or a pool; or only the exchanges of its inputs, which the other
two include."""


@dataclass(frozen=True)
class Repeats:
    """How often the passes of a workload's tensors run in a step.

    Parameters
    ----------
    micro_batches
        The equal parts of the batch that pass one after the other; the tensors are those of one.
    sharded
        What data parallelism splits of each node's weights between its parts, where that is
        anything: the optimizer's state (ZeRO-1); gradients, too (ZeRO-2); or weights, too (ZeRO-3,
        FSDP), with the collectives of `ZERO_STAGES`. From some level down: within a node, say, and
        whole in each node.
    recomputed
        The nodes whose forward pass the backward pass runs again, each with the first layer of what
        is run again with it, exchanges included; None for a node that computes again by itself;
        `CONVERTED` for a tensor that several layers read, and that is converted again by itself.
    reduced
        The elements that one of a gradient takes where it is reduced: 2 of single precision beside
        weights of half of it.
    by_op
        What runs again of nodes in blocks that keep what their products leave: `PASS`, `EPILOGUE`
        or `INPUTS`. The scores of attention may be computed again besides, as `recomputed` says.
    blocks
        The layers of each of these blocks, by node.
    holders
        The parts of H1 that have each node's weights, where others have none: stages that share
        them, each layer that uses them in one.

    Source: docs/memory.md.
    """

    micro_batches: int = 1
    sharded: Mapping[int, Shards] = FrozenDict()
    recomputed: Mapping[int, int | None] = FrozenDict()
    reduced: int = 1
    by_op: Mapping[int, str] = FrozenDict()
    blocks: tuple[tuple[int, ...], ...] = ()
    holders: Mapping[int, tuple[int, ...]] = FrozenDict()

    @cached_property
    def converted_again(self) -> frozenset[int]:
        """The shared tensors that are gathered again by themselves."""
        return frozenset(node for node, first in self.recomputed.items() if first == CONVERTED)

    def upper_bound(self, users: Sequence[int]) -> int:
        """Return an upper bound on how often a step repeats any one pass or collective."""
        if self == SINGLE_PASS:
            return 1
        moved = [int(self.moved(users, level).max(initial=0)) for level in self.shard_start_levels]
        return max(2 * self.micro_batches, *moved)

    @property
    def computes_once(self) -> bool:
        """Whether each pass runs once; sharding may still add collectives."""
        computed = self.recomputed.keys() - self.converted_again
        return self.micro_batches == 1 and not computed and not self._op_counts(PASS)

    def passes(self, nodes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how often each node's forward and backward passes compute."""
        backward = np.full(nodes, self.micro_batches, np.int64)
        forward = backward.copy()
        forward[[*self.recomputed, *self._op_counts(PASS)]] *= 2
        return forward, backward

    def epilogues(self, nodes: int) -> NDArray[np.int64]:
        """Return how often each node's epilogue runs in addition to its forward passes."""
        times = np.zeros(nodes, np.int64)
        times[self._op_counts(EPILOGUE)] = self.micro_batches
        return times

    def forward_exchanges(self, nodes: int, *, inputs: bool) -> NDArray[np.int64]:
        """Return how often each node's forward exchanges take place.

        Parameters
        ----------
        inputs
            Count the exchanges of inputs; else those of results: statistics and partial sums.
        """
        times = np.full(nodes, self.micro_batches, np.int64)
        again = [node for node, first in self.recomputed.items() if first is not None]
        times[[*again, *(self.by_op if inputs else self._op_counts(PASS))]] *= 2
        return times

    def counts(self, nodes: int) -> list[NDArray[np.int64]]:
        """Return every count of each node, apart from its sharding."""
        exchanges = (self.forward_exchanges(nodes, inputs=inputs) for inputs in (True, False))
        return [*self.passes(nodes), self.epilogues(nodes), *exchanges]

    def _op_counts(self, what: str) -> list[int]:
        return [node for node, word in self.by_op.items() if word == what]

    @cached_property
    def shard_start_levels(self) -> tuple[int, ...]:
        """The levels at which the sharding changes, topmost first."""
        firsts = {
            first for shards in self._nodes_by_shards for first in shards if first is not None
        }
        return tuple(sorted({0, *firsts}))

    @cached_property
    def _nodes_by_shards(self) -> Mapping[Shards, Sequence[int]]:
        """The nodes by sharding."""
        nodes: dict[Shards, list[int]] = {}
        for node, shards in self.sharded.items():
            nodes.setdefault(shards, []).append(node)
        return nodes

    def shard(self, node: int, level: int) -> str:
        """Return a node's sharding at a level, one of `SHARDED`."""
        return self.sharded[node].at(level) if node in self.sharded else SHARDED[0]

    def splits(self, nodes: int, level: int, word: str) -> NDArray[np.bool_]:
        """Return the nodes with a given sharding, one of `SHARDED`, at a level."""
        split = np.full(nodes, word == SHARDED[0])
        for shards, members in self._nodes_by_shards.items():
            split[members] = shards.at(level) == word
        return split

    def state_start_levels(self, nodes: int) -> NDArray[np.int64]:
        """Return the level from which on each node shards the optimizer's state.

        The number of levels if it does at none.
        """
        levels = np.full(nodes, np.iinfo(np.int64).max)
        for shards, members in self._nodes_by_shards.items():
            if shards.state is not None:
                levels[members] = shards.state
        return levels

    def times(self, collective: GradientCollective, users: Any = 1) -> Any:
        """Return how often a step runs a collective, for weights with a number of users."""
        count = len(collective.passes) * users if collective.passes else 1
        return count * self.micro_batches if collective.each_micro_batch else count

    def elements(self, collective: GradientCollective) -> int:
        """Return the size of an element that a collective moves, in elements of weights."""
        return 1 if collective.weights else self.reduced

    def moved(self, users: Sequence[int], level: int) -> NDArray[np.int64]:
        """Return the elements moved across a level per element of weights of a part.

        Parameters
        ----------
        users
            The layers that use each node's weights.
        """
        counts = np.array(users, np.int64)
        moved = np.zeros_like(counts)
        for word, collectives in ZERO_STAGES.items():
            at = self.splits(len(counts), level, word)
            for collective in collectives:
                moved[at] += (
                    collective.rounds
                    * self.elements(collective)
                    * self.times(collective, counts[at])
                )
        return moved


SINGLE_PASS = Repeats()
