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
) -> FrozenDict[int, bool]:
    """Return the nodes whose forward pass runs twice, and whether their exchanges do, too.

    Fully: those in the network's blocks, or all but its end where it has none. Selectively: those
    whose inner tensor is large, as attention's scores where they are written.
    """
    layers = dict(enumerate(workload.layers, workload.shared))
    if recompute == "full":
        inside = {
            workload.shared + block.first + n
            for block in network.repeats
            for n in range(block.length * block.count)
        }
        own = inside or {n for n, layer in layers.items() if not layer.operator.ends}
        return FrozenDict(dict.fromkeys(sorted(own), True))
    if recompute == "selective" and not fused:
        return FrozenDict({n: False for n, layer in layers.items() if layer.operator.inner})
    return FrozenDict()
