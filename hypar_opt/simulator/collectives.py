"""Collectives: the levels that they cross, in order, between pairs or around rings."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

Stage = tuple[int, ...]


class Crossing(NamedTuple):
    """An exchange of an all-reduce over the levels of a stage.

    Parameters
    ----------
    share
        Of the bytes that the all-reduce moves across these levels.
    times
        2 to reduce-scatter and gather, else 1.
    """

    stage: Stage
    share: Fraction
    times: int


def all_reduce(stages: Sequence[Stage]) -> list[Crossing]:
    """Return the exchanges of an all-reduce, in their order.

    Reduce-scatter from the deepest stage up, then all-gather. The topmost stage is reduced and
    gathered in one exchange.

    Parameters
    ----------
    stages
        Levels that are reduced over together, topmost first: between pairs, one each.

    Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
    operations in MPICH", IJHPCA 19(1), 2005, section 4: recursive halving and doubling.
    """
    topmost, *below = stages
    gathered = [Crossing(stage, Fraction(1, 2), 1) for stage in below]
    return [*reversed(gathered), Crossing(topmost, Fraction(1), 2), *gathered]
