"""The hierarchy of an array's levels: the parts into which each splits a group of the one above."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Numbers = TypeVar("Numbers", int, "NDArray[np.intp]")

MAX_PARTS = 1024
"""The most parts of a level."""


@dataclass(frozen=True)
class Hierarchy:
    """The parts of each level, H1 first: (2, 2, 2, 2) for four levels of two parts.

    Accelerators are numbered from 0. A number's digits, of mixed radix and H1's the most
    significant, say which part of each level an accelerator is in.

        >>> hierarchy = Hierarchy((2, 2, 2))
        >>> hierarchy.accelerators, [hierarchy.digit(6, level) for level in range(3)]
        (8, [1, 1, 0])
    """

    sizes: tuple[int, ...]

    @property
    def is_binary(self) -> bool:
        """Whether each level has two parts, as the paper's."""
        return not {*self.sizes} - {2}

    @property
    def unless_binary(self) -> tuple[int, ...] | None:
        """The parts of each level; None if each has two, the default."""
        return None if self.is_binary else self.sizes

    @property
    def uniform(self) -> bool:
        """Whether all levels have equally many parts, so that they may be exchanged."""
        return len({*self.sizes}) < 2

    @property
    def shown(self) -> str:
        """The accelerators as a title shows them: ``2^4 = 16``, ``6 x 8 = 48``, or ``3``."""
        count = f"{self.accelerators:,}"
        if self.is_binary:
            return f"2^{self.levels} = {count}"
        return count if self.levels == 1 else f"{' x '.join(map(str, self.sizes))} = {count}"

    @property
    def in_primes(self) -> Hierarchy:
        """The hierarchy with each level split into its prime factors, smallest first.

        A choice at a level of n parts is the same choice at each of its factors, so the best plan
        of the factors moves no more, and often less.

            >>> Hierarchy((6, 8)).in_primes.sizes
            (2, 3, 2, 2, 2)
        """
        return Hierarchy(tuple(prime for size in self.sizes for prime in _factors(size)))

    def merged(self, parts: int) -> Hierarchy | None:
        """Return the hierarchy with the topmost levels merged into one of some parts; else None.

        The rest of these levels is split into primes.

        >>> Hierarchy((2, 3, 2, 2)).merged(6)
        Hierarchy(sizes=(6, 2, 2))
        >>> Hierarchy((2, 2, 3)).merged(6)
        Hierarchy(sizes=(6, 2))
        """
        whole = (end for end in range(1, self.levels + 1) if prod(self.sizes[:end]) % parts == 0)
        if (end := next(whole, None)) is None:
            return None
        left = Hierarchy((prod(self.sizes[:end]) // parts,)).in_primes.sizes
        return Hierarchy((parts, *left, *self.sizes[end:]))

    @property
    def levels(self) -> int:
        """H, the number of levels."""
        return len(self.sizes)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the levels, the topmost first: ``H1``, ``H2``, ..."""
        return tuple(f"H{level}" for level in range(1, self.levels + 1))

    @property
    def accelerators(self) -> int:
        """The number of accelerators."""
        return prod(self.sizes)

    @property
    def parts_per_level(self) -> int:
        """The parts of each level, if all levels have equally many; two without levels.

        Raises
        ------
        ValueError
            If levels differ.
        """
        if not self.uniform:
            raise ValueError(f"levels of {self.sizes} parts differ")
        return next(iter(self.sizes), 2)

    def parts(self, levels: Iterable[int]) -> int:
        """Return the number of parts into which levels (0 for H1) together split an axis.

        A tensor that none of them splits has as many copies.
        """
        return prod(self.sizes[level] for level in levels)

    def stride(self, level: int) -> int:
        """Return the difference of accelerators' numbers between neighbouring parts of a level."""
        return prod(self.sizes[level + 1 :])

    def within(self, accelerator: Numbers, levels: Iterable[int]) -> Numbers:
        """Return an accelerator's number with the digits of all other levels set to 0."""
        none: Numbers = accelerator * 0
        return sum((self.digit(accelerator, n) * self.stride(n) for n in levels), none)

    def peers(self, accelerator: int, level: int) -> list[int]:
        """Return the accelerators of one accelerator's group at a level, in order."""
        return self.group(accelerator, (level,))

    def group(self, accelerator: int, levels: Iterable[int]) -> list[int]:
        """Return the accelerators that differ from one only at some levels, in order."""
        levels = tuple(levels)
        group = [accelerator - self.within(accelerator, levels)]
        for level in levels:
            stride = self.stride(level)
            group = [own + part * stride for own in group for part in range(self.sizes[level])]
        return group

    def digit(self, accelerator: Numbers, level: int) -> Numbers:
        """Return the part of a level that an accelerator, or each of several, is in."""
        return accelerator // self.stride(level) % self.sizes[level]


@dataclass(frozen=True)
class SplitRule:
    """A rule on splits of an axis: into parts of at least one index, or into equal parts.

    Parameters
    ----------
    even
        Whether parts have to be equal.
    loose
        Whether parts may be empty: only images are split evenly (`may_split`).
    shares
        The shares of H1's parts, if these are unequal and none may be empty. H1 then counts as a
        prime number of parts that is no other level's factor, so that a product tells whether it
        includes H1.
    """

    hierarchy: Hierarchy
    even: bool
    loose: bool = False
    shares: tuple[int, ...] = ()

    @classmethod
    def with_shares(cls, hierarchy: Hierarchy, shares: tuple[int, ...]) -> SplitRule:
        """Return the rule that no part is empty, given the shares of H1's parts.

        >>> rule = SplitRule.with_shares(Hierarchy((2, 2)), (3, 7))
        >>> [bool(rule.allows(size, rule.hierarchy.accelerators)) for size in (4, 5, 6)]
        [False, True, True]
        """
        first = next(n for n in itertools.count(max(hierarchy.sizes) + 1) if _factors(n) == [n])
        return cls(Hierarchy((first, *hierarchy.sizes[1:])), even=False, shares=shares)

    def allows(self, size: Any, parts: Any) -> Any:
        """Return whether an axis may be split into so many parts; one of size 0 is not split.

        Both are integers or arrays of them.
        """
        if self.even:
            return size % parts == 0
        left = self.left(size, parts)
        return (left >= 1) | (size == 0) | self.loose

    def left(self, size: Any, parts: Any) -> Any:
        """Return a lower bound on the indices of the smallest of some number of parts."""
        if not self.shares:
            return size // parts
        import numpy as np

        first = self.hierarchy.sizes[0]
        smallest = reduce(np.minimum, parts_by_share(size, self.shares))
        return np.where(parts % first == 0, smallest * first, size) // parts

    def parts(self, product: int) -> int:
        """Return the number of parts into which levels split an axis, given their product."""
        first = self.hierarchy.sizes[0] if self.shares else 0
        return product // first * len(self.shares) if first and product % first == 0 else product

    def levels(self, size: int) -> int:
        """Return at how many levels an axis may be split, if all have equally many parts.

        >>> SplitRule(Hierarchy((2, 2, 2, 2)), even=True).levels(24)
        3
        """
        counts = range(1, self.hierarchy.levels + 1)
        parts_per_level = self.hierarchy.parts_per_level
        return max((n for n in counts if self.allows(size, parts_per_level**n)), default=0)


Shares = tuple[int, ...]
"""The share of each part of a level, relative to their sum."""


def parts_by_share(size: Any, shares: Sequence[int]) -> list[Any]:
    """Return the indices of an axis that each part has: cumulative shares are rounded.

    The size is an integer, or an array of them.
    """
    whole = sum(shares)
    ends = [rounded_share(size, end, whole) for end in itertools.accumulate(shares, initial=0)]
    return [end - begin for begin, end in itertools.pairwise(ends)]


def rounded_share(size: Any, share: int, total: int) -> Any:
    """Return a share of a size, rounded to the nearest integer, halves to even."""
    if share in (0, total):  # the ends of the axis, where nothing is rounded
        return size * (share // total)
    amount = size * share
    quotient = amount // total
    remainder = 2 * (amount - quotient * total)
    return quotient + ((remainder > total) | ((remainder == total) & (quotient % 2 == 1)))


def _factors(size: int) -> list[int]:
    """Return the prime factors of a size, smallest first."""
    factors, divisor = [], 2
    while divisor * divisor <= size:
        while size % divisor == 0:
            factors.append(divisor)
            size //= divisor
        divisor += 1
    return factors + [size] * (size > 1)
