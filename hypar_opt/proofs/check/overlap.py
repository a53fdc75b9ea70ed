"""A bound on the time of a step whose exchanges overlap, derived a second time.

What a step releases into its queue, of gradients and of weights, ends one after the other; so no
step takes less than its program up to any place of the backward pass, and all that is released from
there on. A mixture of such paths is a price of the queue, from 0 to `PRICE`, that never falls along
the backward pass: the program costs what the price leaves of it, and the queue its price. Before
the last micro-batch, and forward, the program costs all of it, unless it runs again and so may be
in the backward pass. Gathers of weights are free, for they may be released earlier.

Source: docs/solvers.md.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from hypar_opt.errors import CheckFailedError, RefusedError, argument
from hypar_opt.proofs.check.folds import Time
from hypar_opt.proofs.check.operations import PlanStep, Times, Transfer, buckets_of
from hypar_opt.proofs.check.training import Pass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.check.nodes import PlanGraph, State

PRICE = 64
"""The parts of a price of 1."""

_SCATTERED = ("gradients", "weights")
"""What is sharded where gradients are reduce-scattered in each micro-batch."""


def prices_of_nodes(plan: Plan, graph: PlanGraph, stated: Mapping[str, int]) -> list[int]:
    """Return the price from the backward pass of each node on.

    Shared weights have that of their first user, whose pass is last. A tensor that several layers
    read has its writer's.

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


class PricedStep(PlanStep):
    """The operations of a step, weighted by what the prices of its queue leave of them.

    Parameters
    ----------
    prices : (nodes,)
        From the backward pass of each on.
    """

    def __init__(
        self, plan: Plan, graph: PlanGraph, prices: Sequence[int], *, pads: bool = False
    ) -> None:
        assert plan.array is not None
        array = plan.array.description
        self.prices, self._waits = prices, not (array.ring or array.hidden)
        super().__init__(plan, graph, pads=pads)
        self.micro_batches = plan.training.micro_batches or 1
        self._released = self._prices_released(array.bucket_elements(plan.element_bytes))

    def kind_of_node(self, n: int) -> object:
        return super().kind_of_node(n), self.prices[n], self._released[n]

    def kind_of_edge(self, n: int) -> object:
        return super().kind_of_edge(n), self.prices[self.graph.edges[n].source]

    def node(self, n: int, state: State) -> Iterator[Transfer]:
        for op in super().node(n, state):
            if op.phase is Pass.GRADIENT:
                yield self._released_into_queue(n, op)
            else:
                yield from self._waited_for(n, op)

    def boundary(self, n: int, source: State, target: State) -> Iterator[Transfer]:
        for op in super().boundary(n, source, target):
            yield from self._waited_for(self.graph.edges[n].source, op)

    def left(self, step: Pass, n: int) -> int:
        """Return how many parts of a time of the program are charged in a pass of a node.

        There are `PRICE` times as many parts as micro-batches, of which the last alone may be
        hidden. Where forward passes run twice, the second may be in the backward pass.
        """
        hidden = self.prices[n]
        if step is Pass.FORWARD:
            hidden = -(-hidden // 2) if self._runs_again else 0
        return PRICE * self.micro_batches - hidden

    @cached_property
    def left_of_update(self) -> int:
        """What is charged of an update, which waits for all gradients, once a step."""
        return (PRICE - max(self.prices)) * self.micro_batches

    def _waited_for(self, n: int, op: Transfer) -> Iterator[Transfer]:
        """Yield an exchange of the program; none where it may run beside a computation."""
        if self._waits:
            yield op._replace(weight=self.left(op.phase, n))

    def _released_into_queue(self, n: int, op: Transfer) -> Transfer:
        """Return what is reduced of a gradient, without the gathers of weights."""
        counts, weight = self.counts, self._released[n]
        if op.joins == "none":  # once a step
            weight *= self.micro_batches
        amount, times = op.amount, op.times
        if counts.sharded[n][op.level] != "none":
            scattered = counts.scattered[n, op.level]
            amount = amount * scattered * counts.size // counts.moved(n, op.level)
            times = Times(scatters=scattered)
        if self._is_scattered(n):  # maybe with the rest of its block, at one latency
            times = Times()
        return op._replace(amount=amount, times=times, weight=weight)

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

    def _prices_released(self, bucket: int) -> list[int]:
        """Return the price as each gradient is released: with the last of its bucket.

        What is scattered leaves its bucket, which then may be complete earlier.
        """
        released = [*self.prices]
        if any(self._is_scattered(n) for n, node in enumerate(self.graph.nodes) if node.stored):
            return released
        for members in buckets_of(self.graph, bucket):
            for node in members:
                released[node] = self.prices[members[-1]]
        return released


class PricedTime(Time):
    """Seconds of a step at prices of its queue: no more than any of its plans takes with overlap.

    Raises
    ------
    CheckFailedError
        As `prices_of_nodes`.
    RefusedError
        Of what is no time of a step on accelerators of one kind.
    """

    rounds_together = False

    def __init__(self, plan: Plan, graph: PlanGraph, prices: Mapping[str, int]) -> None:
        if plan.cost.kind != "time" or plan.groups:
            raise RefusedError(
                f"a proof with {argument('overlap')} is of the time of accelerators of one kind"
            )
        self._prices = prices_of_nodes(plan, graph, prices)
        super().__init__(plan, graph)
        self.resolution = PRICE * self._priced.micro_batches

    def _operations(
        self, plan: Plan, graph: PlanGraph, chosen: Sequence[State], *, pads: bool
    ) -> PlanStep:
        del chosen  # of all plans
        self._priced = PricedStep(plan, graph, self._prices, pads=pads)
        return self._priced

    def _local(self, node: int, state: State) -> int:
        if len(state) < self.plan.levels:
            return 0
        step, accelerator = self._priced, self.array.accelerator
        charges = self._seconds_of(accelerator, node, step.work(node, state))
        weights: Iterable[int] = (step.left(phase, node) for phase in step.passes)
        if accelerator.gemm is not None:  # an update first, and what follows products last
            weights = step.left_of_update, *weights, step.left(Pass.FORWARD, node)
        return sum(weight * charge for weight, charge in zip(weights, charges, strict=False))
