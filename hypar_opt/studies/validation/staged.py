"""The pipeline stages of a measured step: where its network is cut, and what binds its ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.errors import HyparError
from hypar_opt.plan.stages import Stages, check_schedule
from hypar_opt.search.cuts import IMPOSSIBLE, least_cuts
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.studies.validation.rows import Row
    from hypar_opt.workload.network import Network

_NUMBERS = re.compile(r"\d+(\+\d+)*", re.ASCII)
"""How many blocks each chunk has."""


def schedule_of(row: Row) -> str:
    """Return the schedule of a row's passes."""
    return row.get("schedule", "") or "1f1b"


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
    chunks = row.get("interleave", "") or 1
    count, cuts = row["pp"] * chunks, row.get("cuts", "")
    try:
        check_schedule(schedule_of(row), row["pp"], micro_batches, chunks)
    except HyparError as error:
        raise HyparError(f"interleave: {error.message}") from None
    blocks = sorted(
        (own for block in network.repeats for own in block.repetitions), key=lambda own: own.start
    )
    if cuts and not _NUMBERS.fullmatch(cuts):
        begins = [_position(network, name) for name in re.split(r"[,\s]+", cuts)]
    elif cuts:
        numbers = [int(own) for own in cuts.split("+")]
        if len(numbers) != count or sum(numbers) != len(blocks):
            wanted = f"should be {count} numbers of blocks, {len(blocks)} in all"
            raise HyparError(f"cuts: {wanted}, got {cuts!r}")
        # Without blocks a chunk has what is in front of the first one, or behind the last.
        places = [*(own.start for own in blocks), *(own.stop for own in blocks[-1:])]
        begins = [places[number] for number in accumulate(numbers[:-1])]
    elif row.get("balance", "") == "cost" and len(blocks) >= count:
        begins = _balanced(network, blocks, count, micro_batches * chunks)
    else:
        each, rest = divmod(len(blocks), count)
        if rest or not each:
            got = f"{row['pp']}{f' times interleave {chunks}' if chunks > 1 else ''}"
            wanted = f"should divide the {len(blocks)} blocks, or cuts say how many each stage has"
            raise HyparError(f"pp: {wanted}, got {got}")
        begins = [own.start for own in blocks[each::each]]
    ends = (*begins, len(network.layers))
    if len(ends) != count or any(first >= last for first, last in pairwise((0, *ends))):
        wanted = f"should be {count} parts of the network, in order"
        raise HyparError(f"cuts: {wanted}, got {cuts!r}")
    try:
        return Stages(network, row["pp"], ends)
    except HyparError as error:
        raise HyparError(f"cuts: {error.message}") from None


def _position(network: Network, name: str) -> int:
    """Return the position of a layer, or of the first one of a block."""
    for position, layer in enumerate(network.layers):
        if layer.name == name or layer.name.startswith(f"{name}."):
            return position
    raise HyparError(f"cuts: should name layers or blocks of the network, got {name!r}")


def _balanced(network: Network, blocks: Sequence[range], count: int, turns: int) -> list[int]:
    """Return the first layers of all chunks but the first, of least multiplications."""
    places = [0, *(own.start for own in blocks[1:]), len(network.layers)]
    macs = np.cumsum([0, *(layer.macs for layer in workload_of(network, 1).layers)])[places]
    cost = np.where(np.tri(len(places), dtype=bool), IMPOSSIBLE, macs - macs[:, None])
    found = least_cuts(np.broadcast_to(cost, (count, *cost.shape)), turns)
    assert found is not None
    return [places[end] for end in found.ends[:-1]]


def tied_seconds(stages: Stages, link: BisectionLink, groups: int, element_bytes: int) -> float:
    """Return in what time the first and the last stage reduce gradients of weights of both.

    Accelerators at the same place of the two exchange halves of their sums, and the sums.

    Parameters
    ----------
    link
        Between the two.
    groups
        Accelerators of a stage that hold the same.

    Raises
    ------
    HyparError
        If stages inside share weights, too.
    """
    total = 0.0
    for own in stages.tied:
        if own.parts != (0, stages.parts - 1):
            name = stages.network.layers[own.owner].name
            raise HyparError(f"pp: weights of {name!r} that stages inside share are not modelled")
        weight = prod(workload_of(stages.network, 1).layers[own.owner].weight)
        moved = weight * element_bytes * groups
        total += float(moved * link.seconds_per_byte + 2 * link.latency)
    return total
