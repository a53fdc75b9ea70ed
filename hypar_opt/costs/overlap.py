"""Time with overlap, from below: a price of what the program does, and of what its queue hides.

A step has a program, which runs in its order, and a queue of exchanges that nothing in the program
waits for: of gradients, and of weights. Whatever the program releases into the queue ends after
it, one after the other. So for each place in the program the step takes no less than the program
up to there and all that is released from there on; nor than any mean of these. Weighted by how
often a place comes before, that is a price l of the queue, from 0 to 1, that never falls along the
program: what the program does where l is the price costs 1 - l of its time, and what it releases
there l of its own. Each is a sum over nodes and boundaries, as any cost is.

Source: L. R. Ford, D. R. Fulkerson, "Flows in Networks", 1962, chapter II: a longest path is at
least any unit flow.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hypar_opt.costs.buckets import buckets_of
from hypar_opt.costs.physical import finest
from hypar_opt.costs.time import TimeCost
from hypar_opt.integers import exact_dtype
from hypar_opt.sharding.passes import Phase
from hypar_opt.step.states import added_up
from hypar_opt.workload.early_stop import needed_again
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.recomputation import repeated
from hypar_opt.workload.repeats import COLLECTIVES, IN_HALVES, ONCE

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from hypar_opt.costs.base import CostModel, Symmetries
    from hypar_opt.hardware.array import Array
    from hypar_opt.integers import Integers
    from hypar_opt.step.operations import Collective
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload

PRICE = 64
"""The parts of a price of 1."""


@dataclass(frozen=True, kw_only=True)
class OverlapTime(TimeCost):
    """A lower bound on the seconds of a step whose exchanges of gradients and weights overlap.

    It holds of accelerators in lockstep. The charges of a plan add up to ``scale`` times the bound.
    Weights that are gathered are free, wherever they are: they may be released earlier than what
    reads them is computed.

    Parameters
    ----------
    prices : (nodes,)
        The price of the queue, of `PRICE`, from each node's backward pass on: no less than that of
        any node whose pass is before. Of shared tensors as of their writers. None where all that
        the queue does is free, and the program alone is charged.
    released : (nodes,)
        The price as each node's gradient is released: with the bucket that it is part of.
    waits
        Whether exchanges of the program are waited for; else each may run beside a computation, as
        around rings of context parallelism, and is free.
    again
        What runs again, in place of what the workload says: less of it, where a step stops early.
    """

    prices: tuple[int, ...] | None = None
    released: tuple[int, ...] = ()
    scale: int = 1
    waits: bool = True
    again: Mapping[int, int | None] | None = None

    @classmethod
    def of(
        cls,
        cost: TimeCost,
        workload: Workload,
        prices: Sequence[int] | None = None,
        *,
        waits: bool = True,
    ) -> Self:
        """Return the bound on what another cost charges where nothing overlaps."""
        kept: dict[str, Any] = {field.name: getattr(cost, field.name) for field in fields(TimeCost)}
        kept["waits"] = waits
        if prices is None:
            return cls(**kept | {"latencies": None})
        released = [*prices]
        # Those that are scattered leave their buckets, which then are complete earlier.
        if not _scattered(workload):
            for bucket in buckets_of(repeated(workload, ONCE), cost.bucket_elements):
                for node in bucket:
                    released[node] = prices[bucket[-1]]
        # Before the last micro-batch nothing is hidden for certain.
        scale = PRICE * workload.repeats.micro_batches
        arguments: dict[str, Any] = {
            "prices": tuple(prices),
            "released": tuple(released),
            "scale": scale,
        }
        most = scale * cost.upper_bound(workload)
        return cls(**kept, **arguments).in_parts(min(cost.per_unit, finest(most)), workload)

    def in_parts(self, per_unit: int | None, workload: Workload) -> Self:
        cost = super().in_parts(per_unit, workload)
        return replace(cost, largest=cost.largest * cost.scale)

    @property
    def is_additive(self) -> bool:
        """Whether charges add up: to the bound, in which latencies of buckets are shared out."""
        return True

    def node(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        return super().node(self._running(workload), nodes, states)

    def edge(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> list[Integers]:
        return super().edge(self._running(workload), boundaries, sources, targets)

    def _running(self, workload: Workload) -> Workload:
        if self.again is None:
            return workload
        return repeated(workload, replace(workload.repeats, again=self.again))

    def charges(
        self,
        operations: Iterable[Collective],
        workload: Workload,
        nodes: Indices,
        shape: tuple[int, ...],
        levels: int,
    ) -> list[Integers]:
        alike: dict[tuple[Phase, bool], list[Collective]] = {}
        for operation in operations:
            phase = operation.phase
            once = False
            if phase is Phase.GRADIENT:
                if self.prices is None or operation.tensor == "weights":
                    continue
                once = COLLECTIVES[operation.group][0] not in IN_HALVES
                # What is scattered may be so with the rest of its block, at one latency for all.
                alone = np.isin(nodes, _scattered(workload), invert=True)
                operation = operation._replace(times=operation.times * alone)
            elif not self.waits:
                continue
            alike.setdefault((phase, once), []).append(operation)
        rows = self.uncharged(levels)
        often: Integers | int
        for (phase, once), own in alike.items():
            if phase is Phase.GRADIENT:
                often = self._at(self.released, nodes)
                often = often * workload.repeats.micro_batches if once else often
            else:
                often = self._rest(phase, workload, nodes)
            charged = super().charges(own, workload, nodes, shape, levels)
            rows = [row + more * often for row, more in zip(rows, charged, strict=True)]
        return rows

    def compute(self, workload: Workload, nodes: Indices, states: States) -> Integers:
        if self.work is None or self.prices is None:
            return super().compute(workload, nodes, states)
        asked = workload, nodes, states, self.per_unit * self.price
        update: Integers = self.work.charges_of_update(*asked).astype(self._dtype)
        # After all gradients, and once in a step.
        rest = (PRICE - max(self.prices)) * workload.repeats.micro_batches
        amounts: list[Integers] = []
        if Phase.GRADIENT in self.communication.phases:
            amounts.append(update * rest)
        for phase in self.communication.phases:
            charged: Integers = self.work.charges(*asked, (phase,)).astype(self._dtype)
            own = charged - update if phase is Phase.GRADIENT else charged
            amounts.append(own * self._rest(phase, workload, nodes))
        return added_up(amounts)

    def _at(self, prices: Sequence[int], nodes: Indices) -> Integers:
        node_prices: Integers = np.array(prices, self._dtype)[nodes]
        return node_prices

    def _rest(self, phase: Phase, workload: Workload, nodes: Indices) -> Integers | int:
        """Return what the program is charged in a pass over all micro-batches.

        The price hides a part of the last one. Where forward passes run again, every second of
        them may be in the backward pass, and half the price is hidden. A boundary has the price of
        its source, whose backward pass is last.
        """
        if self.prices is None:
            return 1
        hides = self._at(self.prices, nodes)
        if phase is Phase.FORWARD:
            repeats = workload.repeats
            hides = -(-hides // 2) if repeats.again or repeats.by_op else 0 * hides
        rest: Integers = self.scale - hides
        return rest

    @property
    def _dtype(self) -> type[np.int64 | np.object_]:
        return exact_dtype(self.largest)

    def marks_of_ends(self, workload: Workload) -> tuple[Hashable, ...] | None:
        if self.prices is None and self.again is None:
            return None
        nodes = range(len(workload.nodes))
        again = [node in (self.again or ()) for node in nodes]
        return tuple(zip(self.prices or again, self.released or again, again, strict=True))

    def symmetries(self, workload: Workload, levels: int) -> Symmetries:
        """Return what is charged alike: nodes by their prices and what runs again of them, too."""
        symmetries, marks = super().symmetries(workload, levels), self.marks_of_ends(workload)
        if marks is None:
            return symmetries
        return symmetries._replace(marks=[*zip(symmetries.marks, marks, strict=True)])


def _scattered(workload: Workload) -> list[int]:
    """Return the nodes whose gradients are scattered in each micro-batch, over some levels."""
    sharded = workload.repeats.sharded.items()
    return [node for node, shards in sharded if (shards.gradients, shards.weights) != (None, None)]


def of_program(
    cost: CostModel, workload: Workload, *, array: Array, early_stop: bool = False
) -> OverlapTime:
    """Return the bound on a time of which the program alone is charged.

    Parameters
    ----------
    array
        Whose steps they are.
    early_stop
        Whether what runs again stops at the last tensor that a backward pass reads.
    """
    bound = OverlapTime.of(cost.time, workload, waits=waits_on(array))
    if not (early_stop and workload.repeats.again):
        return bound
    fused = Fused.on(array.accelerator)
    return replace(bound, again=needed_again(workload, workload.repeats.again, fused=fused))


def waits_on(array: Array) -> bool:
    """Return whether steps on an array wait for all exchanges but those of the queue."""
    return not (array.ring or array.hidden)
