"""The copies of a boundary's tensor, which repeat what moves; and sums that it may pass on.

Partial sums for a target that may take addends are reduce-scattered before all else, at levels at
which it takes none. At others an addend in each part is as many copies of the tensor as replicas
would be; what is split is padded to an addend at the end, so that it is no copy before.

Source: docs/decisions/0044-addends.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.integers import exact_dtype
from hypar_opt.sharding.repetitions import exchanges_of
from hypar_opt.step.readings import READINGS, Phase
from hypar_opt.step.states import copies_of
from hypar_opt.workload.addends import passes_addends, takes_addends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from hypar_opt.integers import Integers
    from hypar_opt.step.states import Copies, Indices, States
    from hypar_opt.workload.tensors import Workload


@lru_cache(maxsize=64)
def passed_sums_of(workload: Workload, reading: str, phases: tuple[Phase, ...]) -> Integers:
    """Return the quarters of an element of the partial sums that boundaries may pass on.

    Of whole tensors, ``(boundaries,)``: reduce-scattered forward and gathered backward; 0 for other
    boundaries.
    """
    row, sources = READINGS[reading], workload.ends[:, 0].tolist()
    times = exchanges_of(workload, Phase.FORWARD) * (Phase.FORWARD in phases)
    behind = workload.repeats.micro_batches * (Phase.BACKWARD in phases)
    halves = [row.partial_sum * own + row.gathered_error * behind for own in times.tolist()]
    amounts = [
        passes * workload.outputs[node] * halves[node]
        for node, passes in zip(sources, passes_addends(workload).tolist(), strict=True)
    ]
    return np.array(amounts, exact_dtype(max(amounts, default=0)))


def reduced_over(
    workload: Workload,
    boundaries: Indices,
    sources: States,
    targets: States,
    parts: Sequence[int],
) -> tuple[list[Copies], Integers]:
    """Return the addends that blocks of levels reduce, and the copies of all else meanwhile."""
    reduced, throughout = [], []
    for left, takes, whole in _ends(workload, boundaries, sources, targets):
        reduced.append(left & ~takes)
        throughout.append((left & takes) | whole)
    return copies_of(reduced, parts), copies_of(throughout, parts)[-1].below


def repeated_over(
    workload: Workload,
    boundaries: Indices,
    sources: States,
    targets: States,
    parts: Sequence[int],
    *,
    gathers_last: bool,
) -> Callable[[int], Integers | int]:
    """Return a function from blocks of levels to how often their exchanges are repeated.

    What the target reads whole has a copy in each part. All-gathers come last, the topmost first:
    by then the levels above have gathered their parts; below, only what is stored whole is copied.

    Parameters
    ----------
    parts
        Of each level.
    gathers_last
        Whether the tensor is not yet whole while anything else moves.
    """
    if not (workload.reads_whole or takes_addends(workload)):
        return lambda block: 1
    layouts, operand = workload.layouts, workload.operand[boundaries]
    source, target = workload.ends[boundaries, 0], workload.ends[boundaries, 1]
    whole: list[NDArray[np.bool_]] = []
    if workload.reads_whole:
        whole = [layouts.inputs[operand, block, target] == 0 for block in targets]
    gathered = copies_of(whole, parts)
    kept: list[Copies] = []
    if whole and workload.replica_boundaries[boundaries].any():
        stored = [layouts.whole[block, source] for block in sources]
        both = [(a & b)[::-1] for a, b in zip(whole[::-1], stored[::-1], strict=True)]
        kept = copies_of(both, parts[::-1])
    addends: Integers | int = 1
    if targets and layouts.addends[:, target].any():
        ends = _ends(workload, boundaries, sources, targets)
        flags = [takes & (left | replicas) for left, takes, replicas in ends]
        addends = copies_of(flags, parts)[-1].below

    def repeated(block: int) -> Integers | int:
        if not whole:
            return addends
        copies = gathered[block].above
        if gathers_last:
            copies = np.where(whole[block], copies, 1)
        if kept:
            below = kept[-1 - block].above[::-1]
            copies = copies * np.where(whole[block], below, kept[-1].below)
        return copies * addends

    return repeated


def _ends(
    workload: Workload, boundaries: Indices, sources: States, targets: States
) -> Iterator[tuple[NDArray[np.bool_], ...]]:
    """Yield where blocks leave sums that are passed on, take addends, and have replicas."""
    source, target = workload.ends[boundaries, 0], workload.ends[boundaries, 1]
    layouts, passes = workload.layouts, passes_addends(workload)[boundaries]
    for own, read in zip(sources, targets, strict=True):
        left = passes & (layouts.output[own, source] == 1)
        yield left, layouts.addends[read, target], layouts.whole[own, source]
