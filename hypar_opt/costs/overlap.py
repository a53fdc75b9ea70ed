"""A lower bound on the time with overlap: prices of the program and of its queue of exchanges.

A step has a program, which runs in its order, and a queue of exchanges beside it: of gradients, and
of weights. Whatever the program releases into the queue ends after it, one after the other. So for
each point of the program the step takes no less than the program up to that point plus all
exchanges released from then on; nor than any weighted mean of these sums. The weights, added up
along the program, are a price l of the queue, from 0 to 1, that never falls: what the program does
where the price is l costs 1 - l of its time, and an exchange that it releases there costs l of its
time. Each is a sum over nodes and boundaries, as any cost is.

Where weights are prefetched the program waits for them, too, so that a path may come back from the
queue. In the forward pass it does so as the last unit begins: before, the queue of gathers has a
price of its own. When a unit's gather is released depends on which other units have one; so in the
backward pass all gathers have the price at its beginning. Every path begins with the gather of the
root's weights, and ends with the root's gradients, where these are scattered, and the update.

Source: L. R. Ford, D. R. Fulkerson, "Flows in Networks", 1962, chapter II: a longest path is at
least any unit flow.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from hypar_opt.costs.buckets import LATENCY, LatencyShares, buckets_of
from hypar_opt.costs.physical import finest
from hypar_opt.costs.time import TimeCost
from hypar_opt.integers import exact_dtype, scale
from hypar_opt.sharding.passes import Phase
from hypar_opt.step.states import exact_sum
from hypar_opt.workload.recomputation import with_repeats
from hypar_opt.workload.repeats import REDUCTION_GROUPS, SCATTERED_EACH_MICRO_BATCH, SINGLE_PASS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from hypar_opt.costs.base import CostModel, Symmetries
    from hypar_opt.costs.buckets import LatencyShare
    from hypar_opt.costs.reductions import Places, Reduction
    from hypar_opt.hardware.array import Array
    from hypar_opt.integers import Integers
    from hypar_opt.step.operations import Collective
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload

PRICE = 64
"""The parts of a price of 1."""


class SharesOfUnits(LatencyShares):
    """Each node's share of the latency of its unit's collective, a gather or a scatter."""

    @classmethod
    def of_units(cls, workload: Workload, units: Sequence[range]) -> Self:
        """Share out the latencies of the collectives of units, and of one for all other weights.

        Shares are in proportion to elements. Weights that layers of several units share have none.
        """
        unit_of = {node: unit for unit in units for node in unit}
        members: defaultdict[range | None, list[int]] = defaultdict(list)
        for node in range(len(workload.nodes)):
            used_in = {unit_of.get(user) for user in workload.weight_users.get(node, (node,))}
            if workload.stored[node] and len(used_in) == 1:
                members[used_in.pop()].append(node)
        return cls(cls.of([*members.values()], [workload.stored]).ends, {})

    def for_nodes(
        self, nodes: Indices, reduced: Reduction, shape: tuple[int, ...], micro_batches: int
    ) -> LatencyShare:
        del reduced, micro_batches
        begins, ends = self.ends[0][:, nodes]

        def share(latency: int, messages: Integers, places: Places | None = None) -> Integers:
            begin, end = begins, ends
            if places is not None:
                begin, end = (np.broadcast_to(limits, shape)[places] for limits in (begins, ends))
            fraction = Fraction(latency, LATENCY)
            part: Integers = scale(end, fraction, "down") - scale(begin, fraction, "down")
            shared: Integers = messages * part
            return shared

        return share


class Prices(NamedTuple):
    """The queue's prices, and what follows from them: each ``(nodes,)``, in integers of a scale.

    The scale is `PRICE` for each micro-batch.

    Parameters
    ----------
    forward, backward
        The part of the program's time in each node's passes that is hidden.
    released, scattered
        The price of each node's gradient, which is released with its bucket; and where it is
        scattered in each micro-batch.
    gathered, updated
        The price of all gathers of its weights in a micro-batch, added up, and of the gather of its
        updated weights.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    released: tuple[int, ...]
    scattered: tuple[int, ...]
    gathered: tuple[int, ...]
    updated: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class OverlapTime(TimeCost):
    """A lower bound on the seconds of a step whose exchanges of gradients and weights overlap.

    It is a bound if each exchange is charged no more than its shortest time, as by `least_of`. The
    charges of a plan add up to ``scale`` times the bound.

    Parameters
    ----------
    prices
        None where the queue is free, and the program alone is charged.
    of_units
        The shares of the latencies of units' collectives; None where there are no units.
    update
        The part of updates that is charged.
    waits
        Whether the program waits for its own exchanges; else each may overlap with a computation,
        as around rings of context parallelism, and is free.
    """

    prices: Prices | None = None
    of_units: SharesOfUnits | None = None
    update: int = 1
    scale: int = 1
    waits: bool = True

    @classmethod
    def of(
        cls,
        cost: TimeCost,
        workload: Workload,
        prices: Sequence[int] | None = None,
        *,
        waits: bool = True,
        units: Sequence[range] | None = None,
        forward: int = 0,
    ) -> Self:
        """Return the bound, from a cost without overlap.

        Parameters
        ----------
        prices : (nodes,)
            The price of the queue, of `PRICE`, from each node's backward pass on: no less than that
            of any node whose pass is before. Of shared tensors as of their writers.
        units
            The units whose weights are prefetched, as `hypar_opt.workload.recomputation.units_of`;
            None where neither the program nor an update waits for the queue.
        forward
            The price of the queue in the forward pass, where weights are prefetched. 0 where
            exchanges are not waited for, as these may themselves wait for weights.
        """
        base: dict[str, Any] = {field.name: getattr(cost, field.name) for field in fields(TimeCost)}
        base["waits"] = waits
        if prices is None:
            return cls(**base | {"latencies": None})
        micro_batches = workload.repeats.micro_batches
        whole = PRICE * micro_batches
        update = whole if units else (PRICE - max(prices)) * micro_batches
        ahead = forward if waits else 0
        priced = _prices(workload, prices, cost.bucket_elements, units, ahead)
        highest = whole * cost.upper_bound(workload)
        of_units = SharesOfUnits.of_units(workload, units) if units else None
        bound = cls(**base, prices=priced, of_units=of_units, update=update, scale=whole)
        return bound.in_units(min(cost.per_unit, finest(highest)), workload)

    def in_units(self, per_unit: int | None, workload: Workload) -> Self:
        cost = super().in_units(per_unit, workload)
        return replace(cost, max_total=cost.max_total * cost.scale)

    @property
    def is_additive(self) -> bool:
        """Whether charges add up: to the bound, in which latencies of buckets are shared out."""
        return True

    def charges(
        self,
        operations: Iterable[Collective],
        workload: Workload,
        nodes: Indices,
        shape: tuple[int, ...],
        levels: int,
    ) -> list[Integers]:
        # By price, in integers of the scale.
        by_price: defaultdict[tuple[Phase, str], list[Collective]] = defaultdict(list)
        operations = list(operations)
        of_scatters = [op.quarters for op in operations if _price_of(op) == "scattered"]
        with_unit = (exact_sum(of_scatters) > 0) & (self.of_units is not None)
        for operation in operations:
            of = _price_of(operation)
            if of == "program":
                if self.waits:
                    by_price[operation.phase, of].append(operation)
                continue
            if self.prices is None or not any(getattr(self.prices, of)):
                continue
            quarters, times = operation.quarters, operation.times
            if of == "gathered":
                users = np.array(workload.users)[nodes]
                operation = operation._replace(quarters=quarters // (2 * users))
                operation = operation._replace(times=times // (2 * users))
            elif of == "released" and with_unit.any():
                # A scattered gradient's remaining reductions are part of its unit's collective.
                further = operation._replace(quarters=quarters * with_unit)
                by_price[operation.phase, "scattered"].append(further)
                operation = operation._replace(quarters=quarters * ~with_unit)
            if of == "released" or self.of_units is None:
                # Scattered gradients may share one collective and its latency.
                alone = np.isin(nodes, _scattered(workload), invert=True)
                operation = operation._replace(times=times * alone)
            by_price[operation.phase, of].append(operation)
        rows = self.uncharged(levels)
        for (phase, of), exchanges in by_price.items():
            often = self._rest(phase, workload, nodes) if of == "program" else self._at(of, nodes)
            cost = self if of in ("program", "released") else self._by_unit
            charged = TimeCost.charges(cost, exchanges, workload, nodes, shape, levels)
            rows = [row + more * often for row, more in zip(rows, charged, strict=True)]
        return rows

    @cached_property
    def _by_unit(self) -> Self:
        """The same bound, for collectives of units, which share latencies."""
        return self if self.of_units is None else replace(self, latencies=self.of_units)

    def compute(self, workload: Workload, nodes: Indices, states: States) -> Integers:
        if self.work is None or self.prices is None:
            return super().compute(workload, nodes, states)
        arguments = workload, nodes, states, self.per_unit * self.price
        update: Integers = self.work.charges_of_update(*arguments).astype(self._dtype)
        amounts: list[Integers] = []
        if Phase.GRADIENT in self.communication.phases:
            amounts.append(update * self.update)
        for phase in self.communication.phases:
            charged: Integers = self.work.charges(*arguments, (phase,)).astype(self._dtype)
            without_update = charged - update if phase is Phase.GRADIENT else charged
            amounts.append(without_update * self._rest(phase, workload, nodes))
        return exact_sum(amounts)

    def _at(self, name: str, nodes: Indices) -> Integers:
        node_prices: Integers = np.array(getattr(self.prices, name), self._dtype)[nodes]
        return node_prices

    def _rest(self, phase: Phase, workload: Workload, nodes: Indices) -> Integers | int:
        """Return the price of the program in a pass over all micro-batches.

        Where forward passes run again, every second of them may be in the backward pass, and the
        mean of both prices is hidden. A boundary has the price of its source, whose backward pass
        is last.
        """
        if self.prices is None:
            return 1
        hides = self._at("backward", nodes)
        if phase is Phase.FORWARD:
            repeats, ahead = workload.repeats, self._at("forward", nodes)
            runs_again = repeats.recomputed or repeats.by_op
            hides = np.maximum(ahead, -(-(ahead + hides) // 2)) if runs_again else ahead
        rest: Integers = self.scale - hides
        return rest

    @property
    def _dtype(self) -> type[np.int64 | np.object_]:
        return exact_dtype(self.max_total)

    @property
    def end_keys(self) -> tuple[Hashable, ...] | None:
        # The queue's charges are those of nodes.
        return tuple(zip(*self.prices[:2], strict=True)) if self.prices else None

    def symmetries(self, workload: Workload, levels: int) -> Symmetries:
        """Return what is charged alike: nodes by their prices, too."""
        symmetries = super().symmetries(workload, levels)
        if self.prices is None:
            return symmetries
        of_units = self.of_units.node_keys if self.of_units else [b""] * len(workload.nodes)
        return symmetries._replace(
            node_keys=[*zip(symmetries.node_keys, *self.prices, of_units, strict=True)]
        )


def _prices(
    workload: Workload,
    backward: Sequence[int],
    bucket_elements: int,
    units: Sequence[range] | None,
    forward: int,
) -> Prices:
    """Return the prices of each node; parameters as for `OverlapTime.of`.

    A price holds in every micro-batch if its exchange occurs in each, else in the last alone.
    """
    nodes, shared = range(len(workload.nodes)), workload.shared
    micro_batches, sharded = workload.repeats.micro_batches, workload.repeats.sharded.values()
    free, root = (0,) * len(nodes), PRICE * micro_batches
    released = [price * micro_batches for price in backward]
    # Scattered gradients leave their buckets, which are then complete earlier.
    if not _scattered(workload):
        for bucket in buckets_of(with_repeats(workload, SINGLE_PASS), bucket_elements):
            for node in bucket:
                released[node] = backward[bucket[-1]] * micro_batches
    hidden = tuple(price * (micro_batches if _scattered(workload) else 1) for price in backward)
    of_gradients = tuple(released)
    if units is None:
        return Prices(free, hidden, of_gradients, of_gradients, free, free)
    unit_of = {node: unit for unit in units for node in unit}
    ahead = forward * (
        micro_batches if any(shards.weights is not None for shards in sharded) else 1
    )
    writers, last = workload.tensor_writers, units[-1].start
    before_last = tuple(ahead * (writers.get(node, node) < last) for node in nodes)
    scattered, gathered, updated = [], [], []
    for node in nodes:
        users = workload.weight_users.get(node, (node,))
        used_in = {unit_of.get(user) for user in users}
        gathered.append(sum(ahead + hidden[-1] if unit else root for unit in used_in))
        unit = unit_of.get(min(users))
        updated.append(forward * micro_batches if unit else root)
        # As the pass of the unit ends, the next one's begins; behind all passes nothing is hidden.
        behind = hidden[unit.start - 1] if unit and unit.start > shared else root
        scattered.append(behind)
    of_queue = map(tuple, (scattered, gathered, updated))
    return Prices(before_last, hidden, of_gradients, *of_queue)


def _price_of(operation: Collective) -> str:
    """Return which of `Prices` applies to an exchange, or that the program makes it."""
    if operation.phase is not Phase.GRADIENT:
        return "program"
    is_reduce_scatter = REDUCTION_GROUPS[operation.group][0] in SCATTERED_EACH_MICRO_BATCH
    if operation.tensor != "weights":
        return "scattered" if is_reduce_scatter else "released"
    return "gathered" if REDUCTION_GROUPS[operation.group] == ("weights",) else "updated"


def _scattered(workload: Workload) -> list[int]:
    """Return the nodes whose gradients are scattered in each micro-batch, over some levels."""
    sharded = workload.repeats.sharded.items()
    return [node for node, shards in sharded if (shards.gradients, shards.weights) != (None, None)]


def of_program(cost: CostModel, workload: Workload, *, array: Array) -> OverlapTime:
    """Return the bound on a time on an array in which the program alone is charged."""
    overlap = array.overlap or "none"
    waits = waits_on(array) and overlap != "branches"
    return OverlapTime.of(least_of(cost.time, array, overlap), workload, waits=waits)


def least_of(cost: TimeCost, array: Array, overlap: str) -> TimeCost:
    """Return a cost that charges exchanges their shortest time.

    In lockstep that is the time itself. Otherwise an accelerator that is ahead may have links to
    itself that messages share in lockstep.
    """
    return cost if array.in_lockstep(overlap) else cost.uncontended(array.interconnect)


def waits_on(array: Array) -> bool:
    """Return whether steps on an array wait for all exchanges outside the queue."""
    return not (array.ring or array.hidden)
