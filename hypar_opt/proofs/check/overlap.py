"""A bound on the time of a step whose exchanges overlap, derived a second time.

Exchanges of gradients and weights that a step releases into its queue run one after the other; so
no step takes less than its program up to any point of the backward pass plus all exchanges released
from there on. A mixture of such paths is a price of the queue, from 0 to `PRICE`, that never falls
along the backward pass: the program costs what the price leaves of it, and the queue its price. The
program costs all of it forward, unless that runs again and so may be in the backward pass; and
before the last micro-batch, unless each one has gradients to reduce.

Where weights are prefetched, a unit at a time, the program waits for its unit's gather. So a path
may have what the queue gathers forward in place of the program, until the last unit begins: at one
price more. Backward all gathers cost what is priced as the pass begins, for which unit's gather is
released where depends on which have any. The root's weights are gathered before all else, and
its gradients, if they are scattered, behind all; the update follows the queue.

Source: docs/solvers.md.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.errors import CheckFailedError, RefusedError, argument
from hypar_opt.proofs.check.folds import Time
from hypar_opt.proofs.check.operations import (
    LATENCY_UNITS,
    PlanStep,
    Share,
    Times,
    Transfer,
    buckets_of,
)
from hypar_opt.proofs.check.training import Pass, blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.check.nodes import PlanGraph, State

PRICE = 64
"""The parts of a price of 1."""

_SCATTERED = ("gradients", "weights")
"""The words of shards with which gradients are reduce-scattered in each micro-batch."""


class StatedPrices(NamedTuple):
    """The prices of a queue in a certificate.

    Parameters
    ----------
    overlap
        What overlaps: weights are prefetched, or the program never waits for the queue.
    layers
        As `prices_of_nodes` takes them.
    forward
        The price in the forward pass, until the last unit begins.
    """

    overlap: str
    layers: Mapping[str, int]
    forward: int = 0


def prices_of_nodes(plan: Plan, graph: PlanGraph, stated: Mapping[str, int]) -> list[int]:
    """Return the price from the backward pass of each node on.

    Shared weights have the price of their first user, whose pass is last; a shared tensor has its
    writer's.

    Parameters
    ----------
    stated
        The price from the backward pass of a layer on, by its name, in the order of these passes; 0
        before the first of them.

    Raises
    ------
    CheckFailedError
        Naming a layer that is unknown or out of order, or whose price is out of range or falls.
    """
    position = {name: n for n, name in enumerate(plan.layers)}
    last, highest = len(position), 0
    for name, price in stated.items():
        if position.get(name, last) >= last:
            problem = "should be layers of the plan, in the order of the backward pass"
            raise CheckFailedError(f"prices, {name}: {problem}")
        if not highest <= price <= PRICE:
            problem = f"should be {highest} to {PRICE}, for prices never fall"
            raise CheckFailedError(f"prices, {name}: {problem}, got {price}")
        last, highest = position[name], price
    prices, price = [0] * len(graph.nodes), 0
    for name, n in sorted(position.items(), key=lambda item: -item[1]):
        prices[graph.shared + n] = price = stated.get(name, price)
    writers = {tensor: writer for writer, tensor in graph.tensors.items()}
    for node in range(graph.shared):
        users = graph.users(node)
        prices[node] = prices[min(users) if users else writers[node]]
    return prices


class NodePrices(NamedTuple):
    """The hidden part of a node's passes, and the price of its exchanges, `PRICE` per micro-batch.

    Parameters
    ----------
    forward, backward
        Hidden.
    reduced, scattered
        The price of its gradient: with its bucket, and with its unit.
    gathered, updated
        The price of its weights' gathers: for all passes of a micro-batch, and of a step.
    share
        Its share of the latency of its unit's exchanges.
    """

    forward: int
    backward: int
    reduced: int
    scattered: int
    gathered: int = 0
    updated: int = 0
    share: Share = (Fraction(), Fraction())


class PricedStep(PlanStep):
    """The operations of a step, weighted by the prices of its queue."""

    def __init__(
        self, plan: Plan, graph: PlanGraph, stated: StatedPrices, *, pads: bool = False
    ) -> None:
        assert plan.array is not None
        array = plan.array.description
        self._is_synchronous = not (array.ring or array.hidden)
        super().__init__(plan, graph, pads=pads)
        self.micro_batches = plan.training.micro_batches or 1
        backward = prices_of_nodes(plan, graph, stated.layers)
        words = {word for of_node in self.counts.sharded for word in of_node}
        times = self.micro_batches if words.intersection(_SCATTERED) else 1
        reduced = self._prices_released(backward, array.bucket_elements(plan.element_bytes))
        self.prices = [
            NodePrices(0, price * times, priced := released * self.micro_batches, priced)
            for price, released in zip(backward, reduced, strict=True)
        ]
        self._prefetches = stated.overlap == "prefetch"
        self.left_of_update = (PRICE - max(backward)) * self.micro_batches
        if self._prefetches:
            self.left_of_update = PRICE * self.micro_batches  # it waits for all of the queue
            forward = stated.forward if self._is_synchronous else 0
            self._prefetch(forward, forward * (self.micro_batches if "weights" in words else 1))

    def kind_of_node(self, n: int) -> object:
        return super().kind_of_node(n), self.prices[n]

    def kind_of_edge(self, n: int) -> object:
        return super().kind_of_edge(n), self.prices[self.graph.edges[n].source]

    def node(self, n: int, state: State) -> Iterator[Transfer]:
        ops = [*super().node(n, state)]
        with_unit = any(op.phase is Pass.GRADIENT and op.joins in _SCATTERED for op in ops)
        for op in ops:
            if op.phase is not Pass.GRADIENT:
                yield from self._waited_for(n, op)
                continue
            yield self._released_into_queue(n, op, with_unit=with_unit and self._prefetches)
            if self._prefetches and self.counts.sharded[n][op.level] != "none":
                yield self._gathered(n, op)

    def boundary(self, n: int, source: State, target: State) -> Iterator[Transfer]:
        for op in super().boundary(n, source, target):
            yield from self._waited_for(self.graph.edges[n].source, op)

    def left(self, step: Pass, n: int) -> int:
        """Return the weight of the program in a pass of a node.

        The full weight is `PRICE` times the micro-batches. If forward passes run twice, the second
        may be in the backward pass.
        """
        prices = self.prices[n]
        hidden = prices.backward
        if step is Pass.FORWARD:
            hidden = -(-(prices.forward + hidden) // 2) if self._runs_again else 0
            hidden = max(prices.forward, hidden)
        return PRICE * self.micro_batches - hidden

    def _waited_for(self, n: int, op: Transfer) -> Iterator[Transfer]:
        """Yield an exchange of the program, unless it may overlap with a computation."""
        if self._is_synchronous:
            yield op._replace(weight=self.left(op.phase, n))

    def _released_into_queue(self, n: int, op: Transfer, *, with_unit: bool) -> Transfer:
        """Return the reductions of a gradient, without the gathers of weights."""
        counts, prices, once = self.counts, self.prices[n], op.joins == "none"
        amount, times = op.amount, op.times
        if counts.sharded[n][op.level] != "none":
            scattered = counts.scattered[n, op.level]
            amount = amount * scattered * counts.size // counts.moved(n, op.level)
            times = Times(scatters=scattered)
        if with_unit:
            share, weight = prices.share, prices.scattered
            return op._replace(amount=amount, times=times, share=share, weight=weight)
        if self._is_scattered(n):  # perhaps joined with the rest of its block, at one latency
            times = Times()
        weight = prices.reduced if once else prices.scattered
        return op._replace(amount=amount, times=times, weight=weight)

    def _gathered(self, n: int, op: Transfer) -> Transfer:
        """Return the gathers of weights, for a pass of each micro-batch, or once for the step."""
        counts, prices = self.counts, self.prices[n]
        by_use = counts.sharded[n][op.level] == "weights"
        often = self.micro_batches if by_use else 1
        return op._replace(
            amount=op.amount // counts.moved(n, op.level) * often,
            times=Times(scatters=often),
            joins=f"weights by {op.joins}",
            share=prices.share,
            weight=prices.gathered if by_use else prices.updated,
        )

    def _is_scattered(self, n: int) -> bool:
        return not {*_SCATTERED}.isdisjoint(self.counts.sharded[n])

    @cached_property
    def _runs_again(self) -> bool:
        """Whether anything of a forward pass runs, or is exchanged, a second time."""
        counts = self.counts
        forward = (
            often[Pass.FORWARD, n]
            for often in (counts.computed, counts.exchanged, counts.read)
            for n in range(len(self.graph.nodes))
        )
        again = any(times > self.micro_batches for times in forward)
        return again or any(counts.epilogues.values())

    def _prices_released(self, prices: Sequence[int], bucket: int) -> list[int]:
        """Return the price at which each gradient is released: with the last of its bucket.

        Scattered gradients leave their bucket, which may then be complete earlier.
        """
        released = [*prices]
        if any(self._is_scattered(n) for n, node in enumerate(self.graph.nodes) if node.stored):
            return released
        for members in buckets_of(self.graph, bucket):
            for node in members:
                released[node] = prices[members[-1]]
        return released

    def _prefetch(self, updated: int, ahead: int) -> None:
        """Price the gathers and scatters of units, and the program before the last unit.

        Parameters
        ----------
        updated, ahead
            The price forward in the last micro-batch, and in all if each gathers weights.
        """
        graph, network = self.graph, self.plan.network.description
        layers = range(graph.shared, len(graph.nodes))
        blocks = blocks_of(network) if network.repeats else [{n} for n in range(len(layers))]
        begins = [graph.shared + min(block) for block in blocks]
        unit_of = {graph.shared + n: number for number, block in enumerate(blocks) for n in block}
        writers = {tensor: layer for layer, tensor in graph.tensors.items()}
        whole, hidden = PRICE * self.micro_batches, [prices.backward for prices in self.prices]
        nodes_by_unit: defaultdict[int | None, list[int]] = defaultdict(list)
        for node, prices in enumerate(self.prices):
            users = graph.users(node) if node < graph.shared else []
            units = {unit_of.get(user) for user in users or [node]}
            first = unit_of.get(min(users or [node]))
            # After the root, and the unit whose pass is last, no program remains.
            begin = layers[0] if first is None else begins[first]
            self.prices[node] = prices._replace(
                forward=ahead if writers.get(node, node) < begins[-1] else 0,
                scattered=whole if begin == layers[0] else hidden[begin - 1],
                gathered=sum(whole if n is None else ahead + hidden[-1] for n in units),
                updated=whole if first is None else updated * self.micro_batches,
            )
            if graph.nodes[node].stored and len(units) == 1:
                nodes_by_unit[units.pop()].append(node)
        for members in nodes_by_unit.values():
            ends = [0, *accumulate(graph.nodes[node].stored for node in members)]
            parts = (Fraction(LATENCY_UNITS * end // ends[-1], LATENCY_UNITS) for end in ends)
            for node, share in zip(members, pairwise(parts), strict=True):
                self.prices[node] = self.prices[node]._replace(share=share)


class PricedTime(Time):
    """Seconds of a step at prices of its queue: a lower bound on the time with overlap.

    Raises
    ------
    CheckFailedError
        As `prices_of_nodes`.
    RefusedError
        If the plan is not for the time of a step on accelerators of one kind.
    """

    rounds_together = False

    def __init__(self, plan: Plan, graph: PlanGraph, prices: StatedPrices) -> None:
        if plan.cost.kind != "time" or plan.groups:
            raise RefusedError(
                f"a proof with {argument('overlap')} is of the time of accelerators of one kind"
            )
        self._prices = prices
        super().__init__(plan, graph)
        self.resolution = PRICE * self._priced.micro_batches

    def _operations(
        self, plan: Plan, graph: PlanGraph, chosen: Sequence[State], *, pads: bool
    ) -> PlanStep:
        del chosen  # of all plans
        self._priced = PricedStep(plan, graph, self._prices, pads=pads)
        return self._priced

    def _among(self, levels: Sequence[int], part: int) -> range | None:
        # Out of lockstep one accelerator's messages may have shared links to themselves.
        if self.array.in_lockstep(self._prices.overlap):
            return super()._among(levels, part)
        count = self.array.interconnect.accelerators
        return range(count - 1, count)

    def _local(self, node: int, state: State) -> int:
        if len(state) < self.plan.levels:
            return 0
        step, accelerator = self._priced, self.array.accelerator
        charges = self._seconds_of(accelerator, node, step.work(node, state))
        weights: Iterable[int] = (step.left(phase, node) for phase in step.passes)
        if accelerator.gemm is not None:  # the update comes first, and what follows products last
            weights = step.left_of_update, *weights, step.left(Pass.FORWARD, node)
        return sum(weight * charge for weight, charge in zip(weights, charges, strict=False))
