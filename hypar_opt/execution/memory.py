"""The memory of a program's step, on all devices and on the one that they are compared with.

An upper bound on what numpy allocates, counted from the arrays that each layer's arithmetic keeps
for its backward pass and those that it works with. Index arrays and Python objects are excluded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.execution.virtual.arithmetic import arithmetic_of
from hypar_opt.sharding.layouts import BATCH, PARTIAL, WHOLE

if TYPE_CHECKING:
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.network import Network

ELEMENT_BYTES = 8
"""The size of a float64."""


def step_bytes(network: Network, program: Program) -> int:
    """Return an upper bound on the bytes of a step.

    The one device has all micro-batches at once.
    """
    workload = program.workload
    count = workload.repeats.micro_batches
    # Gradients of two micro-batches, or of all of them and a shard's; new weights, and those
    # expected.
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
        # The devices that share a position's channels have statistics each.
        sharing = program.parts(program.read[node], *{*program.read[node]} - {BATCH})
        statistics = 6 * max(workload.nodes[node].statistics) * sharing
        working = max(working, footprint.working + exchanged + statistics)
    for shared, writer in workload.tensor_writers.items():
        saved += 2 * workload.pooled[writer] * _copies(program, program.stored[shared])
    return ELEMENT_BYTES * (count * (saved + working) + weights_held)


def _copies(program: Program, layouts: Layouts) -> int:
    """Return the number of copies of a tensor: replicas or partial sums."""
    return program.parts(layouts, WHOLE, PARTIAL)
