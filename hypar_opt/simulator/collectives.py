"""Collectives between pairs of accelerators: the levels that they cross, in order.

At a level every accelerator exchanges with the one whose number differs in the level's bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

Collective = Callable[[Sequence[int]], list[tuple[int, Fraction]]]
"""From a collective's levels, topmost first, to its exchanges in order: the level that an exchange
crosses, and its share of the bytes that the collective moves across that level."""


def reduce_scatter(levels: Sequence[int]) -> list[tuple[int, Fraction]]:
    """Recursive halving: each accelerator keeps the sum of one half, from the deepest level up."""
    return [(level, Fraction(1)) for level in reversed(levels)]


def all_gather(levels: Sequence[int]) -> list[tuple[int, Fraction]]:
    """Recursive doubling: each accelerator receives the other half, from the topmost level down."""
    return [(level, Fraction(1)) for level in levels]


def all_reduce(levels: Sequence[int]) -> list[tuple[int, Fraction]]:
    """Reduce-scatter from the deepest level up, then all-gather: 2k - 1 messages for k levels.

    The topmost level is crossed once: both sides send all that they have, in place of a half
    to be reduced and a half to be gathered.

    Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
    operations in MPICH", IJHPCA 19(1), 2005, section 4: recursive halving and doubling.
    """
    lower_levels = [(level, Fraction(1, 2)) for level in levels[1:]]
    return [*reversed(lower_levels), *((level, Fraction(1)) for level in levels[:1]), *lower_levels]
