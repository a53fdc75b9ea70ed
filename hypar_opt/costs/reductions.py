"""Reductions over several levels: what joins them, and in how many messages."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial, reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.integers import scale
from hypar_opt.sharding.passes import Phase
from hypar_opt.step.operations import by_level
from hypar_opt.step.states import exact_sum
from hypar_opt.workload.repeats import REDUCTION_GROUPS, SCATTERED_EACH_MICRO_BATCH

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.communication import CommunicationCost
    from hypar_opt.costs.physical import Rings
    from hypar_opt.integers import Integers
    from hypar_opt.step.operations import Collective


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
    moved = np.zeros((len(rows), *shape), exact_sum(rows).dtype)
    for level, row in enumerate(rows):
        levels += (row > 0).astype(np.int64) << level
        moved[level] = row
    return levels, moved


def stage_charges(
    levels: Integers,
    moved: Integers,
    rows: Sequence[Integers],
    rings: Rings,
    charge: ChargeOfStage,
    *,
    by_crossing: bool,
    charge_alone: ChargeOfStage | None = None,
) -> list[Integers]:
    """Return charges of sets of levels, stage by stage, at the topmost level of each stage.

    With `by_crossing` a charge is divided among a stage's levels in proportion to the bytes that
    cross them; the parts add up to the charge.

    Parameters
    ----------
    levels, moved
        As `joined` returns them.
    rows
        A charge of 0 for each level, in the dtype of charges.
    rings
        Of a reduction over some levels: its stages, and what crosses each level of a stage.
    charge
        Returns the charge of nodes for a stage, given its levels, the nodes' indices and what they
        move over the levels.
    charge_alone
        As ``charge``, for levels that are reduced by themselves. Then the charge is a lower bound
        over all levels from which on that may be so, and stands at the topmost level.
    """
    charged = [np.zeros(levels.shape, row.dtype) for row in rows]
    order = levels.reshape(-1).argsort(kind="stable")
    distinct, first = np.unique(levels.reshape(-1)[order], return_index=True)
    for bits, places in zip(distinct.tolist(), np.split(order, first[1:]), strict=True):
        members = np.unravel_index(places, levels.shape)
        crossed = [level for level in range(len(rows)) if bits >> level & 1]

        def charge_by(of: ChargeOfStage, stage: Levels, members: Places = members) -> Integers:
            return of(stage, members, sum(moved[level][members] for level in stage))

        for stage in rings.stages(crossed):
            whole = charge_by(charge, stage)
            parts = _parted(whole, rings.crossing(stage)) if by_crossing else [whole]
            for level, part in zip(stage, parts, strict=False):
                charged[level][members] = part
        if charge_alone and crossed:
            lowest = _min_over_stage_splits(
                crossed, rings, partial(charge_by, charge), partial(charge_by, charge_alone)
            )
            total = sum(row[members] for row in charged)
            for row in charged:
                row[members] = 0
            charged[crossed[0]][members] = np.minimum(total, lowest)
    return charged


def _min_over_stage_splits(
    levels: Sequence[int],
    rings: Rings,
    above: Callable[[Levels], Integers],
    charge_alone: Callable[[Levels], Integers],
) -> Integers:
    """Return a lower bound on the charge of levels of which those from one on are reduced alone.

    Parameters
    ----------
    above, charge_alone
        Return the charge of a stage of levels above that one; and of levels from it on.
    """
    remaining: list[Any] = [0]  # of the levels from each one on
    stages = [(stage, at) for stage in rings.stages(levels) for at in range(len(stage))]
    for stage, at in reversed(stages):
        candidates = [
            charge_alone(stage[at:end]) + remaining[end - at - 1]
            for end in range(at + 1, len(stage) + 1)
        ]
        remaining.insert(0, reduce(np.minimum, candidates))
    begun = (sum(map(above, rings.stages(levels[:first]))) for first in range(len(levels)))
    lowest: Integers = reduce(np.minimum, map(operator.add, begun, remaining))
    return lowest


def _parted(charge: Integers, parts: Sequence[Fraction]) -> Iterator[Integers]:
    """Yield integers that add up to a charge: its parts, whose cumulative sums are rounded."""
    start: Integers | int = 0
    for upto in accumulate(parts):
        end = scale(charge, upto, "down")
        yield end - start
        start = end


def reductions_of(
    operations: Iterable[Collective], cost: CommunicationCost, levels: int
) -> dict[tuple[Phase, int], Reduction]:
    """Return the reductions among operations, by pass and number in `REDUCTION_GROUPS`."""
    together: dict[tuple[Phase, int], list[Collective]] = {}
    for operation in operations:
        together.setdefault((operation.phase, operation.group), []).append(operation)
    return {key: Reduction.of(group, cost, levels) for key, group in together.items()}


class Reduction(NamedTuple):
    """A reduction of nodes' tensors in a pass, over all levels at which they are partial sums.

    An all-reduce between pairs is recursive halving and doubling, which crosses each level twice,
    and the topmost once. A reduce-scatter or an all-gather crosses each once.

    Parameters
    ----------
    moved
        What moves at each level, in charges of bytes.
    rounds_at_top, rounds
        The messages of each node at the topmost of its levels, and at each level below.
    group
        For gradients the number in `REDUCTION_GROUPS`, by what is sharded at these levels.

    Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005; docs/decisions/0007-arrays-and-time.md.
    """

    moved: Sequence[Integers]
    rounds_at_top: Integers
    rounds: Integers
    group: int

    @classmethod
    def of(
        cls,
        operations: Sequence[Collective],
        cost: CommunicationCost,
        levels: int,
    ) -> Reduction:
        """Return the reduction that operations of one pass and number form."""
        rows = by_level(operations, levels)
        phase, number = operations[0].phase, operations[0].group
        crossings: list[Integers] = []
        for row in filter(None, rows):
            # A tensor's messages are sequential, those of several tensors parallel.
            times = [np.asarray(operation.times * operation.passes) for operation in row]
            crossings += [sum(times[1:], times[0])] if phase is Phase.GRADIENT else times
        below = reduce(np.maximum, crossings)
        topmost = below
        if phase is not Phase.GRADIENT:
            topmost = np.asarray(operations[0].times)
        elif REDUCTION_GROUPS[number][0] not in SCATTERED_EACH_MICRO_BATCH:
            topmost = np.minimum(below, 1)
        return cls([cost.moved(row) for row in rows], topmost, below, number)

    @property
    def is_reduce_scatter(self) -> bool:
        """Whether gradients are reduce-scattered and weights all-gathered, each by itself."""
        return REDUCTION_GROUPS[self.group][0] in SCATTERED_EACH_MICRO_BATCH
