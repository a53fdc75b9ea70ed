"""Time in seconds: compute, and bytes over the bandwidth that the topology gives a level."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import BoundaryStates, CostModel, PlanChoices, SplitCounts
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.compute import Work
from hypar_opt.costs.joined_levels import charged_choices, messages_of, over_levels
from hypar_opt.costs.physical import Rings, array_of, finest, rounded
from hypar_opt.costs.table import Integers, exact_dtype
from hypar_opt.units import PREFIXES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload


Rates = tuple[Fraction, Fraction]
"""The charges of a byte, as communication counts them, and of a message."""


@dataclass(frozen=True)
class TimeCost(CostModel):
    """Seconds of one training step in which nothing overlaps.

    Every exchange of a level takes the latencies of its messages, and its bytes over the
    bandwidth that the topology gives that level's exchange between pairs. Around rings a
    layer's reduction joins all the levels with the same choice: it is charged to the layer's
    state, and reported with the topmost of them. Each pass of a layer takes the longer of its
    compute and DRAM times; it is charged with the last level, where the shards are known.

    Parameters
    ----------
    communication
        The model that counts the bytes.
    splits
        Each level's links across its bisection, H1 first.
    rings
        The rings of reductions; None to reduce between pairs.
    work
        The compute of an accelerator; None to charge exchanges only.
    per_second
        Charges per second: 10^15, or fewer where sums of femtoseconds would not fit int64.
    largest
        An upper bound on any sum of charges.

    Source: docs/simulator.md.
    """

    communication: CommunicationCost
    splits: tuple[BisectionLink, ...]
    rings: Rings | None
    work: Work | None
    per_second: int = 10**15
    largest: int = 2**63

    @classmethod
    def from_problem(cls, problem: Problem, workload: Workload) -> TimeCost:
        """Return the cost of a problem with an array.

        Raises
        ------
        HyparError
            If the problem has no array, or options that contradict one.
        """
        array, placement = array_of(problem)
        splits = tuple(array.interconnect.bisection(bit) for bit in placement)
        rings = Rings.of(array, placement)
        work = Work(array.accelerator, problem.hierarchy, problem.element_bytes)
        cost = cls(CommunicationCost.from_problem(problem, workload), splits, rings, work)
        upper_bound = cost.upper_bound(workload)
        return cost._in_parts(finest(upper_bound), upper_bound)

    def in_parts(self, per_second: int, workload: Workload) -> TimeCost:
        """Return the same cost with ``per_second`` charges in a second."""
        return self._in_parts(per_second, self.upper_bound(workload))

    def _in_parts(self, per_second: int, upper_bound: Fraction) -> TimeCost:
        largest = math.ceil(4 * upper_bound * per_second)
        return replace(self, per_second=per_second, largest=largest)

    @property
    def unit(self) -> str:
        return f"{PREFIXES.get(self.per_second, '')}seconds"

    @property
    def choices(self) -> int:
        return self.communication.choices

    def node(self, workload: Workload, splits: SplitCounts) -> Integers:
        """Return each layer's charges: reductions between pairs and, at the last level, compute."""
        dtype = exact_dtype(self.largest)
        node: Integers = np.zeros((len(workload.nodes), self.choices), dtype)
        if self.rings is None:
            for phase in self.communication.phases:
                # Recursive halving and doubling: at the topmost of the levels that it reduces
                # over, by whichever choices, halving and doubling are one exchange.
                moved = self.communication.of(phase).node(workload, splits)
                above = (splits.counts.T * (moved > 0)).sum(axis=1)
                twice = messages_of(self.communication, workload, phase)
                messages: Integers = np.where(above == 0, 1, twice)[:, None]
                timed = self._timed(moved, self._rates[splits.level], messages)
                node += timed.astype(dtype)
        # Any earlier the final shards, on which the DRAM's time depends, would be a guess.
        if self.work is not None and splits.level == self.work.hierarchy.levels - 1:
            here = np.eye(self.choices, dtype=np.int64)[:, :, None]
            node += self._computing(workload, splits.counts[:, None] + here).T.astype(dtype)
        return node

    def _computing(self, workload: Workload, counts: Integers) -> Integers:
        """Return the charges of compute in all passes, ``(..., nodes)``, given the final counts."""
        assert self.work is not None
        per_second = self.per_second * len(self.communication.phases)
        return self.work.charges(workload, counts, per_second)

    def edge(self, workload: Workload, source: SplitCounts, target: SplitCounts) -> Integers:
        """Return each boundary's charges: its exchanges, always between pairs."""
        dtype = exact_dtype(self.largest)
        shape = (len(workload.ends), self.choices, self.choices)
        edge: Integers = np.zeros(shape, dtype)
        for phase in self.communication.phases:
            moved = self.communication.of(phase).edge(workload, source, target)
            edge += self._timed(moved, self._rates[target.level]).astype(dtype)
        return edge

    def reads_splits(self, workload: Workload) -> tuple[bool, bool]:
        return self.communication.reads_splits(workload)

    def of_plans(self, workload: Workload, plans: NDArray[np.intp]) -> Integers | None:
        if workload.has_replicas(self.choices):
            return None
        choices = PlanChoices.of(plans, self.choices)
        dtype = exact_dtype(self.largest)
        charges: Integers = np.zeros(plans.shape[:2], dtype)
        for phase in self.communication.phases:
            in_pass = self.communication.of(phase)
            node, edge = in_pass.exchanged(workload, choices)
            if self.rings is None:
                charged = charged_choices(in_pass, workload)
                above = (choices.above * charged[:, None, None]).sum(axis=0)
                messages = np.where(above == 0, 1, messages_of(self.communication, workload, phase))
                messages = np.concatenate([messages, np.ones(edge.shape, np.int64)], axis=2)
                edge = np.concatenate([node, edge], axis=2)
            for level, rates in enumerate(self._rates[: plans.shape[1]]):
                often = messages[:, level] if self.rings is None else 1
                timed = self._timed(edge[:, level], rates, often)
                charges[:, level] += timed.astype(dtype).sum(axis=1)
        if self.work is not None and plans.shape[1] == self.work.hierarchy.levels:
            work = self._computing(workload, choices.below)
            charges[:, -1] += work.astype(dtype).sum(axis=1)
        return charges

    def pairs(self, workload: Workload, ends: BoundaryStates) -> Integers:
        shape = ends.sources.shape
        charges: Integers = np.zeros(shape, object)
        for phase in self.communication.phases:
            moved = self.communication.of(phase).pairs(workload, ends)
            charges += np.array(
                [self._timed(*level) for level in zip(moved, self._rates, strict=False)], object
            ).reshape(shape)
        return charges.astype(exact_dtype(self.largest))

    def of_state(self, workload: Workload, state: Sequence[int]) -> Mapping[int, Integers]:
        """Return each layer's charge for its rings, over all levels with the same choice."""
        if self.rings is None:
            return {}
        charges: dict[int, Integers] = {}
        dtype = exact_dtype(self.largest)
        for phase in self.communication.phases:
            moved = over_levels(self.communication.of(phase), workload, state)
            for levels, reduced in moved.items():
                # A ring of n accelerators all-reduces in 2 (n - 1) messages; a reduce-scatter or an
                # all-gather takes n - 1 (docs/simulator.md).
                steps = 2 ** len(levels) - 1
                messages = messages_of(self.communication, workload, phase).astype(object) * steps
                rates = self._rates_of(self.rings.link(levels))
                timed = self._timed(reduced, rates, messages).astype(dtype)
                charges[levels[0]] = charges.get(levels[0], 0) + timed
        return charges

    def beyond_levels(self, workload: Workload, splits: SplitCounts) -> str | None:
        """Return why no level alone charges rings, or DRAM-bound layers; None if there are none."""
        if self.rings is not None:
            return "a ring joins all the levels at which a layer reduces"
        # As long as compute binds, each choice is charged the same, and a levelwise search that
        # does not know the final shards chooses rightly.
        dram_bound = self.work.bound_by_memory(workload, splits.counts) if self.work else []
        layers = ", ".join(dram_bound)
        return (
            f"the DRAM-bound compute of {layers} depends on the final shards"
            if dram_bound
            else None
        )

    def communication_only(self) -> TimeCost:
        return replace(self, work=None)

    def _timed(self, moved: Integers, rates: Rates, messages: Integers | int = 1) -> Integers:
        """Return the time of exchanges as charges, each rounded by itself."""
        return rounded(moved, *rates, messages)

    def _rates_of(self, link: BisectionLink) -> Rates:
        pace = link.seconds_per_byte * self.per_second / self.communication.resolution
        return pace, link.latency * self.per_second

    @cached_property
    def _rates(self) -> tuple[Rates, ...]:
        """The rates of each level's exchanges between pairs."""
        return tuple(map(self._rates_of, self.splits))

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return an upper bound on the seconds of any plan under any placement."""
        levels = len(self.splits)
        slowest = max(split.seconds_per_byte for split in self.splits)
        latency = max(split.latency for split in self.splits)
        # Between pairs an all-reduce crosses each level at most twice.
        rounds = 2 * levels
        if self.rings is not None:
            # No flow has less than one of as many flows as accelerators has of any channel.
            slowest = max(slowest, 1 / min(self.rings.interconnect.capacities))
            latency = self.rings.interconnect.latency_upper_bound
            # Around a ring of 2^levels accelerators it takes less than twice as many messages.
            rounds = 2 * 2**levels
        messages = len(self.communication.phases) * (len(workload.nodes) + len(workload.boundaries))
        seconds = rounds * messages * latency
        for level in range(levels):
            level_bytes = Fraction(
                self.communication.upper_bound(workload, level), self.communication.resolution
            )
            seconds += level_bytes * slowest
        if self.work is not None:
            seconds += len(self.communication.phases) * self.work.upper_bound(workload)
        return seconds
