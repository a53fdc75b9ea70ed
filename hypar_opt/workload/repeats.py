"""How often a training step repeats the passes of a micro-batch, and what it exchanges for them."""

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
        Whether weights are moved; else gradients, in elements as they are reduced.
    each_micro_batch
        Whether every micro-batch has it; else the step, once.
    passes
        In which passes each layer that uses the weights has one of its own; none if it is one of
        all of them, after the gradient.
    """

    kind: str
    weights: bool = False
    each_micro_batch: bool = False
    passes: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        """The reduce-scatters and all-gathers that it consists of."""
        return 2 if self.kind == "all-reduce" else 1

    def share(self, all_reduce: Any) -> Any:
        """Return what it moves of the elements of an all-reduce."""
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
"""The collectives across a level by what data parallelism splits there, of `SHARDED`.

Source: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC20, section 7."""

SCATTERED_EACH_MICRO_BATCH = tuple(
    word for word, collectives in ZERO_STAGES.items() if collectives[0].each_micro_batch
)
"""What is split where gradients are reduce-scattered in each micro-batch."""

REDUCTION_GROUPS = (
    *((word,) for word in reversed(SCATTERED_EACH_MICRO_BATCH)),
    tuple(word for word in ZERO_STAGES if word not in SCATTERED_EACH_MICRO_BATCH),
)
"""What is split at the levels that one reduction of a gradient joins, in the order of a step: those
of each micro-batch first, then the all-reduce of a step."""

CONVERTED = -1
"""What is run again with a tensor that is converted again by itself: no layer."""

PASS, EPILOGUE, INPUTS = "pass", "epilogue", "inputs"
"""What runs again of a node whose block keeps what its products leave: its forward pass; what
follows its products, an activation or a pool; or no more than the exchanges of its inputs, which
the other two have, too."""


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
        """The tensors that several layers read, and that are converted again by themselves."""
        return frozenset(node for node, first in self.recomputed.items() if first == CONVERTED)

    def upper_bound(self, users: Sequence[int]) -> int:
        """Return an upper bound on how often a step repeats anything that it does once."""
        if self == SINGLE_PASS:
            return 1
        moved = [int(self.moved(users, level).max(initial=0)) for level in self.shard_start_levels]
        return max(2 * self.micro_batches, *moved)

    @property
    def computes_once(self) -> bool:
        """Whether each pass runs once, whatever is sharded."""
        computed = self.recomputed.keys() - self.converted_again
        return self.micro_batches == 1 and not computed and not self._of_op(PASS)

    def passes(self, nodes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how often each node's forward and backward passes compute."""
        backward = np.full(nodes, self.micro_batches, np.int64)
        forward = backward.copy()
        forward[[*self.recomputed, *self._of_op(PASS)]] *= 2
        return forward, backward

    def epilogues(self, nodes: int) -> NDArray[np.int64]:
        """Return how often what follows each node's products runs beside its forward passes."""
        times = np.zeros(nodes, np.int64)
        times[self._of_op(EPILOGUE)] = self.micro_batches
        return times

    def forward_exchanges(self, nodes: int, *, inputs: bool) -> NDArray[np.int64]:
        """Return how often each node's forward exchanges take place.

        Parameters
        ----------
        inputs
            Of what it reads; else of what it computes: statistics, and partial sums.
        """
        times = np.full(nodes, self.micro_batches, np.int64)
        again = [node for node, first in self.recomputed.items() if first is not None]
        times[[*again, *(self.by_op if inputs else self._of_op(PASS))]] *= 2
        return times

    def counts(self, nodes: int) -> list[NDArray[np.int64]]:
        """Return all that is repeated of each node, but what is split of its weights."""
        exchanges = (self.forward_exchanges(nodes, inputs=inputs) for inputs in (True, False))
        return [*self.passes(nodes), self.epilogues(nodes), *exchanges]

    def _of_op(self, what: str) -> list[int]:
        return [node for node, word in self.by_op.items() if word == what]

    @cached_property
    def shard_start_levels(self) -> tuple[int, ...]:
        """The levels, the topmost first, from which on other things are split than above."""
        firsts = {
            first for shards in self._nodes_by_shards for first in shards if first is not None
        }
        return tuple(sorted({0, *firsts}))

    @cached_property
    def _nodes_by_shards(self) -> Mapping[Shards, Sequence[int]]:
        """The nodes by what is split of their weights."""
        nodes: dict[Shards, list[int]] = {}
        for node, shards in self.sharded.items():
            nodes.setdefault(shards, []).append(node)
        return nodes

    def shard(self, node: int, level: int) -> str:
        """Return what is split of a node's weights at a level, of `SHARDED`."""
        return self.sharded[node].at(level) if node in self.sharded else SHARDED[0]

    def splits(self, nodes: int, level: int, word: str) -> NDArray[np.bool_]:
        """Return the nodes of whose weights a level splits what a word of `SHARDED` names."""
        split = np.full(nodes, word == SHARDED[0])
        for shards, members in self._nodes_by_shards.items():
            split[members] = shards.at(level) == word
        return split

    def state_start_levels(self, nodes: int) -> NDArray[np.int64]:
        """Return from which level on each node splits the optimizer's state.

        A level below all others where it does at none.
        """
        levels = np.full(nodes, np.iinfo(np.int64).max)
        for shards, members in self._nodes_by_shards.items():
            if shards.state is not None:
                levels[members] = shards.state
        return levels

    def times(self, collective: GradientCollective, users: Any = 1) -> Any:
        """Return how often a step has a collective, of weights that so many layers use."""
        count = len(collective.passes) * users if collective.passes else 1
        return count * self.micro_batches if collective.each_micro_batch else count

    def elements(self, collective: GradientCollective) -> int:
        """Return how many elements of weights one that a collective moves is as large as."""
        return 1 if collective.weights else self.reduced

    def moved(self, users: Sequence[int], level: int) -> NDArray[np.int64]:
        """Return the elements that each node's collectives move across a level for one of weights.

        Of a part.

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
