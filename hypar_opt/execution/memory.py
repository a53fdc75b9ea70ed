"""The memory that a step of a program takes, on all devices and on the one they are compared with.

An upper bound of what numpy allocates, counted from what each layer's arithmetic keeps for its
backward pass, and works with. Index arrays and Python's own objects are not in it.
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
"""Of float64."""


def step_bytes(network: Network, program: Program) -> int:
    """Return the bytes that a step takes at most."""
    workload = program.workload
    held = working = 0
    for position, layer in enumerate(network.layers):
        node = position + workload.shared
        weights, copies = workload.weights[node], _weight_copies(program, node)
        own = _own(layer, workload.nodes[node])
        inputs = workload.inputs[node] * _copies(program.read[node])
        written = workload.outputs[node] * _copies(program.written[node])
        stored = _copies(program.stored[node])
        outputs, pooled = (each[node] * stored for each in (workload.outputs, workload.pooled))
        # What all devices keep for the backward pass, and one device's outputs and gradients.
        held += own.kept * _copies(program.read[node]) + (1 + own.inputs) * inputs
        held += outputs + 2 * pooled + workload.pooled[node]
        held += weights * (2 + 2 * copies)
        # What they work with: tensors before and after an exchange, and what has arrived.
        exchanged = 4 * inputs + 3 * written + 2 * outputs + 3 * weights * copies
        statistics = 6 * max(workload.nodes[node].statistics) * _sharing(program.read[node])
        working = max(working, own.working + exchanged + statistics)
    for shared, writer in workload.tensor_writers.items():
        held += 2 * workload.pooled[writer] * _copies(program.stored[shared])
    return ELEMENT_BYTES * (held + working)


class _Own(NamedTuple):
    """What a layer's arithmetic keeps besides its input and output, and what it works with.

    Parameters
    ----------
    kept
        Elements that are kept, on as many devices as have the input.
    inputs
        Arrays of the input's size that are kept.
    working
        Elements that are there for a time, on one device after the other.
    """

    kept: int = 0
    inputs: int = 0
    working: int = 0


def _own(layer: Operator, tensors: LayerTensors) -> _Own:
    sizes = tensors.sizes
    if layer.kind == "conv":
        # Its input is unfolded: each window of each group is a row.
        window = math.prod(getattr(layer, "kernel", (1, 1))) * sizes["i"] * sizes.get("g", 1)
        unfolded = sizes["b"] * window * math.prod(tensors.output[2:])
        return _Own(kept=unfolded, working=3 * unfolded)
    if layer.kind == "attention":
        scores = math.prod(sizes[axis] for axis in ("b", "g", "r", "t", "s"))
        return _Own(kept=scores, working=5 * scores)
    return _Own(inputs=_INPUTS.get(layer.kind, 0))


_INPUTS = {"norm": 3, "output": 3, "global_pool": 2, "pool": 1}
"""By kind of layer the arrays that are kept, of the size of its input."""


def _copies(layouts: Layouts) -> int:
    """Return how often a tensor is there: whole on both sides of a level, or as addends."""
    return int(2 ** sum(layout in (Layout.WHOLE, Layout.PARTIAL) for layout in layouts))


def _sharing(layouts: Layouts) -> int:
    """Return how many devices share a position's channels, and have its statistics each."""
    return int(2 ** sum(layout is not Layout.BATCH for layout in layouts))


def _weight_copies(program: Program, node: int) -> int:
    return int(2 ** sum(step.level >= 0 for step in program.gradient_steps(node)))
