"""The work of a program's step, on all devices and on the one that they are compared with.

In multiply-accumulates: an estimate, of which one core of a processor does a few 10^9 a second.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

from hypar_opt.workload.operators.axes import BATCH
from hypar_opt.workload.operators.maps import FeatureMap

if TYPE_CHECKING:
    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.maps import LayerMaps
    from hypar_opt.workload.operators.windows import PoolWindow

PASSES = 3
"""Forward, backward and gradient."""

_CELL = 10
"""Of a cell of a pool's windows, which is read and compared."""

_CALL = 10**6
"""Of a layer on a device, however small: Python takes as long to begin its passes."""


def step_work(network: Network, program: Program) -> int:
    """Return the multiply-accumulates of a step; the one device has all micro-batches at once."""
    workload = program.workload
    hierarchy, count = program.hierarchy, workload.repeats.micro_batches
    total = 0
    for node, tensors in enumerate(workload.nodes):
        choices = workload.choices_of_nodes[node]
        taken = [choices[row[node]] for row in program.rows]
        # All parts do the same work where a choice splits nothing.
        is_replicated = [choice is None or not choice.axis for choice in taken]
        copies = 1 + hierarchy.parts(compress(range(hierarchy.levels), is_replicated))
        total += copies * PASSES * tensors.macs + _CALL * hierarchy.accelerators
    for position, (layer, maps) in enumerate(zip(network.layers, network.maps(), strict=True)):
        images = workload.nodes[position + workload.shared].sizes[BATCH]
        total += _CELL * PASSES * 2 * images * _cells(layer, maps)
    return count * total


def _cells(layer: Operator, maps: LayerMaps) -> int:
    """Return the cells of an image that a pool reads, along columns and then along rows."""
    pool: PoolWindow | None = getattr(layer, "pool", None)
    if pool is None:
        return 0
    read, written = maps.output if layer.fused_pool else maps.input, maps.pooled
    assert isinstance(read, FeatureMap)
    assert isinstance(written, FeatureMap)
    rows, columns = map(min, pool.size, (read.height, read.width))
    wide = read.height * written.width
    return written.channels * (wide * columns + written.height * written.width * rows)
