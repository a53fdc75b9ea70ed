"""The memory of a program's step, on all devices and on the one that they are compared with.

An upper bound on what numpy allocates, counted from the arrays that each layer's arithmetic keeps
for its backward pass and those that it works with. Index arrays and Python objects are excluded.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.sharding.layouts import Layout

if TYPE_CHECKING:
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.base import Operator

ELEMENT_BYTES = 8
"""The size of a float64."""


def step_bytes(network: Network, program: Program) -> int:
    """Return an upper bound on the bytes of a step."""
    workload = program.workload
    held = working = 0
    for position, layer in enumerate(network.layers):
        node = position + workload.shared
        weights, copies = workload.weights[node], _weight_copies(program, node)
        footprint = _footprint(layer, workload.nodes[node])
        read_copies = _copies(program, program.read[node])
        inputs = workload.inputs[node] * read_copies
        written = workload.outputs[node] * _copies(program, program.written[node])
        stored = _copies(program, program.stored[node])
        outputs, pooled = (each[node] * stored for each in (workload.outputs, workload.pooled))
        # All devices keep these for the backward pass; one device, its outputs and gradients.
        held += footprint.kept * read_copies + (1 + footprint.inputs) * inputs
        held += outputs + 2 * pooled + workload.pooled[node]
        held += weights * (3 + 2 * copies)
        # Temporaries: tensors before and after an exchange, and received messages.
        exchanged = 4 * inputs + 3 * written + 2 * outputs + 3 * weights * copies
        sharing = _sharing(program, program.read[node])
        statistics = 6 * max(workload.nodes[node].statistics) * sharing
        working = max(working, footprint.working + exchanged + statistics)
    for shared, writer in workload.tensor_writers.items():
        held += 2 * workload.pooled[writer] * _copies(program, program.stored[shared])
    return ELEMENT_BYTES * (held + working)


class _Footprint(NamedTuple):
    """The memory of a layer's arithmetic besides its input and output.

    Parameters
    ----------
    kept
        Elements kept on every device that has the input.
    inputs
        Arrays kept, each of the input's size.
    working
        Temporary elements, on one device at a time.
    """

    kept: int = 0
    inputs: int = 0
    working: int = 0


def _footprint(layer: Operator, tensors: LayerTensors) -> _Footprint:
    sizes = tensors.sizes
    if layer.kind == "conv":
        # The input is unfolded: each window of each group is a row.
        window = math.prod(getattr(layer, "kernel", (1, 1))) * sizes["i"] * sizes.get("g", 1)
        unfolded = sizes["b"] * window * math.prod(tensors.output[2:])
        return _Footprint(kept=unfolded, working=3 * unfolded)
    if layer.kind == "attention":
        scores = math.prod(sizes[axis] for axis in ("b", "g", "r", "t", "s"))
        return _Footprint(kept=scores, working=5 * scores)
    return _Footprint(inputs=_INPUTS.get(layer.kind, 0))


_INPUTS = {"norm": 3, "output": 3, "global_pool": 2, "pool": 1}
"""Arrays of the input's size that are kept, by kind of layer."""


def _copies(program: Program, layouts: Layouts) -> int:
    """Return the number of copies of a tensor: replicas or partial sums."""
    return program.parts(layouts, Layout.WHOLE, Layout.PARTIAL)


def _sharing(program: Program, layouts: Layouts) -> int:
    """Return how many devices share a position's channels, each with its statistics."""
    return program.parts(layouts, *set(Layout) - {Layout.BATCH})


def _weight_copies(program: Program, node: int) -> int:
    return program.hierarchy.parts(step.level for step in program.gradient_steps(node))
