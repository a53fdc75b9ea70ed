"""The layouts that a layer reads and writes, level by level, under each of its choices."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.workload.tensors import Workload


class Layout(IntEnum):
    """How the two halves of a group have a tensor between them.

    Errors travel in the dual layout: batch and channel are their own duals, whole and partial
    are each other's.
    """

    BATCH = 0
    """Each half has half of the images."""
    CHANNEL = 1
    """Each half has half of the channels or features."""
    WHOLE = 2
    """Both halves have all of it."""
    PARTIAL = 3
    """Each half has addends of all of it."""


def layouts(workload: Workload, columns: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the layouts that each layer reads and writes under so many choices.

    Returns
    -------
    read, written : (layers, columns)
        A choice that a layer's kind does not have stands as data parallelism's.
    """
    lacking = workload.lacking(columns)
    split = np.where(workload.halves_batch(columns), Layout.BATCH, Layout.CHANNEL)
    read = np.where(lacking.input, Layout.WHOLE, split)
    written = np.where(lacking.output, Layout.PARTIAL, split)
    return read.T, written.T
