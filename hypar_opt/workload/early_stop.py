"""Recomputation that stops at the last tensor that a backward pass reads."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.elementwise import Mul
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.repeats import CONVERTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypar_opt.workload.tensors import Workload


@lru_cache(maxsize=64)
def read_by_backward(
    workload: Workload,
    again: Mapping[int, int | None],
    *,
    fused: Fused,
    trained: tuple[bool, ...] | None = None,
) -> FrozenDict[int, int | None]:
    """Return the recomputed nodes whose results a backward pass reads.

    The last matrix product of a transformer block is not among them: its own backward pass reads
    its input, and its output is read by an addition, or is kept from the first forward pass.

    Parameters
    ----------
    again
        The nodes whose forward pass runs twice, as in `Repeats.recomputed`.
    fused
        What kernels do not write.
    trained
        The nodes that have a backward pass; all by default.

    Source: PyTorch, ``torch.utils.checkpoint.set_checkpoint_early_stop``; a compiler that
    eliminates dead code does the same.
    """
    writers: defaultdict[int, list[int]] = defaultdict(list)
    for boundary in workload.boundaries:
        writers[boundary.target].append(boundary.source)
    # What is converted again by itself is so for a backward pass.
    needed: dict[int, int | None] = {n: block for n, block in again.items() if block == CONVERTED}
    for node in reversed(range(workload.shared, len(workload.nodes))):
        saves = workload.nodes[node].operator.saves(fused=fused)
        passes_back = trained is None or trained[node]
        of_its_own = passes_back and (
            saves.output or saves.before_activation or bool(saves.intermediates)
        )
        if node in again and (again[node] is None or of_its_own):
            needed[node] = again[node]
        for source in writers[node]:
            if node not in needed and not reads_back(workload, node, source, trained):
                continue
            # A tensor that several layers read is a node of its own, behind that of its writer.
            for writer in (source, *writers[source]) if source < workload.shared else (source,):
                if writer in again and again[writer] == again.get(node):
                    needed[writer] = again[writer]
    return FrozenDict(sorted(needed.items()))


def reads_back(workload: Workload, node: int, source: int, trained: Sequence[bool] | None) -> bool:
    """Return whether a node's backward pass reads its input from another node.

    The gradient of a product's factor reads the other factor.
    """
    operator = workload.nodes[node].operator
    if not operator.saves(fused=Fused()).inputs:
        return False
    if trained is None or not isinstance(operator, Mul):
        return trained is None or trained[node]
    edges = workload.boundaries
    return any(trained[e.source] for e in edges if e.target == node and e.source != source)
