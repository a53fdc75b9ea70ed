"""The pipeline stages of a measured step: its network's cuts, and the weights stages share."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.errors import HyparError
from hypar_opt.plan.stages import Stages, check_schedule, even_stages, stages_before
from hypar_opt.search.cuts import balanced_cuts
from hypar_opt.workload.stages import block_starts
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from hypar_opt.studies.validation.rows import Row
    from hypar_opt.workload.network import Network

_NUMBERS = re.compile(r"\d+(\+\d+)*", re.ASCII)
"""The blocks of each chunk."""


def schedule_of(row: Row) -> str:
    """Return the schedule of a row's passes."""
    schedule: str = row.get("schedule", "") or "1f1b"
    return schedule


def stages_of_row(network: Network, row: Row, micro_batches: int) -> Stages:
    """Return the stages of a row's network.

    They have as many blocks each. Or ``cuts`` says how many, ``10+6``, or with which layer or block
    each chunk but the first begins, ``decoder.10``. Or ``balance`` is ``cost``, for the least
    multiplications in the longest one.

    Raises
    ------
    HyparError
        Naming the column.
    """
    parts, chunks, cuts = row["pp"], row.get("interleave", "") or 1, row.get("cuts", "")
    count = parts * chunks
    try:
        check_schedule(schedule_of(row), parts, micro_batches, chunks)
    except HyparError as error:
        raise HyparError(f"interleave: {error.message}") from None
    if cuts and not _NUMBERS.fullmatch(cuts):
        names = re.split(r"[,\s]+", cuts)
        if len(names) + 1 != count:
            wanted = f"should name what {count} parts begin with, but for the first"
            raise HyparError(f"cuts: {wanted}, got {cuts!r}")
        return stages_before(network, parts, names)
    blocks = block_starts(network)
    if not cuts and row.get("balance", "") != "cost":
        if not blocks or len(blocks) % count:
            got = f"{parts} times interleave {chunks}" if chunks > 1 else parts
            wanted = f"should divide the {len(blocks)} blocks, or cuts say how many each stage has"
            raise HyparError(f"pp: {wanted}, got {got}")
        return even_stages(network, parts, chunks)
    if cuts:
        numbers = [int(number) for number in cuts.split("+")]
        if len(numbers) != count or sum(numbers) != len(blocks) or 0 in numbers[1:-1] or not blocks:
            wanted = f"should be {count} numbers of blocks, {len(blocks)} in all"
            raise HyparError(f"cuts: {wanted}, got {cuts!r}")
    elif len(blocks) < count:
        raise HyparError(f"pp: should be parts of the {len(blocks)} blocks, got {count}")
    else:
        weights = np.array([layer.macs for layer in workload_of(network, 1).layers])
        numbers = [*balanced_cuts(network, weights, count)]
    # At either end, a chunk without blocks has the layers before the first or after the last.
    behind = max(repetition.stop for block in network.repeats for repetition in block.repetitions)
    begins = [(*blocks, behind)[number] for number in accumulate(numbers[:-1])]
    return Stages(network, parts, (*begins, len(network.layers)))
