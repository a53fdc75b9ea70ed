"""What a reading charges a network's tensors, by choice: in quarters of an element, no splits yet.

All levels, and all counts of choices above them, share these: each is made once for a workload.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.readings import READINGS, Phase
from hypar_opt.costs.table import exact_dtype
from hypar_opt.sharding.layouts import Layout, layouts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.table import Integers
    from hypar_opt.workload.tensors import Workload


@lru_cache(maxsize=64)
def conversions_of(
    workload: Workload, reading: str, phases: tuple[Phase, ...], choices: int
) -> NDArray[np.int64]:
    """Return what boundaries move for pairs of choices: ``(boundaries, choices, choices)``.

    Nothing of weights that layers share: these are stored as their users split them.
    """
    quarters = quarters_of(reading, phases)
    reads, writes = layouts(workload, choices)
    sources, targets = workload.ends.T
    pairs: NDArray[np.int64] = quarters[writes[sources][:, :, None], reads[targets][:, None, :]]
    pairs[workload.is_weight_boundary] = 0
    pairs.setflags(write=False)
    return pairs


@lru_cache(maxsize=64)
def quarters_of(reading: str, phases: tuple[Phase, ...]) -> NDArray[np.int64]:
    """Return the quarters of an element that a conversion moves: ``(written, read)``."""
    quarters = np.zeros((len(Layout), len(Layout)), np.int64)
    for (written, read), conversion in READINGS[reading].conversions.items():
        quarters[written, read] = conversion.forward * (Phase.FORWARD in phases)
        quarters[written, read] += conversion.backward * (Phase.BACKWARD in phases)
    quarters.setflags(write=False)
    return quarters


@lru_cache(maxsize=64)
def reductions_of(
    workload: Workload,
    reading: str,
    phases: tuple[Phase, ...],
    choices: int,
) -> list[tuple[NDArray[np.bool_], Integers]]:
    """Return what is reduced where a tensor lacks a choice's axis.

    Returns
    -------
    list of (lacks, quarters)
        For each tensor that is: ``(choices, layers)``, and quarters of an element by layer, int64
        or Python's integers.
    """
    row = READINGS[reading]
    forward, backward, gradient = (phase in phases for phase in Phase)
    lacking = workload.lacking(choices)
    outputs = workload.outputs if row.before_pool else workload.pooled
    output_quarters = row.partial_sum * forward + row.gathered_error * backward
    statistics = [
        node.statistics[0] * forward + node.statistics[1] * backward for node in workload.nodes
    ]
    errors = [(row.input_error or 0) * backward * size for size in workload.inputs]
    # No layer reads the error of the network's input; AccPar charges it all the same.
    if not row.first_input_error:
        with_source = {edge.target for edge in workload.boundaries if not edge.weights}
        errors = [size if layer in with_source else 0 for layer, size in enumerate(errors)]
    whole = workload.whole(choices)
    reduced = [
        (lacking.weight, [row.gradient * gradient * size for size in workload.stored]),
        (lacking.output & ~whole, [output_quarters * size for size in outputs]),
        (lacking.input & ~whole, errors),
        # What each side has summed over its own channels; a split of images needs nothing.
        (~workload.halves_batch(choices) & ~whole, [row.gradient * size for size in statistics]),
    ]
    return [
        (lacks, np.array(quarters, exact_dtype(max(quarters))))
        for lacks, quarters in reduced
        if lacks.any() and any(quarters)
    ]
