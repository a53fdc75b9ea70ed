"""Recomputation that stops at the last tensor that a backward pass reads."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from hypar_opt.frozen import FrozenDict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypar_opt.workload.tensors import Workload


def needed_again(
    workload: Workload, again: Mapping[int, int | None], *, fused: bool
) -> FrozenDict[int, int | None]:
    """Return those of the nodes that run again whose results a backward pass reads.

    The last product of a transformer's block is not among them: its own backward pass reads its
    input, and what reads its output is an addition, or has it from the first forward pass.

    Parameters
    ----------
    again
        The nodes whose forward pass runs twice, as `Repeats.again`.
    fused
        Whether attention is one kernel, which writes no scores.

    Source: PyTorch, ``torch.utils.checkpoint.set_checkpoint_early_stop``; a compiler that drops
    what nobody reads does the same.
    """
    writers: defaultdict[int, list[int]] = defaultdict(list)
    for boundary in workload.boundaries:
        writers[boundary.target].append(boundary.source)
    needed: dict[int, int | None] = {}
    for node in reversed(range(workload.shared, len(workload.nodes))):
        saves = workload.nodes[node].operator.saves(fused=fused)
        of_its_own = saves.output or saves.before_activation or bool(saves.own)
        if node in again and (again[node] is None or of_its_own):
            needed[node] = again[node]
        if not (saves.inputs or node in needed):
            continue
        for source in writers[node]:
            # A tensor that several layers read is a node of its own, behind that of its writer.
            for writer in (source, *writers[source]) if source < workload.shared else (source,):
                if writer in again and again[writer] == again.get(node):
                    needed[writer] = again[writer]
    return FrozenDict(sorted(needed.items()))
