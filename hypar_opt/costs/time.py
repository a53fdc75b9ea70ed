"""Time in seconds: compute, and bytes over the bandwidth that the topology gives a level."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.buckets import LATENCY, shares_of_latency
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.compute import Work
from hypar_opt.costs.joined_levels import by_stage, joined, messages_of
from hypar_opt.costs.on_array import ArrayCost, Rates
from hypar_opt.costs.physical import Rings, array_of
from hypar_opt.costs.states import levels_of, shape_of
from hypar_opt.sharding.passes import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.base import Symmetries
    from hypar_opt.costs.joined_levels import Levels, Places
    from hypar_opt.costs.states import Indices, States
    from hypar_opt.costs.table import Integers
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.plan.problem import Problem
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
    work
        The compute of an accelerator; None to charge exchanges only.
    bucket_elements
        The most elements of gradients that are all-reduced together. A layer is charged its share
        of their latency.

    Source: docs/simulator.md.
    """

    splits: tuple[BisectionLink, ...]
    work: Work | None
    bucket_elements: int = 1

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
                array.accelerator,
                problem.hierarchy,
                problem.element_bytes,
                longest=problem.times_longest_part,
            ),
            bucket_elements=array.bucket_elements(problem.element_bytes),
        )
        return cost.in_parts(None, workload)

    def node(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        """Return each layer's charges: its reductions and, at the last level, its compute."""
        levels, shape = levels_of(states), shape_of(nodes, states)
        rows = self.uncharged(levels)
        for phase in self.communication.phases:
            moved = self.communication.of(phase).node(workload, nodes, states)
            crossings = messages_of(self.communication, workload, phase)[nodes]
            shares = 1, np.ones(1, np.int64)
            if phase is Phase.GRADIENT and self.bucket_elements > 1:
                shares = LATENCY, shares_of_latency(workload, self.bucket_elements)[nodes]
            if self.rings is None:
                charged = self._between_pairs(moved, crossings, shares)
            else:
                messages = np.broadcast_to(crossings * shares[1], shape)
                charged = self._around_rings(self.rings, moved, messages, shares[0])
            rows = [row + charge for row, charge in zip(rows, charged, strict=True)]
        # Any earlier the final shards, on which the DRAM's time depends, would be a guess.
        if self.work is not None and levels == self.work.hierarchy.levels > 0:
            per_second = self.per_unit * len(self.communication.phases)
            work = self.work.charges(workload, nodes, states, per_second)
            rows[-1] = rows[-1] + work.astype(rows[-1].dtype)
        return rows

    def _between_pairs(
        self, moved: Sequence[Integers], twice: Integers, shares: tuple[int, Integers]
    ) -> list[Integers]:
        """Return the time of reductions by recursive halving and doubling.

        At the topmost of the levels that a node reduces over, by whichever choices, halving and
        doubling are one exchange, if that level has two parts.
        """
        rows, is_below = [], np.zeros((), bool)
        for level, row in enumerate(moved):
            rounds = self.rounds(level)
            crossings = twice if rounds > 1 else np.where(is_below, twice, 1)
            pace, latency = self.rates(level)
            rates = pace, latency / shares[0]
            rows.append(self.charge(row, rates, crossings * rounds * shares[1]))
            is_below = is_below | (row > 0)
        return rows

    def _around_rings(
        self, rings: Rings, moved: Sequence[Integers], steps: Integers, parts: int
    ) -> list[Integers]:
        """Return the time of reductions around rings, by the bytes that cross the levels.

        Parameters
        ----------
        steps
            How often each node takes all rounds, in parts of a latency.
        """
        levels, reduced = joined(moved, steps.shape)

        def charge(stage: Levels, here: Places, over_all: Integers) -> Integers:
            # A reduce-scatter or an all-gather takes all rounds once, an all-reduce twice
            # (docs/simulator.md).
            pace, latency = self._rates_of(rings.link(stage))
            return self.charge(over_all, (pace, latency / parts), steps[here].astype(object))

        return by_stage(
            levels, reduced, self.uncharged(len(moved)), rings, charge, by_crossing=self.crossing
        )

    def symmetries(self, workload: Workload, levels: int) -> Symmetries:
        """Return what is charged alike; nodes by the share of their bucket's latency, too."""
        alike = super().symmetries(workload, levels)
        if self.bucket_elements == 1:
            return alike
        return alike._replace(marks=shares_of_latency(workload, self.bucket_elements).tolist())

    def communication_only(self) -> TimeCost:
        return replace(self, work=None)

    @cached_property
    def charged_apart(self) -> tuple[CommunicationCost, ...]:
        """The exchanges of each pass."""
        return tuple(self.communication.of(phase) for phase in self.communication.phases)

    def rates(self, level: int) -> Rates:
        return self._rates[level]

    @cached_property
    def _rates(self) -> tuple[Rates, ...]:
        return tuple(map(self._rates_of, self.splits))

    def _rates_of(self, link: BisectionLink) -> Rates:
        pace = link.seconds_per_byte * self.per_unit / self.communication.resolution
        return pace, link.latency * self.per_unit

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return an upper bound on the seconds of any plan under any placement."""
        levels = range(len(self.splits))
        slowest = max(split.seconds_per_byte for split in self.splits)
        latency = max(split.latency for split in self.splits)
        # Between pairs an all-reduce crosses each level at most twice.
        rounds = 2 * sum(map(self.rounds, levels))
        if self.rings is not None:
            # No flow has less than one of as many flows as accelerators has of any channel.
            slowest = max(slowest, 1 / min(self.rings.interconnect.capacities))
            latency = self.rings.interconnect.latency_upper_bound
            # Around a ring of all accelerators it takes less than twice as many messages.
            rounds = 2 * math.prod(self.communication.sizes)
        messages = len(self.communication.phases) * (len(workload.nodes) + len(workload.boundaries))
        seconds = rounds * messages * latency
        for level in levels:
            level_bytes = Fraction(
                self.communication.upper_bound(workload, level), self.communication.resolution
            )
            seconds += level_bytes * slowest
        if self.work is not None:
            seconds += len(self.communication.phases) * self.work.upper_bound(workload)
        return seconds
