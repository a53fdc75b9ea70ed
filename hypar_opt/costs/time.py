"""Time in seconds: compute, and bytes over what the array's topology gives each level."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import CostModel, SplitCounts
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.compute import Work
from hypar_opt.costs.physical import Rings, array_of, finest, rounded
from hypar_opt.costs.table import Integers, exact_dtype
from hypar_opt.units import PREFIXES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypar_opt.hardware.interconnect import BisectionLink
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True)
class TimeCost(CostModel):
    """Seconds of one training step in which nothing overlaps.

    Every exchange of a level takes the latencies of its messages and its bytes over what the
    topology gives that level's exchange between pairs. Around rings a layer's reduction joins
    all the levels at which it makes one choice: it is charged to the layer's state, and counted
    with the topmost of them. Each pass of a layer takes the longer of its compute and its
    DRAM's time; it is charged with the last level, where the shards are known.

    Parameters
    ----------
    communication
        Whose bytes are charged.
    splits
        What each level has of the array, H1 first.
    rings
        What rings over the bits of some levels have of it; None to reduce between pairs.
    work
        None to charge exchanges only.
    per_second
        Charges count this fraction of a second: 10^15, or fewer where sums of femtoseconds
        would not fit int64.
    largest
        No sum of charges is larger.

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
            If the problem has no array, or what does not go with one.
        """
        array, placement = array_of(problem)
        splits = tuple(array.interconnect.bisection(bit) for bit in placement)
        rings = Rings.of(array, placement)
        work = Work(array.accelerator, problem.levels, problem.element_bytes)
        cost = cls(CommunicationCost.from_problem(problem, workload), splits, rings, work)
        return cost.in_parts(finest(cost.upper_bound(workload)), workload)

    def in_parts(self, per_second: int, workload: Workload) -> TimeCost:
        """Return the same cost in another unit."""
        largest = math.ceil(4 * self.upper_bound(workload) * per_second)
        return replace(self, per_second=per_second, largest=largest)

    @property
    def unit(self) -> str:
        return f"{PREFIXES.get(self.per_second, '')}seconds"

    @property
    def choices(self) -> int:
        return self.communication.choices

    def node(self, workload: Workload, splits: SplitCounts) -> Integers:
        """Charge each layer's reductions between pairs and, with the last level, its compute."""
        node: Integers = np.zeros((len(workload.layers), self.choices), object)
        if self.rings is None:
            for phase in self.communication.phases:
                # The topmost level at which a layer makes a choice is crossed once.
                crossings = np.where(splits.counts.T == 0, 1, self.communication.messages(phase))
                messages = crossings.astype(object)
                moved = self.communication.of(phase).node(workload, splits)
                node = node + self._timed(moved, self.splits[splits.level], messages)
        if self.work is not None and splits.level == self.work.levels - 1:
            passes = len(self.communication.phases)
            for choice in range(self.choices):
                counts = splits.counts.copy()
                counts[choice] += 1
                seconds = self.work.seconds(workload, counts)
                node[:, choice] += [round(each * passes * self.per_second) for each in seconds]
        return node.astype(exact_dtype(self.largest))

    def edge(self, workload: Workload, source: SplitCounts, target: SplitCounts) -> Integers:
        """Charge each boundary's exchanges."""
        edge: Integers = np.zeros(1, object)
        for phase in self.communication.phases:
            moved = self.communication.of(phase).edge(workload, source, target)
            edge = edge + self._timed(moved, self.splits[target.level])
        return edge.astype(exact_dtype(self.largest))

    def of_state(self, workload: Workload, state: Sequence[int]) -> Mapping[int, Integers]:
        """Charge each layer's rings, over all the levels at which it makes one choice."""
        charges: dict[int, Integers] = {}
        number = exact_dtype(self.largest)
        for choice, levels, split in self.rings.joined(state) if self.rings else ():
            total: Integers = np.zeros(len(workload.layers), object)
            for phase in self.communication.phases:
                messages = self.communication.messages(phase) * (2 ** len(levels) - 1)
                moved = self.communication.of(phase).of_choice(workload, state, choice)
                total = total + self._timed(moved, split, messages)
            charges[levels[0]] = total.astype(number)
        return charges

    def beyond_levels(self, workload: Workload, splits: SplitCounts) -> str | None:
        """Return what of the time is of a layer's state: its rings, its DRAM where that binds."""
        if self.rings is not None:
            return "a ring joins all the levels at which a layer reduces"
        bound = self.work.bound_by_memory(workload, splits.counts) if self.work else []
        layers = ", ".join(bound)
        return f"the DRAM-bound compute of {layers} depends on the final shards" if bound else None

    def communication_only(self) -> TimeCost:
        return replace(self, work=None)

    def _timed(
        self, moved: Integers, split: BisectionLink, messages: Integers | int = 1
    ) -> Integers:
        """Return what exchanges take, each rounded by itself."""
        pace = split.seconds_per_byte * self.per_second / self.communication.resolution
        return rounded(moved, pace, split.latency * self.per_second, messages)

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return seconds that no plan takes, wherever its levels are placed."""
        levels = len(self.splits)
        slowest = max(split.seconds_per_byte for split in self.splits)
        latency = max(split.latency for split in self.splits)
        rounds = 2 * levels
        if self.rings is not None:
            # No flow has less than one of as many flows as accelerators has of any channel.
            slowest = max(slowest, 1 / min(self.rings.interconnect.capacities))
            latency = self.rings.interconnect.latency_upper_bound
            rounds = 2 * 2**levels
        messages = len(self.communication.phases) * (
            len(workload.layers) + len(workload.boundaries)
        )
        worst = rounds * messages * latency
        for level in range(levels):
            most = Fraction(
                self.communication.upper_bound(workload, level), self.communication.resolution
            )
            worst += most * slowest
        if self.work is not None:
            worst += len(self.communication.phases) * self.work.upper_bound(workload)
        return worst
