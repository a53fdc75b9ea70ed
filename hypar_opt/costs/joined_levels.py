"""Reductions over several levels: what joins them, and in how many messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.readings import READINGS, Phase
from hypar_opt.costs.states import added_up
from hypar_opt.sharding.repetitions import exchanges_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.communication import CommunicationCost
    from hypar_opt.costs.physical import Rings
    from hypar_opt.costs.table import Integers
    from hypar_opt.workload.tensors import Workload


Levels = tuple[int, ...]
Places = tuple["NDArray[np.intp]", ...]
"""Indices of an array's entries."""
ChargeOfStage = Callable[[Levels, Places, "Integers"], "Integers"]


def joined(rows: Sequence[Integers], shape: tuple[int, ...]) -> tuple[Integers, Integers]:
    """Return which levels each node's reduction joins, and what it moves over each of them.

    One reduction joins all levels that are charged: of a norm's gradient those in data
    parallelism, and those at which it is whole.

    Parameters
    ----------
    rows
        What `CostModel.node` charges a pass at each level.
    shape
        Of the nodes and their states.

    Returns
    -------
    levels : (*shape)
        A number whose bit of 2^h says whether it joins level h.
    moved : (levels, *shape)
        In integers that hold the sum of all levels.
    """
    levels: Integers = np.zeros(shape, np.int64)
    moved = np.zeros((len(rows), *shape), added_up(rows).dtype)
    for level, row in enumerate(rows):
        levels += (row > 0).astype(np.int64) << level
        moved[level] = row
    return levels, moved


def by_stage(
    levels: Integers,
    moved: Integers,
    rows: Sequence[Integers],
    rings: Rings,
    charge: ChargeOfStage,
    *,
    by_crossing: bool,
) -> list[Integers]:
    """Return charges of sets of levels, stage by stage: each with the topmost level of its stage.

    Or, `by_crossing`, each level with the part of the bytes that cross it; the parts add up to the
    charge.

    Parameters
    ----------
    levels, moved
        As `joined` returns them.
    rows
        A charge of nothing for each level, of the type of charges.
    rings
        Of a reduction over some levels: its stages, and what crosses each level of a stage.
    charge
        Returns what the nodes at some places are charged for a stage, given its levels and what
        they move over these.
    """
    charged = [np.zeros(levels.shape, row.dtype) for row in rows]
    order = levels.reshape(-1).argsort(kind="stable")
    distinct, first = np.unique(levels.reshape(-1)[order], return_index=True)
    for bits, places in zip(distinct.tolist(), np.split(order, first[1:]), strict=True):
        here = np.unravel_index(places, levels.shape)
        for stage in rings.stages([level for level in range(len(rows)) if bits >> level & 1]):
            over_all: Integers = sum(moved[level][here] for level in stage)
            whole = charge(stage, here, over_all)
            parts = _parted(whole, rings.crossing(stage)) if by_crossing else [whole]
            for level, part in zip(stage, parts, strict=False):
                charged[level][here] = part
    return charged


def _parted(charge: Integers, parts: Sequence[Fraction]) -> Iterator[Integers]:
    """Yield whole numbers that add up to a charge: its parts, rounded where they end."""
    begun: Integers | int = 0
    for upto in accumulate(parts):
        over, under = upto.numerator, upto.denominator
        # Of integers that are no larger than the charge.
        done: Integers = charge // under * over + charge % under * over // under
        yield done - begun
        begun = done


def messages_of(
    cost: CommunicationCost, workload: Workload, phase: Phase
) -> tuple[Integers, Integers]:
    """Return the messages of each node's reductions in a pass at the topmost level and below it.

    An all-reduce between pairs is recursive halving and doubling, which crosses each level
    twice, and the topmost once. A reduce-scatter or an all-gather crosses each once.

    Returns
    -------
    (nodes,), (nodes,)

    Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005; docs/decisions/0007-arrays-and-time.md.
    """
    # Only `executed` splits an all-reduce of partial sums over two passes; gradients, and the
    # sums of norms, are all-reduced in every reading.
    scattered = READINGS[cost.reading].gathered_error and phase is not Phase.GRADIENT
    own = workload.nodes
    each = np.array([1 if scattered and not any(node.statistics) else 2 for node in own], np.int64)
    times = (
        np.ones(len(own), np.int64) if phase is Phase.GRADIENT else exchanges_of(workload, phase)
    )
    in_halves = workload.repeats.in_halves(len(own)) & (phase is Phase.GRADIENT)
    halves = workload.halves
    return np.where(in_halves, halves, times), np.where(in_halves, halves, times * each)
