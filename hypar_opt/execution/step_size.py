"""The memory and work of running a program's step, on all devices and on one for comparison.

Memory is an upper bound on what numpy allocates, counted from the arrays that each layer's
arithmetic keeps for its backward pass and those that it works with. Index arrays and Python objects
are excluded. Work is an estimate in multiply-accumulates, of which one core of a processor does a
few 10^9 a second.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

from hypar_opt.execution.virtual.arithmetic import arithmetic_of
from hypar_opt.sharding.layouts import BATCH, PARTIAL, WHOLE
from hypar_opt.workload.operators import axes
from hypar_opt.workload.operators.maps import FeatureMap

if TYPE_CHECKING:
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.maps import LayerMaps
    from hypar_opt.workload.operators.windows import PoolWindow

ELEMENT_BYTES = 8
"""The size of a float64."""

PASSES = 3
"""Forward, backward and gradient."""

_CELL = 10
"""Work units of a cell of a pooling window, which is read and compared."""

_CALL = 10**6
"""Work units of any layer on a device, however small: Python's overhead of its passes."""


def step_bytes(network: Network, program: Program) -> int:
    """Return an upper bound on the bytes of a step.

    The one device has all micro-batches at once.
    """
    workload = program.workload
    count = workload.repeats.micro_batches
    # Gradients of two micro-batches, or of all and of a shard; updated weights, and expected ones.
    trained = 2 * bool(workload.repeats.sharded) + (count > 1)
    saved = working = weights_held = 0
    for position, layer in enumerate(network.layers):
        node = position + workload.shared
        weights = workload.weights[node]
        copies = program.hierarchy.parts(step.level for step in program.gradient_steps(node))
        footprint = arithmetic_of(layer).footprint(workload.nodes[node])
        read_copies = _copies(program, program.read[node])
        inputs = sum(
            sizes[node] * _copies(program, program.read_as(node, number))
            for number, sizes in enumerate(workload.operand_sizes)
        )
        written = workload.outputs[node] * _copies(program, program.written[node])
        stored = _copies(program, program.stored[node])
        outputs, pooled = (sizes[node] * stored for sizes in (workload.outputs, workload.pooled))
        # All devices keep these for the backward pass; one device, its outputs and gradients.
        saved += footprint.saved * read_copies + (1 + footprint.inputs) * inputs
        saved += outputs + 2 * pooled + workload.pooled[node]
        weights_held += weights * (3 + 2 * copies + trained * (1 + copies))
        # Temporaries: tensors before and after an exchange, and received messages.
        exchanged = 4 * inputs + 3 * written + 2 * outputs + 3 * weights * copies
        # Each device that shares a position's channels has statistics.
        sharing = program.parts(program.read[node], *{*program.read[node]} - {BATCH})
        statistics = 6 * max(workload.nodes[node].statistics) * sharing
        working = max(working, footprint.working + exchanged + statistics)
    for shared, writer in workload.tensor_writers.items():
        saved += 2 * workload.pooled[writer] * _copies(program, program.stored[shared])
    return ELEMENT_BYTES * (count * (saved + working) + weights_held)


def _copies(program: Program, layouts: Layouts) -> int:
    """Return the number of copies of a tensor: replicas or partial sums."""
    return program.parts(layouts, WHOLE, PARTIAL)


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
        images = workload.nodes[position + workload.shared].sizes[axes.BATCH]
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
