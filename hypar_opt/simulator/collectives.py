"""Collectives between pairs of accelerators: the levels that they cross, in order.

At a level every accelerator exchanges with the one whose number differs in the level's bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def all_reduce(levels: Sequence[int]) -> list[tuple[int, Fraction]]:
    """Return the exchanges of an all-reduce over some levels, topmost first, in their order.

    Reduce-scatter from the deepest level up, then all-gather: 2k - 1 messages for k levels. The
    topmost level is crossed once: both sides send all that they have, in place of a half to be
    reduced and a half to be gathered.

    Returns
    -------
    list of (level, share)
        The level that an exchange crosses, and its share of the bytes that the all-reduce moves
        across that level.

    Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
    operations in MPICH", IJHPCA 19(1), 2005, section 4: recursive halving and doubling.
    """
    lower_levels = [(level, Fraction(1, 2)) for level in levels[1:]]
    return [*reversed(lower_levels), *((level, Fraction(1)) for level in levels[:1]), *lower_levels]
