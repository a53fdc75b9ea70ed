"""Time in seconds: compute, and bytes over the bandwidth that the topology gives a level."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import astuple, dataclass, fields, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Self

import numpy as np

from hypar_opt.costs.buckets import (
    LatencyShares,
    buckets_of,
    equal_shares,
    half_shared,
    latency_shares,
)
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.on_array import ArrayCost, Rates
from hypar_opt.costs.physical import Rings, UncontendedRings, array_of
from hypar_opt.costs.reductions import joined, reductions_of, stage_charges
from hypar_opt.costs.stage_messages import StageMessages
from hypar_opt.costs.work import Work
from hypar_opt.hardware.links import BisectionLink
from hypar_opt.sharding.passes import Phase
from hypar_opt.step.states import levels_of, shape_of, states_from_rows
from hypar_opt.step.uneven import sizes_at_ends, split_sizes, uneven_boundaries
from hypar_opt.workload.recomputation import with_repeats
from hypar_opt.workload.repeats import SINGLE_PASS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.base import Symmetries
    from hypar_opt.costs.buckets import LatencyShare
    from hypar_opt.costs.device_load import PricedLoad
    from hypar_opt.costs.reductions import Levels, Places, Reduction
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.hierarchy import SplitRule
    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.step.operations import Collective
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True, kw_only=True)
class TimeCost(ArrayCost):
    """Seconds of one training step in which nothing overlaps.

    Every exchange of a level takes the latencies of its messages, and its bytes over the
    bandwidth that the topology gives that level's exchange between pairs. Each pass of a layer
    takes the longer of its compute and DRAM times; it is charged with the last level, where the
    shards are known.

    Parameters
    ----------
    splits
        Each level's links across its bisection, H1 first.
    placement
        The digit of an accelerator's number that each level splits, H1 first.
    work
        The compute of an accelerator; None to charge exchanges only.
    bucket_elements
        The most elements of gradients that are all-reduced together.
    latencies
        Each node's share of its bucket's latencies; None if each node has its own. A bucket has one
        all-reduce for each set of levels that its nodes reduce over: charges are a lower bound on a
        plan's time, and exact if all nodes of each bucket reduce over the same levels.
    by_largest_shard
        Whether an exchange lasts as long as that of the largest shard, where an axis is not divided
        evenly. That is known once all levels have choices, so the excess is charged with the last
        level.
    rule
        Which splits of an axis by levels constraints allow; None for all.
    memory
        The price of bytes of memory, in a Lagrangian bound on the plans within a capacity.
    relaxes_ring_splits
        Whether a ring of gradients is charged a lower bound over all start levels of ZeRO stages.
    price
        The price of a second, in the unit of a total.
    stage_messages
        The messages to other pipeline stages; None without any.

    Source: docs/assumptions.md.
    """

    splits: tuple[BisectionLink, ...]
    work: Work | None
    placement: tuple[int, ...] = ()
    bucket_elements: int = 1
    latencies: LatencyShares | None = None
    by_largest_shard: bool = False
    rule: SplitRule | None = None
    memory: PricedLoad | None = None
    relaxes_ring_splits: bool = False
    price: Fraction | int = 1
    stage_messages: StageMessages | None = None

    BASE = "seconds"

    @classmethod
    def from_problem(cls, problem: Problem, workload: Workload) -> TimeCost:
        """Return the cost of a problem with an array.

        Raises
        ------
        HyparError
            If the problem has no array, or options that contradict one.
        """
        array, placement = array_of(problem)
        cost = cls(
            communication=CommunicationCost.from_problem(problem, workload),
            rings=Rings.of(array, placement),
            splits=tuple(map(array.interconnect.bisection, placement)),
            work=Work(
                array.accelerator.updated_by(problem.constraints.optimizer),
                problem.hierarchy,
                problem.element_bytes,
                by_largest_shard=problem.step_model.by_largest_shard,
            ),
            placement=placement,
            bucket_elements=array.bucket_elements(problem.element_bytes),
            by_largest_shard=problem.step_model.by_largest_shard,
            rule=problem.split_rule,
            stage_messages=StageMessages.of_stage(problem, workload),
        )
        return cost.in_buckets(workload).in_units(None, workload)

    def in_buckets(self, workload: Workload) -> Self:
        """Return the cost with latencies shared out over their buckets, by elements."""
        if self.bucket_elements == 1 or Phase.GRADIENT not in self.communication.phases:
            return self
        shares = latency_shares(with_repeats(workload, SINGLE_PASS), self.bucket_elements)
        return replace(self, latencies=shares)

    def with_equal_shares(self, workload: Workload) -> Self:
        """Return a bound on the cost, in which equal gradients have equal shares of latencies.

        `in_buckets` shares out all of a latency, so that equal nodes differ in their shares.
        """
        if self.latencies is None:
            return self
        shares = equal_shares(with_repeats(workload, SINGLE_PASS), self.bucket_elements)
        return replace(self, latencies=shares)

    def reductions(self, workload: Workload, rows: Rows) -> dict[tuple[int, int, int], list[int]]:
        """Return the nodes of each all-reduce of a plan's gradients, by bucket and levels.

        Parameters
        ----------
        rows : (levels, nodes)

        Returns
        -------
        dict
            By the number of a bucket, the set of levels, whose bit 2^h is that of level h, and the
            number of what these split, in `REDUCTION_GROUPS`.
        """
        together: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        buckets = buckets_of(workload, self.bucket_elements)
        nodes = np.arange(len(workload.nodes))
        for reduction in self._of_gradients(workload, nodes, states_from_rows(rows, len(nodes))):
            levels = joined(reduction.moved, nodes.shape)[0].tolist()
            for number, bucket in enumerate(buckets):
                for node in bucket:
                    if levels[node]:
                        together[number, levels[node], reduction.group].append(node)
        return together

    def reduction_levels(self, workload: Workload, nodes: Indices, states: States) -> Indices:
        """Return the levels that each gradient is reduced over, as sets in `reductions`."""
        shape = shape_of(nodes, states)
        levels: Indices = np.zeros(shape, np.intp)
        for reduction in self._of_gradients(workload, nodes, states):
            levels = levels | joined(reduction.moved, shape)[0]
        return levels

    def _of_gradients(self, workload: Workload, nodes: Indices, states: States) -> list[Reduction]:
        """Return the reductions of nodes' gradients, by what is split of weights."""
        levels, gradient = levels_of(states), self.communication.of(Phase.GRADIENT)
        operations = gradient.rules(workload, levels).node(nodes, states)
        reductions = reductions_of(operations, gradient, levels)
        return [reduction for _, reduction in sorted(reductions.items())]

    @property
    def time(self) -> Self:
        return self

    def uncontended(self, interconnect: Interconnect) -> Self:
        """Return a lower bound on exchanges, in lockstep or not: one accelerator's messages.

        It awaits each of its messages, which takes at least as long as if no other accelerator used
        its links. The last accelerator closes all rings, where a message may go farthest.
        """
        last = range(interconnect.accelerators)[-1:]
        splits = tuple(interconnect.bisection(digit, last) for digit in self.placement)
        rings = self.rings
        if rings is not None:
            of_rings = {field.name: getattr(rings, field.name) for field in fields(rings)}
            rings = UncontendedRings(**of_rings | {"among": last})
        return replace(self, splits=splits, rings=rings)

    def for_plan(self, workload: Workload, rows: Rows) -> Self:
        """Return the cost in which latencies are shared as by this plan's all-reduces: its time."""
        if self.latencies is None:
            return self
        shares = LatencyShares.of_plan(self.reductions(workload, rows), workload.stored)
        return replace(self, latencies=shares)

    def node(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        """Return each layer's charges: its reductions and, at the last level, its compute."""
        levels = levels_of(states)
        differ = self._differ(levels, workload, split_sizes(workload)[:, nodes])
        rows = self._reduction_charges(
            lambda cost: cost.exchanges_of_nodes(workload, nodes, states), differ=differ
        )
        # The DRAM's time depends on the final shards, which are not known before the last level.
        if self.work is not None and self._is_full_state(levels):
            work = self.compute(workload, nodes, states)
            rows[-1] = rows[-1] + work.astype(rows[-1].dtype)
        if not self._is_full_state(levels):
            return rows
        further = []
        if self.stage_messages is not None:
            further.append(self.stage_messages.charges(nodes, states, self.per_unit * self.price))
        if self.memory is not None:
            further.append(self.memory.charges(nodes, states))
        for charges in further:
            dtype = np.result_type(rows[-1], charges)
            rows[-1] = rows[-1].astype(dtype) + charges.astype(dtype)
        return rows

    def compute(self, workload: Workload, nodes: Indices, states: States) -> Integers:
        """Return what nodes compute, in states of all levels."""
        if self.work is None:
            return np.zeros(1, np.int64)
        context = workload, nodes, states, self.per_unit * self.price
        return self.work.charges(*context, self.communication.phases)

    def edge(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> list[Integers]:
        sizes = (end[:, boundaries] for end in sizes_at_ends(workload))
        differ = self._differ(levels_of(targets), workload, *sizes)
        ends = workload, boundaries, sources, targets
        return self._reduction_charges(lambda cost: ArrayCost.edge(cost, *ends), differ=differ)

    def level_separable(self, workload: Workload) -> TimeCost | None:
        if not self.by_largest_shard:
            return super().level_separable(workload)
        if uneven_boundaries(workload, self.communication.hierarchy, self.rule):
            return None
        return self.level_separable_bound(workload)

    def level_separable_bound(self, workload: Workload) -> TimeCost | None:
        """Return a lower bound on charges of boundaries, level by level.

        It counts all parts as of the mean size; None as for `level_separable`.
        """
        return replace(self, by_largest_shard=False).level_separable(workload)

    @property
    def uniform_link_bounds(self) -> tuple[TimeCost, TimeCost]:
        values, levels = [*zip(*map(astuple, self.splits), strict=True)], len(self.splits)
        fastest, slowest = (BisectionLink(*map(of, values)) for of in (min, max))
        return replace(self, splits=(fastest,) * levels), replace(self, splits=(slowest,) * levels)

    @property
    def edge_cost_key(self) -> TimeCost:
        return replace(
            self,
            work=None,
            latencies=None,
            memory=None,
            stage_messages=None,
            max_total=0,
            relaxes_ring_splits=False,
        )

    def _is_full_state(self, levels: int) -> bool:
        return levels == len(self.communication.sizes) > 0

    def _differ(self, levels: int, workload: Workload, *sizes: NDArray[np.int64]) -> bool:
        """Return whether parts of axes may differ in size in states of so many levels."""
        if not (self.by_largest_shard and self._is_full_state(levels)):
            return False
        accelerators = self.communication.hierarchy.accelerators
        return bool(workload.loads) or any((extents % accelerators).any() for extents in sizes)

    @cached_property
    def largest_shard_charges(self) -> TimeCost:
        """The same exchanges, as if all parts were as large as the largest."""
        communication = replace(self.communication, by_largest_shard=True)
        return replace(self, communication=communication, by_largest_shard=False)

    def _reduction_charges(
        self, charges: Callable[[TimeCost], list[Integers]], *, differ: bool
    ) -> list[Integers]:
        """Return charges of exchanges, those of the largest shards where parts differ in size.

        The excess over the mean shards stands at the last level, unless charges are attributed to
        the levels that are crossed.
        """
        if not differ:
            return charges(self)
        longest = charges(self.largest_shard_charges)
        if self.crossing:
            return longest
        rows = charges(self)
        return [*rows[:-1], sum(longest, np.zeros_like(rows[-1])) - sum(rows[:-1])]

    def reductions_charged(
        self,
        reductions: Mapping[tuple[Phase, int], Reduction],
        workload: Workload,
        nodes: Indices,
        shape: tuple[int, ...],
    ) -> list[Integers]:
        rows = self.uncharged(0)
        for (phase, _), reduction in reductions.items():
            share = self.share_of_latency(phase, reduction, workload, nodes, shape)
            if self.rings is None:
                messages = self.messages_between_pairs(reduction)
                charged = [
                    self._sharing(row, self.rates(level), messages_of_level, share)
                    for level, (row, messages_of_level) in enumerate(
                        zip(reduction.moved, messages, strict=True)
                    )
                ]
            else:
                relaxes = self.relaxes_ring_splits and phase is Phase.GRADIENT
                charged = self._around_rings(
                    reduction, np.broadcast_to(reduction.rounds, shape), share, relaxes=relaxes
                )
            rows = [a + b for a, b in zip(rows, charged, strict=True)] if rows else charged
        return rows

    def share_of_latency(
        self,
        phase: Phase,
        reduction: Reduction,
        workload: Workload,
        nodes: Indices,
        shape: tuple[int, ...],
    ) -> LatencyShare | None:
        """Return nodes' shares of a reduction's latencies; None if these are not shared."""
        if self.latencies is None or phase is not Phase.GRADIENT:
            return None
        return self.latencies.for_nodes(nodes, reduction, shape, workload.repeats.micro_batches)

    def rounded_together(self, exchange: Collective) -> Hashable:
        return exchange.phase, exchange.tensor, exchange.kind

    def messages_between_pairs(self, reduction: Reduction) -> Iterator[Integers]:
        """Yield the messages of recursive halving and doubling at each level, by node.

        At the topmost of the levels that a node reduces over, halving and doubling are one exchange
        if that level has two parts.
        """
        is_below = np.zeros((), bool)
        for level, row in enumerate(reduction.moved):
            rounds = self.rounds(level)
            crossings = reduction.rounds
            if rounds == 1:
                crossings = np.where(is_below, reduction.rounds, reduction.rounds_at_top)
            yield crossings * rounds
            is_below = is_below | (row > 0)

    def _around_rings(
        self, reduction: Reduction, steps: Integers, share: LatencyShare | None, *, relaxes: bool
    ) -> list[Integers]:
        """Return the time of reductions around rings, by the bytes that cross the levels.

        Parameters
        ----------
        steps
            How often each node repeats all rounds.
        """
        levels, reduced = joined(reduction.moved, steps.shape)
        assert self.rings is not None
        rings = self.rings

        def charge(
            shared: LatencyShare | None, stage: Levels, places: Places, over_all: Integers
        ) -> Integers:
            # A reduce-scatter or an all-gather has all rounds once, an all-reduce twice
            # (docs/collectives.md).
            rates, often = self._rates_of(rings.link(stage)), steps[places].astype(object)
            return self._sharing(over_all, rates, often, shared and partial(shared, places=places))

        charge_alone = partial(charge, share and half_shared(share)) if relaxes else None
        context = (
            levels,
            reduced,
            self.uncharged(len(reduction.moved)),
            rings,
            partial(charge, share),
        )
        return stage_charges(*context, by_crossing=self.crossing, charge_alone=charge_alone)

    def _sharing(
        self, moved: Integers, rates: Rates, messages: Integers, share: LatencyShare | None
    ) -> Integers:
        """Return the charges of exchanges: their bytes, and their own latencies or a share."""
        if share is None:
            return self.at_rates(moved, rates, messages)
        pace, latency = rates
        whole = math.floor(latency + Fraction(1, 2))
        latencies = np.where(moved > 0, share(whole, messages), 0)
        return self.at_rates(moved, (pace, Fraction())) + latencies.astype(np.int64)

    def symmetries(self, workload: Workload, levels: int) -> Symmetries:
        """Return what is charged alike; nodes by the share of their bucket's latency, too."""
        symmetries = super().symmetries(workload, levels)
        by_node = self.latencies, self.memory and self.memory.load, self.stage_messages
        keys = [charge.node_keys for charge in by_node if charge]
        return symmetries._replace(node_keys=[*zip(*keys, strict=True)]) if keys else symmetries

    def with_memory(self, memory: PricedLoad) -> Self:
        """Return the cost with a price of memory, in integers that hold both."""
        return replace(self, memory=memory, max_total=self.max_total + 4 * memory.upper_bound)

    @property
    def level_links(self) -> Sequence[object]:
        return self.splits

    def communication_only(self) -> TimeCost:
        return replace(self, work=None)

    def rates(self, level: int) -> Rates:
        return self._rates[level]

    @cached_property
    def _rates(self) -> tuple[Rates, ...]:
        return tuple(map(self._rates_of, self.splits))

    def _rates_of(self, link: BisectionLink) -> Rates:
        a_second = self.per_unit * self.price
        pace = link.seconds_per_byte * a_second / self.communication.resolution
        return pace, link.latency * a_second

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return an upper bound on the seconds of any plan under any placement."""
        levels = range(len(self.splits))
        slowest = max(split.seconds_per_byte for split in self.splits)
        latency = max(split.latency for split in self.splits)
        # Between pairs an all-reduce crosses each level at most twice.
        rounds = 2 * sum(map(self.rounds, levels))
        if self.communication.level_separable(workload) is None:
            # An all-to-all over all levels sends every accelerator a message.
            rounds = 2 * math.prod(self.communication.sizes)
        if self.rings is not None:
            # No flow has a smaller share of a channel than if all accelerators sent over it.
            slowest = max(slowest, 1 / min(self.rings.interconnect.capacities))
            latency = self.rings.interconnect.latency_upper_bound
            # Around a ring of all accelerators there are less than twice as many messages.
            rounds = 2 * math.prod(self.communication.sizes)
        messages = len(self.communication.phases) * (len(workload.nodes) + len(workload.boundaries))
        users = sum(map(len, workload.weight_users.values()))
        messages = workload.max_repeats * (messages + users)
        seconds = rounds * messages * latency
        communication = (
            self.largest_shard_charges if self.by_largest_shard else self
        ).communication
        for level in levels:
            level_bytes = Fraction(
                communication.upper_bound(workload, level), self.communication.resolution
            )
            seconds += level_bytes * slowest
        if self.work is not None:
            seconds += len(self.communication.phases) * self.work.upper_bound(workload)
        if self.stage_messages is not None:
            seconds += self.stage_messages.upper_bound
        return seconds * self.price
