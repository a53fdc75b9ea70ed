"""The ways of training in each number of micro-batches: which may fit, and what they take at least.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from hypar_opt.integers import divisors
from hypar_opt.search.any_way import bound_over_equal_links
from hypar_opt.search.pairs_of_levels import least_compute
from hypar_opt.search.ways_by_layer import WaysByLayer
from hypar_opt.step.uneven import divides_evenly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.search.result import SearchRequest


@dataclass
class WaysByCount:
    """The ways of layers by the number of micro-batches, which are made when they are asked for.

    Parameters
    ----------
    part
        As in `WayOfTraining`.
    """

    search: SearchRequest
    part: int | None
    _made: dict[int, WaysByLayer] = field(default_factory=dict)

    def of(self, count: int) -> WaysByLayer:
        if count not in self._made:
            self._made[count] = WaysByLayer(self.search, count, part=self.part)
        return self._made[count]

    def even(self, count: int) -> bool:
        """Return whether all parts of so many micro-batches are equal."""
        instance = self.search.instance
        images = instance.problem.batch // count
        return divides_evenly(images, instance.problem.hierarchy, instance.rule)

    @property
    def every_count(self) -> Sequence[int]:
        """The micro-batches that a problem may have."""
        problem = self.search.instance.problem
        stated = problem.training.micro_batches
        return [stated] if stated else divisors(problem.batch)

    @property
    def counts(self) -> Sequence[int]:
        """The micro-batches by which a plan may fit: more of them hold no more."""
        problem = self.search.instance.problem
        counts = self.every_count
        if problem.training.micro_batches:
            return counts if self.may_fit(counts[0]) else []
        every = self.may_fit(counts[0])
        return counts if every else counts[bisect_left(counts, True, 1, key=self.may_fit) :]

    def may_fit(self, count: int) -> bool:
        ways = self.of(count)
        return ways.least_load <= ways.first.whole_capacity

    def compute(self, count: int) -> Fraction:
        """Return a bound on all plans of so many micro-batches: what nodes compute."""
        first = self.of(count).first
        return Fraction(least_compute(first.instance), first.per_unit)

    def over_equal_links(self, count: int) -> Fraction:
        """Return a bound on all plans of so many micro-batches, with their exchanges; or 0."""
        return bound_over_equal_links(self.of(count).first)
