"""The layouts in which a layer reads its input and writes its output, for each choice."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from hypar_opt.workload.tensors import Workload


class Layout(IntEnum):
    """How a tensor is distributed over the two halves of a group.

    Errors travel in the dual layout: batch and channel are their own duals, whole and partial
    are each other's.

    Source: docs/decisions/0003-readings.md.
    """

    BATCH = 0
    """Each half has half of the images."""
    CHANNEL = 1
    """Each half has half of the channels or features."""
    WHOLE = 2
    """Both halves have a replica."""
    PARTIAL = 3
    """Each half has a partial sum of every element."""
    SHUFFLED = 4
    """Each half has half of the channels, in another order: read so by a channel shuffle."""


DUALS = MappingProxyType(
    {
        Layout.BATCH: Layout.BATCH,
        Layout.CHANNEL: Layout.CHANNEL,
        Layout.SHUFFLED: Layout.SHUFFLED,
        Layout.WHOLE: Layout.PARTIAL,
        Layout.PARTIAL: Layout.WHOLE,
    }
)
"""The layout of an error, by that of its tensor."""


@lru_cache(maxsize=64)  # of a workload, which is compared as itself
def layouts(workload: Workload, columns: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the layouts that each node reads and writes under its first ``columns`` choices.

    Returns
    -------
    read, written : (nodes, columns) intp
        `Layout` values. Choices that a layer's kind does not have read as data parallelism's.
    """
    lacking = workload.lacking(columns)
    split = np.where(workload.halves_batch(columns), Layout.BATCH, Layout.CHANNEL)
    # The two rules of `hypar_opt.workload.operators.axes`: an operand without the halved axis is
    # needed whole, a result without it is left as partial sums.
    read = np.where(lacking.input, Layout.WHOLE, split)
    whole = workload.whole(columns)
    # A shuffle permutes channels across both sides: no stored layout has its order.
    read = np.where(workload.shuffles & (read == Layout.CHANNEL), Layout.SHUFFLED, read)
    written = np.where(lacking.output, Layout.PARTIAL, split)
    # Where nothing is halved each side writes all of its output, and not a part of a sum.
    read, written = (np.where(whole, Layout.WHOLE, layout) for layout in (read, written))
    for array in (read, written):
        array.setflags(write=False)
    return read.T, written.T


def kind_of_boundary(workload: Workload, columns: int, boundary: int) -> Hashable:
    """Return a key of boundaries that move the same, whatever their ends choose."""
    source, target = workload.ends[boundary]
    read, written = layouts(workload, columns)
    size, weights = workload.boundary_sizes[boundary], workload.boundaries[boundary].weights
    return size, weights, written[source].tobytes(), read[target].tobytes()
