"""Time in seconds: compute, and bytes over what the array's topology gives each level."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import CostModel, Splits
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.compute import Work
from hypar_opt.costs.physical import PREFIXES, array_of, finest, rounded
from hypar_opt.costs.table import Integers, whole_number_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypar_opt.hardware.wires import Split
    from hypar_opt.plan import Problem
    from hypar_opt.shapes import Shapes


@dataclass(frozen=True)
class TimeCost(CostModel):
    """Seconds of one training step in which nothing overlaps.

    Every exchange of a level takes the latency of a message and its bytes over what the
    topology gives that level's exchange between pairs. Each pass of a layer takes the longer
    of its compute and its DRAM's time; it is charged with the last level, where the shards
    are known.

    Parameters
    ----------
    communication
        Whose bytes are charged.
    splits
        What each level has of the array, H1 first.
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
    splits: tuple[Split, ...]
    work: Work | None
    per_second: int = 10**15
    largest: int = 2**63

    @classmethod
    def asked(cls, problem: Problem, shapes: Shapes) -> TimeCost:
        """Return the cost of a problem with an array.

        Raises
        ------
        HyparError
            If the problem has no array, or what does not go with one.
        """
        array, placement = array_of(problem)
        splits = tuple(array.wires.split(bit) for bit in placement)
        work = Work(array.accelerator, problem.levels, problem.element_bytes)
        cost = cls(CommunicationCost.asked(problem, shapes), splits, work)
        return cost.in_parts(finest(cost.worst(shapes)), shapes)

    def in_parts(self, per_second: int, shapes: Shapes) -> TimeCost:
        """Return the same cost in another unit."""
        largest = math.ceil(4 * self.worst(shapes) * per_second)
        return replace(self, per_second=per_second, largest=largest)

    @property
    def unit(self) -> str:
        return f"{PREFIXES.get(self.per_second, '')}seconds"

    @property
    def choices(self) -> int:
        return self.communication.choices

    def node(self, shapes: Shapes, splits: Splits) -> Integers:
        """Charge each layer's exchanges and, with the last level, its compute."""
        node = self._timed(splits.level, lambda cost: cost.node(shapes, splits))
        if self.work is not None and splits.level == self.work.levels - 1:
            passes = len(self.communication.phases)
            for choice in range(self.choices):
                counts = splits.counts.copy()
                counts[choice] += 1
                seconds = self.work.seconds(shapes, counts)
                node[:, choice] += [round(each * passes * self.per_second) for each in seconds]
        return node.astype(whole_number_type(self.largest))

    def edge(self, shapes: Shapes, source: Splits, target: Splits) -> Integers:
        """Charge each boundary's exchanges."""
        edge = self._timed(target.level, lambda cost: cost.edge(shapes, source, target))
        return edge.astype(whole_number_type(self.largest))

    def by_final_shards(self, shapes: Shapes, splits: Splits) -> str | None:
        """Return the layers whose DRAM binds: their compute's time is that of their shards."""
        bound = self.work.bound_by_memory(shapes, splits.counts) if self.work else []
        return f"the DRAM-bound compute of {', '.join(bound)}" if bound else None

    def exchanged(self) -> TimeCost:
        return replace(self, work=None)

    def _timed(self, level: int, charge: Callable[[CommunicationCost], Integers]) -> Integers:
        """Time each pass's exchanges by themselves: each is a message of its own."""
        total: Integers = np.zeros(1, object)
        split = self.splits[level]
        each = split.seconds_per_byte * self.per_second / self.communication.per_unit
        for phase in self.communication.phases:
            moved = charge(self.communication.of(phase))
            total = total + rounded(moved, each, once=split.latency * self.per_second)
        return total

    def worst(self, shapes: Shapes) -> Fraction:
        """Return seconds that no plan takes, wherever its levels are placed."""
        messages = len(self.communication.phases) * (len(shapes.layers) + len(shapes.boundaries))
        slowest = max(split.seconds_per_byte for split in self.splits)
        worst = len(self.splits) * messages * max(split.latency for split in self.splits)
        for level in range(len(self.splits)):
            most = Fraction(self.communication.most(shapes, level), self.communication.per_unit)
            worst += most * slowest
        if self.work is not None:
            worst += len(self.communication.phases) * self.work.worst(shapes)
        return worst
