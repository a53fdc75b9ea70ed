"""The charges of a reading for a network's tensors, by choice: quarters of an element.

They are of whole tensors, computed once for a workload and shared by all levels and states.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.integers import exact_dtype
from hypar_opt.sharding.layouts import CHANNEL, PARTIAL, SHUFFLED
from hypar_opt.sharding.repetitions import exchanges_of
from hypar_opt.step.readings import READINGS, Phase
from hypar_opt.workload.addends import passes_addends
from hypar_opt.workload.layer_tensors import Extent
from hypar_opt.workload.layouts import FIRST_SPLIT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.integers import Integers
    from hypar_opt.workload.tensors import Workload


@lru_cache(maxsize=64)
def conversions_of(
    workload: Workload, reading: str, phases: tuple[Phase, ...], parts: int
) -> Integers:
    """Return the amounts that boundaries move by pairs of choices, in quarters of an element.

    Boundaries from shared weights move nothing: weights are stored as their users split them.

    Parameters
    ----------
    parts
        Of the level.

    Returns
    -------
    (boundaries, choices, choices)
        int64 or Python's integers.
    """
    layouts = workload.layouts
    # The least that holds any reading's charge: an all-gather in both passes.
    sources, targets = workload.ends.T
    most = 8 * parts * max(workload.boundary_sizes, default=0)
    dtype = exact_dtype(most * workload.most_repeats)
    tensors = Extent(*np.array(workload.extents, dtype).reshape(-1, len(Extent._fields)).T)
    names = layouts.names
    moved: Integers = np.zeros((len(names), len(names), len(workload.boundaries)), dtype)
    for written, read in itertools.product(range(len(names)), repeat=2):
        if written != read and names[read] != PARTIAL:  # addends are padded: nothing moves
            both = READINGS[reading].conversion(names[written], names[read], parts, tensors)
            for quarters, phase in zip(both, (Phase.FORWARD, Phase.BACKWARD), strict=True):
                if phase in phases:
                    often = exchanges_of(workload, phase)[targets]
                    if phase is Phase.BACKWARD:
                        often = often * workload.has_error
                    moved[written, read] += quarters * often
    writes, reads = layouts.output[:, sources], layouts.inputs[workload.operand, :, targets]
    boundaries = np.arange(len(workload.boundaries))[:, None, None]
    pairs: Integers = moved[writes.T[:, :, None], reads[:, None, :], boundaries]
    pairs[workload.is_weight_boundary] = 0
    pairs.setflags(write=False)
    return pairs


@lru_cache(maxsize=64)
def reductions_of(
    workload: Workload, reading: str, phases: tuple[Phase, ...], levels: int = 1
) -> list[tuple[NDArray[np.bool_], Integers, NDArray[np.bool_] | None]]:
    """Return the reductions of tensors that lack a choice's axis.

    Parameters
    ----------
    levels
        The topmost ones, which may split other things of weights than those below.

    Returns
    -------
    list of (lacks, quarters, repeated)
        For each tensor that is: ``(choices, layers)``; quarters of an element, int64 or Python's
        integers, by level and layer, of one level where all move as much; and which choices repeat
        it in each part, at any level: ``(choices, layers)``, None if none does.
    """
    row = READINGS[reading]
    forward, backward, gradient = (phase in phases for phase in Phase)
    layouts = workload.layouts
    outputs = workload.outputs if row.before_pool else workload.pooled
    behind = backward * workload.repeats.micro_batches
    times = [forward * own for own in exchanges_of(workload, Phase.FORWARD).tolist()]
    moved = [
        [gradient * own for own in each.tolist()]
        for each in workload.repeats.moved_by_level(workload.users, levels)
    ]
    output_quarters = [row.partial_sum * own + row.gathered_error * behind for own in times]
    for node in workload.ends[passes_addends(workload), 0].tolist():
        output_quarters[node] = 0
    statistics = [
        node.statistics[0] * own + node.statistics[1] * behind
        for node, own in zip(workload.nodes, times, strict=True)
    ]
    # No layer reads the error of the network's input; AccPar still charges it.
    errors = (row.input_error or 0) * behind
    channels = [n for n, name in enumerate(layouts.names) if name in (CHANNEL, SHUFFLED)]
    whole = layouts.whole
    reduced = [
        (
            layouts.weight < FIRST_SPLIT,
            [
                [row.gradient * own * x // 2 for own, x in zip(each, workload.stored, strict=True)]
                for each in moved
            ],
        ),
        (
            (layouts.output < FIRST_SPLIT) & ~whole,
            [[own * size for own, size in zip(output_quarters, outputs, strict=True)]],
        ),
        *(
            (
                (read < FIRST_SPLIT) & ~whole,
                [
                    [
                        errors * size if row.first_input_error or layer in workload.readers else 0
                        for layer, size in enumerate(sizes)
                    ]
                ],
            )
            for read, sizes in zip(layouts.inputs, workload.operand_sizes, strict=True)
        ),
        # Each part sums over its own channels; a split of images needs no reduction.
        (np.isin(layouts.inputs[0], channels), [[row.gradient * size for size in statistics]]),
    ]
    # Replicas sum over the same channels, or rows of an average, each for itself.
    sums = whole & reduced[1][0].any(axis=0), whole & (np.array(statistics, object) > 0)
    of_outputs, of_statistics = (each if each.any() else None for each in sums)
    repeated = [None, of_outputs, *[None] * (len(reduced) - 3), of_statistics]
    return [
        (lacks, np.array(quarters, exact_dtype(max(map(max, quarters)))), each)
        for (lacks, quarters), each in zip(reduced, repeated, strict=True)
        if lacks.any() and any(map(any, quarters))
    ]
