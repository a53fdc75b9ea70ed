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
    def of_halves(self) -> bool:
        """Whether each level has two parts, as the paper's."""
        return not {*self.sizes} - {2}

    @property
    def unless_halves(self) -> tuple[int, ...] | None:
        """The parts of each level; None if each has two, which needs no saying."""
        return None if self.of_halves else self.sizes

    @property
    def uniform(self) -> bool:
        """Whether all levels have equally many parts, so that they may be exchanged."""
        return len({*self.sizes}) < 2

    @property
    def shown(self) -> str:
        """The accelerators as a title shows them: ``2^4 = 16``, ``6 x 8 = 48``, or ``3``."""
        count = f"{self.accelerators:,}"
        if self.of_halves:
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
        """Return the hierarchy whose topmost levels are one of some parts; None if none are.

        What is left of these levels is divided by primes.

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
    def of_each(self) -> int:
        """The parts of every level, if all levels have equally many; two without levels.

        Raises
        ------
        ValueError
            If levels differ.
        """
        if not self.uniform:
            raise ValueError(f"levels of {self.sizes} parts differ")
        return next(iter(self.sizes), 2)

    def parts(self, levels: Iterable[int]) -> int:
        """Return into how many parts some levels together, 0 being H1, split an axis.

        A tensor that none of them splits has as many copies.
        """
        return prod(self.sizes[level] for level in levels)

    def stride(self, level: int) -> int:
        """Return how far apart the numbers of accelerators are in neighbouring parts of a level."""
        return prod(self.sizes[level + 1 :])

    def within(self, accelerator: Numbers, levels: Iterable[int]) -> Numbers:
        """Return an accelerator's number with the digits of all but some levels set to 0."""
        none: Numbers = accelerator * 0
        return sum((self.digit(accelerator, n) * self.stride(n) for n in levels), none)

    def peers(self, accelerator: int, level: int) -> list[int]:
        """Return the accelerators of one accelerator's group at a level, in order."""
        return self.group(accelerator, (level,))

    def group(self, accelerator: int, levels: Iterable[int]) -> list[int]:
        """Return the accelerators that differ from one at some levels at most, in order."""
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
    """A rule on how levels may split an axis: into parts of at least one index, or into equal ones.

    Parameters
    ----------
    even
        Whether parts have to be equal.
    loose
        Whether parts may be empty, too: images alone are split evenly (`may_split`).
    shares
        Of H1's parts, where these are unequal and none may be empty. H1 then counts as a prime
        number of parts, which is no other level's factor: a product tells whether H1 is in it.
    """

    hierarchy: Hierarchy
    even: bool
    loose: bool = False
    shares: tuple[int, ...] = ()

    @classmethod
    def with_shares(cls, hierarchy: Hierarchy, shares: tuple[int, ...]) -> SplitRule:
        """Return the rule that no part is empty, where H1's parts have shares.

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
        """Return how many indices the least of so many parts has at least."""
        if not self.shares:
            return size // parts
        import numpy as np

        first = self.hierarchy.sizes[0]
        smallest = reduce(np.minimum, parts_by_share(size, self.shares))
        return np.where(parts % first == 0, smallest * first, size) // parts

    def parts(self, product: int) -> int:
        """Return into how many parts levels split an axis, given the product of their parts."""
        first = self.hierarchy.sizes[0] if self.shares else 0
        return product // first * len(self.shares) if first and product % first == 0 else product

    def levels(self, size: int) -> int:
        """Return at how many levels an axis may be split, where all have equally many parts.

        >>> SplitRule(Hierarchy((2, 2, 2, 2)), even=True).levels(24)
        3
        """
        counts = range(1, self.hierarchy.levels + 1)
        of_each = self.hierarchy.of_each
        return max((n for n in counts if self.allows(size, of_each**n)), default=0)


Shares = tuple[int, ...]
"""The share of each part of a level, of their sum."""


def parts_by_share(size: Any, shares: Sequence[int]) -> list[Any]:
    """Return how many of an axis's indices each part has: shares are rounded where they end.

    The size is an integer, or an array of them.
    """
    whole = sum(shares)
    ends = [rounded_share(size, end, whole) for end in itertools.accumulate(shares, initial=0)]
    return [end - begin for begin, end in itertools.pairwise(ends)]


def rounded_share(size: Any, share: int, of: int) -> Any:
    """Return a share of a size, rounded to the nearest integer, a half to an even one."""
    if share in (0, of):  # the ends of all parts, where nothing is rounded
        return size * (share // of)
    amount = size * share
    quotient = amount // of
    rest = 2 * (amount - quotient * of)
    return quotient + ((rest > of) | ((rest == of) & (quotient % 2 == 1)))


def _factors(size: int) -> list[int]:
    """Return the prime factors of a size, smallest first."""
    factors, divisor = [], 2
    while divisor * divisor <= size:
        while size % divisor == 0:
            factors.append(divisor)
            size //= divisor
        divisor += 1
    return factors + [size] * (size > 1)
