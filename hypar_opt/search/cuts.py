"""Cuts of a network into pipeline stages, at least cost, from what each stage would take.

Stages pass micro-batches on to one another; the longest one decides how often, and the others are
waited for once each, at the beginning or at the end of a step.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.workload.stages import block_starts

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network

IMPOSSIBLE = 2**62
"""The cost of a stage that is not offered; others are less than this by their number."""


class Cuts(NamedTuple):
    """Stages, and what they take.

    Parameters
    ----------
    cost
        Of the longest stage, and the share of the others'.
    ends
        The unit before which each stage ends.
    """

    cost: Fraction
    ends: tuple[int, ...]


def least_cuts(stages: NDArray[np.int64], turns: int) -> Cuts | None:
    """Return the cuts of least cost; None where no stages are possible.

    The cost is the longest stage's, and a share ``1/turns`` of all others'. For each bound on the
    longest one, from the least with which any cuts are left, dynamic programming finds the least
    sum; until the bound alone costs more than the best known.

    Parameters
    ----------
    stages : (stages, units + 1, units + 1)
        What a stage costs for a whole step from one unit to before another; `IMPOSSIBLE` where it
        may not be.
    turns
        Micro-batches times chunks of a device.
    """
    if (smallest := _least_sum(stages, IMPOSSIBLE - 1)) is None:
        return None
    bounds = np.unique(stages[stages < IMPOSSIBLE])
    first, last = 0, len(bounds) - 1
    while first < last:
        middle = (first + last) // 2
        if _least_sum(stages, bounds[middle]) is None:
            first = middle + 1
        else:
            last = middle
    best: tuple[int, tuple[int, ...]] | None = None
    for bound in bounds[first:].tolist():
        # All stages together take no less without a bound.
        if best is not None and bound * (turns - 1) + smallest[0] >= best[0]:
            break
        if (result := _least_sum(stages, bound)) is None:
            continue
        total, ends = result
        longest = max(
            int(table[start, end])
            for table, start, end in zip(stages, (0, *ends[:-1]), ends, strict=True)
        )
        cost = longest * (turns - 1) + total
        if best is None or cost < best[0]:
            best = cost, ends
    assert best is not None
    return Cuts(Fraction(best[0], turns), best[1])


def least_cuts_sharing(
    stages: NDArray[np.int64],
    turns: int,
    shared: Sequence[Sequence[int]],
    charge: Callable[[Sequence[tuple[int, int]]], Fraction],
) -> Cuts | None:
    """Return the cuts of least cost of units some of which share weights.

    Cuts are compared without the charge of shared weights first. Those whose weights are in the
    same stages as the best one's cost no less than it; all others are asked further, by the first
    stage that has of one weight what the best one's has not, or the other way around.

    Parameters
    ----------
    stages, turns
        As for `least_cuts`.
    shared
        The units that have each weight.
    charge
        Returns what is charged for them, not negative, given the units of each stage: the same
        wherever the same stages have each weight.
    """
    units = np.arange(stages.shape[1] - 1)
    before = [np.concatenate([[0], np.isin(units, readers).cumsum()]) for readers in shared]
    has = [counts[:, None] < counts for counts in before]
    queue: list[tuple[Fraction, tuple[bool, ...], tuple[int, ...]]] = []
    best: Cuts | None = None

    def ask(known: tuple[bool, ...]) -> None:
        offered = stages.copy()
        for number, value in enumerate(known):
            weight, stage = divmod(number, len(stages))
            offered[stage][has[weight] != value] = IMPOSSIBLE
        if (cuts := least_cuts(offered, turns)) is not None:
            heappush(queue, (cuts.cost, known, cuts.ends))

    ask(())
    while queue and (best is None or queue[0][0] < best.cost):
        cost, fixed, ends = heappop(queue)
        places = [*pairwise((0, *ends))]
        holds = [bool(crossed[place]) for crossed in has for place in places]
        total = cost + charge(places)
        if best is None or total < best.cost:
            best = Cuts(total, ends)
        for number in range(len(fixed), len(holds)):
            ask((*holds[:number], not holds[number]))
    return best


def balanced_cuts(network: Network, weights: NDArray[np.int64], chunks: int) -> tuple[int, ...]:
    """Return the blocks of each chunk whose heaviest one is the lightest.

    None where there are fewer blocks than chunks.

    Parameters
    ----------
    weights : (layers,)
        Of each layer: its multiplications, or the time that it takes.
    """
    blocks = block_starts(network)
    if len(blocks) < chunks:
        return ()
    places = [0, *blocks[1:], len(network.layers)]
    before = np.concatenate([[0], np.cumsum(weights)])[places]
    sums, heaviest = before.tolist(), int(np.diff(before).max())

    def suffices(bound: int) -> bool:
        """Return whether chunks of as much as a bound, each filled in turn, are enough."""
        place = 0
        for _ in range(chunks):
            place = bisect_right(sums, sums[place] + bound) - 1
        return place == len(blocks)

    cost = np.where(np.tri(len(places), dtype=bool), IMPOSSIBLE, before - before[:, None])
    mean = -(-sums[-1] // chunks)
    # Chunks of the mean and a block are enough.
    near = np.unique(cost[(cost >= max(heaviest, mean)) & (cost <= mean + heaviest)])
    bound = int(near[bisect_left(near.tolist(), True, key=suffices)])
    result = _least_sum(np.broadcast_to(cost, (chunks, *cost.shape)), bound)
    assert result is not None
    return tuple(end - start for start, end in pairwise((0, *result[1])))


def _least_sum(stages: NDArray[np.int64], bound: int) -> tuple[int, tuple[int, ...]] | None:
    """Return the least sum of stages that each cost no more than a bound, and their ends."""
    units = stages.shape[1] - 1
    sums = np.full(units + 1, IMPOSSIBLE)
    sums[0] = 0
    starts = []
    for table in stages:
        following = np.where(table <= bound, sums[:, None] + table, IMPOSSIBLE)
        starts.append(following.argmin(axis=0))
        sums = np.minimum(following.min(axis=0), IMPOSSIBLE)
    if sums[units] >= IMPOSSIBLE:
        return None
    ends = [units]
    for start in reversed(starts):
        ends.append(int(start[ends[-1]]))
    return int(sums[units]), tuple(ends[-2::-1])
