"""Batches and other sizes that do not divide evenly into parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.errors import RefusedError, argument, worded
from hypar_opt.sharding.layouts import BATCH

if TYPE_CHECKING:
    from hypar_opt.sharding.program import Program


def splits_of_batch(program: Program) -> set[tuple[int, ...]]:
    """Return the sets of levels at which some layer splits the batch."""
    return {
        tuple(level for level, layout in enumerate(layouts) if layout == BATCH)
        for node, layouts in enumerate(program.written)
        if node not in program.workload.weight_users
    }


def check_images(program: Program, remedy: str = "") -> None:
    """Check that no device is left without an image of some layer.

    Levels that split different layers do not multiply: each may split all images.

    Raises
    ------
    RefusedError
        With the minimum batch, and a remedy.
    """
    levels = max(sorted(splits_of_batch(program)), key=program.hierarchy.parts)
    parts, batch = program.hierarchy.parts(levels), program.workload.batch
    if batch < parts:
        count = program.workload.repeats.micro_batches
        of = f" in each of {count} micro-batches" if count > 1 else ""
        by = f"{len(levels)} levels split it" if len(levels) > 1 else "one level splits it"
        raise RefusedError(
            f"batch: should be at least {parts}{of}, since {by}, got {batch}{remedy}"
        )


def sizes_remedy(layer: str | None, parts: int) -> str:
    """Return a remedy for a size that a number of parts does not divide.

    Parameters
    ----------
    layer
        The layer's name, if its vocabulary may be padded in the file, as may those of tied layers.
    """
    remedy = f"use other sizes, or pin other choices by {argument('constraints.fix')}"
    if layer is None:
        return remedy
    setting = worded(f'settings={{"{layer}.pad": {parts}}}', f"--set {layer}.pad={parts}")
    return f"pad its words, and those of layers tied to it alike, as by {setting}, or {remedy}"
