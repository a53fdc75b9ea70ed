"""What a backward pass computes again, and the workload of a step that repeats its passes."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from hypar_opt.frozen import FrozenDict

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.repeats import Repeats
    from hypar_opt.workload.tensors import Workload


@lru_cache(maxsize=32)
def repeated(workload: Workload, repeats: Repeats) -> Workload:
    """Return a workload whose passes are repeated: the same one for equal arguments."""
    return workload if workload.repeats == repeats else replace(workload, repeats=repeats)


def recomputed(
    network: Network, workload: Workload, recompute: str, *, fused: bool
) -> FrozenDict[int, int | None]:
    """Return the nodes whose forward pass runs twice, as `Repeats.again`.

    Fully: those in the network's blocks, each repetition by itself, or all but its end where it has
    none; a tensor that several layers read is stored again by its writer. Selectively: those whose
    inner tensor is large, as attention's scores where they are written.
    """
    layers = dict(enumerate(workload.layers, workload.shared))
    if recompute == "full":
        shared = workload.shared
        again = {
            shared + first + n: shared + first
            for block in network.repeats
            for first in range(block.first, block.first + block.length * block.count, block.length)
            for n in range(block.length)
        } or {n: shared for n, layer in layers.items() if not layer.operator.ends}
        written = workload.tensor_writers.items()
        again |= {node: again[writer] for node, writer in written if writer in again}
        return FrozenDict(sorted(again.items()))
    if recompute == "selective" and not fused:
        return FrozenDict({n: None for n, layer in layers.items() if layer.operator.inner})
    return FrozenDict()
