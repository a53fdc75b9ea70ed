"""Cuts of a network into pipeline stages at least cost, given the time of each stage.

Micro-batches pass through the stages; the longest stage sets the pace, and the others are waited
for once each, when the pipeline fills or drains.
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
"""The cost of a stage that is not allowed; a sum of other stages' costs is less than this."""


class Cuts(NamedTuple):
    """The cuts between stages, and their cost.

    Parameters
    ----------
    cost
        The cost of the longest stage, plus a share of the others'.
    ends
        The unit before which each stage ends.
    """

    cost: Fraction
    ends: tuple[int, ...]


def least_cuts(stages: NDArray[np.int64], turns: int) -> Cuts | None:
    """Return the cuts of least cost; None if there are none.

    The cost is the longest stage's, and a share ``1/turns`` of all others'. For each bound on the
    longest stage, from the least that allows any cuts, dynamic programming finds the least sum;
    until the bound alone costs more than the best cuts.

    Parameters
    ----------
    stages : (stages, units + 1, units + 1)
        The cost per step of a stage from one unit to before another; `IMPOSSIBLE` if it is not
        allowed.
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
        # The sum over all stages is no less than without a bound.
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

    Cuts are first compared without the charge of shared weights. Cuts that have the weights in the
    same stages as the best ones cost no less than these; all others are searched further, divided
    by the first stage that differs in whether it holds a weight.

    Parameters
    ----------
    stages, turns
        As for `least_cuts`.
    shared
        The units that hold each weight.
    charge
        Returns the charge of shared weights, not negative, given the units of each stage: it
        depends only on which stages hold each weight.
    """
    units = np.arange(stages.shape[1] - 1)
    before = [np.concatenate([[0], np.isin(units, readers).cumsum()]) for readers in shared]
    has = [counts[:, None] < counts for counts in before]
    queue: list[tuple[Fraction, tuple[bool, ...], tuple[int, ...]]] = []
    best: Cuts | None = None

    def add_cuts(decided: tuple[bool, ...]) -> None:
        offered = stages.copy()
        for number, value in enumerate(decided):
            weight, stage = divmod(number, len(stages))
            offered[stage][has[weight] != value] = IMPOSSIBLE
        if (cuts := least_cuts(offered, turns)) is not None:
            heappush(queue, (cuts.cost, decided, cuts.ends))

    add_cuts(())
    while queue and (best is None or queue[0][0] < best.cost):
        cost, fixed, ends = heappop(queue)
        places = [*pairwise((0, *ends))]
        holds = [bool(crossed[place]) for crossed in has for place in places]
        total = cost + charge(places)
        if best is None or total < best.cost:
            best = Cuts(total, ends)
        for number in range(len(fixed), len(holds)):
            add_cuts((*holds[:number], not holds[number]))
    return best


def balanced_cuts(network: Network, weights: NDArray[np.int64], chunks: int) -> tuple[int, ...]:
    """Return the blocks of each chunk whose heaviest one is the lightest.

    None where there are fewer blocks than chunks.

    Parameters
    ----------
    weights : (layers,)
        The weight of each layer: its multiplications, or its time.
    """
    blocks = block_starts(network)
    if len(blocks) < chunks:
        return ()
    places = [0, *blocks[1:], len(network.layers)]
    before = np.concatenate([[0], np.cumsum(weights)])[places]
    sums, heaviest = before.tolist(), int(np.diff(before).max())

    def suffices(bound: int) -> bool:
        """Return whether chunks that are filled up to a bound in turn are enough."""
        place = 0
        for _ in range(chunks):
            place = bisect_right(sums, sums[place] + bound) - 1
        return place == len(blocks)

    cost = np.where(np.tri(len(places), dtype=bool), IMPOSSIBLE, before - before[:, None])
    mean = -(-sums[-1] // chunks)
    # Chunks of the mean plus a block are enough.
    near = np.unique(cost[(cost >= max(heaviest, mean)) & (cost <= mean + heaviest)])
    bound = int(near[bisect_left(near.tolist(), True, key=suffices)])
    result = _least_sum(np.broadcast_to(cost, (chunks, *cost.shape)), bound)
    assert result is not None
    return tuple(end - start for start, end in pairwise((0, *result[1])))


def _least_sum(stages: NDArray[np.int64], bound: int) -> tuple[int, tuple[int, ...]] | None:
    """Return the least sum of stages that each cost at most a bound, and their ends."""
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
