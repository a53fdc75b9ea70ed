"""Padding of batches that divide unevenly: every part gets as many images as the largest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.execution.batches import check_images
from hypar_opt.execution.index_labels import contiguous_labels, levels_by
from hypar_opt.sharding.layouts import BATCH
from hypar_opt.workload.recomputation import with_repeats
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.network import Network


class PaddedBatch(NamedTuple):
    """A plan's program, the same program for the padded batch, and the images in it.

    Parameters
    ----------
    images : (padded batch,)
        The image at each position; -1 for padding.
    """

    planned: Program
    program: Program
    images: NDArray[np.intp]

    @property
    def said(self) -> str:
        """A note for users of the program."""
        return (
            f"{self.done}, which move what a plan of as many does; padding has no part in the"
            " loss, the gradients and the statistics of batch norms. Its arrays are padded by"
            " array[list(IMAGES)]."
        )

    @property
    def done(self) -> str:
        """The beginning of a sentence: what is padded, and to how many images."""
        workload = self.planned.workload
        part = "A batch" if workload.repeats.micro_batches == 1 else "Each micro-batch"
        size = self.images.size
        return f"{part} of {workload.batch} is padded to {size} images in equal parts"

    def of(self, array: NDArray[Any], micro_batches: int) -> NDArray[Any]:
        """Return an array of images padded in each of its micro-batches."""
        return np.concatenate([part[self.images] for part in np.split(array, micro_batches)])


def padded(network: Network, program: Program) -> PaddedBatch | None:
    """Return the padded batch, with the same images per part as on virtual devices.

    None if parts are equal.

    Raises
    ------
    RefusedError
        If a layer's device would have no image.
    """
    levels, hierarchy, workload = levels_by(program, BATCH), program.hierarchy, program.workload
    labels = contiguous_labels(program, workload.batch, BATCH)
    part = np.zeros(workload.batch, np.intp)
    for level in levels:
        part = part * hierarchy.sizes[level] + hierarchy.digit(labels, level)
    counts = np.bincount(part, minlength=hierarchy.parts(levels))
    if (counts == counts[0]).all():
        return None
    check_images(program)
    images = np.full((len(counts), counts.max()), -1)
    for one, count in enumerate(counts):
        images[one, :count] = np.flatnonzero(part == one)
    expanded = workload_of(network, images.size, workload.choices, shared_tensors=workload.replicas)
    even = replace(program, workload=with_repeats(expanded, workload.repeats))
    return PaddedBatch(program, even, images.reshape(-1))
