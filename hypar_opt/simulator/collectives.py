"""Collectives between pairs of accelerators: the levels that they cross, in order.

At a level every accelerator exchanges with those whose numbers differ in the level's digit alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple


class Crossing(NamedTuple):
    """An exchange of an all-reduce between the parts of a level.

    Parameters
    ----------
    share
        Of the bytes that the all-reduce moves across that level.
    times
        How often every accelerator sends to each other one of its group.
    """

    level: int
    share: Fraction
    times: int


def all_reduce(levels: Mapping[int, int]) -> list[Crossing]:
    """Return the exchanges of an all-reduce over some levels, topmost first, in their order.

    Reduce-scatter from the deepest level up, then all-gather. The topmost level is reduced and
    gathered in one exchange; if it has two parts, in one message: both sides send all that they
    have, in place of a half to be reduced and a half to be gathered.

    Parameters
    ----------
    levels
        The parts of each level, topmost first.

    Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
    operations in MPICH", IJHPCA 19(1), 2005, section 4: recursive halving and doubling.
    """
    (topmost, parts), *below = levels.items()
    lower = [Crossing(level, Fraction(1, 2), 1) for level, _ in below]
    return [*reversed(lower), Crossing(topmost, Fraction(1), 1 if parts == 2 else 2), *lower]
