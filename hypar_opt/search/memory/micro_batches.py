"""The numbers of micro-batches of a search: their modes, and bounds on their plans."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from hypar_opt.integers import divisors
from hypar_opt.search.memory.modes import mode_free_bound
from hypar_opt.search.memory.relaxation import LayerModes
from hypar_opt.search.two_level_neighbourhood import least_compute

if TYPE_CHECKING:
    from hypar_opt.search.result import SearchRequest


@dataclass
class ModesByMicroBatches:
    """The modes of layers by the number of micro-batches, created on demand.

    Parameters
    ----------
    part
        As in `TrainingMode`.
    """

    search: SearchRequest
    part: int | None
    _modes: dict[int, LayerModes] = field(default_factory=dict)

    def of(self, count: int) -> LayerModes:
        if count not in self._modes:
            self._modes[count] = LayerModes(self.search, count, part=self.part)
        return self._modes[count]

    def even(self, count: int) -> bool:
        """Return whether all parts of so many micro-batches are equal."""
        return self.search.instance.splits_evenly(count)

    @property
    def all_counts(self) -> Sequence[int]:
        """The numbers of micro-batches that a problem allows."""
        problem = self.search.instance.problem
        stated = problem.training.micro_batches
        return [stated] if stated else divisors(problem.batch)

    @property
    def counts(self) -> Sequence[int]:
        """The numbers of micro-batches with which a plan may fit: more of them hold no more."""
        problem = self.search.instance.problem
        counts = self.all_counts
        if problem.training.micro_batches:
            return counts if self.may_fit(counts[0]) else []
        if self.may_fit(counts[0]):
            return counts
        return counts[bisect_left(counts, True, 1, key=self.may_fit) :]

    def may_fit(self, count: int) -> bool:
        modes = self.of(count)
        return modes.load_bound <= modes.first.total_capacity

    def compute(self, count: int) -> Fraction:
        """Return a bound on all plans of so many micro-batches: what nodes compute."""
        first = self.of(count).first
        return Fraction(least_compute(first.instance), first.per_unit)

    def exchanges(self, count: int) -> Fraction:
        """Return a bound on all plans of so many micro-batches, with their exchanges; or 0."""
        return mode_free_bound(self.of(count).first)


@dataclass
class MicroBatchBounds:
    """Bounds on the plans of each number of micro-batches, and which number is searched next.

    With even parts, a plan in more micro-batches takes no less and holds no more.

    Parameters
    ----------
    bounds
        On the plans that fit, by number, in order.
    even
        Whether all parts of so many micro-batches are equal.
    unlimited
        Bounds on all plans, whether they fit or not.
    excess
        By how many bytes the fastest plan exceeds the capacity.
    priced
        The numbers whose bound only a comparison of plans can raise.
    ended
        The numbers whose search has ended.
    """

    bounds: dict[int, Fraction]
    even: Callable[[int], bool]
    unlimited: dict[int, Fraction] = field(default_factory=dict)
    excess: dict[int, Fraction] = field(default_factory=dict)
    priced: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)

    def raise_to(self, bound: Fraction, counts: Iterable[int]) -> None:
        """Raise the bounds on plans that fit, for some numbers, to no less than a bound."""
        self.bounds |= {n: max(self.bounds[n], bound) for n in counts}
        for count in filter(self.even, self.bounds):
            of_divisors = (bound for n, bound in self.unlimited.items() if count % n == 0)
            self.bounds[count] = max([self.bounds[count], *of_divisors])

    def promising(self, limit: Fraction) -> list[int]:
        """Return the numbers that may have a plan below a limit, in the order of their bounds."""
        counts = [n for n, bound in self.bounds.items() if bound < limit and n not in self.ended]
        return sorted(counts, key=lambda count: (self.bounds[count], count))

    def multiple(self, count: int, limit: Fraction) -> int | None:
        """Return the least promising multiple of a number that has even parts and no price yet."""
        multiples = (n for n in self.promising(limit) if n > count and n % count == 0)
        unpriced = (n for n in multiples if n not in self.priced)
        return min(filter(self.even, unpriced), default=None)

    @property
    def nearest(self) -> int | None:
        """The number whose fastest plan exceeds the capacity by least."""
        above = [count for count, excess in self.excess.items() if excess > 0]
        return min(above, key=self.excess.__getitem__, default=None)

    def in_turn(self) -> Iterator[int]:
        """Yield numbers whose `excess` is to be computed, to find the least by which a plan fits.

        That comes last, again, if there is one.
        """
        counts = [*self.bounds]
        few, many = -1, len(counts)
        while many - few > 1:
            middle = self._between(counts, few, many)
            yield counts[middle]
            if self.excess.get(counts[middle], 0) > 0:
                few = middle
            else:
                many = middle
        yield from counts[many : many + 1]

    def _between(self, counts: list[int], few: int, many: int) -> int:
        """Return a place between two: where `excess` is 0 if it is linear in 1 / count."""
        ends = [n for place in (few, many) for n in counts[max(place, 0) : place + 1]]
        if len(ends) < 2 or not all(n in self.excess for n in ends):
            return (few + many) // 2
        (one, other), (more, less) = ends, (self.excess[n] for n in ends)
        # As many have no excess: less <= 0 < more.
        count = one * other * (more - less) / (more * one - less * other)
        place = next(n for n, other in enumerate(counts) if other >= count)
        return min(max(place, few + 1), many - 1)
